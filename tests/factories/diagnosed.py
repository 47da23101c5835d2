"""Wrong backwards, diagnosed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.gradients.adapters.framework_problem import FrameworkProblem, open_problem
from karat.gradients.diagnosis import diagnose
from karat.gradients.problem import FlatProblem, vector
from karat.gradients.report import Diagnosis, GradComparison as Comparison, GradVerdict

Array = NDArray[Any]
Backward = Callable[[Any, Any, Any], Any]


def failed(problem: FrameworkProblem, index: int = 0, **more: Any) -> Comparison:
    fields = {
        "input": problem.inputs[index].name,
        "output": problem.outputs[0].name,
        "dtype": "float64",
        "verdict": GradVerdict.FAIL,
        "oracle": "differences",
        "error": 1.0,
        "tolerance": 0.0,
        "scale": 1.0,
        "smallest_error": 0.0,
    }
    return Comparison(**{**fields, **more})


def differences(problem: FrameworkProblem, index: int, cotangent: Array) -> Callable[[Array], Any]:
    """Central differences extrapolated twice: an oracle of six forwards, and its error."""
    flat, weights = FlatProblem(problem), vector(cotangent)

    def slope(direction: Array) -> tuple[float, float]:
        along = vector(direction)

        def central(step: float) -> float:
            ahead, behind = (flat.moved(index, s * step * along)[0] for s in (1, -1))
            return float(weights @ (ahead - behind)) / (2 * step)

        coarse, middle, fine = (central(2.0**-k) for k in (7, 8, 9))
        first, second = (4 * middle - coarse) / 3, (4 * fine - middle) / 3
        value = (16 * second - first) / 15
        return value, 0.1 * abs(second - first) + 1e-12 * float(np.abs(weights).sum())

    return slope


def diagnosed(fn: Any, inputs: Any, backward: Backward, seed: int = 0) -> Diagnosis:
    problem = open_problem(fn, inputs, backward=backward)
    rng = np.random.default_rng(seed)
    shape = problem.outputs[0].shape
    cotangent = rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1, shape)
    if problem.outputs[0].complex:
        cotangent = cotangent + 1j * rng.uniform(0.5, 1, shape)
    gradient = problem.vjp(problem.point, [cotangent])[0]
    return diagnose(
        problem,
        failed(problem),
        cotangent=cotangent,
        gradient=gradient,
        oracle=differences(problem, 0, cotangent),
        rng=rng,
        replay="pytest here",
    )


def at(place: int, size: int) -> Array:
    return np.asarray(np.arange(size) == place)
