"""Every input against every output: in reverse and forward mode at one point, and nearby where that says too little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from math import log2
from typing import Any

import msgspec
import numpy as np

from karat.gradients import comparison, oracles, roundoff, slopes
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.draws import CheckPlan, Purpose, random_weights
from karat.gradients.oracles import ForwardBaseline, Observations, Probe, baseline, observe
from karat.gradients.problem import FlatProblem, MalformedGradient, Unsupported, Vector, error_line, size
from karat.gradients.report import GradComparison, GradVerdict
from karat.gradients.roundoff import natural_sizes, places, sample
from karat.gradients.slopes import Mask
from karat.gradients.sums import SHARP, sums_of
from karat.report.words import count, few
from karat.tensors.device_array import drawn

PROBES = 3
Pushed = tuple[Probe, list[Vector]]  # a probe, and J·u of every output along it
_ROOM = 8.0  # one element's error estimate may be small by chance; sums of many are not


@dataclass(frozen=True, slots=True)
class Tangent:
    """One output along one direction: what came out, what was expected, what may differ."""

    found: Vector
    expected: Vector
    allowed: Vector

    def fails(self, found: Vector) -> bool:
        return not bool((np.abs(found - self.expected) <= self.allowed).all())


def compare_forward(seen: Observations, pair: tuple[int, int], pushed: Sequence[Pushed]) -> GradComparison | None:
    """The forward mode of one pair; None where the derivative and the tangents are zero."""
    k = pair[1]
    if np.count_nonzero(pushed[0][0].direction) < pushed[0][0].direction.size:
        # What cannot be moved is at the edge of a domain, where 0 times an infinite slope is NaN.
        lost = np.isnan([given[k] for _, given in pushed]).any(0)
        seen = replace(seen, masks=[one | lost if n == k else one for n, one in enumerate(seen.masks)])
    keep = places(~seen.masks[k])
    unit_roundoff = roundoff.unit(seen.baseline.computes)
    tangents: list[Tangent] = []
    natural: list[Vector] = []
    depth = 1.0 + log2(max(2, seen.baseline.flat.point[pair[0]].size))
    outputs = np.abs(seen.baseline.base[k][keep])
    for probe, given in pushed:
        value = probe.slopes[k].value[keep]
        natural.append((natural_sizes(value) if value.any() else np.abs(value)) + outputs)
        allowed = _ROOM * probe.slopes[k].error[keep] + 16 * depth * unit_roundoff * natural[-1]
        tangents.append(Tangent(given[k][keep], value, allowed))
    if seen.masks[k].all():
        return seen.comparison(pair, GradVerdict.INCONCLUSIVE, oracles.UNKNOWN, mode="forward")
    scale, used = max(_rms(one.expected) for one in tangents), None
    failed = any(one.fails(one.found) for one in tangents)
    # As for gradients: what a test asks for beyond what is derived is used, and recorded; what is inaccurate is not wrong.
    slack, off = False, 0.0
    if failed and seen.plan.rtol is not None and (wider := _wider(tangents, [seen.plan.rtol * scale] * len(tangents))):
        tangents, failed, used = wider, False, seen.plan.rtol
    # What is less than the last place of the others may be lost to them: an inverse mixes all scales; so does a tail.
    least = 16 * depth * unit_roundoff * scale
    if failed and seen.slack and (wider := _wider(tangents, [seen.slack * one + least for one in natural])):
        off, tangents, failed, slack = _worst(tangents)[0], wider, False, True
    zero = all((np.abs(one.expected) <= one.allowed).all() for one in tangents)
    if zero and not failed and used is None and not slack:
        return None
    error, tolerance = _worst(tangents)
    unit = scale or 1.0
    verdict, reason = GradVerdict.PASS, ""
    noise = max(roundoff.median(sample(one.allowed)) for one in tangents)
    too_noisy = noise > roundoff.cap(seen.baseline.computes) * scale and error <= 100 * tolerance
    if too_noisy and used is None:
        verdict, reason = GradVerdict.INCONCLUSIVE, "the forward is too noisy to judge tangents by"
    elif failed:
        verdict = GradVerdict.FAIL
        reason = f"J·u by forward mode is off by {error / unit:.2g} of its size at an element, {tolerance / unit:.2g} is explained"
    if slack and verdict.holds:
        verdict, reason = GradVerdict.INACCURATE, f"off by {off / unit:.1g} of its size: {comparison.INACCURATE}"
    if verdict.holds and seen.lost(k):
        verdict, reason = GradVerdict.INCONCLUSIVE, seen.lost(k)
    return seen.comparison(
        pair,
        verdict,
        reason,
        mode="forward",
        error=error / unit,
        tolerance=tolerance / unit,
        scale=scale,
        smallest_error=min(float(np.max(2 * one.allowed)) for one in tangents) / unit,
        probes=len(tangents),
        controls=_controls(seen, pair, tangents),
        widened=used,
    )


def _wider(tangents: Sequence[Tangent], least: Sequence[Vector | float]) -> list[Tangent]:
    """The tangents with at least so much allowed; none if one fails even so."""
    found = [replace(one, allowed=np.maximum(one.allowed, more)) for one, more in zip(tangents, least, strict=True)]
    return [] if any(one.fails(one.found) for one in found) else found


def _worst(tangents: Sequence[Tangent]) -> tuple[float, float]:
    """The deviation and the tolerance of the element that is furthest out."""
    worst = (0.0, 0.0, -1.0)
    for one in tangents:
        gap = np.abs(one.found - one.expected)
        gap = np.where(np.isfinite(gap), gap, np.inf)
        ratio = np.where(gap == 0, 0.0, gap / np.maximum(one.allowed, roundoff.TINY))
        place = int(np.argmax(ratio))
        worst = max(worst, (float(gap[place]), float(one.allowed[place]), float(ratio[place])), key=lambda one: one[2])
    return worst[0], worst[1]


def _controls(seen: Observations, pair: tuple[int, int], tangents: Sequence[Tangent]) -> dict[str, bool]:
    drawn = seen.plan.place(tangents[0].found.size, *pair, 1)
    worst = int(np.argmax(tangents[0].allowed))
    changed: dict[str, Callable[[Vector], Vector]] = {
        "zero": np.zeros_like,
        "x1.01": lambda one: (1 + comparison.LEAST_ERROR) * one,
        "sign": lambda one: -one,
        "one element": lambda one: _off(one, drawn),
        "worst element": lambda one: _off(one, worst),
    }
    return {name: any(one.fails(change(one.found)) for one in tangents) for name, change in changed.items()}


def _off(found: Vector, place: int) -> Vector:
    """One element off by one per cent of itself, or of a typical one."""
    other = found.copy()
    other[place] += comparison.LEAST_ERROR * max(abs(float(found[place])), _rms(found))
    return other


def _rms(values: Vector) -> float:
    return roundoff.norm(values[places(np.isfinite(values))]) / float(np.sqrt(max(1, values.size)))


@dataclass(frozen=True, slots=True)
class Pair:
    """One input against one output: the comparison, and what a diagnosis needs."""

    input: int
    output: int
    comparison: GradComparison
    cotangent: Vector | None = None
    gradient: Vector | None = None
    masked: bool = False  # whether output elements were left out
    zero: bool = False  # whether the derivative is zero everywhere it was checked
    settled: bool = False  # whether no point nearby would tell more
    baseline: ForwardBaseline | None = None
    probes: Sequence[Probe] = ()  # what was asked of the function, along which directions


@dataclass(frozen=True, slots=True)
class Pullback:
    """One output's cotangents, and the gradients of every input for each."""

    cotangents: list[Vector]
    gradients: list[list[Vector | None]]
    # The same for the output elements at kinks alone.
    at_kinks: tuple[Vector, list[Vector | None]] | None
    beside: Callable[[], list[Vector | None]]
    """The gradients for the first cotangent, a few units in the last place away: what round-off makes of them."""


