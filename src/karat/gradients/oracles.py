"""Oracles: what the slope along each probe should be, from whichever source knows best; and which elements stay unknown.

The source is the function itself (complex steps, differences) or a reference, a float64 function in its place (`references`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from operator import or_
from typing import Any

import numpy as np

from karat.gradients import roundoff, slopes
from karat.gradients.draws import PROBES, CheckPlan, Purpose, directions, random_weights
from karat.gradients.problem import FlatProblem, Vector
from karat.gradients.report import GradComparison, GradVerdict, Mode, Oracle, Property
from karat.gradients.roundoff import natural_sizes, power_of_two, scales_of
from karat.gradients.slopes import Ladder, Line, Mask, Slopes, ladders, slopes_on_line, unresolved
from karat.report.words import count

UNKNOWN = "no slope is known: near the point the function is not smooth, or not finite"
_OTHER = 0.59  # no power of two: steps of other lengths are to meet other places
_LOOKS = 8  # how many probes are looked at again, and how many sums of directions
_APART = 1e-9  # how far two implementations of one forward may be apart, relative to the elements' sizes
_BENT = 1e-4  # how far their slopes may be apart, which differences know less well


@dataclass(frozen=True, slots=True)
class Probe:
    """One direction of one input, and how every output changes along it."""

    direction: Vector
    slopes: list[Slopes]
    oracle: Oracle
    sees_kinks: bool  # complex steps do not: they silently take one side
    dense: bool = False  # whether it moves every element that can be moved


@dataclass(frozen=True, slots=True)
class ForwardBaseline:
    """What every probe at a point starts from."""

    flat: FlatProblem  # the function that is checked
    source: FlatProblem  # the function whose slopes are believed: the same one, or a reference
    base: list[Vector]
    noise: list[Vector]  # what each element of a forward may be off
    computes: str  # the precision of both: a function that computes in a lower one than its reference is a kernel
    steps: tuple[Ladder, ...]
    oracle: Oracle  # what the source's differences are called in a report


def baseline(flat: FlatProblem, source: FlatProblem | None = None) -> ForwardBaseline:
    """The forward at the point, and how rough it is."""
    computes, source = flat.problem.computes, flat if source is None else source
    base = source.base()
    rough = roundoff.noise(source, base, computes)
    oracle: Oracle = "differences" if source is flat else "reference"
    return ForwardBaseline(flat, source, base, rough, computes, ladders(computes), oracle)


def slopes_along(at: ForwardBaseline, index: int, direction: Vector) -> list[Slopes]:
    """The slopes of all outputs along any direction of one input, by differences."""
    return _slopes(at, partial(at.source.along, {index: direction}))


def _slopes(at: ForwardBaseline, line: Line) -> list[Slopes]:
    return slopes_on_line(line, at.base, at.noise, at.steps, unit=roundoff.unit(at.computes))


def probe_input(
    at: ForwardBaseline,
    index: int,
    seed: int | tuple[int, ...],
    *,
    whole: bool = True,
    dense: int = PROBES,
    held: Mask | None = None,
) -> list[Probe]:
    """The probes of one input: the first by differences, the rest by complex steps if those agree with it.

    `whole` looks at the whole Jacobian where it is small; elements that are `held` are not moved.
    """
    point = at.flat.point[index]
    scales = scales_of(at.flat, index) if held is None else np.where(held, 0.0, scales_of(at.flat, index))
    drawn = [scales * one for one in directions(at.flat.inputs[index], point, seed, whole=whole, dense=dense)]
    if not any(one.any() for one in drawn):
        return []
    first = slopes_along(at, index, drawn[0])
    exact = _complex_slopes(at, index, drawn[0])
    known = None if exact is None else slopes.confirmed_by(exact, first)
    movable, made = np.count_nonzero(scales), []
    exactly: Oracle = "complex-step" if at.source is at.flat else "reference"
    for n, one in enumerate(drawn):
        dense = bool(np.count_nonzero(one) == movable)
        found = exact if n == 0 else None if known is None else _complex_slopes(at, index, one)
        if found is None or known is None:
            by_steps = slopes_along(at, index, one) if n else first
            made.append(Probe(one, by_steps, at.oracle, sees_kinks=True, dense=dense))
        elif n == 0:
            kept = [slopes.merged(*each) for each in zip(found, first, known, strict=True)]
            made.append(Probe(one, kept, exactly, sees_kinks=True, dense=dense))
        else:
            kept = [slopes.where_known(*each) for each in zip(found, known, strict=True)]
            made.append(Probe(one, kept, exactly, sees_kinks=False, dense=dense))
    return made


def _complex_slopes(at: ForwardBaseline, index: int, direction: Vector) -> list[Slopes] | None:
    """Complex steps here and a few units in the last place away."""
    found = slopes.complex_slopes(at.source, index, direction, at.base, at.computes)
    if found is None:
        return None
    beside = at.source.nudged(roundoff.unit(at.computes), index)
    again = slopes.complex_slopes(beside, index, direction, at.base, at.computes, again=True)
    return slopes.with_roundoff(found, again)


def weakest_oracle(found: Sequence[Probe]) -> Oracle:
    """The oracle that every probe of an input had at least."""
    return next((one.oracle for one in found if one.oracle != "complex-step"), "complex-step")


def balance(base: Vector, slopes: Sequence[Slopes]) -> Vector:
    """What to divide each output element by, so that no large one drowns a small one; mostly ones."""
    sizes = np.where(np.isfinite(base), np.abs(base), 0.0)
    doubt = np.zeros_like(sizes)
    for one in slopes:
        known = np.isfinite(one.error) & np.isfinite(one.value)
        sizes = np.maximum(sizes, np.where(known & (np.abs(one.value) > one.error), np.abs(one.value), 0.0))
        doubt = np.maximum(doubt, np.where(known, one.error, 0.0))
    if sizes.max(initial=0.0) <= 2.0**12 * np.where(sizes > 0, sizes, np.inf).min(initial=np.inf):
        return np.ones_like(base)
    common = roundoff.typical_size(sizes)
    # An element whose slope is hardly known must not be made to count more than the others.
    scales = power_of_two(np.maximum(np.where(sizes > 0, sizes, common), 1e9 * doubt))
    clipped: Vector = np.clip(scales, 2.0**-960, 2.0**960)
    return clipped


@dataclass(frozen=True, slots=True)
class Observations:
    """All that the probes of one point know."""

    baseline: ForwardBaseline
    plan: CheckPlan
    probes: list[list[Probe]]  # per input; none for those that were not asked for or hold nothing
    masks: list[Mask]  # per output, elements that the main comparison leaves out: no slope, or two
    kinks: list[Mask]  # per output, elements that have two slopes
    # Where there are kinks: the distance of a common shift of all inputs that counts as one, and the slopes along it.
    shift: tuple[float, list[Slopes]] | None = None

    @property
    def slack(self) -> float:
        """The share by which a gradient may be inaccurate, and is not wrong; none if the check is strict."""
        double = self.baseline.computes == "float64"
        return roundoff.INACCURATE if double and not self.plan.strict else 0.0

    def slopes(self, output: int) -> list[Slopes]:
        """Of one output, along every direction of every input."""
        return [one.slopes[output] for of_input in self.probes for one in of_input]

    def lost(self, output: int) -> str:
        """Why an output does not allow a verdict: it is not finite; empty for others."""
        lost = int(np.count_nonzero(~np.isfinite(self.baseline.base[output])))
        return f"the forward itself is infinite or NaN in {count(lost, 'place')}" if lost else ""

    def elements(self, pair: tuple[int, int]) -> dict[str, int]:
        """How many are checked, kinks of this very input, and not judged."""
        (i, k), probes = pair, self.probes[pair[0]]
        if not probes:
            return {"unjudged": self.masks[k].size}
        kinks = self.kinks[k]
        if kinks.any():
            kinks = kinks & reduce(or_, (one.slopes[k].kinked for one in probes))
        checked, kinked = int(np.count_nonzero(~self.masks[k])), int(np.count_nonzero(kinks))
        unmoved = self.baseline.flat.point[i].size - int(np.count_nonzero(probes[0].direction))
        return {"checked": checked, "kinks": kinked, "unjudged": kinks.size - checked - kinked + unmoved}

    def comparison(
        self, pair: tuple[int, int], verdict: GradVerdict, reason: str, *, mode: Mode = "reverse", **more: Any
    ) -> GradComparison:
        """A comparison of one input and one output, with what is the same for all; vacuous if a corruption went unnoticed."""
        flat, dtype, (i, k) = self.baseline.flat, self.baseline.computes, pair
        if flat.inputs[i].complex:
            dtype = {"float64": "complex128", "float32": "complex64"}.get(dtype, dtype)
        compared = verdict.holds or "probes" in more or reason == UNKNOWN
        more |= self.elements(pair) if compared else {"unjudged": self.masks[k].size}
        missed = ", ".join(name for name, noticed in more.get("controls", {}).items() if not noticed)
        if verdict.holds and missed:
            reason = f"a corrupted {'gradient' if mode == 'reverse' else 'tangent'} would have passed, too ({missed})"
        return GradComparison(
            input=flat.inputs[i].name,
            output=flat.outputs[k].name,
            dtype=dtype,
            mode=mode,
            order=self.plan.order,
            verdict=verdict,
            reason=reason,
            oracle=weakest_oracle(self.probes[i]) if self.probes[i] else self.baseline.oracle,
            vacuous=verdict.holds and bool(missed),
            **more,
        )


def observe(at: ForwardBaseline, plan: CheckPlan, held: Sequence[Mask] | None = None) -> Observations:
    """Every probe's slopes, and what they leave open."""
    found: list[list[Probe]] = [[] for _ in at.flat.point]
    for index, point in enumerate(at.flat.point):
        if index in plan.inputs and point.size:
            still = None if held is None else held[index]
            seed = plan.stream(Purpose.DIRECTIONS, index)
            found[index] = probe_input(at, index, seed, whole=plan.order == 1, dense=plan.probes, held=still)
    seen = Observations(at, plan, found, [], [])
    for k, base in enumerate(at.base):
        unknown = ~np.isfinite(base)
        kink = np.zeros_like(base, np.bool_)
        for probe in (one for of_input in found for one in of_input):
            slopes = probe.slopes[k]
            kink |= slopes.kinked
            # What complex steps leave open at a kink is known from differences.
            excused = kink if not probe.sees_kinks else np.False_
            unknown |= unresolved(slopes, base, at.computes) & ~excused
        seen.masks.append(unknown | kink)
        seen.kinks.append(kink & ~unknown)
    if not any(one.any() for one in seen.kinks):
        return seen
    # Where everything moves by the same, what is tied stays tied, and a maximum has one slope again.
    scales = [scales_of(at.flat, n) for n in range(len(at.flat.point))]
    unit = min(float(np.median(one[one > 0])) for one in scales if np.any(one > 0))
    return replace(seen, shift=(unit, _slopes(at, partial(at.source.along, dict.fromkeys(range(len(scales)), unit)))))


