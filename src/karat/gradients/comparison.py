"""A gradient against what the probes expect, and what the comparison is worth.

Negative controls are gradients made wrong on purpose; a check that does not fail on each is no evidence. They get the
very judgement that the real gradient got, with the same probes and tolerances. No forward is run for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import isfinite, sqrt

import numpy as np

from karat.gradients import roundoff
from karat.gradients.oracles import UNKNOWN, Observations, Probe
from karat.gradients.problem import Vector
from karat.gradients.report import GradComparison, GradVerdict
from karat.gradients.roundoff import norm, places, scales_of
from karat.tensors.device_array import in_blocks


@dataclass(frozen=True, slots=True)
class Expectation:
    """What ⟨Jᵀv, u⟩ should be for one direction and one cotangent."""

    direction: Vector
    dense: bool
    value: float
    error: float  # how far the oracle may be off
    size: float  # the size of the terms whose sum the value is: what a wrong gradient would be wrong by
    weight: float  # the size of the outputs themselves, as the cotangent sees them
    count: int  # how many output elements it is about
    largest: float = 0.0  # the largest element of the cotangent


@dataclass(frozen=True, slots=True)
class Measurement:
    """An expectation and what a gradient gave for it."""

    expected: Expectation
    found: float
    tolerance: float

    @property
    def deviation(self) -> float:
        """How far the gradient is off; infinite for what is not a number."""
        gap = abs(self.found - self.expected.value)
        return gap if isfinite(gap) else np.inf

    @property
    def ratio(self) -> float:
        if self.deviation == 0:
            return 0.0
        return self.deviation / self.tolerance if self.tolerance > 0 else np.inf


def expectations(probes: Sequence[Probe], output: int, cotangent: Vector, base: Vector) -> list[Expectation]:
    """What probes expect of a cotangent. Where the cotangent is 0, the slope need not be known."""
    seen = places(cotangent != 0)
    v = cotangent[seen]
    weight, largest, found = norm(v * base[seen]), float(np.abs(v).max(initial=0.0)), []
    for probe in probes:
        slopes = probe.slopes[output]
        terms, error = v * slopes.value[seen], roundoff.combined(v * slopes.error[seen])
        value, size = float(terms.sum()), norm(terms)
        found.append(Expectation(probe.direction, probe.dense, value, error, size, weight, int(v.size), largest))
    return found


def joint_expectation(parts: Sequence[Expectation]) -> Expectation:
    """What a probe expects of several outputs at once."""
    value, count = sum(one.value for one in parts), sum(one.count for one in parts)
    error, size, weight = np.array([(one.error, one.size, one.weight) for one in parts]).T.copy()
    return replace(parts[0], value=value, error=norm(error), size=norm(size), weight=norm(weight), count=count)


def sensitivity(direction: Vector, gradient: Vector | None, nudged: Vector | None) -> float:
    """The share of a gradient, seen along a direction, that a few units in the last place of the inputs move."""
    if gradient is None or nudged is None:
        return 0.0
    size = norm(gradient * direction)
    moved = norm((gradient - nudged) * direction)
    return moved / size if np.isfinite(moved) and size > 0 else 0.0


def measure(gradient: Vector, expected: Expectation, precision: str, *, unrest: float = 0.0) -> Measurement:
    def part(gradient: Vector, direction: Vector) -> tuple[float, float]:
        # An element without neighbours (infinite, NaN) is not part of the direction.
        moved = places(direction != 0)
        terms = gradient[moved] * direction[moved]
        return terms.sum(), norm(terms[places(np.isfinite(terms))])

    found, sizes = in_blocks(part, gradient, expected.direction)
    size = max(norm(sizes) if np.ndim(sizes) else sizes, expected.size)
    floor = roundoff.analytic_floor(precision, size, gradient.size, unrest)
    return Measurement(expected, float(found.sum()), expected.error + floor)


@dataclass(frozen=True, slots=True)
class Agreement:
    """All probes of one input and output together."""

    measured: tuple[Measurement, ...]
    scale: float  # the largest derivative that was compared
    widest: float  # the widest tolerance

    @property
    def worst(self) -> Measurement:
        return max(self.measured, key=lambda one: one.ratio)

    @property
    def failed(self) -> bool:
        return any(not one.deviation <= one.tolerance for one in self.measured)

    @property
    def zero(self) -> bool:
        """Whether the derivative cannot be distinguished from zero anywhere."""
        return all(one.expected.size <= one.expected.error for one in self.measured)


def judge(measured: Sequence[Measurement], *, rtol: float | None = None) -> Agreement:
    """The judgement; a tolerance that a test asks for replaces narrower ones."""
    scale = max((one.expected.size for one in measured), default=0.0)
    if rtol is not None:
        measured = [replace(one, tolerance=max(one.tolerance, rtol * scale)) for one in measured]
    widest = max((one.tolerance for one in measured), default=np.inf)
    return Agreement(tuple(measured), scale, widest)


def slackened(measured: Sequence[Measurement], seen: Observations, index: int) -> list[Measurement]:
    """The measurements of one input with room for what is inaccurate, and not wrong."""
    flat, scale = judge(measured).zero, judge(measured).scale
    # Where the function does not move at all there is no derivative to be a share of; the cotangent has to do.
    sizes = [one.expected.largest * norm(one.expected.direction) if flat else one.expected.size for one in measured]
    # What a probe of tiny elements sees is no better known than a small share of the largest.
    rooms = [seen.slack * max(size, 0.02 * scale) for size in sizes]
    point = np.abs(seen.baseline.flat.point[index])
    found = []
    for one, room in zip(measured, rooms, strict=True):
        # Next to 0 many derivatives are formed as f(x) / x, and are as far off as that is rounded (sinc).
        near = (np.abs(one.expected.direction) > point) & (point > 0)
        lost = norm(one.expected.direction[near] / point[near]) * one.expected.weight
        least = roundoff.DEVIATIONS * roundoff.unit("float64") * lost
        found.append(replace(one, tolerance=max(one.tolerance, room, min(least, _NEXT_TO_ZERO * room))))
    return found


def smallest_error(judged: Agreement, typical: float) -> float:
    """The smallest error of one element, relative to the typical element, that a dense probe must notice.

    `typical` is the size of a gradient's element times the scale of its input.
    """
    # What is off already hides as much of the other sign; a gradient that is wrong says nothing of a right one.
    dense = [one.tolerance + min(one.deviation, one.tolerance) for one in judged.measured if one.expected.dense]
    if not dense or not typical > 0:
        return np.inf
    # Directions have magnitudes of at least one half.
    return min(dense) / (0.5 * typical)


_NEXT_TO_ZERO = 16.0  # how much more room there is at most, where round-off explains it
LEAST_ERROR = 0.01  # one per cent: the least error that a check has to notice

Group = tuple[Vector, Sequence[Measurement]]  # a gradient for one cotangent, and its measurements


def controls(
    groups: Sequence[Group], shape: tuple[int, ...], scales: Vector, *, rtol: float | None, place: int
) -> dict[str, bool]:
    """Corruption → whether the check failed on it."""
    gradients, judged = [one for one, _ in groups], [judge(some, rtol=rtol).measured for _, some in groups]
    typical = [typical_element(one, scales) for one in gradients]
    turned = [_transposed(one, shape) for one in gradients]

    def fails(corrupted: Callable[[int, Measurement], float]) -> bool:
        each = ((n, one) for n, some in enumerate(judged) for one in some)
        return any(not abs(corrupted(n, one) - one.expected.value) <= one.tolerance for n, one in each)

    def element_fails(place: int) -> bool:
        weight, pairs = float(scales[place]), zip(gradients, typical, strict=True)
        # One per cent of the element, or of a typical one if it is smaller than that.
        least = [max(abs(float(g[place])), t / weight) if weight else 0.0 for g, t in pairs]
        return fails(lambda n, one: one.found + float(one.expected.direction[place]) * LEAST_ERROR * least[n])

    def transposed(n: int, measured: Measurement) -> float:
        other, moved = turned[n], places(measured.expected.direction != 0)
        return measured.found if other is None else float((other[moved] * measured.expected.direction[moved]).sum())

    # The worst element is the one that every direction gives the least weight.
    def least(scales: Vector, *directions: Vector) -> tuple[Vector]:
        return (np.where(scales > 0, reduce(np.maximum, map(np.abs, directions)) / scales, np.inf),)

    (weights,) = in_blocks(least, scales, *[one.expected.direction for one in groups[0][1]])
    caught = {
        "zero": fails(lambda _n, _measured: 0.0),
        "x1.01": fails(lambda _n, measured: (1 + LEAST_ERROR) * measured.found),
        "sign": fails(lambda _n, measured: -measured.found),
        "one element": element_fails(place),
        "worst element": element_fails(int(np.argmin(weights))),
    }
    if any(one is not None for one in turned):
        caught["transposed"] = fails(transposed)
    return caught


def typical_element(gradient: Vector, scales: Vector) -> float:
    """The typical size of a gradient's elements, each times the scale of its input."""

    def part(gradient: Vector, scales: Vector) -> tuple[float, int]:
        terms = gradient * scales
        terms = terms[places(np.isfinite(terms) & (scales > 0))]
        return norm(terms), terms.size

    sizes, counts = in_blocks(part, gradient, scales)
    if np.ndim(sizes) == 0:
        return float(sizes / sqrt(max(1, counts)))
    return norm(sizes) / sqrt(max(1, counts.sum()))