def examine_point(at: ForwardBaseline, plan: CheckPlan) -> list[Pair]:
    seen = observe(at, plan)
    found = _pairs(seen)
    # At the edge of a domain a gradient may be infinite, and rightly so; the other elements are judged without that one.
    lost = [one for one in found if one.masked and one.gradient is not None and not one.comparison.verdict.holds]
    held: list[Mask] = [np.zeros_like(one, np.bool_) for one in at.flat.point] if lost else []
    for one in lost:
        if one.gradient is not None and one.comparison.verdict is GradVerdict.INCONCLUSIVE:
            held[one.input] = held[one.input] | ~np.isfinite(one.gradient)
    if any(one.any() and not one.all() for one in held):
        seen = observe(at, plan, held)
        found = _pairs(seen)
    if any(one.comparison.verdict is GradVerdict.FAIL for one in found):
        # Nothing is called wrong by a slope that other steps, or the sum of two directions, contradict.
        doubts = oracles.doubts(seen)
        if plan.order > 1:
            # What is less than the last place of the others may be missing from a gradient's small elements, and not from
            # its derivative: a softmax that is 1 to the last digit. Gradients compare as shares of what they belong to.
            scales = [*map(roundoff.typical_size, at.flat.point), *[1.0] * len(at.base)]
            outputs = [np.where(np.isfinite(one), np.abs(one), 0.0) for one in at.base]
            sizes = [one * scale for scale, one in zip(scales, outputs, strict=False)]
            for k, scale in enumerate(scales[: len(sizes)]):
                for of in seen.slopes(k):
                    size = scale * np.abs(of.value)
                    sizes[k] = np.where(scale * of.error < size, np.maximum(sizes[k], size), sizes[k])
            least = roundoff.unit(at.computes) / roundoff.INACCURATE * max(one.max(initial=0.0) for one in sizes)
            doubts = [one | (size < least) for one, size in zip(doubts, sizes, strict=True)]
        masks = [one | mask for one, mask in zip(doubts, seen.masks, strict=True)]
        kinks = [kink & ~one for one, kink in zip(doubts, seen.kinks, strict=True)]
        if any(one.any() for one in doubts):
            found = _pairs(replace(seen, masks=masks, kinks=kinks))
    return found