def doubts(seen: Observations) -> list[Mask]:
    """Per output, elements whose slopes are contradicted: by steps of other lengths, or by those of two directions together.

    Slopes of a differentiable function add up. Those of sorted values at ties do not, though none of them need have a kink.
    """
    at = seen.baseline
    other = replace(at, steps=tuple(tuple(_OTHER * step for step in ladder) for ladder in at.steps[1:]))
    found = [np.zeros_like(one, np.bool_) for one in at.base]
    for index, probes in enumerate(seen.probes):
        if not probes:
            continue
        scales, rng = scales_of(at.flat, index), seen.plan.draw(Purpose.DOUBTS, index)
        drawn = [scales * random_weights(scales.size, rng, scales) for _ in range(_LOOKS + 1)]
        looks = [(one.slopes, slopes_along(other, index, one.direction)) for one in probes[:_LOOKS]]
        for k in range(len(found)):
            for here, again in looks:
                # At a kink complex steps took one side, and differences stand between the two.
                apart = _apart(here[k].value, again[k].value, here[k].error + again[k].error)
                found[k] |= apart & ~seen.kinks[k]
        along = [slopes_along(at, index, one) for one in drawn]
        for (a, one), (b, two) in pairwise(zip(drawn, along, strict=True)):
            both = slopes_along(at, index, a + b)
            for k in range(len(found)):
                error = one[k].error + two[k].error + both[k].error
                found[k] |= _apart(one[k].value + two[k].value, both[k].value, error)
    return found


