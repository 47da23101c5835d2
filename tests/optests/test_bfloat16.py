from __future__ import annotations

import ml_dtypes
import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from karat.optests.values import (
    convert_float_to_uint16,
    convert_uint16_to_float,
    copy_bits_from_float_to_uint16,
)

bits = arrays(np.uint16, array_shapes(min_dims=0, max_dims=3, min_side=0))


@given(bits)
def test_bits_come_back_through_floats(held: np.ndarray) -> None:
    wide = convert_uint16_to_float(held)
    assert wide.dtype == np.float32
    assert np.array_equal(convert_float_to_uint16(wide), held)


@given(bits)
def test_floats_are_what_bfloat16_means(held: np.ndarray) -> None:
    expected = held.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(convert_uint16_to_float(held), expected)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bits_are_cut_off_not_rounded(number: float) -> None:
    back = float(convert_uint16_to_float(np.uint16(copy_bits_from_float_to_uint16(number))))
    assert abs(back) <= abs(number)
    assert abs(back - number) <= max(abs(number) * 2**-7, 2**-133)


def test_the_layout_does_not_change_an_element() -> None:
    held = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    assert np.array_equal(convert_float_to_uint16(held, "NHWC"), convert_float_to_uint16(held))
