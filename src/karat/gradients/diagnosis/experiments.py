"""Experiments on a wrong backward: slopes measured along chosen directions, bisection, and what it does that it must not.

Bisection finds a wrong element in about log₂ N probes rather than N. A probe sees the deviation ⟨found − expected, u⟩
of a whole support at once. Half of the support, asked with the same signs, has its share of it, and the other half has
the rest; the half with the larger share is kept.

Where no rearrangement of the wrong gradient is right, its behaviour may tell: it does not follow the cotangent, or the
inputs; it is wrong only at some elements; what is missing is the same all along an axis; it runs along another axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from karat.gradients.draws import random_weights
from karat.gradients.problem import Array, Problem, TensorSlot, Vector, shaped, vector
from karat.gradients.roundoff import norm

# A direction → the derivative along it, and how far that may be off.
Slope = Callable[[Vector], tuple[float, float]]
Mask = NDArray[np.bool_]

WHOLE = 20  # up to so many elements the expected gradient is measured in full
WHOLE_EXACTLY = 64  # the same where a slope is one complex step
_ATTEMPTS = 3
_CLEAR = 2.0  # a deviation counts if it is this many times what the oracle may be off
_DENSE = 4
_ROUND_OFF = 1e-10  # relative to the terms of a sum: what the guess itself may lose
_TELLING = 8.0  # a guess is tried only where the wrong gradient is this many tolerances off
MOST_AXES = 4
_STEP = 2.0**-17
_AXIS_STEP = 2.0**-10
_MOVES = 1e-8  # a change by more than this share of an element is not rounding


@dataclass(slots=True)
class BoundedOracle:
    """A deviation that is asked a bounded number of times."""

    deviation: Slope
    most: int
    asked: int = 0
    rough: Callable[[Vector], float] | None = None  # at less cost and without an error, to choose between halves
    exhausted: Callable[[], bool] = bool  # whether what it may cost is spent; never, by default

    def __call__(self, direction: Vector) -> tuple[float, float]:
        """The deviation along a direction; (0, inf) where it is not known, or there have been too many."""
        if self.spent:
            return 0.0, np.inf
        self.asked += 1
        value, error = self.deviation(direction)
        return (value, error) if np.isfinite(value) and np.isfinite(error) else (0.0, np.inf)

    @property
    def spent(self) -> bool:
        return self.asked >= self.most or self.exhausted()

    def share(self, direction: Vector, *, rough: bool) -> float:
        """The deviation as well as it is needed to choose between halves."""
        if self.rough is None or not rough or self.spent:
            return self(direction)[0]
        self.asked += 1
        value = self.rough(direction)
        return value if np.isfinite(value) else 0.0

    def clear(self, direction: Vector) -> float:
        """The deviation where it is beyond doubt, else 0."""
        value, error = self(direction)
        return value if abs(value) > _CLEAR * error else 0.0


def locate(oracle: BoundedOracle, scales: Vector, rng: np.random.Generator) -> int | None:
    """An element whose gradient is wrong, confirmed by a probe of it alone; None if none was found.

    Several wrong elements may cancel along one draw of signs, or lead to one that is not off beyond doubt; then
    signs are drawn anew.
    """
    support = np.flatnonzero(scales > 0)
    for attempt in range(_ATTEMPTS):
        direction = random_weights(scales.size, rng) * scales
        whole = oracle.clear(direction) if support.size else 0.0
        if whole == 0:
            continue
        left = support
        while left.size > 1 and not oracle.spent:
            half, other = np.array_split(left, 2)
            part = np.zeros_like(direction)
            part[half] = direction[half]
            value = oracle.share(part, rough=attempt == 0)
            rest = whole - value
            left, whole = (half, value) if abs(value) >= abs(rest) else (other, rest)
        place = int(left[0])
        if oracle.clear(coordinate(scales, place)):
            return place
    return None


def coordinate(scales: Vector, place: int) -> Vector:
    """The direction of one element alone, as long as its scale."""
    direction = np.zeros(scales.size)
    direction[place] = scales[place]
    return direction


@dataclass(frozen=True, slots=True)
class KnownSlope:
    """One direction, and what the derivative along it is."""

    direction: Vector
    expected: float
    error: float

    def gap(self, candidate: Vector) -> float:
        """How far a gradient is off along the direction, in units of what may be."""
        terms = candidate * self.direction
        off = abs(float(np.sum(terms)) - self.expected)
        allowed = 4 * self.error + _ROUND_OFF * max(norm(terms), abs(self.expected))
        return off / allowed if allowed > 0 else (0.0 if off == 0 else np.inf)


@dataclass(frozen=True, slots=True)
class KnownSlopes:
    """All slopes that were measured, to try guesses against at no cost."""

    all: Sequence[KnownSlope]
    whole: bool  # every element was measured by itself
    exact: float = 1e-6  # how close a factor must be to 2 to be called 2

    def fits(self, candidate: Vector) -> bool:
        return bool(self.all) and all(one.gap(candidate) <= 1 for one in self.all)

    def tells(self, wrong: Vector) -> bool:
        """Whether the slopes are sharp enough that a guess which fits means something."""
        return any(one.gap(wrong) > _TELLING for one in self.all)

    def factor(self, wrong: Vector) -> float:
        """What the wrong gradient would have to be multiplied by; NaN where it is zero."""
        seen = np.array([float(np.dot(wrong, one.direction)) for one in self.all])
        wanted = np.array([one.expected for one in self.all])
        energy = float(np.dot(seen, seen))
        return float(np.dot(seen, wanted)) / energy if energy > 0 else np.nan

    def along(self, direction: Vector) -> tuple[float, float]:
        """The derivative along any direction, and its error; only where every element was measured."""
        lengths = np.array([float(np.sum(one.direction)) for one in self.all])
        parts = np.divide(direction, lengths, out=np.zeros_like(direction), where=lengths != 0)
        values = parts * np.array([one.expected for one in self.all])
        errors = parts * np.array([one.error for one in self.all])
        return float(np.sum(values)), float(np.sum(np.abs(errors)))

    def expected(self, scales: Vector) -> Vector:
        """The whole expected gradient; only where every element was measured."""
        values = np.array([one.expected for one in self.all])
        found: Vector = np.divide(values, scales, out=np.zeros_like(scales), where=scales > 0)
        return found


def measure_slopes(
    slope: Slope, scales: Vector, rng: np.random.Generator, *, exact: float, given: Sequence[KnownSlope], most: int
) -> KnownSlopes:
    """Slopes of every element up to so many, else along dense directions; given ones are not measured again."""
    given = [one for one in given if np.isfinite(one.expected) and np.isfinite(one.error)]
    whole = scales.size <= most
    if whole:
        found = []
        for one in (coordinate(scales, i) for i in range(scales.size)):
            same = (known for known in given if np.array_equal(known.direction, one))
            found.append(next(same, None) or KnownSlope(one, *slope(one)))
    else:
        more = (random_weights(scales.size, rng) * scales for _ in range(max(1, _DENSE - len(given))))
        found = [*given, *(KnownSlope(one, *slope(one)) for one in more)]
    known = [one for one in found if np.isfinite(one.expected) and np.isfinite(one.error)]
    return KnownSlopes(known, whole=whole and len(known) == len(found), exact=exact)


@dataclass(frozen=True, slots=True)
class WrongGradient:
    """A gradient that failed: of one input, for one output and its cotangent."""

    problem: Problem
    input: int
    output: int
    cotangent: Array
    gradient: Vector
    oracle: BoundedOracle
    scales: Vector
    rng: np.random.Generator
    deviation: float  # the largest that a measured slope showed
    dtype: str | None = None  # the precision that it failed in; None for double

    @property
    def slot(self) -> TensorSlot:
        return self.problem.inputs[self.input]

    def again(self, cotangent: Array, at: Sequence[Array] | None = None, *, dtype: str | None = None) -> Vector | None:
        """The gradient for another cotangent, or elsewhere."""
        given = [cotangent if k == self.output else None for k in range(len(self.problem.outputs))]
        point = self.problem.point if at is None else at
        found = self.problem.vjp(point, given, dtype=dtype or self.dtype)[self.input]
        return None if found is None else vector(found)


def misbehaviour(wrong: WrongGradient) -> str:
    """What the backward does that it must not; nothing if it passes every experiment."""
    for experiment in (ignores_cotangent, _one_slice, _stale):
        try:
            hint = experiment(wrong)
        except Exception:  # noqa: BLE001, S112 - what a wrong backward raises elsewhere is not what failed here
            continue
        if hint:
            return hint
    return ""


def ignores_cotangent(wrong: WrongGradient) -> str:
    """Whether the gradient is the same for another cotangent."""
    signs = wrong.rng.choice([-1.0, 1.0], wrong.cotangent.shape)
    other = wrong.again(wrong.cotangent * signs * wrong.rng.uniform(0.5, 1.5, signs.shape))
    same = np.any(wrong.gradient) and _same(other, wrong.gradient)
    return "the gradient does not change with the cotangent" if same else ""


def _one_slice(wrong: WrongGradient) -> str:
    """Whether only one slice of the cotangent is used."""
    shape = wrong.cotangent.shape
    for axis in range(min(len(shape), MOST_AXES)):
        for place, word in ((0, "first"), (-1, "last")) if shape[axis] > 1 else ():
            only = np.zeros_like(wrong.cotangent)
            at = (slice(None),) * axis + (place,)
            only[at] = wrong.cotangent[at]
            found = wrong.again(only)
            if found is not None and np.any(found) and _same(found, wrong.gradient):
                return f"only the {word} slice of the cotangent along axis {axis} is used; the sum over that axis is missing"
    return ""


def _stale(wrong: WrongGradient) -> str:
    """Whether the gradient stays as it is where the function's own slope does not."""
    moved = [one * (1 + 0.125 * wrong.rng.choice([-1.0, 1.0], one.shape)) for one in wrong.problem.point]
    there = wrong.again(wrong.cotangent, moved)
    back = wrong.again(wrong.cotangent)
    if there is None or back is None:
        return ""
    if not _same(back, wrong.gradient):
        # Another gradient than before: by what was called before, or by chance?
        one, two = wrong.again(wrong.cotangent), wrong.again(wrong.cotangent)
        if one is not None and _same(two, one):
            return "the gradient depends on what was computed before: something is kept between calls"
        return "the gradient is different each time"
    if not _same(there, wrong.gradient):
        return ""
    # Is the function's own slope another one at the moved point?
    step = shaped(_STEP * (random_weights(wrong.scales.size, wrong.rng) * wrong.scales), wrong.slot)
    slopes = []
    for point in (wrong.problem.point, moved):
        ends = []
        for sign in (1.0, -1.0):
            at = list(point)
            at[wrong.input] = at[wrong.input] + sign * step
            out = vector(wrong.problem.forward(at)[wrong.output])
            ends.append(float(np.dot(vector(wrong.cotangent), out)))
        slopes.append((ends[0] - ends[1]) / (2 * _STEP))
    bends = np.isfinite(slopes).all() and abs(slopes[0] - slopes[1]) > 1e-3 * abs(slopes[0]) + 1e-12
    stale = "the gradient does not change with the inputs, as if of another point: a saved tensor is stale, or not used"
    return stale if bends else ""