def _apart(one: Vector, two: Vector, error: Vector) -> Mask:
    """Where two values of one slope differ by more than their errors explain."""
    found: Mask = np.isfinite(error) & (np.abs(one - two) > 8 * error + 1e-9 * np.maximum(np.abs(one), np.abs(two)))
    return found


def same_forward(ours: Sequence[Vector], theirs: Sequence[Vector]) -> Property:
    """Whether the function and its reference give the same outputs at the point."""
    worst = 0.0
    for one, two in zip(ours, theirs, strict=True):
        gap = np.abs(one - two) / np.maximum(natural_sizes(two), roundoff.TINY)
        gap[(one == two) | (np.isnan(one) & np.isnan(two))] = 0.0
        worst = max(worst, float(np.max(np.where(np.isnan(gap), np.inf, gap), initial=0.0)))
    verdict, why = GradVerdict.PASS, ""
    if worst > _APART:
        verdict, why = GradVerdict.FAIL, f"the forward differs from its reference by {worst:.3g} of its size"
    return Property(name="reference-forward", verdict=verdict, detail=why, measured=worst, bound=_APART)


def same_slopes(probes: Mapping[int, tuple[ForwardBaseline, Probe]]) -> Iterator[Property]:
    """Whether a reference has the slopes of the function, along one direction of each input.

    One that agrees at the point alone could have the slopes of a wrong backward.
    """
    for index, (at, probe) in probes.items():
        own = slopes_along(baseline(at.flat), index, probe.direction)
        worst, name = 0.0, at.flat.inputs[index].name
        for mine, theirs in zip(own, probe.slopes, strict=True):
            apart = _apart(mine.value, theirs.value, mine.error + theirs.error) & ~(mine.kinked | theirs.kinked)
            size = max(float(np.max(np.abs(mine.value[np.isfinite(mine.value)]), initial=0.0)), roundoff.TINY)
            worst = max(worst, float(np.max(np.abs(mine.value - theirs.value)[apart], initial=0.0)) / size)
        verdict, why = GradVerdict.PASS, ""
        if worst > _BENT:
            whose, verdict = f"the slopes of the reference by {name}", GradVerdict.FAIL
            why = f"{whose} differ from those of the function by {worst:.3g} of their size"
        yield Property(name="reference-slopes", verdict=verdict, detail=why, measured=worst, bound=_BENT)
