"""Slopes of a function along a line, each with its error: by differences, by complex steps, and at kinks.

Differences: four halved steps (eight forwards) leave an error of the eighth order in the step. The error says what is
not known: how far the extrapolations disagree, and the round-off of the forward divided by the smallest step. Where a
coarse ladder of steps meets a kink, finer ones are tried, element by element.

Complex steps, Im f(x + ih·u) / h, subtract nothing and so lose nothing to round-off. They hold for analytic functions
only, and many functions take complex numbers without being analytic (abs, conjugates, comparisons): they are believed
only where they agree with differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.gradients import roundoff
from karat.gradients.draws import random_weights
from karat.gradients.problem import FlatProblem, Rows, Vector
from karat.gradients.roundoff import element_scales, natural_sizes, sample
from karat.tensors.device_array import LARGE, in_blocks

Mask = NDArray[np.bool_]
Line = Callable[[Sequence[float]], Sequence[Rows]]  # per output, a row for each distance along a direction
Ladder = tuple[float, ...]

ATTEMPTS = 4  # how many points nearby are tried where the given one says too little
_DEEP = 3  # from this ladder on only the edge of a domain, where slopes are steep, is worth such small steps
# What the powers of the step in the errors divide by: those of central slopes and of the even part, and of one side.
_BOTH, _ONE_SIDED = 2.0 ** np.array([(2, 1), (4, 3), (6, 5)])[:, :, None, None] - 1, (1.0, 3.0, 7.0)
_AMPLIFIED = 1.5  # what extrapolation makes of the smallest step's round-off
_SLIGHT = 1e-3  # a relative change from step to step that means nothing
_GOOD = 1e-9  # a relative error at which finer steps are not worth their forwards


@dataclass(frozen=True, slots=True)
class Slopes:
    """How one output changes along a direction, element by element."""

    value: Vector
    error: Vector  # infinite where there is no slope
    jump: Vector  # the right slope minus the left one, where they differ; else 0
    floor: Vector  # the part of the error that is the forward's round-off

    @property
    def kinked(self) -> Mask:
        """Where the point itself is a kink."""
        found: Mask = self.jump != 0
        return found


@cache
def ladders(precision: str) -> tuple[Ladder, ...]:
    """The steps to try, coarse ones first; in float32 they are larger, because its round-off is."""
    wide = precision in {"float64", "complex128"}
    tops = [2.0**-top for top in ((5, 12, 22, 32, 42) if wide else (1, 4, 8))]
    return tuple(tuple(top * 2.0**-level for level in range(3 if index == 1 else 4)) for index, top in enumerate(tops))


def slopes_on_line(
    line: Line, base: Sequence[Vector], noise: Sequence[Vector], steps: Sequence[Ladder], *, unit: float = 2.0**-53
) -> list[Slopes]:
    """The slopes of every output along a line.

    `noise` is what each element of a forward may be off, `unit` the round-off of one operation.
    """
    best: list[Slopes] = []
    for index, ladder in enumerate(steps):
        if index and not any(_wants_finer(one, at, deep=index >= _DEEP) for one, at in zip(best, base, strict=True)):
            break
        distances = [*ladder, *(-step for step in ladder)]
        # No name for what is zipped: it would hold the values for as long.
        finer = [
            slopes_from_values(*each, ladder, unit=unit) for each in zip(line(distances), base, noise, strict=True)
        ]
        best = [sharper(*each) for each in zip(best, finer, strict=True)] if index else finer
    return best


def slopes_from_values(values: Rows, base: Vector, noise: Vector, ladder: Ladder, *, unit: float) -> Slopes:
    """The slopes that values to the right, then to the left of a point say, for steps that halve."""
    typical: tuple[float, ...] | None = None
    count, steps = len(ladder), np.array(ladder)[:, None]

    def slopes(base: Vector, noise: Vector, *sides: Vector) -> tuple[Vector, ...]:
        nonlocal typical
        whole: Any = np.stack(sides) if sides else values
        right, left = whole[:count], whole[count:]
        away = whole - base
        central, even = (right - left) / (2 * steps), (away[:count] + away[count:]) / steps
        changes = central[1:] - central[:-1]
        limits, doubts = extrapolated(np.stack([central, even]), _BOTH)
        value, jump, spread, doubt = limits[0], limits[1], doubts[0], doubts[1]
        # The argument is rounded, too, somewhere inside: by a unit of its size, which the slope passes on.
        size = np.abs(value)
        floor = _AMPLIFIED / ladder[-1] * (noise + roundoff.ULPS * unit * np.where(size < np.inf, size, 0.0))
        value, spread = _slow_limit(central, changes, value, spread)
        size, rise, evens = np.abs(value), np.abs(jump), np.abs(even)
        # One-sided slopes that differ by more than error and curvature explain, by the sizes of all.
        kink = (rise > 10 * (doubt + 4 * floor)) & (rise > 1e-6 * (size + evens[0]))
        typical = typical or (roundoff.typical_size(value), *_pooled(spread, floor, spread / size))
        # Elements of another scale disagree by another amount, of which only the share is typical.
        other = (size > 0) & (size < typical[0] * roundoff.OTHER_SCALE)
        pooled = np.where(other, np.minimum(typical[3] * size, typical[1]), typical[1]) if other.any() else typical[1]
        error = 4 * (spread + pooled) + floor + np.where(kink, 0.0, rise)
        # Values that move ever faster as the step shrinks: a pole is nearer than the steps are long.
        late = np.abs(changes)
        diverges = late[-1] > late[-2] + 4 * floor + _SLIGHT * size
        # Where the even part grows as the step shrinks there is no slope on either side (√|x| at 0).
        # An element that is small by cancellation is as rough as its neighbours.
        grows = evens[-1] > 1.5 * evens[0] + 10 * (floor + typical[2])
        error = np.where(np.isfinite(error) & ~(diverges | grows), error, np.inf)
        found = Slopes(value, error, np.where(kink, jump, 0.0), floor)
        found = found if np.isfinite(whole).all() else _at_edges(found, right, left, base, ladder)
        return found.value, found.error, found.jump, found.floor

    if isinstance(values, np.ndarray):
        return Slopes(*slopes(base, noise))
    if base.size > sample(base).size:
        # What is typical of all of them is found before any is judged.
        slopes(*map(sample, (base, noise, *values)))
    found = Slopes(*in_blocks(slopes, base, noise, *values))
    return found if base.size < LARGE or found.kinked.any() else replace(found, jump=np.zeros_like(base))


def extrapolated(levels: Any, divisors: Any) -> tuple[Any, Any]:
    """The limit of values at halved steps, whose errors have powers of the step; and how far the limits disagree.

    Divisors are 2ᵖ - 1 for the powers. No weights of all levels at once: where the limit is 0, none is to be left.
    """
    table = before = levels
    for divisor in divisors[: levels.shape[-2] - 1]:
        fine = table[..., 1:, :]
        before, table = table, fine + (fine - table[..., :-1, :]) / divisor
    # Before the last step there are two: one without the finest level, one without the coarsest.
    gaps = np.abs(before - table)
    return table[..., 0, :], np.maximum(gaps[..., 0, :], gaps[..., 1, :])


def _slow_limit(levels: Any, changes: Any, value: Vector, spread: Vector) -> tuple[Vector, Vector]:
    """The limit and its doubt; by Aitken where changes shrink by one ratio that no whole power has: x·√|x| at 0."""
    if len(changes) < 3:
        return value, spread
    (last, previous), (third, second) = (levels[-1], levels[-2]), (changes[-1], changes[-2])
    ratio, before = third / second, second / changes[-3]
    slow = (np.abs(ratio - before) <= 0.02 * ratio) & (ratio > 0.3) & (ratio < 0.95)
    if not slow.any():
        return value, spread
    limit, earlier = last + third * ratio / (1 - ratio), previous + second * before / (1 - before)
    doubt = np.abs(limit - earlier) + 1e-3 * np.abs(limit - last)
    take = slow & (doubt < spread)
    # What is less than its doubt is 0, and of no scale of its own.
    limit = np.where(np.abs(limit) > doubt, limit, 0.0)
    return np.where(take, limit, value), np.where(take, doubt, spread)


def sharper(old: Slopes, new: Slopes) -> Slopes:
    """Element by element, the one that knows more; `new` has the finer steps."""
    gap = np.abs(new.value - old.value)
    known = np.isfinite(old.error) & ~old.kinked
    apart = known & (new.error < old.error) & (gap > old.error + new.error)
    take = new.error < old.error
    # What looks like a kink from afar may be one nearby: the finer look decides, where it does not merely confirm it.
    confirmed = new.kinked & (np.abs(new.jump - old.jump) <= old.error + new.error)
    take |= old.kinked & ~confirmed & (new.error < np.abs(old.jump) / 10)
    return Slopes(
        np.where(take, new.value, old.value),
        # Two that contradict each other are both in doubt.
        np.where(take, new.error, old.error) + np.where(apart & take, gap, 0.0),
        np.where(take, new.jump, old.jump),
        np.where(take, new.floor, old.floor),
    )


def sizes(one: Slopes) -> Vector:
    """The size of each element's slope, or the typical one if that is larger."""
    known = np.where(np.isfinite(one.error) & np.isfinite(one.value), one.value, 0.0)
    return natural_sizes(known) if known.any() else known


