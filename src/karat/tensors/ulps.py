"""ULPs: how many numbers of a dtype lie between two of them.

Floats are signs and magnitudes, and magnitudes are in order as integers. −0.0 and +0.0 are no step apart.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.tensors.decoding import Bits
from karat.tensors.dtypes import Dtype, dtype_named


def parts_of(of: Dtype, bits: Bits) -> NDArray[Any]:
    """The bits as one unsigned integer for each real number: two for a complex or packed element."""
    if of.name == "float4_e2m1fn_x2":
        return np.stack([bits & 15, bits >> 4], axis=1).reshape(-1)
    return bits.view(of.bits)


def distances(of: Dtype, expected: Bits, actual: Bits) -> NDArray[np.uint64]:
    """Steps from one to the other, element by element; what is no number gives a number all the same."""
    one, other = (parts_of(of, bits).astype(np.uint64) for bits in (expected, actual))
    if of.width < 8 * np.dtype(of.bits).itemsize:
        one, other = one & _mask(of.width), other & _mask(of.width)
    if not of.signed:
        return _apart(one, other)
    sign, size = np.uint64(of.width - 1), _mask(of.width - 1)
    crossing = (one ^ other) >> sign != 0
    one, other = one & size, other & size
    return np.where(crossing, one + other, _apart(one, other))


def most_steps(of: Dtype, expected: Bits, actual: Bits) -> int:
    """The largest of the distances."""
    if of.itemsize > 1 or of.name == "float4_e2m1fn_x2":
        return int(distances(of, expected, actual).max())
    ranks = _ranks(of.name)
    apart = np.take(ranks, expected) - np.take(ranks, actual)
    return max(int(apart.max()), -int(apart.min()))


@lru_cache(maxsize=32)
def _ranks(name: str) -> NDArray[np.int16]:
    """Of each of 256 codes: which number it is, counted from zero."""
    of = dtype_named(name)
    every = np.arange(256, dtype=np.uint8)
    steps = distances(of, np.zeros_like(every), every).astype(np.int16)
    negative = (every >> (of.width - 1) & 1).astype(bool) & of.signed
    return np.where(negative, -steps, steps)


def _mask(width: int) -> np.uint64:
    return np.uint64((1 << width) - 1)


def _apart(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.maximum(one, other) - np.minimum(one, other)
