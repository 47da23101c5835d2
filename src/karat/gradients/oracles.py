"""Oracles: expected slopes along directions, from whichever source knows best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from karat.gradients import complex_step, tolerances
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
    dense: bool


@dataclass(frozen=True, slots=True)
class Ground:
    """What every probe at a point starts from."""

    flat: Flat
    base: list[Vector]
    noise: list[Vector]
    """What each element of a forward may be off: a few units in the last place, or what two runs differ by."""
    precision: str
    steps: tuple[Ladder, ...]
    oracle: Oracle = "differences"


def ground(
    flat: Flat, precision: str, *, delta: float | None = None, oracle: Oracle = "differences"
) -> Ground:
    """The forward at the point, twice: what differs between the two is noise."""
    with np.errstate(all="ignore"):
        base, again = flat.base(), flat.forward(flat.point)
        noise = [_noise(one, two, precision) for one, two in zip(base, again, strict=True)]
    return Ground(flat, base, noise, precision, ladders(precision, delta), oracle)


def _noise(one: Vector, two: Vector, precision: str) -> Vector:
    measured = np.abs(one - two)
    common = float(np.nanmax(measured, initial=0.0)) if np.any(measured > 0) else 0.0
    return tolerances.ULPS * tolerances.unit(precision) * np.abs(one) + common


def line(flat: Flat, index: int, direction: Vector) -> Line:
    """The outputs along one direction of one input."""

    def outputs(distance: float) -> list[Vector]:
        with np.errstate(all="ignore"):
            return flat.moved(index, distance * direction)

    return outputs


def probes(at: Ground, index: int, rng: np.random.Generator) -> list[Probe]:
    """The probes of one input: the first by differences, the rest by complex steps if those agree with it."""
    point = at.flat.point[index]
    scales = element_scales(point)
    drawn = [scales * one for one in directions(at.flat.inputs[index], point, rng)]
    first = Probe(drawn[0], _sweep(at, index, drawn[0]), at.oracle, dense=True)
    exact = complex_step.slopes(at.flat, index, drawn[0], at.base, at.precision)
    if exact is not None and complex_step.agrees(exact, first.slopes):
        kept = complex_step.merged(exact, first.slopes)
        return [
            Probe(drawn[0], kept, "complex-step", dense=True),
            *(_exact(at, index, one) for one in drawn[1:]),
        ]
    rest = [Probe(one, _sweep(at, index, one), at.oracle, dense=_full(one)) for one in drawn[1:]]
    return [first, *rest]


def _exact(at: Ground, index: int, direction: Vector) -> Probe:
    found = complex_step.slopes(at.flat, index, direction, at.base, at.precision)
    if found is None:
        return Probe(direction, _sweep(at, index, direction), at.oracle, dense=_full(direction))
    return Probe(direction, found, "complex-step", dense=_full(direction))


def _sweep(at: Ground, index: int, direction: Vector) -> list[Slopes]:
    return sweep(line(at.flat, index, direction), at.base, at.noise, at.steps)


def _full(direction: Vector) -> bool:
    return bool(np.all(direction != 0))


def weakest(found: Sequence[Probe]) -> Oracle:
    """The oracle that every probe of an input had at least."""
    return next((one.oracle for one in found if one.oracle != "complex-step"), "complex-step")
