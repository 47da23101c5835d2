from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from karat.gradients.roundoff import ULPS, element_scales, unit
from karat.gradients.slopes import Slopes, ladders, slopes_on_line, unresolved

Array = np.ndarray[Any, np.dtype[Any]]
X = np.random.default_rng(6).uniform(0.5, 1.0, 40)
STEEP = ladders("float64")[:1]
Function = Callable[[Array, Array], Array]

# Each beside its derivative, which is evaluated in extended precision.
FAMILIES: dict[str, tuple[Function, Function]] = {
    "polynomial": (
        lambda x, a: a[0] + a[1] * x + a[2] * x**2 + a[3] * x**5,
        lambda x, a: a[1] + 2 * a[2] * x + 5 * a[3] * x**4,
    ),
    "wave": (
        lambda x, a: a[0] * np.sin(a[1] * x + a[2]) + a[3] * np.cos(x),
        lambda x, a: a[0] * a[1] * np.cos(a[1] * x + a[2]) - a[3] * np.sin(x),
    ),
    "rational": (
        lambda x, a: (a[0] + x) / (1 + a[1] ** 2 * x**2),
        lambda x, a: (
            (1 + a[1] ** 2 * x**2 - (a[0] + x) * 2 * a[1] ** 2 * x) / (1 + a[1] ** 2 * x**2) ** 2
        ),
    ),
    "growing wave": (
        lambda x, a: np.exp(a[0] * x) * np.sin(a[1] * x),
        lambda x, a: np.exp(a[0] * x) * (a[0] * np.sin(a[1] * x) + a[1] * np.cos(a[1] * x)),
    ),
    "kinked logarithm": (
        lambda x, a: a[1] * np.log(np.abs(x) + a[0] ** 2),
        lambda x, a: a[1] * np.sign(x) / (np.abs(x) + a[0] ** 2),
    ),
    "cancelling": (
        lambda x, a: np.sin(x + 1e3 * a[0]) * 1000 - np.sin(x + 1e3 * a[0]) * 999,
        lambda x, a: np.cos(x + 1e3 * a[0]),
    ),
}


def _swept(fn: Callable[[Array], Array], point: Array, direction: Array) -> Slopes:
    with np.errstate(all="ignore"):
        base = fn(point)
        noise = ULPS * unit("float64") * np.abs(base)
        return slopes_on_line(
            lambda t: [fn(point + t * direction)], [base], [noise], ladders("float64")
        )[0]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60)
@given(st.integers(0, 2**40), st.floats(-2, 1), st.sampled_from([1, 3, 64]))
def test_the_true_error_never_exceeds_the_estimate(
    family: str, seed: int, size: float, count: int
) -> None:
    fn, slope = FAMILIES[family]
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(4) * 10 ** rng.uniform(-1, 1, 4)
    point = rng.standard_normal(count) * 10**size
    direction = element_scales(point) * rng.integers(128, 256, count) / 256
    found = _swept(lambda x: fn(x, a), point, direction)
    with np.errstate(all="ignore"):
        exact = slope(point.astype(np.longdouble), a.astype(np.longdouble)) * direction
    known = np.isfinite(found.error) & ~found.kinked & np.isfinite(exact)
    assert np.all(np.abs(found.value - exact)[known] <= found.error[known])
    assert known.mean() > 0.5


def test_estimates_are_not_only_true_but_narrow() -> None:
    point = np.random.default_rng(0).standard_normal(500)
    found = _swept(np.sin, point, element_scales(point))
    slope = np.cos(point) * element_scales(point)
    assert np.median(found.error / np.abs(slope)) < 1e-11


def test_a_linear_function_is_exact() -> None:
    point = np.random.default_rng(0).standard_normal(50)
    found = _swept(lambda x: -3 * x, point, element_scales(point))
    assert np.allclose(found.value, -3 * element_scales(point), rtol=1e-14, atol=0)
    assert not found.kinked.any()


