"""Forward mode: J·u of the framework against the oracle's, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from karat.gradients import oracles, roundoff, slopes
from karat.gradients.adapters import MalformedGradient
from karat.gradients.comparison import (
    NO_GRAD_OP,
    OFF,
    UNKNOWN,
    Weighed,
    expectation,
    judge,
    meet,
    together,
    unrest_of,
)
from karat.gradients.draws import Asked, Purpose, mixed
from karat.gradients.oracles import Ground, Mask, Probe, ReferenceFlat, Seen, ground, look
from karat.gradients.problem import Flat, Problem, Unsupported, Vector, said
from karat.gradients.report import Comparison, GradVerdict
from karat.gradients.roundoff import natural_sizes, some

PROBES = 3
_ROOM = 8.0  # one element's error estimate may be small by chance; sums of many are not


@dataclass(frozen=True, slots=True)
class Tangent:
    """One output along one direction: what came out, what was expected, what may differ."""

    found: Vector
    expected: Vector
    allowed: Vector

    def fails(self, found: Vector) -> bool:
        """Whether other values would be refused."""
        with np.errstate(all="ignore"):
            return not bool(np.all(np.abs(found - self.expected) <= self.allowed))


@dataclass(frozen=True, slots=True)
class Pushed:
    """J·u along the first probes of an input, or why there is none."""

    along: Sequence[tuple[Probe, list[Vector]]] = ()
    absent: str = ""
    """The framework has no forward mode for it."""
    raised: str = ""
    """There is one, and it ends in an error."""


def push(seen: Seen, i: int) -> Pushed:
    """J·u along the first probes of an input."""
    found: list[tuple[Probe, list[Vector]]] = []
    try:
        for probe in seen.probes[i][:PROBES]:
            with np.errstate(all="ignore"):
                found.append((probe, seen.ground.flat.jvp(i, probe.direction)))
    except Unsupported as why:
        return Pushed(absent=said(why))
    except Exception as error:  # noqa: BLE001 - whatever a jvp raises, there is no tangent
        return Pushed(raised=said(error))
    return Pushed(found)


def missing(seen: Seen, pair: tuple[int, int], pushed: Pushed) -> Comparison | None:
    """A pair without tangents: wrong where forward mode raises; without it, unknown if it was all that was asked for."""
    if pushed.raised:
        why = f"no tangent: forward mode raised {pushed.raised}"
        return seen.comparison(pair, GradVerdict.FAIL, why, mode="forward")
    if pushed.absent and seen.asked.forward_alone:
        why = f"forward mode was asked for, and there is none: {pushed.absent}"
        return seen.comparison(pair, GradVerdict.INCONCLUSIVE, why, mode="forward")
    return None


def compare(seen: Seen, pair: tuple[int, int], pushed: Pushed) -> Comparison | None:
    """The forward mode of one pair; None where the derivative is zero and so is what came out."""
    k = pair[1]
    keep = ~seen.masks[k]
    tangents = [_tangent(seen, probe, k, given[k], keep) for probe, given in pushed.along]
    if not keep.any():
        return seen.comparison(pair, GradVerdict.INCONCLUSIVE, UNKNOWN, mode="forward")
    scale = max(_rms(one.expected) for one in tangents)
    failed = any(one.fails(one.found) for one in tangents)
    asked = seen.asked.rtol if failed else None
    if asked is not None:
        # As for gradients: what a test asks for beyond what is derived is used, and recorded.
        wider = [replace(one, allowed=np.maximum(one.allowed, asked * scale)) for one in tangents]
        if not any(one.fails(one.found) for one in wider):
            tangents, failed = wider, False
    used = asked if not failed else None
    if (
        not failed
        and used is None
        and all(np.all(np.abs(one.expected) <= one.allowed) for one in tangents)
    ):
        return None
    verdict, reason = _verdict(seen, tangents, scale, failed=failed, widened=used is not None)
    if verdict is GradVerdict.PASS and seen.lost(k):
        verdict, reason = GradVerdict.INCONCLUSIVE, seen.lost(k)
    caught = _controls(seen, pair, tangents)
    missed = [name for name, noticed in caught.items() if not noticed]
    vacuous = verdict is GradVerdict.PASS and bool(missed)
    if vacuous:
        reason = f"a corrupted tangent would have passed, too ({', '.join(missed)})"
    error, tolerance = _worst(tangents)
    unit = scale or 1.0
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
        controls=caught,
        vacuous=vacuous,
        widened=used,
    )


def _tangent(seen: Seen, probe: Probe, k: int, found: Vector, keep: Mask) -> Tangent:
    slopes = probe.slopes[k]
    value = slopes.value[keep]
    sizes = natural_sizes(value) if value.any() else np.abs(value)
    unit = roundoff.unit(seen.ground.computes)
    depth = 1.0 + np.log2(max(2, probe.direction.size))
    floor = 16 * depth * unit * (sizes + np.abs(seen.ground.base[k][keep]))
    return Tangent(found[keep], value, _ROOM * slopes.error[keep] + floor)


def _verdict(
    seen: Seen, tangents: Sequence[Tangent], scale: float, *, failed: bool, widened: bool
) -> tuple[GradVerdict, str]:
    cap = roundoff.cap(seen.ground.computes)
    typical = max(float(np.median(some(one.allowed))) for one in tangents)
    error, tolerance = _worst(tangents)
    if typical > cap * scale and not error > 100 * tolerance and not widened:
        return GradVerdict.INCONCLUSIVE, "the forward is too noisy to judge tangents by"
    if not failed:
        return GradVerdict.PASS, ""
    gap = f"J·u by forward mode is off by {error / (scale or 1.0):.2g} of its size at an element, {tolerance / (scale or 1.0):.2g} is explained"
    return GradVerdict.FAIL, gap


def _worst(tangents: Sequence[Tangent]) -> tuple[float, float]:
    """The deviation and the tolerance of the element that is furthest out."""
    worst = (0.0, 0.0, -1.0)
    for one in tangents:
        with np.errstate(all="ignore"):
            gap = np.abs(one.found - one.expected)
            gap = np.where(np.isfinite(gap), gap, np.inf)
            ratio = np.where(gap == 0, 0.0, gap / np.maximum(one.allowed, roundoff.TINY))
        place = int(np.argmax(ratio))
        worst = max(
            worst,
            (float(gap[place]), float(one.allowed[place]), float(ratio[place])),
            key=_by_ratio,
        )
    return worst[0], worst[1]


def _by_ratio(one: tuple[float, float, float]) -> float:
    return one[2]


def _controls(seen: Seen, pair: tuple[int, int], tangents: Sequence[Tangent]) -> dict[str, bool]:
    rng = seen.asked.draw(Purpose.CONTROLS, *pair, 1)
    first = tangents[0]
    drawn = int(rng.integers(0, first.found.size))
    worst = int(np.argmax(first.allowed))
    changed: dict[str, Callable[[Vector], Vector]] = {
        "zero": np.zeros_like,
        "x1.01": lambda one: (1 + OFF) * one,
        "sign": lambda one: -one,
        "one element": lambda one: _off(one, drawn),
        "worst element": lambda one: _off(one, worst),
    }
    return {
        name: any(one.fails(change(one.found)) for one in tangents)
        for name, change in changed.items()
    }


def _off(found: Vector, place: int) -> Vector:
    """One element off by one per cent of itself, or of a typical one."""
    other = found.copy()
    other[place] += OFF * max(abs(float(found[place])), _rms(found))
    return other


def _rms(values: Vector) -> float:
    return roundoff.norm(values[np.isfinite(values)]) / float(np.sqrt(max(1, values.size)))


# DOC-HERE examining: Examining: a problem at one point; every input against every output.


@dataclass(frozen=True, slots=True)
class Pair:
    """One input against one output: the comparison, and what a diagnosis needs."""

    input: int
    output: int
    comparison: Comparison
    cotangent: Vector | None = None
    gradient: Vector | None = None
    masked: bool = False
    """Whether output elements were left out."""
    zero: bool = False
    """Whether the derivative is zero wherever it was looked."""
    ground: Ground | None = None
    probes: Sequence[Probe] = ()
    """What was asked of the function, along which directions."""

    @property
    def key(self) -> tuple[int, int, str]:
        """Which pair it is, in which mode."""
        return self.input, self.output, self.comparison.mode


@dataclass(frozen=True, slots=True)
class Pulled:
    """One output's cotangents, and the gradients of every input for each."""

    cotangents: list[Vector]
    gradients: list[list[Vector | None]]
    at_kinks: tuple[Vector, list[Vector | None]] | None
    """The same for the output elements at kinks alone."""
    jostled: list[Vector | None]
    """The gradients for the first cotangent, a few units in the last place away."""


