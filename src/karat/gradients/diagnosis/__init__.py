"""Diagnosing: failed comparisons are handed to `diagnosis`, with an oracle for any direction."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from karat.gradients import roundoff, session, slopes
from karat.gradients.comparison import Expectation, expectation
from karat.gradients.diagnosis.cause import diagnose
from karat.gradients.diagnosis.experiments import Sounding
from karat.gradients.draws import Asked, Purpose
from karat.gradients.examine import Pair
from karat.gradients.oracles import Ground, Probe, along
from karat.gradients.problem import FlattenedArray as Array, Problem, Vector, shaped, vector
from karat.gradients.report import Comparison, Diagnosis
from karat.gradients.roundoff import element_scales

MOST = 4
"""Diagnoses per report: one cause fails many pairs."""
MOST_FORWARDS = 110
"""Per diagnosis: after these no more questions are asked; what is under way is brought to its end."""
_AGREED = 1e-6
"""The relative error up to which four forwards are believed; a kink between their steps is far above it."""


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
            replay=session.command(seed=asked.seed, focus=pair.comparison),
            given=[] if cotangent is not None else _soundings(at, pair, vector(given)),
            rough=_rough(at, pair, vector(given)),
            most_forwards=MOST_FORWARDS,
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
        replay=session.command(seed=asked.seed, focus=failed),
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


def _rough(at: Ground, pair: Pair, cotangent: Vector) -> Callable[[Array], float] | None:
    """A central difference alone; where complex steps are to be had, they cost less still."""
    if pair.comparison.oracle == "complex-step":
        return None
    scales, step = element_scales(at.flat.point[pair.input]), _step(at) ** 2

    def slope(direction: Array) -> float:
        u = vector(direction)
        moved = (u != 0) & (scales > 0)
        if not moved.any():
            return 0.0
        reach = float(np.min(scales[moved] / np.abs(u[moved])))
        return _central(at, pair, step, reach * np.where(moved, u, 0.0), cotangent) / reach

    return slope


def _step(at: Ground) -> float:
    """Where the truncation and the round-off of a central difference are about equal, extrapolated once."""
    return float(2.0 ** round(np.log2(roundoff.unit(at.precision)) / 6))


def _central(at: Ground, pair: Pair, step: float, direction: Vector, cotangent: Vector) -> float:
    ends = [at.source.moved(pair.input, sign * step * direction) for sign in (1.0, -1.0)]
    change = (ends[0][pair.output] - ends[1][pair.output])[cotangent != 0]
    return float(np.sum(cotangent[cotangent != 0] * change)) / (2 * step)


def _soundings(at: Ground, pair: Pair, cotangent: Vector) -> list[Sounding]:
    """What the check's own probes said of the pair."""
    found = []
    for probe in pair.probes:
        one = _of_probe(at, pair, probe, cotangent)
        found.append(Sounding(probe.direction, one.value, one.error))
    return found


def _expected(at: Ground, pair: Pair, direction: Vector, cotangent: Vector) -> Expectation:
    exact = None
    if pair.comparison.oracle == "complex-step":
        exact = slopes.slopes_complex_step(at.source, pair.input, direction, at.base, at.precision)
    quick = None if exact is not None else _quickly(at, pair, direction, cotangent)
    if quick is not None:
        return quick
    found = along(at, pair.input, direction) if exact is None else exact
    return _of_probe(at, pair, Probe(direction, found, at.oracle, sees_kinks=True), cotangent)


def _quickly(at: Ground, pair: Pair, direction: Vector, cotangent: Vector) -> Expectation | None:
    """Four forwards, if they agree far better than what failed; None where the whole ladder is needed."""
    step = _step(at)
    coarse, fine = (_central(at, pair, one, direction, cotangent) for one in (step, step / 2))
    value = (4 * fine - coarse) / 3
    noise = roundoff.norm(cotangent * np.where(cotangent != 0, at.noise[pair.output], 0.0))
    error = abs(value - fine) / 16 + 4 * noise / step
    gradient = np.zeros_like(direction) if pair.gradient is None else pair.gradient
    moved = direction != 0
    size = max(abs(value), roundoff.norm((gradient * direction)[moved]))
    if not error <= min(_AGREED, pair.comparison.error / 64) * size:
        return None
    return Expectation(
        direction=direction,
        dense=False,
        value=value,
        error=error,
        size=size,
        weight=0.0,
        count=int(np.count_nonzero(cotangent)),
    )


def _of_probe(at: Ground, pair: Pair, probe: Probe, cotangent: Vector) -> Expectation:
    found = probe.slopes
    known = np.isfinite(found[pair.output].error) | (cotangent == 0)
    made = expectation(probe, pair.output, np.where(known, cotangent, 0.0), at.base[pair.output])
    return made if known.all() else replace(made, error=np.inf)
