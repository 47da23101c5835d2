from __future__ import annotations

from karat.captures.check import describe_mismatch
from karat.findings import Finding, Severity
from karat.tensors.comparison import Comparison, ComparisonReport, TensorNumbers, Tolerance, within


def told(kind: str, message: str, severity: Severity = Severity.FAIL) -> Finding:
    return Finding(kind=kind, severity=severity, message=message)


def failed(name: str, **numbers: object) -> Comparison:
    return Comparison(
        name=name,
        dtype="float32",
        shape=(2, 3),
        tolerance=Tolerance(rtol=1e-3, atol=0.0, origin="given"),
        numbers=TensorNumbers(elements=6, bit_equal=0, **numbers),  # type: ignore[arg-type]
        findings=(
            told("dtype-changed", f"{within(name)}expected float32, found float64"),
            told("tensor-mismatch", "the numbers below, in a sentence"),
            told("structure-changed", "a list for a tuple", Severity.INFO),
        ),
    )


def test_all_the_numbers_of_a_tensor() -> None:
    comparison = failed(
        "expected/logits",
        mismatches=3,
        first_mismatch=(0, 1),
        max_abs=0.5,
        max_abs_at=(1, 2),
        mean_abs=0.25,
        max_rel=0.125,
        max_ulp=4096,
        sqnr_db=30.0,
        cosine=0.5,
        nan_actual=1,
        inf_expected=2,
        max_expected=1.0,
        max_actual=1.5,
    )
    assert describe_mismatch(ComparisonReport(comparisons=(comparison,)), "test_it").splitlines() == [
        "test_it: 1 of 1 compared values differ from what was expected",
        "  expected/logits: float32 2×3",
        "    dtype-changed: expected float32, found float64",
        "    mismatches: 3 of 6 (50.00%), the first at [0, 1]",
        "    worst: |actual − expected| = 0.5 at [1, 2] (expected 1, actual 1.5)",
        "    mean abs 0.25, max rel 0.125, max ULP 4,096, SQNR dB 30, cosine 0.5",
        "    not finite: expected 0 NaN and 2 inf, actual 1 NaN and 0 inf",
        "    tolerance: rtol 0.001, atol 0 (as given)",
    ]


def test_what_matches_is_not_listed_and_long_lists_end() -> None:
    fine = Comparison(name="fine", dtype="str", shape=())
    many = [failed(f"expected/{n}", mismatches=1) for n in range(25)]
    text = describe_mismatch(ComparisonReport(comparisons=(fine, *many)), "t")
    assert text.startswith("t: 25 of 26 compared values differ")
    assert "fine" not in text
    assert text.endswith("  … and 5 more")


def test_another_structure_is_told_first() -> None:
    lost = Finding(kind="lost-tensor", severity=Severity.FAIL, message="expected/1 is not there")
    fine = Comparison(name="expected/0", dtype="float32", shape=())
    text = describe_mismatch(ComparisonReport(comparisons=(fine,), findings=(lost,)), "t")
    assert text.splitlines() == [
        "t: actual is not built like what was expected",
        "  lost-tensor: expected/1 is not there",
    ]


def test_nothing_compared_is_said() -> None:
    assert describe_mismatch(ComparisonReport(comparisons=()), "t").startswith("t: nothing was compared")