def examine(ground: Ground, asked: Asked) -> list[Pair]:
    """Every wanted pair at one point."""
    seen = look(ground, asked)
    pulled: dict[int, Pulled] = {}
    found: list[Pair] = []
    for k in sorted(asked.outputs):
        try:
            pulled[k] = _pull(seen, k)
        except Exception as error:  # noqa: BLE001 - whatever a backward raises, there is no gradient
            found += [_raised(seen, (i, k), error) for i in sorted(asked.inputs)]
            continue
        found += [_reverse(seen, (i, k), pulled[k]) for i in sorted(asked.inputs)]
    if len(pulled) > 1 and not any(_failed(one) for one in found):
        found += _jointly(seen, pulled)
    return [*found, *_forward(seen, found)] if asked.forward else found


def _failed(pair: Pair) -> bool:
    return pair.comparison.verdict is GradVerdict.FAIL


def _pull(seen: Seen, k: int) -> Pulled:
    rng = seen.asked.draw(Purpose.COTANGENTS, k)
    base, mask = seen.ground.base[k], seen.masks[k]
    drawn = [oracles.drawn(base, seen.slopes(k), mask, rng) for _ in range(oracles.DRAWN)]
    extra = seen.asked.extra[k] if k < len(seen.asked.extra) else None
    if extra is not None:
        drawn.append(np.where(mask, 0.0, extra))
    gradients = [_gradients(seen, {k: one}) for one in drawn]
    jostled = _jostled(seen, k, drawn[0])
    if not seen.kinks[k].any():
        return Pulled(drawn, gradients, None, jostled)
    positive = np.abs(mixed(mask.size, seen.asked.draw(Purpose.KINKS, k)))
    cotangent = np.where(seen.kinks[k], positive, 0.0)
    return Pulled(drawn, gradients, (cotangent, _gradients(seen, {k: cotangent})), jostled)