def _pairs(seen: Observations) -> list[Pair]:
    plan = seen.plan
    pulled: dict[int, Pullback] = {}
    found: list[Pair] = []
    for k in sorted(plan.outputs):
        try:
            pulled[k] = _pull(seen, k)
        except Exception as error:  # noqa: BLE001 - whatever a backward raises, there is no gradient
            found += [_raised(seen, (i, k), error) for i in sorted(plan.inputs)]
            continue
        found += [_reverse(seen, (i, k), pulled[k]) for i in sorted(plan.inputs)]
    if len(pulled) > 1 and not any(one.comparison.verdict is GradVerdict.FAIL for one in found):
        found += _jointly(seen, pulled)
    return [*found, *_forward(seen, found)] if plan.forward else found


def _pull(seen: Observations, k: int) -> Pullback:
    base, mask = seen.baseline.base[k], seen.masks[k]
    sizes = oracles.balance(base, seen.slopes(k))
    weights = drawn(random_weights, seen.plan.stream(Purpose.COTANGENTS, k), [base] * seen.plan.probes)
    given = [np.where(mask, 0.0, one / sizes) for one in weights]
    extra = seen.plan.extra[k] if k < len(seen.plan.extra) else None
    if extra is not None:
        given.append(np.where(mask, 0.0, extra))
    gradients, flat = [_gradients(seen, {k: one}) for one in given], seen.baseline.flat

    @cache
    def beside() -> list[Vector | None]:
        near = flat.nudged(roundoff.unit(seen.baseline.computes), seen.plan.stream(Purpose.COTANGENTS, k, 2))
        with suppress(Exception):
            return near.vjp([given[0] if j == k else None for j in range(len(flat.outputs))])
        return [None] * len(flat.inputs)

    if not seen.kinks[k].any():
        return Pullback(given, gradients, None, beside)
    positive = np.abs(random_weights(mask.size, seen.plan.draw(Purpose.KINKS, k), mask))
    cotangent = np.where(seen.kinks[k], positive, 0.0)
    return Pullback(given, gradients, (cotangent, _gradients(seen, {k: cotangent})), beside)