def confined_to(wrong: WrongGradient) -> str:
    """Where the gradient is wrong, if that is a part that has a name."""
    direction = random_weights(wrong.scales.size, wrong.rng) * wrong.scales
    whole, _ = wrong.oracle(direction)
    for name, mask in _parts(wrong):
        if not mask.any() or mask.all():
            continue
        # What is outside a part is the whole less the part: one probe tells both.
        inside, error = wrong.oracle(direction * mask)
        allowed = 8 * error + 1e-10 * norm(wrong.gradient * direction)
        if abs(whole - inside) <= allowed < abs(inside) / 8 and _throughout(wrong, mask):
            return name
    return ""


def _throughout(wrong: WrongGradient, mask: Mask) -> bool:
    """Whether every eighth of a part that is drawn is wrong, or only a few of its elements, which may all lie there by chance."""
    for _ in range(4):
        some = mask & (wrong.rng.random(mask.size) < 0.125)
        some[wrong.rng.choice(np.flatnonzero(mask))] = True
        if not wrong.oracle.clear(random_weights(wrong.scales.size, wrong.rng) * wrong.scales * some):
            return False
    return True


def _parts(wrong: WrongGradient) -> Iterator[tuple[str, Mask]]:
    point = vector(wrong.problem.point[wrong.input])
    yield "wrong only where the gradient is zero", wrong.gradient == 0
    yield "wrong only where the input is negative", point < 0
    yield "wrong only where the input is positive", point > 0
    yield "wrong only where the input is larger than 1 in size", np.abs(point) > 1
    shape = wrong.slot.shape
    for axis in range(min(len(shape), MOST_AXES)):
        if shape[axis] < 3 or wrong.slot.complex:
            continue
        for place, word in ((0, "first"), (-1, "last")):
            mask = np.zeros(shape, np.bool_)
            mask[(slice(None),) * axis + (place,)] = True
            yield f"wrong only at the {word} index of axis {axis}", mask.reshape(-1)


