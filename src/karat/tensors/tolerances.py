"""Tolerances: how far apart two numbers of a dtype may be if nobody says otherwise.

float16 and wider are as `torch.testing.assert_close` has them, which users know: about the square root of
the machine epsilon for rtol, more for half types. For eight bits and fewer torch has no default that says
anything; karat allows what one step is at the low end of a binade, 2 ** −mantissa bits, and one subnormal
step near zero. float8_e8m0fnu has no mantissa: its numbers are scales, a step is a factor of two, and they are
exact. So are integers, bool, text and times.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan

from karat.tensors.dtypes import dtype_named
from karat.tensors.outcome import Tolerance

_KNOWN: Mapping[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "bcomplex32": (1.6e-2, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
    # Wider than float64: as float64, because what is compared with them seldom is wider.
    "float80": (1e-7, 1e-7),
    "float128": (1e-7, 1e-7),
    "complex160": (1e-7, 1e-7),
    "complex256": (1e-7, 1e-7),
}


def for_dtype(dtype: str, *, equal_nan: bool = False) -> Tolerance:
    """The default of a dtype."""
    rtol, atol = _KNOWN.get(dtype) or _small(dtype)
    return Tolerance(rtol=rtol, atol=atol, equal_nan=equal_nan, origin="dtype")


def _small(dtype: str) -> tuple[float, float]:
    layout = dtype_named(dtype).layout
    if layout is None or layout.mantissa == 0:
        return 0.0, 0.0
    return 2.0**-layout.mantissa, 2.0 ** (1 - layout.bias - layout.mantissa)


def tolerance_for(
    expected: str, actual: str, rtol: float | None, atol: float | None, *, equal_nan: bool
) -> Tolerance:
    """The tolerance of a comparison: what is given, and the wider default of both dtypes for the rest."""
    sides = [for_dtype(name) for name in (expected, actual)]
    given = rtol is not None or atol is not None
    return Tolerance(
        rtol=_checked("rtol", rtol, max(side.rtol for side in sides)),
        atol=_checked("atol", atol, max(side.atol for side in sides)),
        equal_nan=equal_nan,
        origin="given" if given else "dtype",
    )


def _checked(name: str, given: float | None, default: float) -> float:
    if given is None:
        return default
    try:
        value = float(given)
    except (TypeError, ValueError, OverflowError):
        value = nan
    if not 0 <= value < inf:
        raise ValueError(f"{name}: expected a finite number >= 0, found {given!r:.100}")
    return value