def _jostled(seen: Seen, k: int, cotangent: Vector) -> list[Vector | None]:
    """What round-off makes of the gradient: it has done so already, by an amount that this shows."""
    flat, rng = seen.ground.flat, seen.asked.draw(Purpose.COTANGENTS, k, 2)
    there = flat.jostled(roundoff.unit(seen.ground.computes), rng)
    given = [cotangent if j == k else None for j in range(len(flat.outputs))]
    try:
        with np.errstate(all="ignore"):
            return there.vjp(given)
    except Exception:  # noqa: BLE001 - the gradient at the point itself is what is judged
        return [None] * len(flat.inputs)


def _gradients(seen: Seen, given: dict[int, Vector]) -> list[Vector | None]:
    with np.errstate(all="ignore"):
        return seen.ground.flat.vjp([given.get(k) for k in range(len(seen.ground.base))])


def _raised(seen: Seen, pair: tuple[int, int], error: Exception) -> Pair:
    if isinstance(error, Unsupported):
        # It was not the backward that refused.
        why = f"no gradient could be asked for: {said(error)}"
        return Pair(*pair, seen.comparison(pair, GradVerdict.INCONCLUSIVE, why))
    if isinstance(error, MalformedGradient):
        # There is one, and it is wrong: no reason to exempt the op.
        return Pair(
            *pair, seen.comparison(pair, GradVerdict.FAIL, f"no gradient to compare: {error}")
        )
    first = seen.asked.order == 1
    why = f"no gradient: the backward raised {said(error)}{NO_GRAD_OP if first else ''}"
    return Pair(*pair, seen.comparison(pair, GradVerdict.FAIL, why))


