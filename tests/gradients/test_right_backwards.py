from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import karat
from factories.right_backwards import RIGHT, Right
from karat.gradients.report import GradReport, GradVerdict

SEEDS = range(6)


def check(one: Right, seed: int, **more: Any) -> GradReport:
    inputs = one.inputs(np.random.default_rng([seed, 7]))
    options: dict[str, Any] = {"backward": one.backward, "seed": seed, "properties": (), **more}
    return karat.gradcheck(one.fn, inputs, **options)


@pytest.mark.parametrize("one", RIGHT, ids=lambda one: one.name)
def test_right_backwards_pass_with_every_seed(one: Right) -> None:
    for seed in SEEDS:
        report = check(one, seed)
        assert report.verdict is GradVerdict.PASS, report.reason
        assert all(comparison.counts for comparison in report.comparisons)
        # A hundredth of one element's size is the least that evidence has to see.
        assert report.smallest_error < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("one", RIGHT, ids=lambda one: one.name)
def test_the_same_backwards_with_one_element_off_fail(one: Right) -> None:
    def wrong(i: Any, o: Any, c: Any) -> Any:
        found = one.backward(i, o, c)
        first = np.array(found[0] if isinstance(found, tuple) else found, dtype=float)
        sizes = np.abs(first) + np.sqrt(np.mean(first**2))
        first.flat[first.size // 2] += 0.01 * sizes.flat[first.size // 2]
        return (first, *found[1:]) if isinstance(found, tuple) else first

    for seed in SEEDS:
        report = check(one, seed, backward=wrong)
        assert report.verdict is GradVerdict.FAIL, one.name


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 2**40), st.integers(0, 36), st.floats(1, 100))
def test_whatever_is_above_the_smallest_error_is_found(seed: int, place: int, times: float) -> None:
    x = np.random.default_rng(seed).standard_normal(37)
    right = karat.gradcheck(np.sin, (x,), backward=lambda i, _o, c: np.cos(i[0]) * c[0], properties=(), seed=seed)
    assert right
    # Relative to the typical element seen at the input's scale; both are within a factor of ten of one here.
    off = 40 * times * right.smallest_error

    def wrong(i: Any, _o: Any, c: Any) -> Any:
        found = np.cos(i[0]) * c[0]
        found[place] += off
        return found

    seen = karat.gradcheck(np.sin, (x,), backward=wrong, properties=(), seed=seed).verdict
    assert seen in {GradVerdict.INACCURATE, GradVerdict.FAIL}
    assert (
        karat.gradcheck(np.sin, (x,), backward=wrong, properties=(), seed=seed, strict=True).verdict is GradVerdict.FAIL
    )
