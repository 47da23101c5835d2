"""Diagnosing: failed comparisons are handed to `diagnosis`, with an oracle for any direction."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from karat.gradients import complex_step, replaying
from karat.gradients.asked import Asked, Purpose
from karat.gradients.comparing import Expectation, expectation
from karat.gradients.diagnosis import diagnose
from karat.gradients.examining import Pair
from karat.gradients.flattened import Array, Vector, shaped, vector
from karat.gradients.oracles import Ground, Probe, along
from karat.gradients.problem import Problem
from karat.gradients.report import Comparison, Diagnosis
from karat.gradients.scales import element_scales

MOST = 4
"""Diagnoses per report: one cause fails many pairs."""


def diagnosis_of(
    problem: Problem, asked: Asked, pair: Pair, cotangent: Array | None = None
) -> Diagnosis:
    """What is wrong with a failed pair.

    A cotangent is given for a low precision, which was compared with its own.
    """
    at = pair.ground
    given = cotangent if cotangent is not None else _cotangent(problem, pair)
    if at is None or given is None:
        return _undiagnosed(pair.comparison, asked, "")
    there = _at_point(problem, at)
    slot = problem.inputs[pair.input]
    gradient = None if pair.gradient is None else shaped(pair.gradient, slot)
    try:
        return diagnose(
            there,
            pair.comparison,
            cotangent=given,
            gradient=gradient,
            oracle=_oracle(at, pair, vector(given)),
            rng=asked.draw(Purpose.DIAGNOSIS, pair.input, pair.output),
            replay=replaying.command(seed=asked.seed, focus=pair.comparison),
        )
    except Exception as error:  # noqa: BLE001 - a function that is wrong may also raise; the failure stands
        why = f"the search for it ended in {type(error).__name__}: {str(error)[:200]}"
        return _undiagnosed(pair.comparison, asked, why)


def _undiagnosed(failed: Comparison, asked: Asked, hint: str) -> Diagnosis:
    return Diagnosis(
        input=failed.input,
        output=failed.output,
        dtype=failed.dtype,
        hint=hint,
        replay=replaying.command(seed=asked.seed, focus=failed),
    )


def _cotangent(problem: Problem, pair: Pair) -> Array | None:
    return None if pair.cotangent is None else shaped(pair.cotangent, problem.outputs[pair.output])


def _at_point(problem: Problem, at: Ground) -> Problem:
    """The problem where the pair was compared."""
    given = [vector(one) for one in problem.point]
    if all(np.array_equal(a, b, equal_nan=True) for a, b in zip(given, at.flat.point, strict=True)):
        return problem
    there = copy.copy(problem)
    there.point = tuple(
        shaped(one, slot) for one, slot in zip(at.flat.point, problem.inputs, strict=True)
    )
    return there


def _oracle(at: Ground, pair: Pair, cotangent: Vector) -> Callable[[Array], tuple[float, float]]:
    scales = element_scales(at.flat.point[pair.input])

    def slope(direction: Array) -> tuple[float, float]:
        u = vector(direction)
        moved = (u != 0) & (scales > 0)
        if not moved.any():
            return 0.0, 0.0
        # Steps are natural where the largest of them is, measured by the scale of its element.
        reach = float(np.min(scales[moved] / np.abs(u[moved])))
        found = _expected(at, pair, reach * np.where(moved, u, 0.0), cotangent)
        return found.value / reach, found.error / reach

    return slope


def _expected(at: Ground, pair: Pair, direction: Vector, cotangent: Vector) -> Expectation:
    exact = None
    if pair.comparison.oracle == "complex-step":
        exact = complex_step.slopes(at.source, pair.input, direction, at.base, at.precision)
    found = along(at, pair.input, direction) if exact is None else exact
    probe = Probe(direction, found, at.oracle, sees_kinks=True)
    known = np.isfinite(found[pair.output].error) | (cotangent == 0)
    made = expectation(probe, pair.output, np.where(known, cotangent, 0.0), at.base[pair.output])
    return made if known.all() else replace(made, error=np.inf)
