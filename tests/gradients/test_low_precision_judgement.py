from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from karat.gradients.low_precision_judgement import precision_of, rounded

NARROW = [
    "bfloat16",
    "float16",
    "float32",
    "float8_e3m4",
    "float8_e4m3",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
]
values = arrays(np.float64, st.integers(0, 20), elements=st.floats(width=32))


def numpys(dtype: str) -> np.dtype[np.generic]:
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NARROW)
@given(values)
def test_as_ml_dtypes_rounds(dtype: str, given_values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    # From float32 upwards: from doubles ml_dtypes rounds twice, through float32.
    with np.errstate(all="ignore"):
        expected = given_values.astype(np.float32).astype(numpys(dtype)).astype(np.float64)
    np.testing.assert_array_equal(rounded(given_values, dtype), expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NARROW)
@given(arrays(np.float64, 8, elements=st.floats()))
def test_what_is_rounded_stays(dtype: str, given_values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    once = rounded(given_values, dtype)
    np.testing.assert_array_equal(rounded(once, dtype), once)


@pytest.mark.parametrize("dtype", NARROW)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_error_is_at_most_one_roundoff(dtype: str, value: float) -> None:
    precision = precision_of(dtype)
    found = float(rounded(np.array(value), dtype))
    if abs(value) <= precision.largest:
        allowed = max(precision.roundoff * abs(value), precision.smallest / 2)
        assert abs(found - value) <= allowed


@pytest.mark.parametrize("dtype", NARROW)
def test_limits_are_those_of_the_dtype(dtype: str) -> None:
    told = ml_dtypes.finfo(numpys(dtype))
    found = precision_of(dtype)
    assert found.largest == float(told.max)
    assert found.smallest == float(told.smallest_subnormal)
    assert found.smallest_normal == float(told.smallest_normal)
    assert found.roundoff == float(told.eps) / 2


def test_complex_numbers_part_by_part() -> None:
    found = rounded(np.array([1 / 3 + 1e-50j, 1e300 - 2j]), "complex64")
    assert found[0] == complex(np.float32(1 / 3), 0)
    assert found[1].real == np.inf
    assert found[1].imag == -2


def test_doubles_stay_and_are_ones_own() -> None:
    given_values = np.array([0.1])
    found = rounded(given_values, "float64")
    found[0] = 5
    assert given_values[0] == 0.1


def test_integers_have_no_precision() -> None:
    with pytest.raises(ValueError, match="expected a floating or complex dtype, found 'int64'"):
        precision_of("int64")