def _flat_element(measured: Sequence[Measurement]) -> float:
    """What an element would be, times its scale, if an output of the typical size moved by as much; or by 1 if all are 0."""
    expected = measured[0].expected
    return expected.weight / float(np.sqrt(max(1, expected.count))) or expected.largest


def _transposed(gradient: Vector, shape: tuple[int, ...]) -> Vector | None:
    """The gradient with its last two axes exchanged and read in the old shape; None where nothing would change."""
    if len(shape) < 2 or min(shape[-2:]) < 2 or gradient.size != int(np.prod(shape)):
        return None
    other: Vector = np.swapaxes(gradient.reshape(shape), -1, -2).reshape(-1)
    return other if norm(other - gradient) > LEAST_ERROR * norm(gradient) else None


NO_GRAD_OP = "; if the op has no gradient by nature, add an exemption of kind no-grad-op to exemptions.toml"
NO_GRADIENT = f"no gradient: None, but the derivative is not zero; write the backward{NO_GRAD_OP}"
NO_SECOND = "no second-order gradient: None, but the derivative of the gradient is not zero; the backward cannot be differentiated"
ZERO = "the gradient is zero, and the function flat, everywhere it was checked"
INACCURATE = "right to about nine digits, not to round-off; strict=True fails on it"


def compare_pair(
    seen: Observations, pair: tuple[int, int], groups: Sequence[Group], *, none: bool
) -> tuple[GradComparison, bool]:
    """The comparison, and whether the derivative is zero everywhere it was checked; `none`: there was no gradient at all."""
    measured = [one for _, some in groups for one in some]
    judged, rtol, used, slack = judge(measured), seen.plan.rtol, None, False
    wide = rtol is not None and rtol * judged.scale > judged.widest
    # What is out of every wider tolerance, too, is judged by the one that was derived.
    if judged.failed and wide and not (widened := judge(measured, rtol=rtol)).failed:
        judged, used = widened, rtol
    elif judged.failed and not (looser := judge(slackened(measured, seen, pair[0]))).failed:
        off, slack = judged.worst.deviation / (judged.scale or 1.0), True
        judged, groups = looser, [(g, slackened(some, seen, pair[0])) for g, some in groups]
    verdict, reason = _verdict(seen, pair[1], judged, none=none, widened=used is not None)
    if slack and verdict.holds:
        verdict, reason = GradVerdict.INACCURATE, f"off by {off:.1g} of its size: {INACCURATE}"
    zero = judged.zero and verdict.holds
    flat, i = seen.baseline.flat, pair[0]
    slot, scales = flat.inputs[i], scales_of(flat, i)
    # By the cotangent that sees most; each has its own size of gradient.
    typical = [_flat_element(some) if zero else typical_element(gradient, scales) for gradient, some in groups]
    sees = min(smallest_error(judge(some, rtol=used), at) for (_, some), at in zip(groups, typical, strict=True))
    caught = {"one element": sees < LEAST_ERROR} if zero else {}
    if not zero and np.isfinite(judged.widest):
        shape = (*slot.shape, 2) if slot.complex else slot.shape
        caught = controls(groups, shape, scales, rtol=used, place=seen.plan.place(scales.size, *pair))
    scale = judged.scale or 1.0
    made = seen.comparison(
        pair,
        verdict,
        reason,
        error=judged.worst.deviation / scale,
        tolerance=judged.worst.tolerance / scale,
        scale=judged.scale,
        smallest_error=sees,
        probes=len(judged.measured),
        controls=caught,
        widened=rtol if wide else None,
    )
    return made, zero