def _reverse(seen: Seen, pair: tuple[int, int], pulled: Pulled) -> Pair:
    i, k = pair
    base, probes = seen.ground.base[k], seen.probes[i]
    if not probes or not base.size:
        why = "nothing to compare: there are no elements to step from or to look at"
        return Pair(i, k, seen.comparison(pair, GradVerdict.INCONCLUSIVE, why))
    given = [one[i] for one in pulled.gradients]
    unrest = [unrest_of(one.direction, given[0], pulled.jostled[i]) for one in probes]
    groups = []
    for cotangent, gradient in zip(pulled.cotangents, given, strict=True):
        found = np.zeros(seen.ground.flat.point[i].size) if gradient is None else gradient
        expected = [expectation(one, k, cotangent, base) for one in probes]
        met = [
            meet(found, one, seen.ground.computes, unrest=share)
            for one, share in zip(expected, unrest, strict=True)
        ]
        groups.append((found, met))
    none = all(one is None for one in given)
    comparison, zero = Weighed(seen, pair, groups, none).comparison()
    made = Pair(
        i,
        k,
        comparison,
        cotangent=pulled.cotangents[0],
        gradient=given[0],
        masked=bool(seen.masks[k].any()),
        zero=zero,
        ground=seen.ground,
        probes=probes,
    )
    return made if pulled.at_kinks is None else _at_kinks(seen, made, pulled.at_kinks)


def _at_kinks(seen: Seen, pair: Pair, pulled: tuple[Vector, list[Vector | None]]) -> Pair:
    """There the gradient lies between the one-sided slopes, or is wrong."""
    i, k = pair.input, pair.output
    cotangent, precision = pulled[0], seen.ground.computes
    gradients = [
        np.zeros_like(point) if one is None else one
        for one, point in zip(pulled[1], seen.ground.flat.point, strict=True)
    ]
    probes = [one for one in seen.probes[i] if one.sees_kinks]
    count = max((int(np.sum(one.slopes[k].kinked)) for one in probes), default=0)
    if not count:
        return pair
    said = [
        slopes.outside(one.direction, one.slopes[k], cotangent, gradients[i], precision)
        for one in probes
    ]
    if seen.shift is not None:
        everything = np.concatenate(gradients)
        finite = np.isfinite(np.concatenate(seen.ground.flat.point))
        direction = np.where(finite, seen.shift[0], 0.0)
        said.append(slopes.outside(direction, seen.shift[1][k], cotangent, everything, precision))
    outside = next((text for text in said if text), "")
    within = f"at {count:,} kinks the gradient lies between the one-sided slopes"
    changed = (
        {"verdict": GradVerdict.FAIL, "reason": outside, "vacuous": False}
        if outside
        else {"reason": pair.comparison.reason or within}
    )
    comparison = msgspec.structs.replace(pair.comparison, kinks=count, **changed)
    return replace(pair, comparison=comparison)


def _jointly(seen: Seen, pulled: dict[int, Pulled]) -> list[Pair]:
    """All outputs at once; listed only where that fails and each by itself did not."""
    cotangent = {k: one.cotangents[0] for k, one in pulled.items()}
    first = next(iter(pulled))
    try:
        gradients = _gradients(seen, cotangent)
    except Exception as error:  # noqa: BLE001 - as for one output
        return [_raised(seen, (i, first), error) for i in sorted(seen.asked.inputs)]
    found = []
    for i in sorted(seen.asked.inputs):
        wrong = _joint(seen, i, cotangent, gradients[i])
        if wrong:
            found.append(Pair(i, first, seen.comparison((i, first), GradVerdict.FAIL, wrong)))
    return found


def _joint(seen: Seen, i: int, cotangent: dict[int, Vector], gradient: Vector | None) -> str:
    if gradient is None:
        gradient = np.zeros_like(seen.ground.flat.point[i])
    met = [
        meet(
            gradient,
            together([expectation(one, k, v, seen.ground.base[k]) for k, v in cotangent.items()]),
            seen.ground.computes,
        )
        for one in seen.probes[i]
    ]
    judged = judge(met, rtol=seen.asked.rtol)
    if not met or not judged.failed or not np.isfinite(judged.widest):
        return ""
    worst = judged.worst
    if not np.isfinite(worst.found) and any(mask.any() for mask in seen.masks):
        return ""
    return (
        "right for each output alone, wrong for all outputs together: "
        f"expected {worst.expected.value:.6g} along a probe, found {worst.found:.6g}"
    )


