from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

import karat
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.problem import FlatProblem, Vector
from karat.gradients.report import GradVerdict
from karat.gradients.roundoff import element_scales, natural_sizes, noise, norm, power_of_two, sample, typical_size
from karat.gradients.slopes import ladders, slopes_on_line, unresolved

RNG = np.random.default_rng(11)
X = RNG.standard_normal(200)
UNIT = 2.0**-53
HILBERT = 1.0 / (np.arange(6)[:, None] + np.arange(6) + 1)

Fn = Callable[[Any], Any]


def _noise(fn: Fn, x: Vector) -> tuple[Vector, Vector]:
    flat = FlatProblem(open_problem(fn, (x,), backward=lambda _i, _o, c: c))
    base = flat.base()
    return noise(flat, base, "float64")[0], base[0]


@pytest.mark.parametrize("fn", [np.sin, np.exp, lambda x: 3 * x, lambda x: 1 / x, np.cumsum])
def test_a_smooth_function_is_off_by_units_in_the_last_place(fn: Fn) -> None:
    found, base = _noise(fn, X)
    assert np.all(found >= 4 * UNIT * np.abs(base))
    assert np.median(found / np.abs(base)) < 64 * UNIT


@pytest.mark.parametrize(
    ("fn", "x", "off"),
    [
        (lambda x: np.exp(x) - 1, 1e-6 * X, UNIT),
        (lambda x: np.exp(x) - 1, 1e-9 * X, UNIT),
        (lambda x: (x + 1e8) - 1e8, X, 1e8 * UNIT),
        (lambda x: np.sin(x.astype(np.float32)).astype(np.float64), X, 2.0**-26),
    ],
)
def test_what_was_rounded_on_the_way_is_seen(fn: Fn, x: Vector, off: float) -> None:
    found, _ = _noise(fn, x)
    assert off / 4 < np.median(found) < 64 * off


def test_steep_is_not_rough() -> None:
    fast, base = _noise(lambda x: np.sin(1e5 * x), X)
    assert np.median(fast / np.abs(base)) < 1e-9
    poles, base = _noise(lambda x: np.linalg.inv(x.reshape(6, 6)).reshape(-1), HILBERT.reshape(-1))
    assert np.median(poles / np.abs(base)) < 1e-6


def _over(fn: Fn, slope: Fn, x: Vector) -> float:
    """The share of slopes that are further off than their errors say."""
    u = RNG.choice([-1.0, 1.0], x.size) * 2.0 ** np.floor(np.log2(np.abs(x))) * 0.7
    rough, base = _noise(fn, x)
    (found,) = slopes_on_line(lambda line: [[fn(x + h * u) for h in line]], [base], [rough], ladders("float64"))
    return float(np.mean(np.abs(found.value - slope(x) * u) > found.error))


@pytest.mark.parametrize("size", [1e-4, 1e-6, 1e-9])
def test_errors_are_honest_where_large_numbers_cancel(size: float) -> None:
    assert _over(lambda x: np.exp(x) - 1, np.exp, size * X) < 0.02


@pytest.mark.parametrize("times", [1e3, 1e5, 1e6])
def test_errors_are_honest_where_the_function_swings_fast(times: float) -> None:
    assert _over(lambda x: np.sin(times * x), lambda x: times * np.cos(times * x), X) < 0.02


def _ill(i: Any, o: Any, c: Any) -> Any:
    del i
    return -o[0].T @ c[0] @ o[0].T


