"""The cause of a wrong gradient: where it is wrong and what it looks like, in tens of forwards.

First some slopes are measured; then patterns (twice, transposed, one further along an axis) are tried against them at
no cost. A pattern that fits gives the right gradient in full, and so the worst element. Without one, the element is
found by bisection, and the backward is asked some more. Every claim was tested: the element by a probe of it
alone, the hint by probes that the wrong gradient did not pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, permutations

import numpy as np

from karat.gradients.diagnosis import experiments
from karat.gradients.diagnosis.experiments import BoundedOracle, KnownSlope, KnownSlopes, Slope, WrongGradient
from karat.gradients.draws import random_weights
from karat.gradients.low_precision_judgement import precision_of, rounded
from karat.gradients.problem import Array, Problem, TensorSlot, Vector, shaped, size, vector
from karat.gradients.references import KernelProblem
from karat.gradients.report import Diagnosis, GradComparison
from karat.gradients.roundoff import element_scales, norm
from karat.report.words import count

_FEW = 3  # with fewer elements any wrong gradient is some multiple of the right one
MOST_PROBES = 64  # of all kinds together; each is a handful of forwards, or one complex step
ZERO = "the gradient is zero everywhere, but the derivative is not"
NONE = "there is no gradient (None), but the derivative is not zero"

Directional = Callable[[Array], tuple[float, float]]


def diagnose(  # noqa: PLR0913 - one failure, seen from all its sides
    problem: Problem,
    failed: GradComparison,
    *,
    cotangent: Array,
    gradient: Array | None,
    oracle: Directional,
    rng: np.random.Generator,
    replay: str = "",
    given: Sequence[KnownSlope] = (),
    rough: Callable[[Array], float] | None = None,
    most_forwards: float = np.inf,
) -> Diagnosis:
    """What is wrong in a failed comparison.

    `oracle` takes a direction in the input's shape (complex for a complex input) and gives ⟨v, J·u⟩ with its error;
    `rough` gives it for less, and without. `gradient` is the wrong Jᵀv of that input, None if there is none. `given`
    are slopes that the check has measured. After `most_forwards` no more questions are asked.
    """
    before = problem.forwards
    failure = _Failure(
        problem=problem,
        failed=failed,
        input=[slot.name for slot in problem.inputs].index(failed.input),
        output=[slot.name for slot in problem.outputs].index(failed.output),
        cotangent=np.array(cotangent),
        rng=rng,
        given=tuple(given),
        rough=rough,
        until=before + most_forwards,
    )

    def slope(direction: Vector) -> tuple[float, float]:
        return oracle(shaped(direction, failure.slot))

    scales = element_scales(vector(problem.point[failure.input]))
    if failed.oracle == "float64" or isinstance(problem, KernelProblem):
        found = _low(failure)
    elif failed.mode == "forward":
        found = _forward_mode(failure, slope, scales)
    elif gradient is None:
        found = _Case(failure, np.zeros(size(failure.slot)), slope, scales).found()
        found = replace(found, found=None, hint=NONE)
    else:
        found = _Case(failure, vector(gradient), slope, scales).found()
    return Diagnosis(
        input=failed.input,
        output=failed.output,
        dtype=failed.dtype,
        coordinate=failure.coordinate(found.place),
        expected=failure.number(found.expected),
        found=failure.number(found.found),
        hint=found.hint,
        forwards=problem.forwards - before,
        replay=replay,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """The comparison that failed, and the problem it is of."""

    problem: Problem
    failed: GradComparison
    input: int
    output: int
    cotangent: Array
    rng: np.random.Generator
    given: tuple[KnownSlope, ...] = ()
    rough: Callable[[Array], float] | None = None
    until: float = np.inf  # the count of the problem's forwards from which on no more is asked

    def exhausted(self) -> bool:
        return self.problem.forwards >= self.until

    @property
    def slot(self) -> TensorSlot:
        return self.problem.inputs[self.input]

    @property
    def parts(self) -> int:
        return 2 if self.slot.complex else 1

    def coordinate(self, place: int | None) -> tuple[int, ...] | None:
        """Where a place in flat counting is in the input."""
        if place is None:
            return None
        return tuple(int(i) for i in np.unravel_index(place // self.parts, self.slot.shape))

    def number(self, parts: list[float] | None) -> float | complex | None:
        if parts is None:
            return None
        return complex(*parts) if self.slot.complex else parts[0]


@dataclass(frozen=True, slots=True)
class _Culprit:
    """An element in flat counting, the two values there part by part, and the pattern."""

    place: int | None = None
    expected: list[float] | None = None
    found: list[float] | None = None
    hint: str = ""


@dataclass
class _Case:
    """A wrong gradient and the slopes it should have had, as real vectors."""

    failure: _Failure
    gradient: Vector
    slope: Slope
    scales: Vector
    dtype: str | None = None
    exact: float = 1e-6
    oracle: BoundedOracle = field(init=False)

    def __post_init__(self) -> None:
        rough = None if self.dtype or self.failure.rough is None else self.roughly
        self.oracle = BoundedOracle(self.deviation, MOST_PROBES, rough=rough, exhausted=self.failure.exhausted)

    def roughly(self, direction: Vector) -> float:
        expected = self.failure.rough(shaped(direction, self.failure.slot)) if self.failure.rough else 0.0
        return float(np.sum(self.gradient * direction)) - expected

    def deviation(self, direction: Vector) -> tuple[float, float]:
        # Where every element is known, so is every direction.
        expected, error = (self.known.along if self.known.whole else self.slope)(direction)
        # Infinite and NaN elements of the gradient are named before anything is asked.
        return float(np.sum(self.gradient * direction)) - expected, error

    @cached_property
    def known(self) -> KnownSlopes:
        given = () if self.dtype else self.failure.given
        most = experiments.WHOLE_EXACTLY if self.failure.failed.oracle == "complex-step" else experiments.WHOLE
        rng = self.failure.rng
        return experiments.measure_slopes(self.slope, self.scales, rng, exact=self.exact, given=given, most=most)

    def found(self) -> _Culprit:
        lost = ~np.isfinite(self.gradient)
        if lost.any():
            kind = "NaN" if np.isnan(self.gradient).any() else "infinite"
            return self.at(int(np.argmax(lost)), f"{kind} at {count(int(lost.sum()), 'element')}")
        guess = self.guess()
        if guess is not None:
            hint = (guess.odd and experiments.ignores_cotangent(self.wrong())) or guess.hint
            return self.at(self.furthest(guess.right), hint)
        if self.known.whole:
            return self.at_with_hint(self.furthest(self.known.expected(self.scales)))
        place = experiments.locate(self.oracle, self.scales, self.failure.rng)
        if place is None:
            return _Culprit(hint=self.hint() or experiments.confined_to(self.wrong()))
        return self.at_with_hint(place)

    def guess(self) -> Guess | None:
        output = self.failure.problem.outputs[self.failure.output]
        return recognise(self.gradient, self.failure.slot, output, self.known)

    def furthest(self, right: Vector) -> int:
        return int(np.argmax(np.abs(right - self.gradient) * (self.scales > 0)))

    def at(self, place: int, hint: str) -> _Culprit:
        """The element, confirmed by a probe of it alone; a complex one by a probe of each part."""
        first = place - place % self.failure.parts
        places = range(first, first + self.failure.parts)
        known = self.known.whole and np.isfinite(self.gradient).all()
        slope = self.known.along if known else self.slope
        expected = [float(slope(experiments.coordinate(self.scales, i))[0] / self.scales[i]) for i in places]
        return _Culprit(place, expected, [float(self.gradient[i]) for i in places], hint)

    def at_with_hint(self, place: int) -> _Culprit:
        found = self.at(place, "")
        if not self.known.tells(self.gradient) or not np.any(self.gradient):
            return replace(found, hint=self.hint())
        alone = self.corrected(self.gradient, found)
        if self.gradient.size > self.failure.parts and self.known.fits(alone):
            return replace(found, hint="this element alone is wrong")
        # A few elements may all lie where the input is positive; that there are few says more.
        return replace(found, hint=self.hint() or self.few(alone) or experiments.confined_to(self.wrong()))

    def corrected(self, gradient: Vector, found: _Culprit) -> Vector:
        """The gradient with one element put right."""
        right = gradient.copy()
        if found.place is not None and found.expected is not None:
            first = found.place - found.place % self.failure.parts
            right[first : first + self.failure.parts] = found.expected
        return right

    def few(self, alone: Vector) -> str:
        """Whether a second element explains the rest; how many are wrong, where all are known."""
        if self.known.whole:
            wrong = sum(one.gap(self.gradient) > 1 for one in self.known.all)
            place = experiments.confined_to(self.wrong())
            return place or f"{wrong:,} of {count(self.gradient.size, 'element')} are wrong"
        rest = _Case(self.failure, alone, self.slope, self.scales)
        if rest.many():
            return ""
        second = experiments.locate(rest.oracle, self.scales, self.failure.rng)
        if second is None or not self.known.fits(self.corrected(alone, self.at(second, ""))):
            return ""
        other = ", ".join(map(str, self.failure.coordinate(second) or ()))
        return f"two elements are wrong, the other at [{other}]"

    def many(self) -> bool:
        """Whether two parts without a common element are both wrong: more than one element is."""
        order = self.failure.rng.permutation(self.scales.size)
        share = max(1, self.scales.size // 8)
        direction = random_weights(self.scales.size, self.failure.rng) * self.scales
        masks = (np.isin(order, range(n * share, (n + 1) * share)) for n in range(2))
        return all(self.oracle.clear(direction * mask) != 0 for mask in masks)

    def hint(self) -> str:
        """What a wrong gradient looks like that is not a rearrangement of the right one."""
        if not np.any(self.gradient):
            return ZERO
        if not self.known.tells(self.gradient):
            return ""
        wrong = self.wrong()
        turned = experiments.conjugated(wrong)
        if turned is not None and self.known.fits(turned):
            return "the conjugate is missing"
        looks = (experiments.misbehaviour, experiments.shifted, experiments.missing_term, experiments.other_axis)
        return next(filter(None, (look(wrong) for look in looks)), "")

    def wrong(self) -> WrongGradient:
        off = [abs(float(np.dot(self.gradient, one.direction)) - one.expected) for one in self.known.all]
        return WrongGradient(
            problem=self.failure.problem,
            input=self.failure.input,
            output=self.failure.output,
            cotangent=self.failure.cotangent,
            gradient=self.gradient,
            oracle=self.oracle,
            scales=self.scales,
            rng=self.failure.rng,
            deviation=max(off, default=0.0),
            dtype=self.dtype,
        )


def _low(failure: _Failure) -> _Culprit:
    """In low precision the expected gradient is known in full: it is the double run's."""
    problem, dtype = failure.problem, failure.failed.dtype
    # Both at the rounded inputs and the rounded cotangent.
    at, cotangent = [rounded(one, dtype) for one in problem.point], rounded(failure.cotangent, dtype)
    given = [cotangent if k == failure.output else None for k in range(len(problem.outputs))]
    found, expected = (problem.vjp(at, given, dtype=name)[failure.input] for name in (dtype, None))
    prefix = (
        f"only in {dtype}, {problem.computes} is right"
        if failure.failed.oracle == "float64"
        else "unlike its reference"
    )
    if found is None or expected is None:
        return _Culprit(hint=f"{prefix}: there is no gradient (None)")
    right, unit = vector(expected), precision_of(dtype).roundoff

    def slope(direction: Vector) -> tuple[float, float]:
        terms = right * direction
        return float(np.sum(terms)), 16 * unit * norm(terms)

    case = _Case(failure, vector(found), slope, np.ones(right.size), dtype, exact=8 * unit)
    seen = case.found()
    if np.isfinite(case.gradient).all():
        # The element that is furthest off for its size.
        typical = norm(right) / np.sqrt(max(1, right.size))
        weight = np.abs(right) + 64 * unit * typical + np.finfo(np.float64).tiny
        seen = case.at(int(np.argmax(np.abs(case.gradient - right) / weight)), seen.hint)
    return replace(seen, hint=f"{prefix}: {seen.hint}" if seen.hint else prefix)


