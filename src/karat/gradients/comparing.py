"""Comparing: a gradient against what the probes expect; the same judgement serves the negative control."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from karat.gradients import tolerances
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
    weight: float
    """The size of the outputs themselves, as the cotangent sees them."""
    count: int
    """How many output elements it is about."""


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


def expectation(probe: Probe, output: int, cotangent: Vector, base: Vector) -> Expectation:
    """What a probe expects of a cotangent. Where the cotangent is 0, the slope need not be known."""
    seen = cotangent != 0
    slopes = probe.slopes[output]
    v, value, error = cotangent[seen], slopes.value[seen], slopes.error[seen]
    with np.errstate(all="ignore"):
        return Expectation(
            direction=probe.direction,
            dense=probe.dense,
            value=float(np.sum(v * value)),
            error=tolerances.combined(v * error),
            size=tolerances.norm(v * value),
            weight=tolerances.norm(v * base[seen]),
            count=int(v.size),
        )


def together(parts: Sequence[Expectation]) -> Expectation:
    """What a probe expects of several outputs at once."""
    first = parts[0]
    return Expectation(
        direction=first.direction,
        dense=first.dense,
        value=sum(one.value for one in parts),
        error=tolerances.norm(np.array([one.error for one in parts])),
        size=tolerances.norm(np.array([one.size for one in parts])),
        weight=tolerances.norm(np.array([one.weight for one in parts])),
        count=sum(one.count for one in parts),
    )


def unrest_of(direction: Vector, gradient: Vector | None, jostled: Vector | None) -> float:
    """The share of a gradient, seen along a direction, that a few units in the last place of the inputs move."""
    if gradient is None or jostled is None:
        return 0.0
    with np.errstate(all="ignore"):
        size = tolerances.norm(gradient * direction)
        moved = tolerances.norm((gradient - jostled) * direction)
        return moved / size if np.isfinite(moved) and size > 0 else 0.0


def meet(gradient: Vector, expected: Expectation, precision: str, *, unrest: float = 0.0) -> Met:
    """A gradient beside one expectation."""
    with np.errstate(all="ignore"):
        # An element that nobody can step from (infinite, NaN) is not part of the direction.
        moved = expected.direction != 0
        terms = gradient[moved] * expected.direction[moved]
        size = max(tolerances.norm(terms[np.isfinite(terms)]), expected.size)
        floor = tolerances.analytic_floor(precision, size, gradient.size, unrest)
        return Met(expected, float(np.sum(terms)), expected.error + floor)


@dataclass(frozen=True, slots=True)
class Judged:
    """All probes of one input and output together."""

    met: tuple[Met, ...]
    scale: float
    """The largest derivative that was compared."""
    weight: float
    """The size of the outputs that were compared."""
    widest: float
    """The widest tolerance."""

    @property
    def sees(self) -> bool:
        """Whether anything is left to compare once unknown slopes are out."""
        return any(one.expected.count for one in self.met)

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
    weight = max((one.expected.weight for one in met), default=0.0)
    if rtol is not None:
        met = [Met(one.expected, one.found, max(one.tolerance, rtol * scale)) for one in met]
    widest = max((one.tolerance for one in met), default=np.inf)
    return Judged(tuple(met), scale, weight, widest)


def smallest_error(judged: Judged, typical: float) -> float:
    """The smallest error of one element, relative to the typical element, that a dense probe must notice.

    `typical` is the size of a gradient's element times the scale of its input.
    """
    # What is off already hides as much of the other sign; a gradient that is wrong says nothing of a right one.
    dense = [
        one.tolerance + min(one.deviation, one.tolerance)
        for one in judged.met
        if one.expected.dense
    ]
    if not dense or not typical > 0:
        return np.inf
    # Directions have magnitudes of at least one half.
    return min(dense) / (0.5 * typical)