def unresolved(one: Slopes, base: Vector, precision: str) -> Mask:
    """Where the slope is not known well enough to judge by."""
    typical = sizes(one)
    limit = roundoff.cap(precision) / 10 * typical
    # A slope of zero is known well enough if the function would have to be that flat; where all is zero, 1 is the scale.
    flat = roundoff.cap(precision) * 1e-4 * (np.abs(base) if base.any() or typical.any() else np.ones_like(base))
    # Where round-off is far more than it is typically, only the very shortest steps found a slope.
    share = one.floor / (np.abs(base) + np.abs(one.value))
    share = np.where(np.isfinite(share), share, 0.0)
    outlying = share > (256.0 * roundoff.median(sample(share)) if share.size else 0.0)
    rough = np.where(outlying, 0.0, 8 * one.floor)
    found: Mask = ~(one.error <= np.maximum(np.maximum(limit, flat), rough))
    return found


def _wants_finer(one: Slopes, base: Vector, *, deep: bool) -> bool:
    if deep:
        return bool(np.any(~(one.error <= 0.1 * np.abs(one.value)) & (one.error > 0.1 * np.abs(base))))
    fine = np.maximum(_GOOD * sizes(one), 8 * one.floor)
    return bool(((~(one.error <= fine) | one.kinked) & np.isfinite(base)).any())


