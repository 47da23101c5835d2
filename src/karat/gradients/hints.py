"""Hints: what a wrong gradient looks like, each tried before it is said.

A guess turns the wrong gradient into what the right one would be (twice, transposed, one further along an axis);
it is offered only if the soundings agree with the result, which the wrong gradient itself does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.gradients.flattened import Vector
from karat.gradients.problem import Slot
from karat.gradients.sounding import Soundings

_FEW = 3
"""With fewer elements any wrong gradient is some multiple of the right one."""
_MOST_AXES = 4

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Guess:
    """A pattern, and what the right gradient would be if it is the one."""

    hint: str
    right: Vector
    odd: bool = False
    """A factor without a name, which may be chance: there is one for every constant gradient of a sum."""


def recognised(wrong: Vector, slot: Slot, output: Slot, known: Soundings) -> Guess | None:
    """The first pattern that explains a wrong gradient; None if no pattern does."""
    if not np.isfinite(wrong).all() or not known.tells(wrong):
        return None
    if not np.any(wrong):
        return None
    return next(
        (one for one in _guesses(wrong, slot, output, known) if known.fits(one.right)), None
    )


def _guesses(wrong: Vector, slot: Slot, output: Slot, known: Soundings) -> Iterator[Guess]:
    yield from _multiples(wrong, slot, output, known)
    yield from _moved(wrong, slot)


def _multiples(wrong: Vector, slot: Slot, output: Slot, known: Soundings) -> Iterator[Guess]:
    """The wrong gradient times a factor; what the factor is, in words."""
    factor = known.factor(wrong)
    if not np.isfinite(factor) or factor == 0:
        return
    words = _factor_words(factor, slot, output, known.exact)
    if words is not None:
        named, hint = words
        yield Guess(hint, named * wrong)
    elif np.count_nonzero(wrong) >= _FEW and len(known.all) >= _FEW:
        yield Guess(f"{1 / factor:.6g} times the expected gradient", factor * wrong, odd=True)


def _factor_words(
    factor: float, slot: Slot, output: Slot, exact: float
) -> tuple[float, str] | None:
    """A factor that has a name: 2, ½, −1, or the length of something."""
    for named, hint in (
        (-1.0, "the sign is flipped"),
        (0.5, "twice the expected gradient"),
        (2.0, "half the expected gradient"),
        (-0.5, "twice the expected gradient, and the sign is flipped"),
    ):
        if _near(factor, named, exact):
            return named, hint
    for length, what in _lengths(slot, output):
        if _near(factor, length, exact):
            return float(length), f"1/{length} of the expected gradient; {length} is {what}"
        if _near(factor, 1 / length, exact):
            return 1 / length, f"{length} times the expected gradient; {length} is {what}"
    return None


def _lengths(slot: Slot, output: Slot) -> Iterator[tuple[int, str]]:
    broadcast = _broadcast_axes(slot, output)
    for axis in broadcast:
        length = output.shape[axis]
        yield (
            length,
            f"the length of axis {axis} of {output.name}, over which {slot.name} is broadcast",
        )
    for one in (slot, output):
        for axis, length in enumerate(one.shape):
            if length > 2:
                yield length, f"the length of axis {axis} of {one.name}"
        size = int(np.prod(one.shape))
        if size > 2:
            yield size, f"the number of elements of {one.name}"


def _broadcast_axes(slot: Slot, output: Slot) -> list[int]:
    """Axes of the output that the input has not, or has with length 1."""
    lead = len(output.shape) - len(slot.shape)
    if lead < 0:
        return []
    shape = (1,) * lead + slot.shape
    return [
        i
        for i, (have, want) in enumerate(zip(shape, output.shape, strict=True))
        if have == 1 and want > 1
    ]


def _near(value: float, named: float, exact: float) -> bool:
    return abs(value - named) <= exact * abs(named)


def _moved(wrong: Vector, slot: Slot) -> Iterator[Guess]:
    """The same numbers in other places, also with the sign flipped."""
    shape = (*slot.shape, 2) if slot.complex else slot.shape
    whole = wrong.reshape(shape)
    axes = range(len(slot.shape))
    for hint, right in _rearranged(whole, axes):
        if right.shape != whole.shape or np.array_equal(right, whole):
            continue
        flat = np.ascontiguousarray(right).reshape(-1)
        yield Guess(hint, flat)
        yield Guess(f"{hint}, and the sign is flipped", -flat)


def _rearranged(whole: Array, axes: range) -> Iterator[tuple[str, Array]]:
    for one, two in combinations(axes, 2):
        turned = np.swapaxes(whole, one, two)
        if turned.shape == whole.shape:
            yield f"transposed: axes {one} and {two} are exchanged", turned
        else:
            # A gradient in the transposed layout that was read in the input's shape.
            read = np.swapaxes(whole.reshape(turned.shape), one, two)
            yield f"transposed: axes {one} and {two} are exchanged, and the shape was forced", read
    for axis in axes:
        yield f"reversed along axis {axis}", np.flip(whole, axis)
        yield from _shifted(whole, axis)
    if 3 <= len(axes) <= _MOST_AXES:
        rest = tuple(range(len(axes), whole.ndim))
        for order in permutations(axes):
            yield f"axes permuted: {order}", np.transpose(whole, (*order, *rest))


def _shifted(whole: Array, axis: int) -> Iterator[tuple[str, Array]]:
    """One or two further, or back, as where something is moved the wrong way; the end wraps around."""
    for count, word in ((1, "one"), (2, "two")):
        if whole.shape[axis] > 2 * count - 1:
            for step, words in ((-count, "too far"), (count, "too early")):
                hint = f"off by {word} along axis {axis}: {word} {words}"
                yield hint, np.roll(whole, step, axis)