def _forward_mode(failure: _Failure, slope: Slope, scales: Vector) -> _Culprit:
    """The slopes that jvp gives, in place of a gradient's."""
    wrong_mode = "forward mode (jvp) is wrong"

    def pushed(direction: Vector) -> float:
        tangents = [np.zeros_like(one) for one in failure.problem.point]
        tangents[failure.input] = shaped(direction, failure.slot)
        out = failure.problem.jvp(failure.problem.point, tangents)[failure.output]
        return float(np.dot(vector(failure.cotangent), vector(out)))

    if scales.size <= experiments.WHOLE:
        columns = [pushed(experiments.coordinate(scales, i)) for i in range(scales.size)]
        gradient = np.divide(columns, scales, out=np.zeros(scales.size), where=scales > 0)
        case = _Case(failure, gradient, slope, scales)
        guess = case.guess()
        right = guess.right if guess else case.known.expected(scales)
        place = case.furthest(right) if right.size == scales.size else 0
        return case.at(place, f"{wrong_mode}: {guess.hint}" if guess else wrong_mode)

    def deviation(direction: Vector) -> tuple[float, float]:
        expected, error = slope(direction)
        return pushed(direction) - expected, error

    wrong = experiments.locate(BoundedOracle(deviation, MOST_PROBES, exhausted=failure.exhausted), scales, failure.rng)
    if wrong is None:
        return _Culprit(hint=wrong_mode)
    first = wrong - wrong % failure.parts
    ones = [(experiments.coordinate(scales, i), scales[i]) for i in range(first, first + failure.parts)]
    expected = [float(slope(one)[0] / scale) for one, scale in ones]
    return _Culprit(wrong, expected, [float(pushed(one) / scale) for one, scale in ones], wrong_mode)


