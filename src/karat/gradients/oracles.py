"""Oracles: expected slopes along directions, from whichever source knows best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from karat.gradients import complex_step, noise, tolerances
from karat.gradients.differences import Ladder, Line, Slopes, ladders, sweep
from karat.gradients.directions import directions
from karat.gradients.flattened import Flat, Vector
from karat.gradients.report import Oracle
from karat.gradients.scales import element_scales


@dataclass(frozen=True, slots=True)
class Probe:
    """One direction of one input, and how every output changes along it."""

    direction: Vector
    slopes: list[Slopes]
    oracle: Oracle
    sees_kinks: bool
    """Complex steps do not: they take one side without saying so."""
    dense: bool = False
    """Whether it moves every element that can be moved."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What every probe at a point starts from."""

    flat: Flat
    """The function that is checked."""
    source: Flat
    """The function whose slopes are believed: the same one, or a reference."""
    base: list[Vector]
    noise: list[Vector]
    """What each element of a forward may be off."""
    computes: str
    """The precision of the gradient that is checked."""
    precision: str
    """The precision of the source."""
    steps: tuple[Ladder, ...]

    @property
    def oracle(self) -> Oracle:
        """What the source's differences are called in a report."""
        return "differences" if self.source is self.flat else "reference"

    @property
    def exactly(self) -> Oracle:
        """What the source's complex steps are called."""
        return "complex-step" if self.source is self.flat else "reference"


def ground(flat: Flat, source: Flat | None = None, *, delta: float | None = None) -> Ground:
    """The forward at the point, and how rough it is."""
    computes = flat.problem.computes
    own = source is None or source is flat
    source = flat if source is None else source
    precision = computes if own else "float64"
    with np.errstate(all="ignore"):
        base = source.base()
        rough = noise.noise(source, base, precision)
    return Ground(flat, source, base, rough, computes, precision, ladders(precision, delta))


def line(source: Flat, index: int, direction: Vector) -> Line:
    """The outputs along one direction of one input."""

    def outputs(distance: float) -> list[Vector]:
        with np.errstate(all="ignore"):
            return source.moved(index, distance * direction)

    return outputs


def along(at: Ground, index: int, direction: Vector) -> list[Slopes]:
    """The slopes of all outputs along any direction, by differences."""
    unit = tolerances.unit(at.precision)
    return sweep(line(at.source, index, direction), at.base, at.noise, at.steps, unit=unit)


def shift(at: Ground) -> tuple[float, list[Slopes]]:
    """The slopes where everything moves by the same: what is tied stays tied, and a maximum has one slope again.

    The first is the distance that counts as one.
    """
    scales = [element_scales(one) for one in at.flat.point]
    unit = min(float(np.median(one[one > 0])) for one in scales if np.any(one > 0))

    def outputs(distance: float) -> list[Vector]:
        with np.errstate(all="ignore"):
            return at.source.shifted(distance * unit)

    rounding = tolerances.unit(at.precision)
    return unit, sweep(outputs, at.base, at.noise, at.steps, unit=rounding)


def probes(at: Ground, index: int, rng: np.random.Generator, *, whole: bool = True) -> list[Probe]:
    """The probes of one input: the first by differences, the rest by complex steps if those agree with it.

    `whole` looks at the whole Jacobian where it is small.
    """
    point = at.flat.point[index]
    scales = element_scales(point)
    chosen = directions(at.flat.inputs[index], point, rng, whole=whole)
    drawn = [scales * one for one in chosen]
    if not any(one.any() for one in drawn):
        return []
    first = along(at, index, drawn[0])
    exact = _exactly(at, index, drawn[0])
    known = None if exact is None else complex_step.trusted(exact, first)
    if exact is None or known is None:
        made = [Probe(drawn[0], first, at.oracle, sees_kinks=True)]
        made += [_by_differences(at, index, one) for one in drawn[1:]]
    else:
        kept = [complex_step.merged(*each) for each in zip(exact, first, known, strict=True)]
        made = [Probe(drawn[0], kept, at.exactly, sees_kinks=True)]
        made += [_by_complex_steps(at, index, one, known) for one in drawn[1:]]
    movable = np.count_nonzero(scales)
    return [replace(one, dense=np.count_nonzero(one.direction) == movable) for one in made]


def _by_differences(at: Ground, index: int, direction: Vector) -> Probe:
    return Probe(direction, along(at, index, direction), at.oracle, sees_kinks=True)


def _by_complex_steps(
    at: Ground, index: int, direction: Vector, known: Sequence[complex_step.Mask]
) -> Probe:
    found = _exactly(at, index, direction)
    if found is None:
        return _by_differences(at, index, direction)
    kept = [complex_step.confined(*each) for each in zip(found, known, strict=True)]
    return Probe(direction, kept, at.exactly, sees_kinks=False)


def _exactly(at: Ground, index: int, direction: Vector) -> list[Slopes] | None:
    """Complex steps here and a hair's breadth away."""
    found = complex_step.slopes(at.source, index, direction, at.base, at.precision)
    if found is None:
        return None
    jostled = at.source.jostled(tolerances.unit(at.precision), np.random.default_rng(index))
    again = complex_step.slopes(jostled, index, direction, at.base, at.precision, strict=False)
    return complex_step.honest(found, again)


def weakest(found: Sequence[Probe]) -> Oracle:
    """The oracle that every probe of an input had at least."""
    return next((one.oracle for one in found if one.oracle != "complex-step"), "complex-step")