def _forward(seen: Seen, found: Sequence[Pair]) -> list[Pair]:
    made: list[Pair] = []
    for i in sorted(seen.asked.inputs):
        pushed = push(seen, i)
        for pair in found:
            if pair.input != i or pair.comparison.mode != "reverse" or pair.zero:
                continue
            if not seen.ground.base[pair.output].size:
                continue
            which = (i, pair.output)
            if not pushed.along:
                lacking = missing(seen, which, pushed)
                made += [] if lacking is None else [Pair(*which, lacking)]
                continue
            comparison = compare(seen, which, pushed)
            if comparison is not None:
                made.append(replace(pair, comparison=comparison))
    return made


# DOC-HERE points: Points: the given one first; where it says too little, a few nearby.

_ZERO_ATTEMPTS = 1
"""A derivative that is zero here may be zero by chance (x² at 0); one more look tells that from floor(x)."""


@dataclass(frozen=True, slots=True)
class Examined:
    """All pairs, each at the point that said most."""

    pairs: list[Pair]
    here: Ground
    """The given point."""
    notes: tuple[str, ...]


def examined(problem: Problem, asked: Asked, reference: Callable[..., Any] | None) -> Examined:
    """Every pair, at the given point or one nearby."""
    here = _ground(problem, asked, reference, None)
    pairs = examine(here, asked)
    moved = 0
    for attempt in range(slopes.ATTEMPTS):
        if not any(_says_too_little(one, attempt) for one in pairs):
            break
        again = _again(problem, asked.at_attempt(attempt + 1), reference, here.flat.point)
        settled = [_settled(one, again, attempt) for one in pairs]
        moved += sum(new is not old for new, old in zip(settled, pairs, strict=True))
        pairs = settled
    notes = (
        f"{moved} comparisons were made at a point nearby, where the given one says too little",
    )
    return Examined(_without_doubles(pairs), here, notes if moved else ())


def _ground(
    problem: Problem,
    asked: Asked,
    reference: Callable[..., Any] | None,
    at: Sequence[Vector] | None,
) -> Ground:
    flat = Flat(problem, at)
    source = None if reference is None else ReferenceFlat(problem, reference, at)  # type: ignore[arg-type]
    return ground(flat, source, delta=asked.delta)


def _again(
    problem: Problem,
    asked: Asked,
    reference: Callable[..., Any] | None,
    point: Sequence[Vector],
) -> dict[tuple[int, int, str], Pair]:
    at = slopes.nearby(point, asked.attempt - 1, asked.draw(Purpose.NEARBY))
    try:
        there = _ground(problem, asked, reference, at)
    except Exception:  # noqa: BLE001 - a point of our own choice may be outside the domain
        return {}
    if not all(np.isfinite(one).all() for one in there.base):
        return {}
    return {one.key: one for one in examine(there, asked)}


def _says_too_little(pair: Pair, attempt: int) -> bool:
    comparison = pair.comparison
    if comparison.verdict is GradVerdict.FAIL:
        return False
    if comparison.counts:
        # Elements that were left out here are looked at once elsewhere.
        return pair.masked and attempt == 0
    return pair.masked or (pair.zero and attempt < _ZERO_ATTEMPTS)


def _settled(old: Pair, again: dict[tuple[int, int, str], Pair], attempt: int) -> Pair:
    new = again.get(old.key)
    if new is None or not _says_too_little(old, attempt):
        return old
    wrong = new.comparison.verdict is GradVerdict.FAIL
    if old.comparison.counts and not wrong:
        return old
    if not (new.comparison.counts or wrong):
        return old
    kept = max(old.comparison.kinks, new.comparison.kinks)
    return replace(new, comparison=msgspec.structs.replace(new.comparison, kinks=kept))


def _without_doubles(pairs: list[Pair]) -> list[Pair]:
    """Pairs that do not depend on each other are no evidence; they are listed only for inputs that have no other."""
    alive = {one.input for one in pairs if not one.zero}
    return [one for one in pairs if not one.zero or one.input not in alive]
