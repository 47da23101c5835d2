from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import karat
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
        "  expected/logits: float32 2x3",
        "    dtype-changed: expected float32, found float64",
        "    tensor-mismatch: the numbers below, in a sentence",
        (
            "    tolerance rtol 0.001, atol 0 (given), bit-equal 0 of 6, outside 3 first at [0, 1], max abs 0.5000 at [1, 2], "
            "mean abs 0.2500, max rel 0.1250, ULP 4,096, SQNR dB 30.0, cosine 0.5, NaN 0 → 1, infinite 2 → 0"
        ),
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


def test_integers_get_no_tolerance_that_was_meant_for_floats(tmp_path: Path) -> None:
    said: dict[str, Any] = {"inputs": (), "rtol": 4e-2, "atol": 1e-1, "directory": tmp_path}
    logits, close = np.array([1.0], np.float32), np.array([1.05], np.float32)
    expected, actual = (logits, np.array([30])), (close, np.array([31]))
    with pytest.raises(karat.Mismatch, match=r"integers are exact unless integers=True") as caught:
        karat.check_and_capture("argmax", expected=expected, actual=actual, **said)
    assert [c.passed for c in caught.value.report.comparisons] == [True, False]
    with pytest.raises(karat.Mismatch):
        karat.check_and_capture("token", expected=30, actual=31, **said)
    report = karat.check_and_capture(
        "quantized",
        expected=np.array([30], np.int8),
        actual=np.array([31], np.int8),
        **said | {"atol": 1},
        integers=True,
    )
    assert report.passed
    (case,) = karat.cases(karat.open_bundle(tmp_path))
    assert case.manifest.comparator.integers
    # Whoever asks for no dtype's sake compares floats with integers, and not integers.
    assert karat.check_and_capture("mixed", expected=30, actual=31.0, check_dtype=False, **said).passed


def test_a_capture_records_the_tolerance_that_its_suite_compared_with(tmp_path: Path) -> None:
    outputs = (np.array([1.0], np.float32), np.array([30]))
    said: dict[str, Any] = {"rtol": 4e-2, "atol": 1e-1, "equal_nan": True}
    karat.capture("t", inputs=(), expected=outputs, directory=tmp_path / "d", **said)
    (case,) = karat.cases(karat.open_bundle(tmp_path / "d"))
    comparator = case.manifest.comparator
    assert (comparator.name, comparator.rtol, comparator.atol, comparator.equal_nan) == ("caller", 4e-2, 1e-1, True)
    for moved, code in (((1.05, 30), 0), ((1.2, 30), 1), ((1.0, 31), 1)):
        (tmp_path / "run.py").write_text(
            f"import numpy as np\ndef run(program, inputs): return np.array([{moved[0]}], np.float32), np.array([{moved[1]}])\n"
        )
        words = [sys.executable, "-m", "karat", "replay", "d", "--run", "run:run"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, (moved, done.stdout, done.stderr)


def test_a_tolerance_that_is_none_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rtol: expected a finite number >= 0, found -1"):
        karat.capture("t", inputs=(), expected=1.0, directory=tmp_path / "d", rtol=-1.0)
    assert not (tmp_path / "d").exists()
