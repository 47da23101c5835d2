from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import karat
from karat.gradients import slopes, slopes as complex_step
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.oracles import baseline, probe_input, slopes_along, weakest_oracle
from karat.gradients.problem import FlatProblem
from karat.gradients.report import GradReport, GradVerdict
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
        lambda x, a: (1 + a[1] ** 2 * x**2 - (a[0] + x) * 2 * a[1] ** 2 * x) / (1 + a[1] ** 2 * x**2) ** 2,
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


def _swept(fn: Callable[[Array], Array], point: Array, direction: Array, inside: float = 0.0) -> Slopes:
    """The slopes of a function whose largest intermediate result is known."""
    with np.errstate(all="ignore"):
        base = fn(point)
        noise = ULPS * unit("float64") * np.maximum(np.abs(base), inside)
        return slopes_on_line(
            lambda line: [[fn(point + t * direction) for t in line]], [base], [noise], ladders("float64")
        )[0]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60)
@given(seed=st.integers(0, 2**40), size=st.floats(-2, 1), count=st.sampled_from([1, 3, 64]))
@example(seed=24653, size=-1.0130374787367267, count=3)
def test_the_true_error_never_exceeds_the_estimate(family: str, seed: int, size: float, count: int) -> None:
    fn, slope = FAMILIES[family]
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(4) * 10 ** rng.uniform(-1, 1, 4)
    point = rng.standard_normal(count) * 10**size
    direction = element_scales(point) * rng.integers(128, 256, count) / 256
    found = _swept(lambda x: fn(x, a), point, direction, 1e3 if family == "cancelling" else 0.0)
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


def test_steps_longer_than_the_way_to_a_pole_are_not_believed() -> None:
    (coarse,) = slopes_on_line(
        lambda line: [[1 / (1e-6 + h * X) for h in line]], [np.full(X.size, 1e6)], [0 * X], STEEP
    )
    assert np.isinf(coarse.error).all()


def test_finer_steps_that_contradict_coarser_ones_are_in_doubt() -> None:
    def quantised(line: Sequence[float]) -> list[list[Array]]:
        return [[np.floor((X + h) * 2.0**20) / 2.0**20 for h in line]]

    (found,) = slopes_on_line(quantised, quantised([0.0])[0], [np.full(X.size, 1e-17)], ladders("float64"))
    assert np.all(np.abs(found.value - 1) <= found.error)


ComplexFunction = Callable[..., Any]
POINT = np.random.default_rng(3).standard_normal(40)


def _both(fn: ComplexFunction, point: np.ndarray = POINT) -> tuple[list[Slopes] | None, list[Slopes]]:
    at = baseline(FlatProblem(open_problem(fn, (point,))))
    direction = element_scales(point)
    exact = complex_step.complex_slopes(at.source, 0, direction, at.base, at.computes)
    return exact, slopes_along(at, 0, direction)


def test_an_analytic_function_is_known_to_round_off() -> None:
    exact, differences = _both(lambda x: np.exp(np.sin(x)) / (2 + x * x))
    assert exact is not None
    x = POINT
    inner = np.exp(np.sin(x)) / (2 + x * x)
    slope = (np.cos(x) * inner - 2 * x * inner / (2 + x * x)) * element_scales(x)
    assert np.all(np.abs(exact[0].value - slope) <= exact[0].error)
    assert np.median(exact[0].error) < np.median(differences[0].error) / 10
    assert complex_step.confirmed_by(exact, differences) is not None


@pytest.mark.parametrize("fn", [np.abs, lambda x: x.real, lambda x: np.sqrt(x * np.conj(x)).real, np.floor])
def test_what_is_not_complex_is_not_taken(fn: ComplexFunction) -> None:
    exact, _ = _both(fn)
    assert exact is None


@pytest.mark.parametrize("fn", [lambda x: x * np.conj(x), lambda x: x + 0 * x.imag, lambda x: np.sin(np.conj(x))])
def test_what_is_complex_but_not_analytic_is_not_believed(fn: ComplexFunction) -> None:
    exact, differences = _both(fn)
    believed = exact is not None and complex_step.confirmed_by(exact, differences) is not None
    slopes = differences[0].value
    assert not believed or np.allclose(exact[0].value, slopes, rtol=1e-9)  # type: ignore[index]


def test_a_function_with_another_forward_for_complex_numbers_is_not_taken() -> None:
    exact, _ = _both(lambda x: np.sin(x) * (1.001 if np.iscomplexobj(x) else 1))
    assert exact is None


def test_kinks_are_taken_over_from_differences() -> None:
    point = np.array([0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 1.5, -0.5, -2.0])
    at = baseline(FlatProblem(open_problem(lambda x: np.maximum(x, 0), (point,))))
    found = probe_input(at, 0, 0)
    assert weakest_oracle(found) == "complex-step"
    assert found[0].slopes[0].kinked.tolist() == [True] + [False] * 8
    assert [one.sees_kinks for one in found] == [True, False, False]


