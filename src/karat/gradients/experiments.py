"""Experiments: a few more questions to a wrong backward, each answered by running it.

Where no rearrangement of the wrong gradient is right, its behaviour may tell: it does not follow the cotangent, or
the inputs; it is wrong only at some elements; what is missing is the same all along an axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from karat.gradients.bisection import Asking
from karat.gradients.directions import mixed
from karat.gradients.flattened import Array, Vector, shaped, vector
from karat.gradients.problem import Problem, Slot
from karat.gradients.tolerances import norm

NDBool = NDArray[np.bool_]

_MOST_AXES = 4
_STEP = 2.0**-17


@dataclass(frozen=True, slots=True)
class Wrong:
    """A gradient that failed: of one input, for one output and its cotangent."""

    problem: Problem
    input: int
    output: int
    cotangent: Array
    gradient: Vector
    asking: Asking
    scales: Vector
    rng: np.random.Generator
    deviation: float
    """The largest that a sounding showed."""
    dtype: str | None = None
    """The precision that it failed in; None for double."""

    @property
    def slot(self) -> Slot:
        return self.problem.inputs[self.input]

    def again(
        self, cotangent: Array, at: Sequence[Array] | None = None, *, dtype: str | None = None
    ) -> Vector | None:
        """The gradient for another cotangent, or elsewhere."""
        given = [cotangent if k == self.output else None for k in range(len(self.problem.outputs))]
        point = self.problem.point if at is None else at
        found = self.problem.vjp(point, given, dtype=dtype or self.dtype)[self.input]
        return None if found is None else vector(found)


def behaviour(wrong: Wrong) -> str:
    """What the backward does that it must not; nothing if it passes every experiment."""
    for experiment in (ignores_cotangent, _one_slice, _stale):
        try:
            hint = experiment(wrong)
        except Exception:  # noqa: BLE001, S112 - what a wrong backward raises elsewhere is not what failed here
            continue
        if hint:
            return hint
    return ""


def ignores_cotangent(wrong: Wrong) -> str:
    """Whether the gradient is the same for another cotangent."""
    signs = wrong.rng.choice([-1.0, 1.0], wrong.cotangent.shape)
    other = wrong.again(wrong.cotangent * signs * wrong.rng.uniform(0.5, 1.5, signs.shape))
    if other is not None and np.any(wrong.gradient) and _same(other, wrong.gradient):
        return "the gradient does not change with the cotangent"
    return ""


def _one_slice(wrong: Wrong) -> str:
    """Whether only one slice of the cotangent is looked at."""
    shape = wrong.cotangent.shape
    for axis in range(min(len(shape), _MOST_AXES)):
        for place, word in ((0, "first"), (shape[axis] - 1, "last")):
            if shape[axis] < 2:
                continue
            only = np.zeros_like(wrong.cotangent)
            at = (slice(None),) * axis + (place,)
            only[at] = wrong.cotangent[at]
            found = wrong.again(only)
            if found is not None and np.any(found) and _same(found, wrong.gradient):
                return f"only the {word} slice of the cotangent along axis {axis} is used; the sum over that axis is missing"
    return ""


def _stale(wrong: Wrong) -> str:
    """Whether the gradient stays as it is where the function's own slope does not."""
    moved = [
        one * (1 + 0.125 * wrong.rng.choice([-1.0, 1.0], one.shape)) for one in wrong.problem.point
    ]
    there = wrong.again(wrong.cotangent, moved)
    back = wrong.again(wrong.cotangent)
    if there is None or back is None:
        return ""
    if not _same(back, wrong.gradient):
        return _restless(wrong)
    if _same(there, wrong.gradient) and _bends(wrong, moved):
        return "the gradient does not change with the inputs, as if of another point: a saved tensor is stale, or not used"
    return ""


def _restless(wrong: Wrong) -> str:
    """Another gradient than before: by what was called before, or by chance?"""
    one, two = wrong.again(wrong.cotangent), wrong.again(wrong.cotangent)
    if one is not None and _same(two, one):
        return "the gradient depends on what was computed before: something is kept between calls"
    return "the gradient is another one each time"


def _bends(wrong: Wrong, moved: Sequence[Array]) -> bool:
    """Whether the function's slope at the moved point is another one."""
    direction = mixed(wrong.scales.size, wrong.rng) * wrong.scales
    here, there = (_slope(wrong, at, direction) for at in (wrong.problem.point, moved))
    return bool(
        np.isfinite(here) and np.isfinite(there) and abs(here - there) > 1e-3 * abs(here) + 1e-12
    )


def _slope(wrong: Wrong, at: Sequence[Array], direction: Vector) -> float:
    step = shaped(_STEP * direction, wrong.slot)
    ends = []
    for sign in (1.0, -1.0):
        there = list(at)
        there[wrong.input] = there[wrong.input] + sign * step
        out = vector(wrong.problem.forward(there)[wrong.output])
        ends.append(float(np.dot(vector(wrong.cotangent), out)))
    return (ends[0] - ends[1]) / (2 * _STEP)


def confined(wrong: Wrong) -> str:
    """Where the gradient is wrong, if that is a part that has a name."""
    direction = mixed(wrong.scales.size, wrong.rng) * wrong.scales
    whole, _ = wrong.asking(direction)
    for name, mask in _parts(wrong):
        if not mask.any() or mask.all():
            continue
        # What is outside a part is the whole less the part: one probe tells both.
        inside, error = wrong.asking(direction * mask)
        allowed = 8 * error + 1e-10 * norm(wrong.gradient * direction)
        if abs(whole - inside) <= allowed < abs(inside) / 8 and _throughout(wrong, mask):
            return name
    return ""