def missing_term(wrong: WrongGradient) -> str:
    """Whether what is missing is the same all along an axis, or goes as the output does."""
    shape = wrong.slot.shape
    if wrong.slot.complex:
        return ""
    if wrong.scales.size > 2 and _no_deviation(wrong, _balanced(wrong, tuple(range(len(shape))), None)):
        return "the deviation is the same everywhere: a constant, or a mean or sum over all elements"
    axes = [axis for axis in range(min(len(shape), MOST_AXES)) if shape[axis] > 2]
    for axis in axes:
        if _no_deviation(wrong, _balanced(wrong, axis, None)):
            return f"the deviation is the same all along axis {axis}: a mean or sum term over it is missing"
    if wrong.problem.outputs[wrong.output].shape != shape:
        return ""
    out = wrong.problem.forward(wrong.problem.point)[wrong.output]
    for axis in axes:
        if _no_deviation(wrong, _balanced(wrong, axis, out)):
            missing = "a term with a sum over it is missing"
            return f"the deviation is proportional to the output along axis {axis}: {missing}"
    return ""


def _balanced(wrong: WrongGradient, axis: int | tuple[int, ...], weights: Array | None) -> Vector:
    """A direction whose (weighted) sum along every line of an axis, or over all of them, is zero."""
    shape = wrong.slot.shape
    drawn = random_weights(wrong.scales.size, wrong.rng).reshape(shape) * np.median(wrong.scales)
    along = np.ones(shape) if weights is None else np.asarray(weights, np.float64)
    energy = np.square(along).sum(axis, keepdims=True)
    share = (drawn * along).sum(axis, keepdims=True) / np.where(energy > 0, energy, 1.0)
    return np.asarray(drawn - share * along, np.float64).reshape(-1)