def _gradients(seen: Observations, given: dict[int, Vector]) -> list[Vector | None]:
    return seen.baseline.flat.vjp([given.get(k) for k in range(len(seen.baseline.base))])


def _raised(seen: Observations, pair: tuple[int, int], error: Exception) -> Pair:
    exemption = comparison.NO_GRAD_OP if seen.plan.order == 1 else ""
    verdict, why = GradVerdict.FAIL, f"no gradient: the backward raised {error_line(error)}{exemption}"
    if isinstance(error, Unsupported):
        # It was not the backward that refused.
        verdict, why = GradVerdict.INCONCLUSIVE, f"no gradient could be asked for: {error_line(error)}"
    elif isinstance(error, MalformedGradient):
        # There is one, and it is wrong: no reason to exempt the op.
        why = f"no gradient to compare: {error}"
    return Pair(*pair, seen.comparison(pair, verdict, why))


def _reverse(seen: Observations, pair: tuple[int, int], pulled: Pullback) -> Pair:
    i, k = pair
    base, probes = seen.baseline.base[k], seen.probes[i]
    if not probes or not base.size:
        why = "nothing to compare: the input or the output has no elements"
        return Pair(i, k, seen.comparison(pair, GradVerdict.INCONCLUSIVE, why))
    given = [one[i] for one in pulled.gradients]
    computes, groups = seen.baseline.computes, []
    for cotangent, gradient in zip(pulled.cotangents, given, strict=True):
        found = np.zeros(seen.baseline.flat.point[i].size) if gradient is None else gradient
        expected = comparison.expectations(probes, k, cotangent, base)
        groups.append((found, [comparison.measure(found, one, computes) for one in expected]))
    if any(one.ratio > 1 for _, measured in groups for one in measured):
        nudged = pulled.beside()[i]
        unrest = [comparison.sensitivity(one.direction, given[0], nudged) for one in probes]
        for found, measured in groups:
            pairs = list(zip(measured, unrest, strict=True))
            measured[:] = [comparison.measure(found, each.expected, computes, unrest=n) for each, n in pairs]
    none, masked = all(one is None for one in given), bool(seen.masks[k].any())
    compared, zero = comparison.compare_pair(seen, pair, groups, none=none)
    made = Pair(
        i, k, compared, pulled.cotangents[0], given[0], masked=masked, zero=zero, baseline=seen.baseline, probes=probes
    )
    return made if pulled.at_kinks is None else _at_kinks(seen, made, pulled.at_kinks)