def test_errors_grow_with_what_a_hairs_breadth_changes() -> None:
    point = 1e5 + np.random.default_rng(0).standard_normal(30)

    def variance(x: Any) -> Any:
        return np.mean((x - np.mean(x)) ** 2)

    at = baseline(FlatProblem(open_problem(variance, (point,))))
    direction = np.ones(30) * np.random.default_rng(1).integers(128, 256, 30) / 256
    plain = complex_step.complex_slopes(at.source, 0, direction, at.base, "float64", again=True)
    jostled = at.source.nudged(2.0**-53, 0)
    again = complex_step.complex_slopes(jostled, 0, direction, at.base, "float64", again=True)
    assert plain is not None
    honest = complex_step.with_roundoff(plain, again)
    wide = point.astype(np.longdouble)
    exact = float(np.sum(2 * (wide - wide.mean()) / 30 * direction))
    assert abs(honest[0].value[0] - exact) <= honest[0].error[0]
    assert honest[0].error[0] > 10 * plain[0].error[0]


def test_what_differences_cannot_confirm_is_not_believed() -> None:
    point = np.array([1.0, 2.0])

    def rough(x: Any) -> Any:
        # Right for real numbers; its steps of 1e-3 hide from differences that complex steps are off.
        return x if np.iscomplexobj(x) else x + 1e-3 * np.sin(1e9 * x)

    exact, differences = _both(rough, point)
    assert exact is None or complex_step.confirmed_by(exact, differences) is None


def _relu(at_zero: float, point: Any, fn: Any = None) -> GradReport:
    def backward(i: Any, _o: Any, c: Any) -> Any:
        x = i[0]
        return (np.where(x > 0, 1.0, np.where(x == 0, at_zero, 0.0)) * c[0],)

    return karat.gradcheck(fn or (lambda x: np.maximum(x, 0)), (point,), backward=backward, properties=())


@pytest.mark.parametrize("at_zero", [0.0, 0.5, 1.0])
def test_any_subgradient_is_accepted_and_flagged(at_zero: float) -> None:
    point = np.array([0.0, 1.0, -1.0, 2.0, 0.0, 0.7, -0.1, 3.0, 0.2, 0.4])
    report = _relu(at_zero, point)
    assert report.verdict is GradVerdict.PASS, report.reason
    assert report.comparisons[0].kinks == 2
    assert "one-sided" in report.comparisons[0].reason


@pytest.mark.parametrize("at_zero", [-0.1, 1.1, 7.0])
def test_what_is_no_subgradient_fails(at_zero: float) -> None:
    point = np.array([0.0, 1.0, -1.0, 2.0, 0.5, 0.7, -0.1, 3.0, 0.2, 0.4])
    report = _relu(at_zero, point)
    assert report.verdict is GradVerdict.FAIL
    assert "at a kink" in report.reason


def test_nothing_but_kinks_is_looked_at_nearby() -> None:
    report = _relu(0.0, np.zeros(20))
    assert report.verdict is GradVerdict.PASS, report.reason
    assert report.comparisons[0].kinks == 20
    assert any("nearby" in note for note in report.notes)


def test_a_wrong_gradient_away_from_the_kinks_is_found_nearby() -> None:
    report = karat.gradcheck(
        lambda x: np.maximum(x, 0),
        (np.zeros(20),),
        backward=lambda i, _o, c: (np.where(i[0] > 0, 2.0, 0.0) * c[0],),
        properties=(),
    )
    assert report.verdict is GradVerdict.FAIL


def test_a_tie_that_is_counted_twice_fails() -> None:
    point = np.array([[1.0, 1.0, 0.0], [2.0, 0.0, 2.0], [0.0, 1.0, 0.5]])

    def check(share: Any) -> GradReport:
        return karat.gradcheck(
            lambda x: x.max(-1),
            (point,),
            backward=lambda i, o, c: (share(i[0] == o[0][:, None]) * c[0][:, None],),
            properties=(),
        )

    assert check(lambda tied: tied * 1.0).verdict is GradVerdict.FAIL
    assert check(lambda tied: tied / tied.sum(-1, keepdims=True)).verdict is GradVerdict.PASS


def test_a_tie_between_two_inputs_that_is_counted_twice_fails() -> None:
    x = np.array([1.0, 2.0, 3.0, -1.0])
    y = np.array([1.0, 0.0, 3.0, 5.0])

    def check(at_tie: float) -> GradReport:
        def backward(i: Any, _o: Any, c: Any) -> Any:
            first = np.where(i[0] > i[1], 1.0, np.where(i[0] == i[1], at_tie, 0.0))
            second = np.where(i[0] < i[1], 1.0, np.where(i[0] == i[1], at_tie, 0.0))
            return first * c[0], second * c[0]

        return karat.gradcheck(np.maximum, (x, y), backward=backward, properties=())

    assert check(0.5).verdict is GradVerdict.PASS
    assert check(1.0).verdict is GradVerdict.FAIL


@pytest.mark.parametrize("attempt", range(slopes.ATTEMPTS))
def test_nearby_is_near_and_elsewhere(attempt: int) -> None:
    point = [np.array([0.0, 1.0, -4.0, np.inf])]
    (moved,) = slopes.nearby_point(point, attempt, np.random.default_rng(0))
    assert np.isinf(moved[3])
    assert np.all(moved[:3] != point[0][:3])
    assert np.all(np.abs(moved[:3] - point[0][:3]) <= [0.25, 0.25, 0.5])