def _throughout(wrong: Wrong, mask: NDBool) -> bool:
    """Whether every eighth of a part that is drawn is wrong, or only a few of its elements, which may all lie there by chance."""
    for _ in range(4):
        some = mask & (wrong.rng.random(mask.size) < 0.125)
        some[wrong.rng.choice(np.flatnonzero(mask))] = True
        if not wrong.asking.clear(mixed(wrong.scales.size, wrong.rng) * wrong.scales * some):
            return False
    return True


def _parts(wrong: Wrong) -> Iterator[tuple[str, NDBool]]:
    point = vector(wrong.problem.point[wrong.input])
    yield "wrong only where the gradient is zero", wrong.gradient == 0
    yield "wrong only where the input is negative", point < 0
    yield "wrong only where the input is positive", point > 0
    yield "wrong only where the input is larger than 1 in size", np.abs(point) > 1
    if not wrong.slot.complex:
        yield from _ends(wrong)


def _ends(wrong: Wrong) -> Iterator[tuple[str, NDBool]]:
    shape = wrong.slot.shape
    for axis in range(min(len(shape), _MOST_AXES)):
        if shape[axis] < 3:
            continue
        for place, word in ((0, "first"), (-1, "last")):
            mask = np.zeros(shape, np.bool_)
            mask[(slice(None),) * axis + (place,)] = True
            yield f"wrong only at the {word} index of axis {axis}", mask.reshape(-1)


def missing_term(wrong: Wrong) -> str:
    """Whether what is missing is the same all along an axis, or goes as the output does."""
    shape = wrong.slot.shape
    if wrong.slot.complex:
        return ""
    every = tuple(range(len(shape)))
    if wrong.scales.size > 2 and _nothing(wrong, _balanced(wrong, every, None)):
        return (
            "the deviation is the same everywhere: a constant, or a mean or sum over all elements"
        )
    for axis in range(min(len(shape), _MOST_AXES)):
        if shape[axis] > 2 and _nothing(wrong, _balanced(wrong, axis, None)):
            return f"the deviation is the same all along axis {axis}: a mean or sum term over it is missing"
    if wrong.problem.outputs[wrong.output].shape != shape:
        return ""
    out = wrong.problem.forward(wrong.problem.point)[wrong.output]
    for axis in range(min(len(shape), _MOST_AXES)):
        if shape[axis] > 2 and _nothing(wrong, _balanced(wrong, axis, out)):
            return f"the deviation goes as the output does along axis {axis}: a term with a sum over it is missing"
    return ""


def _balanced(wrong: Wrong, axis: int | tuple[int, ...], weights: Array | None) -> Vector:
    """A direction whose (weighted) sum along every line of an axis, or over all of them, is zero."""
    shape = wrong.slot.shape
    drawn = mixed(wrong.scales.size, wrong.rng).reshape(shape) * np.median(wrong.scales)
    along = np.ones(shape) if weights is None else np.asarray(weights, np.float64)
    energy = np.square(along).sum(axis, keepdims=True)
    share = (drawn * along).sum(axis, keepdims=True) / np.where(energy > 0, energy, 1.0)
    return np.asarray(drawn - share * along, np.float64).reshape(-1)


def shifted(wrong: Wrong) -> str:
    """Whether the gradient is right one place further along an axis, the ends apart."""
    shape = wrong.slot.shape
    whole = wrong.gradient.reshape(shape) if not wrong.slot.complex else None
    if whole is None:
        return ""
    for axis in range(min(len(shape), _MOST_AXES)):
        if shape[axis] < 4:
            continue
        inner = mixed(whole.size, wrong.rng).reshape(shape) * wrong.scales.reshape(shape)
        inner[(slice(None),) * axis + (0,)] = 0
        inner[(slice(None),) * axis + (-1,)] = 0
        value, error = wrong.asking(inner.reshape(-1))
        expected = float(np.sum(whole * inner)) - value
        for step, words in ((-1, "too far"), (1, "too early")):
            terms = np.roll(whole, step, axis) * inner
            allowed = 4 * error + 1e-10 * norm(terms.reshape(-1))
            if abs(value) > 8 * allowed and abs(float(np.sum(terms)) - expected) <= allowed:
                return f"off by one along axis {axis}: one {words}, with the ends lost"
    return ""


def conjugated(wrong: Wrong) -> Vector | None:
    """What the gradient would be if only a conjugate were missing: the conjugate for the conjugate cotangent."""
    if not wrong.slot.complex:
        return None
    found = wrong.again(np.conj(wrong.cotangent))
    return None if found is None else vector(np.conj(shaped(found, wrong.slot)))


def _nothing(wrong: Wrong, direction: Vector) -> bool:
    """Whether there is surely no deviation along a direction."""
    value, error = wrong.asking(direction)
    allowed = 4 * error + 1e-10 * norm(wrong.gradient * direction)
    return bool(np.any(direction)) and abs(value) <= allowed < wrong.deviation / 8


def _same(one: Vector | None, two: Vector) -> bool:
    if one is None or one.shape != two.shape:
        return False
    return bool(norm(one - two) <= 1e-12 * norm(two))