@dataclass(frozen=True, slots=True)
class Guess:
    """A pattern, and what the right gradient would be if it is the one."""

    hint: str
    right: Vector
    odd: bool = False  # a factor without a name, which may be chance: there is one for every constant gradient of a sum


def recognise(wrong: Vector, slot: TensorSlot, output: TensorSlot, known: KnownSlopes) -> Guess | None:
    """The first pattern that explains a wrong gradient; None if no pattern does."""
    if not np.isfinite(wrong).all() or not np.any(wrong) or not known.tells(wrong):
        return None
    guesses = chain(_multiples(wrong, slot, output, known), _moved(wrong, slot))
    return next((one for one in guesses if known.fits(one.right)), None)


def _multiples(wrong: Vector, slot: TensorSlot, output: TensorSlot, known: KnownSlopes) -> Iterator[Guess]:
    """The wrong gradient times a factor; what the factor is, in words."""
    factor = known.factor(wrong)
    if not np.isfinite(factor) or factor == 0:
        return
    # A factor that has a name: 2, ½, −1, or the length of something.
    named = [
        (-1.0, "the sign is flipped"),
        (0.5, "twice the expected gradient"),
        (2.0, "half the expected gradient"),
        (-0.5, "twice the expected gradient, and the sign is flipped"),
    ]
    # Axes of the output that the input has not, or has with length 1, come first.
    lead = len(output.shape) - len(slot.shape)
    own = (1,) * lead + slot.shape if lead >= 0 else output.shape
    lengths = [
        (length, f"the length of axis {axis} of {output.name}, over which {slot.name} is broadcast")
        for axis, (have, length) in enumerate(zip(own, output.shape, strict=True))
        if have == 1 and length > 1
    ]
    for one in (slot, output):
        lengths += [(n, f"the length of axis {axis} of {one.name}") for axis, n in enumerate(one.shape) if n > 2]
        if (elements := int(np.prod(one.shape))) > 2:
            lengths.append((elements, f"the number of elements of {one.name}"))
    for length, what in lengths:
        named.append((float(length), f"1/{length} of the expected gradient; {length} is {what}"))
        named.append((1 / length, f"{length} times the expected gradient; {length} is {what}"))
    near = next((one for one in named if abs(factor - one[0]) <= known.exact * abs(one[0])), None)
    if near is not None:
        yield Guess(near[1], near[0] * wrong)
    elif np.count_nonzero(wrong) >= _FEW and len(known.all) >= _FEW:
        yield Guess(f"{1 / factor:.6g} times the expected gradient", factor * wrong, odd=True)


def _moved(wrong: Vector, slot: TensorSlot) -> Iterator[Guess]:
    """The same numbers in other places, also with the sign flipped."""
    whole = wrong.reshape((*slot.shape, 2) if slot.complex else slot.shape)
    for hint, right in _rearranged(whole, range(len(slot.shape))):
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
        # One or two further, or back, as where something is moved the wrong way; the end wraps around.
        for places, word in ((1, "one"), (2, "two")):
            if whole.shape[axis] > 2 * places - 1:
                for step, words in ((-places, "too far"), (places, "too early")):
                    yield f"off by {word} along axis {axis}: {word} {words}", np.roll(whole, step, axis)
    if 3 <= len(axes) <= experiments.MOST_AXES:
        rest = tuple(range(len(axes), whole.ndim))
        for order in permutations(axes):
            yield f"axes permuted: {order}", np.transpose(whole, (*order, *rest))
