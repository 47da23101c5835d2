"""Diagnosis: where a wrong gradient is wrong, and what it looks like, in tens of forwards.

First a few slopes are measured; then patterns (twice, transposed, one further along an axis) are tried against them at
no cost. A pattern that fits gives the right gradient in full, and so the worst element. Without one, bisection finds a
wrong element in about log₂ N probes rather than N: a probe sees the deviation ⟨found − expected, u⟩ of a whole support at
once; half of the support, asked with the same signs, has its share of it, and the other half has the rest. Every claim
was tested: the element by a probe of it alone, the hint by probes that the wrong gradient did not pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations

import numpy as np

from karat.gradients import roundoff, session, slopes
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.comparison import expectations
from karat.gradients.draws import CheckPlan, Purpose, random_weights
from karat.gradients.examine import Pair
from karat.gradients.low_precision_judgement import precision_of, rounded
from karat.gradients.oracles import ForwardBaseline, Probe, slopes_along
from karat.gradients.problem import Array, TensorSlot, Vector, shaped, vector
from karat.gradients.references import KernelProblem
from karat.gradients.report import Diagnosis, GradComparison
from karat.gradients.roundoff import element_scales, norm
from karat.report.words import count

MOST = 4  # diagnoses per report: one cause fails many pairs
MOST_FORWARDS = 110  # per diagnosis: after these no more questions are asked; what is under way is brought to its end
ZERO = "the gradient is zero everywhere, but the derivative is not"
NONE = "there is no gradient (None), but the derivative is not zero"
_AGREED = 1e-6  # the relative error up to which four forwards are believed; a kink between their steps is far above it
_FEW = 3  # with fewer elements any wrong gradient is some multiple of the right one
_ATTEMPTS = 3
_CLEAR = 2.0  # a deviation counts if it is this many times what the oracle may be off
_DENSE = 4
_ROUND_OFF = 1e-10  # relative to the terms of a sum: what the guess itself may lose
_TELLING = 8.0  # a guess is tried only where the wrong gradient is this many tolerances off
_MOST_AXES = 4

Slope = Callable[[Vector], tuple[float, float]]  # a direction → the derivative along it, and how far that may be off


def diagnosis_of(problem: FrameworkProblem, plan: CheckPlan, pair: Pair, cotangent: Array | None = None) -> Diagnosis:
    """What is wrong with a failed pair.

    A cotangent is given for a low precision, which was compared with its own.
    """
    at, failed, given = pair.baseline, pair.comparison, cotangent
    replay = session.replay_command(seed=plan.seed)
    if given is None and pair.cotangent is not None:
        given = shaped(pair.cotangent, problem.outputs[pair.output])
    hint = ""
    if at is not None and given is not None:
        oracle, slot, there = _PairOracle(at, pair, vector(given)), problem.inputs[pair.input], problem
        here = map(vector, problem.point)
        if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(here, at.flat.point, strict=True)):
            # The problem where the pair was compared.
            there = copy.copy(problem)
            there.point = tuple(map(shaped, at.flat.point, problem.inputs))
        try:
            return diagnose(
                there,
                failed,
                cotangent=given,
                gradient=None if pair.gradient is None else shaped(pair.gradient, slot),
                oracle=oracle.along,
                rng=plan.draw(Purpose.DIAGNOSIS, pair.input, pair.output),
                replay=replay,
                given=[] if cotangent is not None else [oracle.of_probe(one) for one in pair.probes],
                most_forwards=MOST_FORWARDS,
            )
        except Exception as error:  # noqa: BLE001 - a function that is wrong may also raise; the failure stands
            hint = f"the search for it ended in {type(error).__name__}: {str(error)[:200]}"
    return Diagnosis(input=failed.input, output=failed.output, dtype=failed.dtype, hint=hint, replay=replay)


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
class _PairOracle:
    """⟨v, J·u⟩ of a failed pair along any direction, for its cotangent v."""

    at: ForwardBaseline
    pair: Pair
    cotangent: Vector

    def along(self, direction: Array) -> tuple[float, float]:
        """The slope along a direction, and how far it may be off."""
        # As long as the largest of its steps is natural for its element.
        u, scales = vector(direction), element_scales(self.at.flat.point[self.pair.input])
        moved = (u != 0) & (scales > 0)
        if not moved.any():
            return 0.0, 0.0
        reach = float(np.min(scales[moved] / np.abs(u[moved])))
        value, error = self._slope(reach * np.where(moved, u, 0.0))
        return value / reach, error / reach

    def of_probe(self, probe: Probe) -> KnownSlope:
        """What a probe of the check says of the pair."""
        known = np.isfinite(probe.slopes[self.pair.output].error) | (self.cotangent == 0)
        v, base = np.where(known, self.cotangent, 0.0), self.at.base[self.pair.output]
        (made,) = expectations([probe], self.pair.output, v, base)
        return KnownSlope(probe.direction, made.value, made.error if known.all() else np.inf)

    def _slope(self, direction: Vector) -> tuple[float, float]:
        at, index = self.at, self.pair.input
        found = None
        if self.pair.comparison.oracle == "complex-step":
            found = slopes.complex_slopes(at.source, index, direction, at.base, at.computes)
        if found is None:
            # Four forwards, if they agree far better than what failed; else the whole ladder is needed. The step is where
            # the truncation and the round-off of a central difference are about equal, extrapolated once.
            step, v = float(2.0 ** round(np.log2(roundoff.unit(at.computes)) / 6)), self.cotangent
            central = []
            for h in (step, step / 2):
                ahead, back = (at.source.moved(index, sign * direction)[self.pair.output] for sign in (h, -h))
                central.append(float(np.sum(v[v != 0] * (ahead - back)[v != 0])) / (2 * h))
            coarse, fine = central
            value = (4 * fine - coarse) / 3
            noise = norm(v * np.where(v != 0, at.noise[self.pair.output], 0.0))
            error = abs(value - fine) / 16 + 4 * noise / step
            gradient = 0.0 if self.pair.gradient is None else self.pair.gradient
            size = max(abs(value), norm((gradient * direction)[direction != 0]))
            if error <= min(_AGREED, self.pair.comparison.error / 64) * size and np.isfinite(error):
                return value, error
            found = slopes_along(at, index, direction)
        made = self.of_probe(Probe(direction, found, at.oracle, sees_kinks=True))
        return made.expected, made.error


def diagnose(  # noqa: PLR0913 - one failure, seen from all its sides
    problem: FrameworkProblem,
    failed: GradComparison,
    *,
    cotangent: Array,
    gradient: Array | None,
    oracle: Callable[[Array], tuple[float, float]],
    rng: np.random.Generator,
    replay: str = "",
    given: Sequence[KnownSlope] = (),
    most_forwards: float = np.inf,
) -> Diagnosis:
    """What is wrong in a failed comparison.

    `oracle` takes a direction in the input's shape (complex for a complex input) and gives ⟨v, J·u⟩ with its error.
    `gradient` is the wrong Jᵀv of that input, None if there is none. `given` are slopes that the check has measured. After
    `most_forwards` no more questions are asked.
    """
    before = problem.forwards
    i = [slot.name for slot in problem.inputs].index(failed.input)
    k = [slot.name for slot in problem.outputs].index(failed.output)
    slot, cotangent, pointwise = problem.inputs[i], np.array(cotangent), failed.mode == "forward"
    scales = element_scales(vector(problem.point[i]))

    def pushed(direction: Vector) -> float:
        """The slope that jvp gives, in place of a gradient's."""
        tangents = [np.zeros_like(one) for one in problem.point]
        tangents[i] = shaped(direction, slot)
        return float(np.dot(vector(cotangent), vector(problem.jvp(problem.point, tangents)[k])))

    slope: Slope = lambda direction: oracle(shaped(direction, slot))  # noqa: E731 - another one for a low precision
    low = failed.oracle == "float64" or isinstance(problem, KernelProblem)
    dtype, exact, prefix, right, unit = None, 1e-6, "", None, 0.0
    of = np.zeros(scales.size) if gradient is None else vector(gradient)
    if low:
        # The double run's gradient is what is expected, in full: both at the rounded inputs and the rounded cotangent.
        dtype, at = failed.dtype, [rounded(one, failed.dtype) for one in problem.point]
        v = rounded(cotangent, dtype)
        found, expected = (problem.vjp(at, _only(problem, k, v), dtype=name)[i] for name in (dtype, None))
        told = f"only in {dtype}, {problem.computes} is right"
        prefix = told if failed.oracle == "float64" else "unlike its reference"
        if found is None or expected is None:
            hint = f"{prefix}: there is no gradient (None)"
            return Diagnosis(input=failed.input, output=failed.output, dtype=dtype, hint=hint, replay=replay)
        unit, scales, given = precision_of(dtype).roundoff, np.ones(scales.size), ()
        of, right, exact = vector(found), vector(expected), 8 * unit
        slope = _of_known(right, 16 * unit)

    def deviation(direction: Vector) -> tuple[float, float]:
        expected, error = slope(direction)
        return (pushed(direction) if pointwise else float(np.sum(of * direction))) - expected, error

    asked = BoundedOracle(deviation, lambda: problem.forwards >= before + most_forwards)
    wrong = WrongGradient(problem, i, k, cotangent, of, slope, asked, scales, rng, list(given), exact, dtype)
    if pointwise:
        place, hint = locate(asked, scales, rng), "forward mode (jvp) is wrong"
    else:
        place, hint = wrong.told()
    if gradient is None and not low:
        hint = NONE
    if right is not None and np.isfinite(of).all():
        # The element that is furthest off for its size.
        weight = np.abs(right) + 64 * unit * norm(right) / np.sqrt(max(1, right.size)) + roundoff.TINY
        place = int(np.argmax(np.abs(of - right) / weight))
    values = (None, None) if place is None else wrong.values_at(place, pushed if pointwise else None)
    return Diagnosis(
        input=failed.input,
        output=failed.output,
        dtype=failed.dtype,
        coordinate=None if place is None else wrong.coordinate(place),
        expected=values[0],
        found=None if hint == NONE else values[1],
        hint=": ".join(filter(None, (prefix, hint))),
        forwards=problem.forwards - before,
        replay=replay,
    )


