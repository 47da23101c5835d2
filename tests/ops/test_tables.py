"""The tables of jax and Paddle: what a line means, that every call of them runs, and that its text is what was called."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from typing import Any

import numpy as np
import pytest

from conftest import framework
from karat.ops.audit import audit
from karat.ops.catalogue import Operator, Sample, load
from karat.ops.script import MOST_LINES, Fault, scripts, written_out
from karat.ops.tables import read
from karat.ops.worker import WorkerSetup
from karat.tensors.arrays import jax_x64

LEAST = {"jax": 300, "paddle": 250}


def test_a_table_gives_each_name_its_calls() -> None:
    found = read(
        "# said\n= a.b\nsin cos\ntan\n    any(3) | any(2), axis=1 : cos tan\nlog\n    pos(...)\n= c\nlog\n    pos(1)\n"
    )
    both = ["any(3)", "any(2), axis=1"]
    assert found == {
        "a.b.sin": both[:1],
        "a.b.cos": both,
        "a.b.tan": both,
        "a.b.log": ["pos(...)"],
        "c.log": ["pos(1)"],
    }


@pytest.mark.parametrize("name", LEAST)
def test_every_name_has_calls_and_is_written_once(name: str) -> None:
    text = resources.files("karat.ops").joinpath(f"{name}.txt").read_text(encoding="utf-8")
    names = {word for line in text.splitlines() if line[:1].isalpha() for word in line.split()}
    listed = read(text)
    assert len(listed) >= LEAST[name]
    assert not [word for word in names if not any(one.endswith(f".{word}") for one in listed)]
    assert not [one for one, calls in listed.items() if len(set(calls)) != len(calls)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LEAST)
def test_every_sample_runs(name: str) -> None:
    framework(name)
    found = load(name)
    there = [one for one in found.values() if not one.skip]
    assert len(there) >= LEAST[name]
    assert [f"{one.name}{said}" for one in there for said in _refusals(one)] == []


@pytest.mark.parametrize(
    "name", ["jax.numpy.sum", "jax.numpy.interp", "jax.lax.reduce_window", "paddle.index_put", "paddle.concat"]
)
def test_the_text_of_a_sample_is_what_was_called(name: str) -> None:
    framework(name.partition(".")[0])
    for sample in load(name.partition(".")[0])[name].samples(3):
        bound: dict[str, Any] = {}
        exec(sample.source, bound)  # noqa: S102 - the script of a finding begins with it
        with jax_x64():
            found, expected = sample.call(*sample.inputs), bound["call"](*sample.inputs)
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_a_seed_gives_the_same_samples_and_another_gives_others() -> None:
    framework("jax")
    operator = load("jax")["jax.numpy.hypot"]
    values = [
        [np.asarray(one).tolist() for sample in operator.samples(seed) for one in sample.inputs] for seed in (1, 1, 2)
    ]
    assert values[0] == values[1] != values[2]
    assert [np.shape(one) for one in values[0]] == [(3, 4), (3, 4), (2, 1, 3), (4, 1), (), (4,)]


def test_paddle_needs_no_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    framework("paddle")
    monkeypatch.setitem(sys.modules, "jax", None)
    assert len(list(load("paddle")["paddle.cos"].samples(0))) == 3


def test_constants_of_a_table_are_not_differentiated() -> None:
    framework("jax")
    (sample,) = load("jax")["jax.scipy.stats.dirichlet.logpdf"].samples(0)
    assert sample.wrt == (1,)


def test_what_an_older_version_lacks_is_listed_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    jnp = framework("jax").numpy
    monkeypatch.delattr(jnp, "sinc")
    found = load("jax")["jax.numpy.sinc"]
    assert found.skip.startswith("jax ")
    assert found.skip.endswith(" has no jax.numpy.sinc")


def _refusals(operator: Operator) -> list[str]:
    refused = []
    for sample in operator.samples(0):
        try:
            with jax_x64():
                try:
                    _traced(operator, sample)
                except Exception:  # noqa: BLE001 - some want numbers, not tracers
                    sample.call(*sample.inputs)
        except Exception as error:  # noqa: BLE001 - frameworks refuse in many ways
            refused.append(f"{sample.description}: {type(error).__name__}: {error}")
    return refused


def _traced(operator: Operator, sample: Sample) -> None:
    """Without compiling anything, which is what takes jax its time."""
    if operator.framework == "jax":
        framework("jax").eval_shape(sample.call, *sample.inputs)
    else:
        sample.call(*sample.inputs)


@pytest.mark.parametrize(
    ("name", "start"), [("paddle.hypot", "import paddle"), ("jax.numpy.hypot", "import jax.numpy as jnp")]
)
def test_the_inputs_of_a_sample_can_be_written_out(name: str, start: str) -> None:
    catalogue = name.partition(".")[0]
    framework(catalogue)
    sample = next(iter(load(catalogue)[name].samples(0)))
    bound: dict[str, Any] = {}
    with jax_x64():
        exec(f"{start}\n{written_out(catalogue, sample)}", bound)  # noqa: S102 - as a script has it
    assert [np.asarray(one).tolist() for one in bound["inputs"]] == [np.asarray(one).tolist() for one in sample.inputs]


@pytest.mark.slow
def test_a_script_shows_a_fault_of_an_operator_whose_gradient_has_none() -> None:
    framework("paddle")
    sample = next(iter(load("paddle")["paddle.nn.functional.group_norm"].samples(0)))
    fault = Fault(column="reverse", sample=sample.description, input=(0,), output=(), element=(1, 1, 1), reason="off")
    script = next(scripts("paddle", sample, fault))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.partition(":")[0] in {"right", "wrong"}, done.stderr


def test_a_fault_of_a_cotangent_is_followed_along_all_inputs() -> None:
    framework("jax")
    sample = next(iter(load("jax")["jax.numpy.hypot"].samples(0)))
    fault = Fault(column="orders", sample="", input=("cotangent(out)",), modes=("reverse", "reverse"), reason="off")
    (script,) = scripts("jax", sample, fault)
    assert "enumerate(inputs)" in script


@pytest.mark.slow
def test_a_fault_of_complex_numbers_is_shown_along_both_parts() -> None:
    """Paddle 3.3.1 leaves a conjugate out of the second derivative of a square: real steps alone do not see it."""
    framework("paddle")
    drawn = load("paddle")["paddle.square"].samples(0)
    sample = next(one for one in drawn if any("complex" in str(given.dtype) for given in one.inputs))  # type: ignore[union-attr]
    for modes, word in ((("reverse",), "right:"), (("reverse", "reverse"), "wrong:")):
        fault = Fault(column="", sample="", input=(0,), modes=modes, reason="")
        script = next(scripts("paddle", sample, fault))
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert ran.stdout.startswith(word), ran


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "column", "said"),
    [
        # Right where the value alone has a gradient, 0 where what it fills has one as well.
        ("paddle.masked_fill", "reverse", "wrong: "),
        # The backward of the backward fills with 0.5 as well; it is the cotangent's gradient that is wrong.
        ("paddle.nn.functional.pad", "orders", "wrong: "),
        # Of two vectors: the gradient of the cotangent, a number, is a vector of one element.
        ("paddle.matmul", "orders", "wrong: [1] "),
        # Where the padding value alone is differentiated, jax sums None.
        ("jax.lax.pad", "laws", "TypeError: Error interpreting"),
    ],
)
def test_a_fault_of_a_released_framework_is_shown(name: str, column: str, said: str) -> None:
    module = framework(name.partition(".")[0])
    (one,) = audit(WorkerSetup(catalogue=name.partition(".")[0], samples=0), select=(name,), jobs=1).operators
    if module.__version__ in {"0.10.2", "3.3.1"}:
        assert one.cells[column] == "FAIL"
        (fault,) = (fault for fault in one.faults if fault.column == column)
        assert fault.shown.startswith(said)
        assert len(fault.script.splitlines()) <= MOST_LINES
