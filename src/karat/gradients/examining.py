"""Examining: a problem at one point; every input against every output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from karat.gradients import cotangents, forward_mode, kinks, tolerances
from karat.gradients.adapter import MalformedGradient
from karat.gradients.asked import Asked, Purpose
from karat.gradients.comparing import expectation, judge, meet, together, unrest_of
from karat.gradients.directions import mixed
from karat.gradients.flattened import Vector
from karat.gradients.oracles import Ground, Probe
from karat.gradients.problem import Unsupported
from karat.gradients.report import Comparison, GradVerdict
from karat.gradients.seen import Seen, look
from karat.gradients.weighing import NO_GRAD_OP, Weighed
from karat.gradients.wording import said


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
    drawn = [cotangents.drawn(base, seen.slopes(k), mask, rng) for _ in range(cotangents.DRAWN)]
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
    there = flat.jostled(tolerances.unit(seen.ground.computes), rng)
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
        kinks.outside(one.direction, one.slopes[k], cotangent, gradients[i], precision)
        for one in probes
    ]
    if seen.shift is not None:
        everything = np.concatenate(gradients)
        finite = np.isfinite(np.concatenate(seen.ground.flat.point))
        direction = np.where(finite, seen.shift[0], 0.0)
        said.append(kinks.outside(direction, seen.shift[1][k], cotangent, everything, precision))
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
        pushed = forward_mode.push(seen, i)
        for pair in found:
            if pair.input != i or pair.comparison.mode != "reverse" or pair.zero:
                continue
            if not seen.ground.base[pair.output].size:
                continue
            which = (i, pair.output)
            if not pushed.along:
                lacking = forward_mode.missing(seen, which, pushed)
                made += [] if lacking is None else [Pair(*which, lacking)]
                continue
            comparison = forward_mode.compare(seen, which, pushed)
            if comparison is not None:
                made.append(replace(pair, comparison=comparison))
    return made
