"""Goldens that cannot fail: wrong outputs are tried when a case is captured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from conftest import framework
from factories.pytest_runs import Suite
from karat.audits.audit import audit_bundle, is_bundle
from karat.bundles.compare import accepted_controls
from karat.bundles.manifest import Comparator
from karat.bundles.structure import flatten
from karat.tensors.arrays import device_tensor


def controls(expected: Any, inputs: Any = (), **given: Any) -> tuple[str, ...]:
    comparator = Comparator(name="karat", **given)
    return accepted_controls(flatten(inputs, "input"), flatten(expected, "expected"), comparator)


SMALL = np.linspace(-0.09, 0.08, 24, dtype=np.float32).reshape(4, 6)
WIDE: dict[str, Any] = {"rtol": 4e-2, "atol": 1e-1}


@pytest.mark.parametrize(
    ("expected", "inputs", "given", "passed"),
    [
        (SMALL, (), {}, ()),
        (SMALL, (), WIDE, ("zeros", "one-element")),
        (SMALL / 2, (SMALL,), WIDE, ("zeros", "another", "permuted", "one-element")),
        (SMALL * 1e3, (SMALL,), WIDE, ()),
        (np.ones(3) * 1.5, (), WIDE, ("one-element",)),
        (np.zeros(3), (), WIDE, ()),  # nothing is changed by any of them
        (np.array([np.nan, 0.01]), (), WIDE | {"equal_nan": True}, ("one-element",)),
        (np.array([3, 30]), (np.array([3, 31]),), WIDE, ()),  # integers are exact
        (np.array([3, 30]), (np.array([3, 31]),), WIDE | {"integers": True}, ("another",)),
        (np.array(["a", "b"]), (), WIDE, ()),
        (SMALL * (1 + 1j), (), WIDE, ("one-element",)),
        ((SMALL, SMALL * 1e3), (), WIDE, ()),  # one tensor that notices is enough
    ],
)
def test_what_would_pass(expected: Any, inputs: Any, given: Any, passed: tuple[str, ...]) -> None:
    assert controls(expected, inputs, **given) == passed


def test_one_large_element_of_many_is_not_overlooked() -> None:
    many = np.full(1 << 20, 0.01, np.float32)
    many[12345] = 1e3
    assert "zeros" not in controls(many, **WIDE)
    assert "one-element" not in controls(many, **WIDE)


@pytest.mark.slow  # imports torch
def test_tensors_of_a_device_are_sampled_there() -> None:
    torch = framework("torch")
    flat = flatten(SMALL, "expected")
    held = msgspec.structs.replace(flat, tensors={"expected": device_tensor(torch.from_numpy(SMALL))})
    comparator = Comparator(name="karat", **WIDE)
    empty = flatten((), "input")
    assert accepted_controls(empty, held, comparator) == accepted_controls(empty, flat, comparator)


@pytest.mark.slow
def test_they_are_counted_and_fail_a_strict_session(suite: Suite) -> None:
    suite.write(
        "test_it.py",
        """
        import numpy as np

        def test_loose(golden):
            golden.check(np.full(3, 0.05), np.full(3, 0.05), inputs=(), rtol=0.0, atol=0.1)

        def test_tight(golden):
            golden.check(np.arange(3.0), np.arange(3.0), inputs=())

        def test_own(golden):
            golden.capture(inputs=(), expected=np.arange(3.0))
        """,
    )
    done = suite.capture()
    assert done.code == 0
    said = "1 of 3 cases would pass with a wrong output as well: 1 with zeros, 1 with one element that is off by 10%"
    assert said in done.out
    strict = suite.capture("--karat-strict-vacuous", "--karat-session=again")
    assert strict.code == 1
    assert [m["vacuous"] for m in suite.manifests()].count(["zeros", "one-element"]) == 1
    assert is_bundle(str(suite.captures))
    report = audit_bundle(str(suite.captures))
    assert [finding.kind for finding in report.findings] == ["untold-tolerance", "vacuous-golden"]
    assert all(finding.next for finding in report.findings)
    assert report.notes[0] == "1 case would pass with zeros"
    assert not is_bundle(str(Path(suite.captures).parent))
