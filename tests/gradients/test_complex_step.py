from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from karat.gradients import slopes as complex_step
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.oracles import baseline, probe_input, slopes_along, weakest_oracle
from karat.gradients.problem import FlatProblem
from karat.gradients.roundoff import element_scales
from karat.gradients.slopes import Slopes

Function = Callable[..., Any]
POINT = np.random.default_rng(3).standard_normal(40)


def _both(fn: Function, point: np.ndarray = POINT) -> tuple[list[Slopes] | None, list[Slopes]]:
    at = baseline(FlatProblem(open_problem(fn, (point,))))
    direction = element_scales(point)
    exact = complex_step.complex_slopes(at.source, 0, direction, at.base, at.precision)
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


@pytest.mark.parametrize(
    "fn",
    [
        np.abs,
        lambda x: x.real,
        lambda x: np.sqrt(x * np.conj(x)).real,
        np.floor,
    ],
)
def test_what_is_not_complex_is_not_taken(fn: Function) -> None:
    exact, _ = _both(fn)
    assert exact is None


@pytest.mark.parametrize(
    "fn", [lambda x: x * np.conj(x), lambda x: x + 0 * x.imag, lambda x: np.sin(np.conj(x))]
)
def test_what_is_complex_but_not_analytic_is_not_believed(fn: Function) -> None:
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
    found = probe_input(at, 0, np.random.default_rng(0))
    assert weakest_oracle(found) == "complex-step"
    assert found[0].slopes[0].kinked.tolist() == [True] + [False] * 8
    assert [one.sees_kinks for one in found] == [True, False, False]


def test_errors_grow_with_what_a_hairs_breadth_changes() -> None:
    point = 1e5 + np.random.default_rng(0).standard_normal(30)

    def variance(x: Any) -> Any:
        return np.mean((x - np.mean(x)) ** 2)

    at = baseline(FlatProblem(open_problem(variance, (point,))))
    direction = np.ones(30) * np.random.default_rng(1).integers(128, 256, 30) / 256
    plain = complex_step.complex_slopes(at.source, 0, direction, at.base, "float64", strict=False)
    jostled = at.source.nudged(2.0**-53, np.random.default_rng(0))
    again = complex_step.complex_slopes(jostled, 0, direction, at.base, "float64", strict=False)
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
