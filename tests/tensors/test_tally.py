"""Sums that do not depend on order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.tensors.tally import Sum, scaled

floats = st.floats(-1e100, 1e100, allow_nan=False)


@pytest.mark.slow
@given(st.lists(st.tuples(floats, st.integers(-3, 3)), max_size=30), st.randoms(use_true_random=False))
def test_order_and_grouping_change_nothing(terms: list[tuple[float, int]], random: object) -> None:
    one, left, right = Sum(), Sum(), Sum()
    for term in terms:
        one.add(*term)
    shuffled = list(terms)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    for at, term in enumerate(shuffled):
        (left if at % 2 else right).add(*term)
    left.include(right)
    assert left.value() == one.value()


@given(st.lists(st.tuples(st.floats(-1.7e308, 1.7e308), st.integers(-3000, 3000)), max_size=30))
def test_sums_are_exact_however_large_or_small(terms: list[tuple[float, int]]) -> None:
    total = Sum()
    for term in terms:
        total.add(*term)
    assert total.value() == sum((Fraction(term) * Fraction(2) ** up for term, up in terms), Fraction(0))


@pytest.mark.slow
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=10))
def test_scaling_is_undone_by_its_power_of_two(values: list[float]) -> None:
    array = np.array(values)
    found, exponent = scaled(array)
    assert np.isfinite(found @ found)
    top = int(np.abs(array).argmax())
    assert Fraction(float(found[top])) * Fraction(2) ** exponent == Fraction(values[top])
