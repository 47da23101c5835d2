from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from karat.gradients.roundoff import (
    element_scales,
    natural_sizes,
    norm,
    power_of_two,
    sample,
    typical_size,
)

sizes = st.floats(1e-290, 1e290)


@given(arrays(np.float64, st.integers(1, 20), elements=sizes))
def test_powers_of_two_are_at_most_the_value_and_more_than_half_of_it(values: np.ndarray) -> None:
    powers = power_of_two(values)
    assert np.all((powers <= values) & (2 * powers > values))
    assert np.all(np.frexp(powers)[0] == 0.5)


@given(arrays(np.float64, st.integers(1, 20), elements=st.floats(allow_nan=True)))
def test_every_finite_element_can_be_stepped_from_and_no_other(values: np.ndarray) -> None:
    scales = element_scales(values)
    assert np.array_equal(scales > 0, np.isfinite(values))


@given(arrays(np.float64, st.integers(1, 20), elements=st.floats(-1e100, 1e100)))
def test_scales_follow_the_unit_of_the_input(values: np.ndarray) -> None:
    tidy = np.where(np.abs(values) < 1e-100, 0.0, values)
    if tidy.any():
        assert np.array_equal(element_scales(tidy * 2.0**40), element_scales(tidy) * 2.0**40)


def test_near_zero_takes_a_share_of_the_typical_size_and_another_scale_its_own() -> None:
    values = np.array([0.0, 1e-5, 1e-12, 1.0, 1.0, 1.0, 8.0])
    assert natural_sizes(values).tolist() == [0.25, 0.25, 1e-12, 1.0, 1.0, 1.0, 8.0]


def test_nothing_but_zeros_is_taken_for_ones() -> None:
    assert typical_size(np.zeros(3)) == 1.0
    assert element_scales(np.zeros(3)).tolist() == [0.25] * 3


def test_the_typical_of_very_many_is_that_of_some() -> None:
    many = np.abs(np.random.default_rng(3).standard_normal(300_001)) + 1e-9
    assert typical_size(many) == pytest.approx(np.median(many), rel=0.05)
    lonely = np.zeros(300_001)
    lonely[7] = 3.0
    assert typical_size(lonely) == 3.0
    assert sample(many).size < 70_000


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1.0, 1e200])
def test_a_norm_neither_overflows_nor_underflows(size: float) -> None:
    assert norm(np.array([3.0, -4.0]) * size) == pytest.approx(5 * size)
