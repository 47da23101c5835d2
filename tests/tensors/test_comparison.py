"""Numbers of a comparison in JSON, which has no infinity."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from karat.tensors.arrays import tensor_of
from karat.tensors.compare import compare_tensors
from karat.tensors.comparison import TensorNumbers


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ([1.0, 2.0], [1.0, 2.0]),  # no noise
        ([0.0, 0.0], [1.0, 0.0]),  # no signal
        ([1e308], [-1e308]),  # a difference beyond the largest float
        ([5e-324], [1e300]),  # a quotient beyond it
        ([np.nan], [np.nan]),  # nothing measured
        ([], []),
    ],
)
def test_what_is_infinite_comes_back_and_what_was_not_measured_does_not(
    expected: list[float], actual: list[float]
) -> None:
    sides = [tensor_of(np.array(side, np.float64)) for side in (expected, actual)]
    numbers = compare_tensors("x", *sides).numbers
    assert numbers is not None
    text = msgspec.json.encode(numbers)
    assert b"null" in text
    assert msgspec.json.decode(text, type=TensorNumbers) == numbers


def test_numbers_that_nobody_measured_stay_unknown() -> None:
    bare = TensorNumbers(elements=3, bit_equal=0)
    assert (bare.max_abs, bare.mean_abs, bare.max_rel, bare.sqnr_db) == (None,) * 4
