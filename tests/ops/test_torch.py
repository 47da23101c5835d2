"""torch's own database: which operators there are, how they are called, and faults that are known upstream."""

from __future__ import annotations

import subprocess
import sys
from datetime import date

import pytest

from conftest import framework
from karat.ops import worker
from karat.ops.audit import audit, judged
from karat.ops.catalogue import Operator, Sample, load
from karat.ops.script import Fault, scripts
from karat.ops.worker import WorkerSetup

torch = framework("torch")
pytestmark = pytest.mark.slow


def test_every_operator_is_there_and_those_without_a_derivative_say_so() -> None:
    found = load("torch")
    assert len(found) > 600
    assert "not differentiable" in found["argmax"].skip
    assert "no gradient in float64" in found["view_as_real"].skip
    assert not found["sinc"].skip
    (sample, *_) = found["cat"].samples(0)
    assert (sample.source, sample.wrt) == ("call = torch.cat", (0,))
    first, again, other = (next(iter(next(iter(found["cat"].samples(seed))).inputs))[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    (triangular, *_) = found["cholesky_inverse"].samples(0)
    assert not triangular.source  # it is called through a wrapper, which a script has to draw again
    named = next(one for one in found["nn.functional.group_norm"].samples(0) if len(one.wrt or ()) == 3)
    assert "s.kwargs['weight'], s.kwargs['bias']" in named.rebuild


@pytest.mark.parametrize(
    ("name", "modes", "element"),
    [
        ("sinc", ("reverse",), (1,)),
        ("sinc", ("forward", "reverse"), None),
        ("cumsum", ("reverse", "reverse"), None),
        ("nn.functional.group_norm", ("forward",), None),
    ],
)
def test_scripts_of_right_operators_say_so(name: str, modes: tuple[str, ...], element: tuple[int, ...] | None) -> None:
    sample = next(iter(load("torch")[name].samples(0)))
    fault = Fault(column="", sample="", input=(0,), output=(), modes=modes, element=element, reason="")
    script, *_ = scripts("torch", sample, fault)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("right:"), ran
    assert len(script.splitlines()) <= 15


def test_a_derivative_by_a_cotangent_is_shown_along_all_inputs() -> None:
    sample = Sample(call=torch.sin, inputs=(torch.ones(2, dtype=torch.float64),), source="call = torch.sin")
    fault = Fault(column="", sample="", input=("v(out)",), modes=("reverse", "reverse"), reason="")
    (script,) = scripts("torch", sample, fault)
    assert "a + t * W(a) if n in (0,)" in script


def test_what_rounding_explains_is_not_shown() -> None:
    """The gradient of layer_norm over one element is 0, and what rounding leaves of it is no fault."""
    sample = Sample(
        call=torch.nn.functional.layer_norm,
        inputs=(torch.tensor([[0.3], [1.7]], dtype=torch.float64), (1,)),
        source="call = torch.nn.functional.layer_norm",
    )
    for dtype in ("float64", "float32"):
        fault = Fault(column="", sample="", input=(0,), output=(), dtype=dtype, reason="")
        shown = list(scripts("torch", sample, fault))
        assert shown
        for script in shown:
            ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
            assert ran.stdout.startswith("right:"), ran


def test_five_operators() -> None:
    """Of torch 2.13: forward mode of scatter_reduce("prod") gives zeros (pytorch#196702), others are right."""
    select = ("scatter_reduce[prod]", "sinc", "cat", "nn.functional.linear", "linalg.solve")
    found = judged(audit(WorkerSetup(catalogue="torch", samples=1), select=select, jobs=2), today=date(2026, 11, 16))
    by_name = {one.name: one for one in found.operators}
    assert set(by_name) == set(select)
    for name in select[1:]:
        assert by_name[name].cells["reverse"] == by_name[name].cells["forward"] == "PASS"
    if torch.__version__.startswith("2.13."):
        assert by_name["scatter_reduce[prod]"].cells["forward"] == "FAIL"
        (fault,) = by_name["scatter_reduce[prod]"].faults
        assert fault.shown.startswith("wrong: 0.0 by the framework")


def test_modes_that_contradict_each_other_are_the_fault_of_the_wrong_one() -> None:
    """torch writes through indices that repeat: its reverse mode is wrong there, forward mode is not."""
    setup = WorkerSetup(catalogue="torch", samples=3)
    found = judged(audit(setup, select=("nn.functional.max_unpool1d",), jobs=1), today=date(2026, 11, 16))
    (one,) = found.operators
    assert (one.cells["reverse"], one.cells["forward"]) == ("known", "PASS")
    assert {fault.column for fault in one.faults} == {"reverse"}


def test_a_sparse_layout_that_has_no_second_derivative_is_no_fault() -> None:
    found = audit(WorkerSetup(catalogue="torch", samples=1), select=("sparse.sampled_addmm",), jobs=1)
    assert found.operators[0].cells["orders"] == "not supported"


@pytest.mark.parametrize(
    ("name", "column", "point"),
    [("sinc", "orders", "zeros"), ("nn.functional.cosine_similarity", "reverse", "tiny numbers")],
)
def test_a_fault_at_a_point_of_the_check_s_own_choice_is_shown(name: str, column: str, point: str) -> None:
    """torch 2.13: NaN for the second derivative of sinc at 0, and others where no sample of its own goes."""
    found = audit(WorkerSetup(catalogue="torch", samples=1, level="deep"), select=(name,), jobs=1)
    if torch.__version__.startswith("2.13."):
        assert found.operators[0].cells[column] == "FAIL"
        (fault,) = (one for one in found.operators[0].faults if one.column == column)
        assert fault.at.startswith(point)
        assert len(fault.script.splitlines()) <= 15
        assert fault.shown.startswith("wrong:")


def test_so_is_a_fault_at_other_integers() -> None:
    """torch 2.13 (pytorch#196680): 2 to the power of a negative int32 is 0 in the gradient of ldexp."""
    inputs = (torch.tensor([1.1, 0.7], dtype=torch.float64), torch.tensor([1, 2], dtype=torch.int32))
    sample = Sample(call=torch.ldexp, inputs=inputs, source="call = torch.ldexp")
    operator = Operator(name="ldexp", framework="torch", samples=lambda _: [sample])
    checked, _ = worker.checked(operator, WorkerSetup(catalogue="torch", level="deep"))
    if torch.__version__.startswith("2.13."):
        ((fault, scripts),) = (one for one in checked.suspects if one[0].column == "reverse")
        assert fault.at == "negative integers"
        assert "-2" in scripts[0]
        ran = subprocess.run([sys.executable, "-c", scripts[0]], capture_output=True, text=True, check=False)
        assert ran.stdout.startswith("wrong: 0.0 by the framework"), ran
