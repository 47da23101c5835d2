"""The verdict: the findings that two tensors deserve."""

from __future__ import annotations

from karat.findings import Finding, Severity
from karat.tensors.careful import has_arithmetic
from karat.tensors.dtypes import dtype_named
from karat.tensors.outcome import Numbers, Tolerance, within
from karat.tensors.tally import Tally, index_of
from karat.tensors.tensor import Tensor, TensorExtent

Either = Tensor | TensorExtent


def changed_findings(
    name: str, expected: Either, actual: Either, *, check_dtype: bool
) -> tuple[Finding, ...]:
    """Another dtype or shape, before any element is looked at."""
    found = []
    if expected.dtype != actual.dtype and (check_dtype or _is_odd(expected.dtype, actual.dtype)):
        found.append(_changed("dtype-changed", name, expected.dtype, actual.dtype))
    if expected.shape != actual.shape:
        found.append(_changed("shape-changed", name, _shape(expected), _shape(actual)))
    return tuple(found)


def _is_odd(expected: str, actual: str) -> bool:
    return not (has_arithmetic(dtype_named(expected)) and has_arithmetic(dtype_named(actual)))


def _changed(kind: str, name: str, expected: str, actual: str) -> Finding:
    what = kind.partition("-")[0]
    return Finding(
        kind=kind,
        severity=Severity.FAIL,
        message=f"{within(name)}expected the {what} {expected}, found {actual}",
        where=name,
        numbers={"expected": expected, "actual": actual},
    )


def _shape(tensor: Either) -> str:
    return str(list(tensor.shape))


def mismatch_findings(
    name: str, tally: Tally, numbers: Numbers, tolerance: Tolerance, shape: tuple[int, ...]
) -> tuple[Finding, ...]:
    """What lies outside the tolerance; what became NaN or infinite is said apart."""
    found = []
    if tally.spoiled:
        found.append(_spoiled(name, tally, numbers, shape))
    if numbers.mismatches > tally.spoiled:
        found.append(_outside(name, numbers, tolerance))
    return tuple(found)


def _spoiled(name: str, tally: Tally, numbers: Numbers, shape: tuple[int, ...]) -> Finding:
    first = list(index_of(tally.first_spoiled, shape))
    return Finding(
        kind="new-nan",
        severity=Severity.FAIL,
        message=(
            f"{within(name)}expected finite numbers, found NaN or infinity in {tally.spoiled:,} of"
            f" {numbers.elements:,} elements where expected is finite; first at {first}"
        ),
        where=name,
        numbers={"count": tally.spoiled, "elements": numbers.elements, "first": str(first)},
    )


def _outside(name: str, numbers: Numbers, tolerance: Tolerance) -> Finding:
    return Finding(
        kind="tensor-mismatch",
        severity=Severity.FAIL,
        message=(
            f"{within(name)}expected {_allowed(numbers, tolerance)}, found {numbers.mismatches:,} of"
            f" {numbers.elements:,} elements outside; first at {list(numbers.first_mismatch or ())}"
            f"{_worst(numbers)}{_nan(numbers, tolerance)}"
        ),
        where=name,
        numbers={
            "mismatches": numbers.mismatches,
            "elements": numbers.elements,
            "first": str(list(numbers.first_mismatch or ())),
            "max_abs": numbers.max_abs,
            "max_rel": numbers.max_rel,
            "max_ulp": numbers.max_ulp,
        },
    )


def _allowed(numbers: Numbers, tolerance: Tolerance) -> str:
    if numbers.max_abs is None and not numbers.nan_expected and not numbers.inf_expected:
        return "equal elements"
    if not tolerance.rtol and not tolerance.atol:
        return "equal elements" if numbers.max_abs is None else "equal numbers"
    return f"|Δ| <= {tolerance.atol:g} + {tolerance.rtol:g}·|expected|"


def _worst(numbers: Numbers) -> str:
    if numbers.max_abs is None or numbers.max_abs_at is None or not numbers.max_abs:
        return ""
    return (
        f"; worst at {list(numbers.max_abs_at)}: expected {_number(numbers.max_expected)}, found"
        f" {_number(numbers.max_actual)} (|Δ| {numbers.max_abs:.6g})"
    )


def _nan(numbers: Numbers, tolerance: Tolerance) -> str:
    if not (numbers.nan_expected and numbers.nan_actual) or tolerance.equal_nan:
        return ""
    return (
        f"; NaN: {numbers.nan_expected:,} expected, {numbers.nan_actual:,} actual, and NaN equals"
        " nothing unless equal_nan is asked for"
    )


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.9g}"