def shifted(wrong: WrongGradient) -> str:
    """Whether the gradient is right one place further along an axis, the ends apart."""
    shape = wrong.slot.shape
    if wrong.slot.complex:
        return ""
    whole = wrong.gradient.reshape(shape)
    for axis in range(min(len(shape), MOST_AXES)):
        if shape[axis] < 4:
            continue
        inner = random_weights(whole.size, wrong.rng).reshape(shape) * wrong.scales.reshape(shape)
        inner[(slice(None),) * axis + (0,)] = 0
        inner[(slice(None),) * axis + (-1,)] = 0
        value, error = wrong.oracle(inner.reshape(-1))
        expected = float(np.sum(whole * inner)) - value
        for step, words in ((-1, "too far"), (1, "too early")):
            terms = np.roll(whole, step, axis) * inner
            allowed = 4 * error + 1e-10 * norm(terms.reshape(-1))
            if abs(value) > 8 * allowed and abs(float(np.sum(terms)) - expected) <= allowed:
                return f"off by one along axis {axis}: one {words}, with the ends lost"
    return ""


def conjugated(wrong: WrongGradient) -> Vector | None:
    """What the gradient would be if only a conjugate were missing: the conjugate for the conjugate cotangent."""
    if not wrong.slot.complex:
        return None
    found = wrong.again(np.conj(wrong.cotangent))
    return None if found is None else vector(np.conj(shaped(found, wrong.slot)))


def _no_deviation(wrong: WrongGradient, direction: Vector) -> bool:
    """Whether there is surely no deviation along a direction."""
    value, error = wrong.oracle(direction)
    allowed = 4 * error + 1e-10 * norm(wrong.gradient * direction)
    return bool(np.any(direction)) and abs(value) <= allowed < wrong.deviation / 8


def _same(one: Vector | None, two: Vector) -> bool:
    return one is not None and one.shape == two.shape and bool(norm(one - two) <= 1e-12 * norm(two))


def other_axis(wrong: WrongGradient) -> str:
    """Whether the gradient runs along other axes than the function, and as many.

    One element of the output tells: along which axes does it move with the input, and along which does its gradient
    reach? A forward per axis answers the one, a backward for that element alone the other.
    """
    shape = wrong.slot.shape
    if wrong.slot.complex or shape != wrong.cotangent.shape or not 2 <= len(shape) <= MOST_AXES:
        return ""
    middle = tuple(length // 2 for length in shape)
    # For each axis, the line along it through the element, without the element.
    lines = np.zeros((len(shape), *shape))
    for axis, line in enumerate(lines):
        line[(*middle[:axis], slice(None), *middle[axis + 1 :])] = 1.0
        line[middle] = 0.0

    def there(moved: Array) -> float:
        at = list(wrong.problem.point)
        at[wrong.input] = at[wrong.input] + moved
        return float(np.asarray(wrong.problem.forward(at)[wrong.output])[middle])

    try:
        only = np.zeros_like(wrong.cotangent)
        only[middle] = 1.0
        found = wrong.again(only)
        known = found is not None and np.isfinite(found).all()
        sizes = np.abs(found.reshape(shape)) if found is not None and known else np.zeros(shape)
        ours = [axis for axis, line in enumerate(lines) if (sizes * line).max() > _MOVES * sizes.max(initial=0.0)]
        signs = wrong.rng.choice([-1.0, 1.0], shape) * wrong.rng.uniform(0.5, 1.5, shape)
        step = _AXIS_STEP * wrong.scales.reshape(shape) * signs
        base = there(np.zeros(shape))
        right = [axis for axis, line in enumerate(lines) if abs(there(step * line) - base) > _MOVES * abs(base)]
    except Exception:  # noqa: BLE001 - what a wrong backward raises elsewhere is not what failed here
        return ""
    if not ours or ours == right or len(ours) != len(right):
        return ""
    names = [f"ax{'is' if len(axes) == 1 else 'es'} {' and '.join(map(str, axes))}" for axes in (ours, right)]
    return f"along the wrong axis: the gradient runs along {names[0]}, the function along {names[1]}"
