"""Rounding: what a double becomes in a narrower precision, by the table of dtypes, without a framework.

Round to nearest, ties to even, subnormals kept; beyond the largest number it is what the dtype has: an infinity,
or NaN where there is none.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from karat.tensors.dtypes import Layout, dtype_named

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]


class Precision(msgspec.Struct, frozen=True, kw_only=True):
    """What numbers of a dtype can tell apart."""

    name: str
    roundoff: float
    """Half the distance from 1 to the next number: the relative error of one rounding."""
    mantissa: int
    largest: float
    smallest_normal: float
    smallest: float
    """The smallest positive number, subnormal where there are such."""
    infinite: bool


@lru_cache(maxsize=64)
def precision_of(dtype: str) -> Precision:
    """The precision of a float's name, or of the parts of a complex one; `UnknownDtype` for any other name."""
    layout = dtype_named(dtype).layout
    if layout is None:
        raise ValueError(f"expected a floating or complex dtype, found {dtype!r}")
    normal = 2.0 ** (1 - layout.bias)
    return Precision(
        name=dtype,
        roundoff=2.0 ** -(layout.mantissa + 1),
        mantissa=layout.mantissa,
        largest=_largest(layout),
        smallest_normal=normal,
        smallest=normal * 2.0**-layout.mantissa,
        infinite=layout.special == "ieee",
    )


def _largest(layout: Layout) -> float:
    """The largest finite number; how many codes the special values take decides."""
    top = (1 << layout.exponent) - 1
    fraction = 2 - 2.0**-layout.mantissa
    if layout.special == "ieee":
        return fraction * 2.0 ** (top - 1 - layout.bias)
    if layout.special == "nan_only":
        # One code of the largest exponent is NaN, so the largest number is the one below it.
        return (fraction - 2.0**-layout.mantissa) * 2.0 ** (top - layout.bias)
    if layout.special == "all_ones":
        return fraction * 2.0 ** (top - 1 - layout.bias)
    return fraction * 2.0 ** (top - layout.bias)


def rounded(array: Array, dtype: str) -> Array:
    """The array as the dtype would hold it, widened again; complex numbers part by part."""
    if np.iscomplexobj(array):
        return np.asarray(rounded(array.real, dtype) + 1j * rounded(array.imag, dtype))
    values = np.asarray(array, np.float64)
    if dtype_named(dtype).name in {"float64", "complex128"}:
        return values.copy()
    if dtype in {"float32", "float16"}:
        with np.errstate(over="ignore", under="ignore"):
            return values.astype(dtype).astype(np.float64)
    return _by_layout(values, precision_of(dtype))


def _by_layout(values: Array, precision: Precision) -> Array:
    _, exponent = np.frexp(values)
    lowest = int(np.log2(precision.smallest_normal)) + 1
    step = np.ldexp(1.0, np.maximum(exponent, lowest) - 1 - precision.mantissa)
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.rint(values / step) * step
        beyond = np.abs(found) > precision.largest
    lost = np.copysign(np.inf, values) if precision.infinite else np.nan
    return np.asarray(np.where(beyond, lost, found))