RIGHT: dict[str, tuple[Any, Any, Any]] = {
    "cancelling": (lambda x: np.exp(x) - 1, 1e-6 * X, lambda i, _o, c: np.exp(i[0]) * c[0]),
    "next to a pole": (np.linalg.inv, HILBERT, _ill),
    "fast": (np.sin, 1e6 * X, lambda i, _o, c: np.cos(i[0]) * c[0]),
    "underflowing": (lambda x: np.exp(-((50 * x) ** 2)), X, lambda i, o, c: -5000 * i[0] * o[0] * c[0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_right_gradients_of_difficult_functions_hold_and_wrong_ones_do_not(name: str) -> None:
    fn, x, backward = RIGHT[name]

    def slightly(i: Any, o: Any, c: Any) -> Any:
        return backward(i, o, c) * (1 + 1e-3)

    for seed in range(20):
        held = karat.gradcheck(fn, (x,), backward=backward, properties=(), seed=seed)
        # So near to a pole the point itself may not be answered; a point nearby, which is right, is no answer.
        unknown = name == "next to a pole" and held.verdict is GradVerdict.INCONCLUSIVE and "nearby" in held.reason
        assert unknown or held.verdict is GradVerdict.PASS, held.reason
        assert held.comparisons[0].dtype == "float64"
        wrong = karat.gradcheck(fn, (x,), backward=slightly, properties=(), seed=seed)
        assert wrong.verdict is GradVerdict.FAIL


def test_what_computes_in_float32_can_be_checked_all_the_same() -> None:
    x = RNG.standard_normal((10, 12))
    y = RNG.standard_normal((12, 4)).astype(np.float32)

    def product(x: Any) -> Any:
        return (x.astype(np.float32) @ y).astype(np.float64)

    for fn, backward in (
        (product, lambda _i, _o, c: c[0] @ y.T.astype(np.float64)),
        (lambda x: np.tanh(x.astype(np.float32)).astype(np.float64), _tanh),
    ):
        for seed in range(10):
            report = karat.gradcheck(fn, (x,), backward=backward, properties=(), seed=seed)
            assert report.comparisons[0].dtype == "float32"
            assert report.verdict is GradVerdict.PASS, report.reason


def _tanh(i: Any, _o: Any, c: Any) -> Any:
    return (1 - np.tanh(i[0]) ** 2) * c[0]


@pytest.mark.parametrize("size", [1e-250, 1e-120, 1e120])
def test_what_is_very_small_or_large_is_seen_as_well(size: float) -> None:
    def backward(i: Any, _o: Any, c: Any) -> Any:
        return 2 * i[0] * c[0] if size != 1e-250 else 3 * c[0]

    fn = (lambda x: x**2) if size != 1e-250 else (lambda x: 3 * x)
    report = karat.gradcheck(fn, (size * X,), backward=backward, properties=())
    assert report.verdict is GradVerdict.PASS
    assert report.smallest_error < 1e-9


def test_a_derivative_that_is_zero_at_zero_is_looked_at_nearby() -> None:
    def backward(i: Any, _o: Any, c: Any) -> Any:
        return 2 * i[0] * c[0]

    report = karat.gradcheck(lambda x: x**2, (np.zeros(4),), backward=backward, properties=())
    assert report.verdict is GradVerdict.PASS


def test_slopes_that_only_the_shortest_steps_found_are_left_out() -> None:
    x = np.sort(RNG.standard_normal(3000))
    u = RNG.choice([-1.0, 1.0], x.size)
    # Two that all but touch: whatever is longer than a hair exchanges them.
    x[1000], u[1000], u[1001] = x[1001] - 1e-11, 1.0, -1.0
    rough, base = _noise(np.sort, x)
    (found,) = slopes_on_line(lambda line: [[np.sort(x + h * u) for h in line]], [base], [rough], ladders("float64"))
    left_out = unresolved(found, base, "float64")
    assert left_out[1000]
    assert np.mean(left_out) < 0.1


sizes = st.floats(1e-290, 1e290)


@pytest.mark.slow
@given(arrays(np.float64, st.integers(1, 20), elements=sizes))
def test_powers_of_two_are_at_most_the_value_and_more_than_half_of_it(values: np.ndarray) -> None:
    powers = power_of_two(values)
    assert np.all((powers <= values) & (2 * powers > values))
    assert np.all(np.frexp(powers)[0] == 0.5)


@pytest.mark.slow
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
