"""Sums that do not depend on order."""

from __future__ import annotations

from fractions import Fraction
from math import fsum

import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.tensors.tally import Sum, _condensed, scaled

floats = st.floats(-1e100, 1e100, allow_nan=False)


@given(st.lists(floats, max_size=60))
def test_few_terms_hold_the_same_sum(terms: list[float]) -> None:
    assert sum(map(Fraction, _condensed(terms)), Fraction(0)) == sum(map(Fraction, terms), Fraction(0))


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


@pytest.mark.slow
@given(st.lists(st.floats(-1.7e308, 1.7e308), max_size=30))
def test_huge_terms_do_not_overflow(terms: list[float]) -> None:
    total = Sum()
    for term in terms:
        total.add(term)
    true = sum(map(Fraction, terms), Fraction(0))
    assert abs(total.value() - true) <= sum(abs(Fraction(t)) for t in terms) * Fraction(2) ** -52


def test_many_huge_terms_are_condensed_exactly() -> None:
    total = Sum()
    for _ in range(10_000):
        total.add(1.5e308)
    smaller = fsum([1.5e308 * 2.0**-128] * 10_000)
    assert total.value() == Fraction(smaller) * 2**128


def test_many_terms_stay_few_and_exact() -> None:
    terms = np.random.default_rng(0).standard_normal(20_000).tolist()
    total = Sum()
    for term in terms:
        total.add(term)
    assert total.value() == Fraction(fsum(terms))
    assert sum(len(kept) for kept in total._terms.values()) < 5000


@pytest.mark.slow
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=10))
def test_scaling_is_undone_by_its_power_of_two(values: list[float]) -> None:
    array = np.array(values)
    found, exponent = scaled(array)
    assert np.isfinite(found @ found)
    top = int(np.abs(array).argmax())
    assert Fraction(float(found[top])) * Fraction(2) ** exponent == Fraction(values[top])
