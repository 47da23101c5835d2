"""Comparing: a gradient against what the probes expect; the same judgement serves the negative control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from karat.gradients import tolerances
from karat.gradients.differences import Slopes
from karat.gradients.flattened import Vector
from karat.gradients.oracles import Probe


@dataclass(frozen=True, slots=True)
class Expectation:
    """What ⟨Jᵀv, u⟩ should be for one direction and one cotangent."""

    direction: Vector
    dense: bool
    value: float
    error: float
    """How far the oracle may be off."""
    size: float
    """The size of the terms whose sum the value is: what a wrong gradient would be wrong by."""


@dataclass(frozen=True, slots=True)
class Met:
    """An expectation and what a gradient gave for it."""

    expected: Expectation
    found: float
    tolerance: float

    @property
    def deviation(self) -> float:
        """How far the gradient is off; infinite for what is no number."""
        gap = abs(self.found - self.expected.value)
        return gap if np.isfinite(gap) else np.inf


def expectation(probe: Probe, slopes: Slopes, cotangent: Vector) -> Expectation:
    """What a probe expects of a cotangent. Where the cotangent is 0, the slope need not be known."""
    seen = cotangent != 0
    v, value, error = cotangent[seen], slopes.value[seen], slopes.error[seen]
    return Expectation(
        direction=probe.direction,
        dense=probe.dense,
        value=float(np.dot(v, value)),
        error=tolerances.combined(v * error),
        size=tolerances.norm(v * value),
    )


def meet(gradient: Vector, expected: Expectation, precision: str) -> Met:
    """A gradient beside one expectation."""
    with np.errstate(all="ignore"):
        # An element that nobody can step from (infinite, NaN) is not part of the direction.
        moved = expected.direction != 0
        terms = gradient[moved] * expected.direction[moved]
        floor = tolerances.analytic_floor(precision, _finite(terms), np.array([expected.size]))
        return Met(expected, float(np.sum(terms)), expected.error + floor)


def _finite(values: Vector) -> Vector:
    return values[np.isfinite(values)]


@dataclass(frozen=True, slots=True)
class Judged:
    """All probes of one input and output together."""

    met: tuple[Met, ...]
    scale: float
    widest: float
    """The widest tolerance, absolute."""

    @property
    def worst(self) -> Met:
        """The probe that is furthest out of its tolerance."""
        return max(self.met, key=lambda one: _ratio(one.deviation, one.tolerance))

    @property
    def failed(self) -> bool:
        """Whether a probe is out of its tolerance."""
        return any(not one.deviation <= one.tolerance for one in self.met)

    @property
    def zero(self) -> bool:
        """Whether the derivative cannot be told from zero anywhere."""
        return all(one.expected.size <= one.expected.error for one in self.met)


def _ratio(deviation: float, tolerance: float) -> float:
    if deviation == 0:
        return 0.0
    return deviation / tolerance if tolerance > 0 else np.inf


def judge(met: Sequence[Met], *, rtol: float | None = None) -> Judged:
    """The judgement; a tolerance that a test asks for replaces narrower ones."""
    scale = max((one.expected.size for one in met), default=0.0)
    if rtol is not None:
        met = [Met(one.expected, one.found, max(one.tolerance, rtol * scale)) for one in met]
    return Judged(tuple(met), scale, max((one.tolerance for one in met), default=np.inf))


def smallest_error(judged: Judged, scales: Vector) -> float:
    """The smallest error of one gradient element that a dense probe must notice, wherever it is."""
    dense = [one.tolerance + one.deviation for one in judged.met if one.expected.dense]
    reached = scales[scales > 0]
    if not dense or not reached.size:
        return np.inf
    # Directions have magnitudes of at least one half.
    return min(dense) / (0.5 * float(reached.min()))