def _at_kinks(seen: Observations, pair: Pair, pulled: tuple[Vector, list[Vector | None]]) -> Pair:
    """There the gradient lies between the one-sided slopes, or is wrong."""
    i, k = pair.input, pair.output
    cotangent, precision = pulled[0], seen.baseline.computes
    sides = zip(pulled[1], seen.baseline.flat.point, strict=True)
    gradients = [np.zeros_like(point) if one is None else one for one, point in sides]
    probes = [one for one in seen.probes[i] if one.sees_kinks]
    kinks = max((int(np.sum(one.slopes[k].kinked)) for one in probes), default=0)
    if not kinks:
        return pair
    along = [(one.direction, one.slopes[k]) for one in probes]
    violations = [slopes.kink_violation(*each, cotangent, gradients[i], precision) for each in along]
    if seen.shift is not None:
        everything = np.concatenate(gradients)
        finite = np.isfinite(np.concatenate(seen.baseline.flat.point))
        direction = np.where(finite, seen.shift[0], 0.0)
        violations.append(slopes.kink_violation(direction, seen.shift[1][k], cotangent, everything, precision))
    outside = next((text for text in violations if text), "")
    within = f"at {kinks:,} kinks the gradient lies between the one-sided slopes"
    changed: dict[str, Any] = {"reason": pair.comparison.reason or within}
    if outside:
        changed = {"verdict": GradVerdict.FAIL, "reason": outside, "vacuous": False}
    return replace(pair, comparison=msgspec.structs.replace(pair.comparison, **changed))


def _jointly(seen: Observations, pulled: dict[int, Pullback]) -> list[Pair]:
    """All outputs at once; listed only where that fails and each by itself did not."""
    cotangent = {k: one.cotangents[0] for k, one in pulled.items()}
    first = next(iter(pulled))
    try:
        gradients = _gradients(seen, cotangent)
    except Exception as error:  # noqa: BLE001 - as for one output
        return [_raised(seen, (i, first), error) for i in sorted(seen.plan.inputs)]
    found = []
    for i in sorted(seen.plan.inputs):
        given = gradients[i]
        gradient = np.zeros_like(seen.baseline.flat.point[i]) if given is None else given
        base, probes = seen.baseline.base, seen.probes[i]
        parts = [comparison.expectations(probes, k, v, base[k]) for k, v in cotangent.items()]
        joint = map(comparison.joint_expectation, zip(*parts, strict=True))
        measured = [comparison.measure(gradient, one, seen.baseline.computes) for one in joint]
        judged = comparison.judge(comparison.slackened(measured, seen, i), rtol=seen.plan.rtol)
        if not measured or not judged.failed or not np.isfinite(judged.widest):
            continue
        worst = judged.worst
        if np.isfinite(worst.found) or not any(mask.any() for mask in seen.masks):
            told = f"expected {worst.expected.value:.6g} along a probe, found {worst.found:.6g}"
            why = f"right for each output alone, wrong for all outputs together: {told}"
            found.append(Pair(i, first, seen.comparison((i, first), GradVerdict.FAIL, why)))
    return found


def _forward(seen: Observations, found: Sequence[Pair]) -> list[Pair]:
    """J·u along the first probes of each input: wrong where forward mode raises, unknown where it was all that was asked for."""
    made: list[Pair] = []
    for i in sorted(seen.plan.inputs):
        pushed: list[Pushed] = []
        verdict, why = GradVerdict.INCONCLUSIVE, ""
        try:
            pushed = [(one, seen.baseline.flat.jvp(i, one.direction)) for one in seen.probes[i][:PROBES]]
        except Unsupported as error:
            if seen.plan.forward_alone:
                why = f"forward mode was asked for, but there is none: {error_line(error)}"
        except Exception as error:  # noqa: BLE001 - whatever a jvp raises, there is no tangent
            verdict, why = GradVerdict.FAIL, f"no tangent: forward mode raised {error_line(error)}"
        for pair in found:
            which, empty = (i, pair.output), not seen.baseline.base[pair.output].size
            if (pair.input, pair.comparison.mode) != (i, "reverse") or pair.zero or empty:
                continue
            if why:
                made.append(Pair(*which, seen.comparison(which, verdict, why, mode="forward")))
            elif pushed and (compared := compare_forward(seen, which, pushed)) is not None:
                made.append(replace(pair, comparison=compared))
    return made


@dataclass(frozen=True, slots=True)
class Examination:
    """All pairs, each at the most telling point."""

    pairs: list[Pair]
    here: ForwardBaseline  # the given point
    notes: tuple[str, ...]