def _only(problem: FrameworkProblem, output: int, cotangent: Array) -> list[Array | None]:
    return [cotangent if k == output else None for k in range(len(problem.outputs))]


def _of_known(right: Vector, share: float) -> Slope:
    return lambda direction: (float(np.sum(right * direction)), share * norm(right * direction))


@dataclass(slots=True)
class BoundedOracle:
    """A deviation that is asked for until what it may cost is spent."""

    deviation: Slope
    spent: Callable[[], bool]

    def __call__(self, direction: Vector) -> tuple[float, float]:
        """The deviation along a direction; (0, inf) where it is not known, or may not be asked for any more."""
        if self.spent():
            return 0.0, np.inf
        value, error = self.deviation(direction)
        return (value, error) if np.isfinite(value) and np.isfinite(error) else (0.0, np.inf)

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
    for _ in range(_ATTEMPTS):
        direction = random_weights(scales.size, rng) * scales
        whole = oracle.clear(direction) if support.size else 0.0
        if whole == 0:
            continue
        left = support
        while left.size > 1 and not oracle.spent():
            half, other = np.array_split(left, 2)
            part = np.zeros_like(direction)
            part[half] = direction[half]
            value = oracle(part)[0]
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


@dataclass(slots=True)
class WrongGradient:
    """A gradient that failed: of one input, for one output and its cotangent; and the slopes it should have had."""

    problem: FrameworkProblem
    input: int
    output: int
    cotangent: Array
    gradient: Vector
    slope: Slope
    oracle: BoundedOracle
    scales: Vector
    rng: np.random.Generator
    known: list[KnownSlope]  # what was measured, to try guesses against at no cost
    exact: float  # how close a factor must be to 2 to be called 2
    dtype: str | None  # the precision that it failed in; None for double
    elements: dict[int, float] = field(default_factory=dict)  # what some of them should be

    @property
    def slot(self) -> TensorSlot:
        return self.problem.inputs[self.input]

    @property
    def parts(self) -> int:
        return 2 if self.slot.complex else 1

    def coordinate(self, place: int) -> tuple[int, ...]:
        return tuple(int(n) for n in np.unravel_index(place // self.parts, self.slot.shape))

    def values_at(self, place: int, found: Callable[[Vector], float] | None) -> list[float | complex]:
        """What is expected of a probe of an element alone, and what was found there; of a complex one of each part."""
        places = self._parts_at(place)
        theirs = [float(self.gradient[n]) for n in places]
        if found is not None:
            theirs = [float(found(coordinate(self.scales, n)) / self.scales[n]) for n in places]
        return [complex(*one) if self.slot.complex else one[0] for one in (list(map(self._expected, places)), theirs)]

    def _parts_at(self, place: int) -> range:
        first = place - place % self.parts
        return range(first, first + self.parts)

    def _expected(self, place: int) -> float:
        if place not in self.elements:
            self.elements[place] = float(self.slope(coordinate(self.scales, place))[0] / self.scales[place])
        return self.elements[place]

    def fits(self, candidate: Vector) -> bool:
        return bool(self.known) and all(one.gap(candidate) <= 1 for one in self.known)

    def told(self) -> tuple[int | None, str]:
        """An element that is wrong, and the pattern."""
        lost = ~np.isfinite(self.gradient)
        if lost.any():
            kind = "NaN" if np.isnan(self.gradient).any() else "infinite"
            return int(np.argmax(lost)), f"{kind} at {count(int(lost.sum()), 'element')}"
        drawn = (random_weights(self.scales.size, self.rng) * self.scales for _ in range(_DENSE - len(self.known)))
        measured = [*self.known, *(KnownSlope(one, *self.slope(one)) for one in drawn)]
        self.known = [one for one in measured if np.isfinite(one.expected) and np.isfinite(one.error)]
        # Whether the slopes are sharp enough that a guess which fits means something.
        if not np.any(self.gradient) or not any(one.gap(self.gradient) > _TELLING for one in self.known):
            return locate(self.oracle, self.scales, self.rng), "" if np.any(self.gradient) else ZERO
        for hint, right in chain(self._multiples(), self._moved()):
            if self.fits(right):
                return int(np.argmax(np.abs(right - self.gradient) * (self.scales > 0))), hint
        place = locate(self.oracle, self.scales, self.rng)
        if place is not None and self.gradient.size > self.parts:
            mended = self.gradient.copy()
            for n in self._parts_at(place):
                mended[n] = self._expected(n)
            if self.fits(mended):
                return place, "this element alone is wrong"
        return place, self._behaviour()

    def _multiples(self) -> Iterator[tuple[str, Vector]]:
        """What the factor is, in words, and the wrong gradient times it."""
        seen = np.array([float(np.dot(self.gradient, one.direction)) for one in self.known])
        energy = float(np.dot(seen, seen))
        factor = float(np.dot(seen, [one.expected for one in self.known])) / energy if energy > 0 else np.nan
        if not np.isfinite(factor) or factor == 0:
            return
        slot, output = self.slot, self.problem.outputs[self.output]
        # A factor that has a name: 2, ½, −1, or the length of something.
        of = "the expected gradient"
        named = [(-1.0, "the sign is flipped"), (0.5, f"twice {of}"), (2.0, f"half {of}")]
        # Axes of the output that the input has not, or has with length 1, come first.
        lead = len(output.shape) - len(slot.shape)
        own = (1,) * lead + slot.shape if lead >= 0 else output.shape
        over, axes = f"of {output.name}, over which {slot.name} is broadcast", zip(own, output.shape, strict=True)
        lengths = [
            (n, f"the length of axis {axis} {over}") for axis, (have, n) in enumerate(axes) if have == 1 and n > 1
        ]
        for one in (slot, output):
            lengths += [(n, f"the length of axis {axis} of {one.name}") for axis, n in enumerate(one.shape) if n > 2]
            if (elements := int(np.prod(one.shape))) > 2:
                lengths.append((elements, f"the number of elements of {one.name}"))
        for length, what in lengths:
            named.append((float(length), f"1/{length} of {of}; {length} is {what}"))
            named.append((1 / length, f"{length} times {of}; {length} is {what}"))
        near = next((one for one in named if abs(factor - one[0]) <= self.exact * abs(one[0])), None)
        if near is not None:
            yield near[1], near[0] * self.gradient
        elif np.count_nonzero(self.gradient) >= _FEW and len(self.known) >= _FEW:
            yield f"{1 / factor:.6g} times the expected gradient", factor * self.gradient

    def _moved(self) -> Iterator[tuple[str, Vector]]:
        """The same numbers in other places, also with the sign flipped."""
        shape, axes = self.slot.shape, range(len(self.slot.shape))
        whole = self.gradient.reshape((*shape, 2) if self.slot.complex else shape)
        made: list[tuple[str, Array]] = []
        for one, two in combinations(axes, 2):
            turned, hint = np.swapaxes(whole, one, two), f"transposed: axes {one} and {two} are exchanged"
            if turned.shape != whole.shape:
                # A gradient in the transposed layout that was read in the input's shape.
                hint, turned = f"{hint}, and the shape was forced", np.swapaxes(whole.reshape(turned.shape), one, two)
            made.append((hint, turned))
        for axis in axes:
            # The end wraps around.
            for step, words in ((-1, "too far"), (1, "too early")) if shape[axis] > 1 else ():
                made.append((f"off by one along axis {axis}: one {words}", np.roll(whole, step, axis)))
        for hint, right in made:
            if not np.array_equal(right, whole):
                flat = np.ascontiguousarray(right).reshape(-1)
                yield hint, flat
                yield f"{hint}, and the sign is flipped", -flat

    def _behaviour(self) -> str:
        """What a wrong gradient looks like that is not a rearrangement of the right one."""
        for look in (self._one_slice, self._missing_term):
            try:
                hint = look()
            except Exception:  # noqa: BLE001, S112 - what a wrong backward raises elsewhere is not what failed here
                continue
            if hint:
                return hint
        return ""

    def _one_slice(self) -> str:
        """Whether only one slice of the cotangent is used."""
        shape = self.cotangent.shape
        for axis in range(min(len(shape), _MOST_AXES)):
            for place, word in ((0, "first"), (-1, "last")) if shape[axis] > 1 else ():
                only, at = np.zeros_like(self.cotangent), (slice(None),) * axis + (place,)
                only[at] = self.cotangent[at]
                given = _only(self.problem, self.output, only)
                found = self.problem.vjp(self.problem.point, given, dtype=self.dtype)[self.input]
                if found is not None and norm(vector(found) - self.gradient) <= 1e-12 * norm(self.gradient):
                    return f"only the {word} slice of the cotangent along axis {axis} is used; the sum over that axis is missing"
        return ""

    def _missing_term(self) -> str:
        """Whether what is missing is the same all along an axis, or goes as the output does."""
        shape = self.slot.shape
        if self.slot.complex or self.scales.size < _FEW:
            return ""
        axes = [axis for axis in range(min(len(shape), _MOST_AXES)) if shape[axis] > 2]
        everywhere = "the deviation is the same everywhere: a constant, or a mean or sum over all elements"
        looks: list[tuple[int | tuple[int, ...], bool, str]] = [(tuple(range(len(shape))), False, everywhere)]
        for axis in axes:
            along = f"the deviation is the same all along axis {axis}: a mean or sum term over it is missing"
            looks.append((axis, False, along))
        for axis in axes if self.problem.outputs[self.output].shape == shape else ():
            along = (
                f"the deviation is proportional to the output along axis {axis}: a term with a sum over it is missing"
            )
            looks.append((axis, True, along))
        off = max(abs(float(np.dot(self.gradient, one.direction)) - one.expected) for one in self.known)
        for over, by_output, hint in looks:
            weights = self.problem.forward(self.problem.point)[self.output] if by_output else np.ones(shape)
            # A direction whose weighted sum along every line of the axis is zero.
            drawn = random_weights(self.scales.size, self.rng).reshape(shape) * np.median(self.scales)
            energy = np.square(weights).sum(over, keepdims=True)
            share = (drawn * weights).sum(over, keepdims=True) / np.where(energy > 0, energy, 1.0)
            direction = np.asarray(drawn - share * weights, np.float64).reshape(-1)
            value, error = self.oracle(direction)
            if abs(value) <= 4 * error + _ROUND_OFF * norm(self.gradient * direction) < off / 8 and np.any(direction):
                return hint
        return ""