def test_a_wave_that_coarse_steps_cannot_follow_is_followed_by_finer_ones() -> None:
    point = np.array([1.0, 2.0, 3.0])
    found = _swept(lambda x: np.sin(1e4 * x), point, np.ones(3))
    assert np.allclose(found.value, 1e4 * np.cos(1e4 * point), rtol=1e-4)
    assert np.all(np.abs(found.value - 1e4 * np.cos(1e4 * point)) <= found.error)


def test_a_kink_nearby_is_stepped_around() -> None:
    point = np.array([1e-3, -1e-3, 1e-5, 0.5])
    found = _swept(np.abs, point, np.ones(4))
    assert np.allclose(found.value, np.sign(point), rtol=1e-6)
    assert not found.kinked.any()


def test_a_kink_at_the_point_has_both_slopes() -> None:
    found = _swept(lambda x: np.where(x > 0, 3 * x, -x), np.zeros(2), np.array([1.0, -1.0]))
    assert found.kinked.all()
    assert np.allclose(found.value + found.jump / 2, [3.0, 1.0])
    assert np.allclose(found.value - found.jump / 2, [-1.0, -3.0])


def test_curvature_is_no_kink() -> None:
    found = _swept(lambda x: 1e6 * x * x, np.array([0.0, 1.0]), np.ones(2))
    assert not found.kinked.any()
    assert np.allclose(found.value, [0.0, 2e6])


def test_an_infinite_slope_is_not_known() -> None:
    found = _swept(lambda x: np.sqrt(np.abs(x)), np.zeros(1), np.ones(1))
    assert np.isinf(found.error).all()


def test_steps_do_not_leave_the_domain() -> None:
    point = np.array([1e-3, 1e-6, 2.0])
    found = _swept(np.log, point, np.ones(3))
    assert np.allclose(found.value[[0, 2]], 1 / point[[0, 2]], rtol=1e-5)
    assert np.all(np.abs(found.value - 1 / point) <= found.error)


def test_at_the_edge_of_a_domain_one_side_does() -> None:
    def edged(x: Array) -> Array:
        return np.where(x >= 0, np.exp(x), np.nan)

    found = _swept(edged, np.zeros(2), np.array([1.0, -1.0]))
    assert np.allclose(found.value, [1.0, -1.0], rtol=1e-7)
    assert np.all(np.abs(found.value - [1.0, -1.0]) <= found.error)


def test_an_edge_within_the_smallest_step_leaves_no_slope_rather_than_a_wrong_one() -> None:
    point = np.array([1 - 1e-12, 1 - 1e-9, 1 - 1e-5])
    found = _swept(np.arcsin, point, np.full(3, 0.5))
    slope = 0.5 / np.sqrt((1 - point) * (1 + point))
    assert np.all(np.abs(found.value - slope) <= found.error)
    assert np.all(found.error[1:] < 1e-3 * slope[1:])


def test_noise_makes_slopes_unresolved_rather_than_wrong() -> None:
    rng = np.random.default_rng(0)
    point = np.ones(200)

    def noisy(x: Array) -> Array:
        return np.asarray(x * (1 + 1e-4 * rng.standard_normal(x.shape)))

    found = _swept(noisy, point, np.ones(200))
    assert unresolved(found, point, "float64").mean() > 0.95


def test_narrow_precisions_take_larger_steps() -> None:
    assert ladders("float32")[0][0] > ladders("float64")[0][0]
    assert all(len(one) >= 3 for name in ("float32", "float64") for one in ladders(name))


def test_a_given_step_is_taken_as_a_power_of_two() -> None:
    assert ladders("float64", 0.005)[0][0] == 2.0**-8


def test_steps_longer_than_the_way_to_a_pole_are_not_believed() -> None:
    (coarse,) = slopes_on_line(
        lambda h: [1 / (1e-6 + h * X)], [np.full(X.size, 1e6)], [0 * X], STEEP
    )
    assert np.isinf(coarse.error).all()


def test_finer_steps_that_contradict_coarser_ones_are_in_doubt() -> None:
    def quantised(h: float) -> list[Array]:
        return [np.floor((X + h) * 2.0**20) / 2.0**20]

    (found,) = slopes_on_line(
        quantised, quantised(0.0), [np.full(X.size, 1e-17)], ladders("float64")
    )
    assert np.all(np.abs(found.value - 1) <= found.error)