def examine(problem: FrameworkProblem, plan: CheckPlan, reference: FrameworkProblem | None) -> Examination:
    """Every pair, at the given point or one nearby."""
    if plan.sums and reference is None and plan.order == 1 and not plan.forward and (found := by_sums(problem, plan)):
        return found
    here = baseline(problem.here, FlatProblem(reference) if reference else None)
    pairs = examine_point(here, plan)
    moved = 0
    for attempt in range(slopes.ATTEMPTS):
        if not any(_says_too_little(one, attempt) for one in pairs):
            break
        nearby = replace(plan, attempt=attempt + 1)
        at = slopes.nearby_point(here.flat.point, attempt, nearby.draw(Purpose.NEARBY))
        try:
            there = baseline(FlatProblem(problem, at), FlatProblem(reference, at) if reference else None)
        except Exception:  # noqa: BLE001, S112 - a point of our own choice may be outside the domain
            continue
        if not all(np.isfinite(one).all() for one in there.base):
            continue
        again = {(one.input, one.output, one.comparison.mode): one for one in examine_point(there, nearby)}
        for n, old in enumerate(pairs):
            new = again.get((old.input, old.output, old.comparison.mode))
            if new is None or not _says_too_little(old, attempt):
                continue
            here_, there_ = old.comparison, new.comparison
            better = there_.counts and (not here_.counts or (old.zero and not new.zero))
            if better and not here_.counts and (here_.unjudged or not here_.kinks):
                # What holds elsewhere is no answer to what was asked.
                why = f"{here_.reason}; at a point nearby the gradient is right"
                pairs[n] = replace(old, settled=True, comparison=msgspec.structs.replace(here_, reason=why))
            elif better or there_.verdict is GradVerdict.FAIL:
                elements = {name: getattr(here_, name) for name in ("checked", "kinks", "unjudged")}
                pairs[n] = replace(new, comparison=msgspec.structs.replace(there_, **elements))
                moved += 1
    away = f"{count(moved, 'comparison')} made at a nearby point, because the given one says too little"
    # Pairs that do not depend on each other are no evidence; they are listed only for inputs that have no other.
    alive = {one.input for one in pairs if not one.zero}
    pairs = [one for one in pairs if not one.zero or one.input not in alive]
    flat = [f"{one.comparison.input} → {one.comparison.output}" for one in pairs if one.zero and one.comparison.counts]
    still = f"flat: {few(flat, 6)}: the function does not move, here or nearby, and the gradient is zero"
    return Examination(pairs, here, (*([away] if moved else []), *([still] if flat else [])))


def by_sums(problem: FrameworkProblem, plan: CheckPlan) -> Examination | None:
    """Every pair, if sums of the outputs show all of it to be right; None where they leave anything open."""
    sums = sums_of(problem, plan)
    if sums is None:
        return None
    at = baseline(sums)
    # What needs the finest steps has kinks nearby, and is known better by element.
    seen = observe(replace(at, steps=at.steps[:2]), plan)
    pairs = [] if any(one.any() for one in seen.masks) else _pairs(seen)
    told = [one.comparison for one in pairs if not one.zero]
    right = (one.verdict is GradVerdict.PASS and one.counts and one.tolerance <= SHARP for one in told)
    if not pairs or len(told) < len(pairs) or not all(right):
        return None
    checked = size(problem.outputs[0])
    whole = [replace(one, comparison=msgspec.structs.replace(one.comparison, checked=checked)) for one in pairs]
    return Examination(whole, seen.baseline, ())


def _says_too_little(pair: Pair, attempt: int) -> bool:
    if pair.comparison.verdict is GradVerdict.FAIL or pair.settled:
        return False
    # Elements that were left out here are checked once elsewhere. A derivative that is zero here may be zero by chance
    # (x² at 0); one more point tells it from floor(x).
    return (pair.masked or pair.zero) and (attempt == 0 or not pair.comparison.counts)