def _verdict(
    seen: Observations, output: int, judged: Agreement, *, none: bool, widened: bool
) -> tuple[GradVerdict, str]:
    # Whether anything is left to compare once unknown slopes are out.
    if not any(one.expected.count for one in judged.measured) or not np.isfinite(judged.widest):
        return GradVerdict.INCONCLUSIVE, UNKNOWN
    computes, worst, scale = seen.baseline.computes, judged.worst, judged.scale
    cap, share = roundoff.cap(computes), judged.widest / scale if scale else np.inf
    known = f"the expected derivative is known to {share:.1g} of its size, but {computes} needs {cap:g}"
    noisy = f"{known}: the forward is noisy, or not smooth near the point"
    if not judged.failed:
        size, doubt = scale, seen.lost(output)
        if judged.zero:
            expected = [one.expected for one in judged.measured]
            size = max(one.weight for one in expected) or max(one.largest for one in expected)
        if not doubt and judged.widest > max(cap * size, roundoff.NOTHING) and not widened:
            doubt = noisy
        if doubt:
            return GradVerdict.INCONCLUSIVE, doubt
        flat = f"{ZERO}; the framework gives None" if none else ZERO
        return GradVerdict.PASS, flat if judged.zero else ""
    if none:
        return GradVerdict.FAIL, NO_GRADIENT if seen.plan.order == 1 else NO_SECOND
    if not np.isfinite(worst.found):
        if seen.masks[output].any():
            edge = "the gradient is not finite, and not every slope is: the point is at the edge of the domain"
            return GradVerdict.INCONCLUSIVE, edge
        return GradVerdict.FAIL, "the gradient is not finite where the derivative is"
    # Beyond the cap the error estimate is itself in doubt; what is far out of it is wrong all the same.
    if worst.tolerance > cap * scale and worst.deviation < 100 * worst.tolerance:
        return GradVerdict.INCONCLUSIVE, noisy
    values = f"expected {worst.expected.value:.6g}, found {worst.found:.6g}"
    gap = f"off by {worst.deviation / (scale or 1.0):.2g} of its size along a probe ({values})"
    if seen.plan.atol is not None and worst.deviation <= seen.plan.atol:
        gap = f"{gap}; only the absolute tolerance {seen.plan.atol:g} excuses it, and that proves nothing"
        return GradVerdict.INCONCLUSIVE, gap
    return GradVerdict.FAIL, gap