def _pooled(*spreads: Vector) -> list[float]:
    """What elements typically disagree by: one element may agree with itself by chance."""
    ordered = np.sort(np.stack([sample(one) for one in spreads]))  # what is not finite comes last
    counts = np.count_nonzero(np.isfinite(ordered), axis=1).tolist()
    pairs = zip(ordered, counts, strict=True)
    return [float(one[(n - 1) // 2] + one[n // 2]) / 2 if n >= 4 else 0.0 for one, n in pairs]


def _at_edges(found: Slopes, right: Any, left: Any, base: Vector, ladder: Ladder) -> Slopes:
    """At the edge of a domain one side has to do."""
    has_right, has_left = (reduce(np.logical_and, map(np.isfinite, side)) for side in (right, left))
    edge = has_right != has_left
    if not edge.any():
        return found
    sided = (np.where(has_right, right, left) - base) / (np.where(has_right, 1.0, -1.0) * np.array(ladder)[:, None])
    value, spread = extrapolated(sided, _ONE_SIDED)
    floor = found.floor + _AMPLIFIED * roundoff.ULPS * 2.0**-53 * np.abs(value) / ladder[-1]
    error = np.where(np.isfinite(value), 4 * spread + 4 * floor, np.inf)
    # Slopes that move ever faster as the step shrinks have no limit within reach: asin next to 1.
    late, early = np.abs(sided[-1] - sided[-2]), np.abs(sided[-2] - sided[-3])
    error[late > 0.9 * early + 4 * floor] = np.inf
    value, error = np.where(edge, value, found.value), np.where(edge, error, found.error)
    return Slopes(value, error, np.where(edge, 0.0, found.jump), found.floor)


def kink_violation(direction: Vector, slopes: Slopes, cotangent: Vector, gradient: Vector, precision: str) -> str:
    """What is wrong with a gradient at kinks; nothing if it lies between the one-sided slopes."""
    used = cotangent != 0
    v = cotangent[used]
    middle, half = v * slopes.value[used], np.abs(v * slopes.jump[used]) / 2
    low, high = float(np.sum(middle - half)), float(np.sum(middle + half))
    found = float(np.sum((gradient * direction)[direction != 0]))
    size = max(roundoff.norm(middle), 2 * roundoff.norm(half))
    floor = roundoff.analytic_floor(precision, size, gradient.size)
    room = roundoff.combined(v * slopes.error[used]) + floor
    if low - room <= found <= high + room or not np.isfinite(room):
        return ""
    return f"at a kink the one-sided slopes allow {low:.6g} to {high:.6g} along a probe, the gradient says {found:.6g}"


def nearby_point(point: Sequence[Vector], attempt: int, rng: np.random.Generator) -> list[Vector]:
    """A point an eighth away: to both sides at first, then inwards from either edge of a domain."""
    moved = []
    for one in point:
        drawn = random_weights(one.size, rng, one)
        if attempt % ATTEMPTS in {1, 2}:
            drawn = np.abs(drawn) if attempt % ATTEMPTS == 1 else -np.abs(drawn)
        if not np.any(one != np.rint(one)):
            # Weights have few digits; with those alone, whole numbers would meet each other.
            drawn = drawn * (1 - 2.0**-9 * rng.random(one.size))
        moved.append(one + np.where(np.isfinite(one), 2.0**-3 * element_scales(one) * drawn, 0))
    return moved


STEP = 2.0**-66  # about 1e-20: its square is far below round-off
_OTHER_STEP = STEP * 2.0**-16 * 0.5**0.5  # all of its digits are used: what cancels inside of the function shows


def complex_slopes(
    flat: FlatProblem, index: int, direction: Vector, base: Sequence[Vector], precision: str, *, again: bool = False
) -> list[Slopes] | None:
    """The slopes of all outputs along a direction; None where the function cannot do that.

    `again` is a second look, from beside the point (so that the real parts are other outputs) and with a shorter step:
    where a slope is 0, the square of the step is all that there is to see (x³ at 0), and it does not stay. It leaves no
    digits unused, unless something cancelled (1 - (1 - x²)).
    """
    if precision != "float64" or any(slot.complex for slot in (*flat.inputs, *flat.outputs)):
        return None
    try:
        step = _OTHER_STEP if again else STEP
        found = flat.moved_complex(index, step * direction)
    except Exception:  # noqa: BLE001 - functions refuse complex numbers in many ways
        return None
    if len(found) != len(base):
        return None
    unit = roundoff.unit("float64")
    made = []
    for one, at in zip(found, base, strict=True):
        if not np.iscomplexobj(one) or one.shape != at.shape:
            return None
        if not again and not ((np.abs(one.real - at) <= 64 * unit * natural_sizes(at)) | ~np.isfinite(at)).all():
            return None
        value = one.imag / step
        # What is exactly 0 did not move at all; its neighbours' sizes say nothing of it.
        sizes = np.abs(value) if again else np.where(value == 0, 0.0, natural_sizes(value))
        floor = 32 * unit * (sizes + np.abs(at)) + roundoff.TINY / step
        error = np.where(np.isfinite(floor), roundoff.grain(one.imag, np.inf) / step if again else floor, np.inf)
        made.append(Slopes(value, error, np.zeros_like(value), floor))
    return made


def with_roundoff(found: Sequence[Slopes], nearby: Sequence[Slopes] | None) -> list[Slopes]:
    """The slopes with what they change by a few units in the last place away added to their errors.

    Complex steps round off as little as the function does, and that may be a lot: a variance far from zero.
    """
    if nearby is None:
        return list(found)
    made = []
    for one, two in zip(found, nearby, strict=True):
        change = np.abs(one.value - two.value)
        sizes = np.abs(one.value)
        stays = ~(change > 0.5 * sizes)
        shares = np.where(stays & (sizes > 0), change / sizes, 0.0)
        # One element may change little by chance; what they change by typically goes for all.
        typical = min(roundoff.norm(shares) / np.sqrt(max(1, shares.size)), 1e-9)
        change = np.maximum(np.where(np.isfinite(change), change, 0.0), typical * sizes)
        value, error = np.where(stays, one.value, 0.0), one.error + two.error + 8 * change
        made.append(Slopes(value, error, one.jump, one.floor))
    return made


def confirmed_by(exact: Sequence[Slopes], differences: Sequence[Slopes]) -> list[Mask] | None:
    """Per output, where complex steps were confirmed by differences; None if they disagree, or nothing was confirmed."""
    found: list[Mask] = []
    for one, two in zip(exact, differences, strict=True):
        # Differences know enough to confirm anything neither at kinks nor next to zero.
        slight = 1e-3 * natural_sizes(two.value)
        known = (two.error <= slight) & ~two.kinked
        near = np.abs(one.value - two.value) <= 8 * (two.error + np.minimum(one.error, slight))
        # Those that contradict themselves, from step to step, are not of an analytic function.
        if not ((near & (one.error <= slight)) | ~known).all() or (known.size and not known.any()):
            return None
        found.append(known)
    return found


def merged(exact: Slopes, differences: Slopes, known: Mask) -> Slopes:
    """Complex steps where they were confirmed; elsewhere differences, which alone can see kinks."""
    sides = ((exact.value, differences.value), (exact.error, differences.error), (exact.floor, differences.floor))
    value, error, floor = (np.where(known, *each) for each in sides)
    return Slopes(value, error, differences.jump, floor)


def where_known(exact: Slopes, known: Mask) -> Slopes:
    """Complex steps where they were confirmed along another direction; elsewhere no slope is known."""
    unmoved = exact.value == 0
    return Slopes(exact.value, np.where(known | unmoved, exact.error, np.inf), exact.jump, exact.floor)
