from __future__ import annotations

from math import inf

import pytest

from karat.findings import Finding, Severity
from karat.tensors.comparison import Comparison, TensorNumbers, Tolerance
from karat.tensors.report import TITLES, cells, comparison_json, facts, type_text, worst

FAIL = (Finding(kind="tensor-mismatch", severity=Severity.FAIL, message="no"),)


def comparison(name: str = "expected", *, fails: bool = False, **numbers: object) -> Comparison:
    known = {"elements": 10, "bit_equal": 0, **numbers}
    return Comparison(
        name=name,
        dtype="float32",
        shape=(2, 5),
        tolerance=Tolerance(rtol=1e-3, atol=0.0, origin="recorded"),
        numbers=TensorNumbers(**known),  # type: ignore[arg-type]
        findings=FAIL if fails else (),
    )


@pytest.mark.parametrize(("shape", "shown"), [((), "float32 scalar"), ((3,), "float32 3"), ((2, 0), "float32 2x0")])
def test_a_type_is_a_dtype_and_a_shape(shape: tuple[int, ...], shown: str) -> None:
    assert type_text(Comparison(name="x", dtype="float32", shape=shape)) == shown


def test_cells_have_a_title_each_and_nothing_where_nothing_was_measured() -> None:
    assert cells(None) == ("",) * len(TITLES)
    full = cells(TensorNumbers(elements=4, bit_equal=0, mismatches=1, max_ulp=1234, sqnr_db=inf))
    assert full == ("1 of 4", "", "", "1,234", "exact")


def test_the_worst_is_what_failed_and_then_what_moved_most() -> None:
    calm, moved = comparison("calm", max_abs=0.1), comparison("moved", max_abs=0.5)
    failed = comparison("failed", fails=True, mismatches=1, max_abs=0.2)
    assert worst([calm, moved]) is moved
    assert worst([calm, moved, failed]) is failed
    assert worst([]) is None


def test_facts_say_where() -> None:
    told = dict(facts(comparison(mismatches=2, first_mismatch=(1, 2), max_abs=0.5, max_abs_at=(1, 3))))
    assert told["outside"] == "2 first at [1, 2]"
    assert told["max abs"] == "0.5000 at [1, 3]"
    assert told["tolerance"] == "rtol 0.001, atol 0 (recorded)"


def test_json_says_that_a_ratio_is_infinite_because_it_cannot_hold_it() -> None:
    numbers = comparison_json(comparison(sqnr_db=inf))["numbers"]
    assert numbers["sqnr_exact"] is True
    assert comparison_json(Comparison(name="x", dtype="str", shape=()))["numbers"] is None
