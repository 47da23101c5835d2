"""Boundary points, where hand-written rules go wrong and sample inputs never go, visited on the check's own initiative.

From the given inputs come points with exact zeros, ones, ties, tiny, large, whole and negated numbers, everywhere, at
half of the elements, or in one input alone; index tensors with repeated entries and integers with negative ones; and
smaller shapes: axes of length 1, and axes of one common length (a batch that looks like a vector).

Nobody vouches for such a point: it may lie outside the domain, at a kink, a pole, or where numbers overflow. So only a
confirmed contradiction is called wrong, and nothing here is evidence for a gradient:

1. along a drawn line it differs from the function's slope, at outputs that are finite and have no kink, by more than
   `CLEAR` of its size, and more than what is lost in a tail anyway (`LOST`);
2. seen from both sides it has a limit at the point, which is that slope and not what was found; or, where what was found
   is that limit, it is as wrong nearby.

What the framework refuses (a shape, an index) is left out, and so is what was flat where it was given: the stairs of
`floor` look like a slope from afar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise, product
from typing import Any

import numpy as np

from karat.gradients import slopes
from karat.gradients.adapters.calls import is_float
from karat.gradients.adapters.framework_problem import FrameworkProblem, with_leaves
from karat.gradients.deep import Derivative, Derived, family
from karat.gradients.draws import CheckPlan, Purpose, random_weights
from karat.gradients.examine import Pair
from karat.gradients.oracles import ForwardBaseline, baseline, slopes_along
from karat.gradients.problem import Array, FlatProblem, Vector, shaped, size
from karat.gradients.report import GradComparison, GradVerdict
from karat.gradients.roundoff import combined, element_scales, norm
from karat.gradients.slopes import Mask, Slopes, slopes_on_line

CLEAR = 1e-3  # what is off by less, at a point that nobody asked for, is round-off as likely as not
_CLOSE = CLEAR / 10  # what a cheap look takes for the same
LOST = 1e-8  # a share of the natural size below which a derivative is lost in a tail, and a matter of taste
_STEPS = (2.0**-6, 2.0**-9)  # how far away a limit is looked for from both sides, relative to each element
_FINE = 2.0**-40
_ALONE = 3  # up to so many inputs are moved one by one

KINDS: dict[str, Callable[[Vector], Vector]] = {
    "zeros": np.zeros_like,
    "ones": np.ones_like,
    "minus ones": lambda x: -np.ones_like(x),
    "ties": lambda x: np.full_like(x, x[0]),
    "tiny numbers": lambda x: x * 2.0**-30,
    "very tiny numbers": lambda x: x * 2.0**-80,
    "large numbers": lambda x: x * 2.0**10,
    "whole numbers": np.rint,
    "negated numbers": np.negative,
}


def points(at: Sequence[Vector], rng: np.random.Generator) -> Iterator[tuple[str, list[Vector]]]:
    """Other points, each with a name; every one once."""
    seen = {_key(at)}
    halves = [rng.permutation(one.size) < (one.size + 1) // 2 for one in at]
    for kind, change in KINDS.items():
        whole = [change(one) if one.size else one for one in at]
        half = [np.where(mask, new, old) for mask, new, old in zip(halves, whole, at, strict=True)]
        places = [(kind, whole), (f"{kind} at half of the elements", half)]
        if kind == "very tiny numbers":
            places = places[:1]  # beside others they make quotients that are whole numbers, all of them
        elif 1 < len(at) <= _ALONE:
            alone = [[new if n == i else old for n, old in enumerate(at)] for i, new in enumerate(whole)]
            places += [(f"{kind} in input {i}", one) for i, one in enumerate(alone)]
        for name, point in places:
            if _key(point) not in seen:
                seen.add(_key(point))
                yield name, point
    shapes = {one.size for one in at}
    if len(at) > 1 and len(shapes) == 1:
        yield "equal inputs", [at[0]] * len(at)


def _key(at: Sequence[Vector]) -> bytes:
    return b"".join((one + 0.0).tobytes() for one in at)


def variants(problem: FrameworkProblem) -> Iterator[tuple[str, FrameworkProblem]]:
    """The same function at other integers and other shapes, where it takes them."""
    adapter, leaves = problem.adapter, [leaf.value for leaf in problem.call.leaves]
    dtypes = [adapter.dtype_of(one) for one in leaves]
    with adapter.scope():
        arrays = [adapter.to_numpy(one) for one in leaves]
    whole = [n for n, dtype in enumerate(dtypes) if dtype.startswith("int") and arrays[n].size > 1]
    lengths = sorted({length for one in arrays for length in one.shape if length > 1})
    made: dict[str, list[Array]] = {}
    if whole:
        same = {n: np.full_like(arrays[n], arrays[n].flat[0]) for n in whole}
        made["repeated indices"] = [same.get(n, one) for n, one in enumerate(arrays)]
        # On a device an index that is out of range ends more than this check.
        if problem.device == "cpu" and problem.framework != "paddle":
            made["negative integers"] = [-np.abs(one) if n in whole else one for n, one in enumerate(arrays)]
    for length, to in chain(((one, 1) for one in lengths), pairwise(reversed(lengths))):
        made[f"axes of length {to} for {length}"] = [_cut(one, length, to) for one in arrays]
    for word, changed in made.items():
        try:
            with adapter.scope():
                native = [adapter.from_numpy(*each) for each in zip(changed, dtypes, leaves, strict=True)]
            other = with_leaves(problem, native)
        except Exception:  # noqa: BLE001, S112 - functions refuse shapes and indices in many ways
            continue
        if other.outputs and all(is_float(slot.dtype) for slot in other.outputs):
            yield word, other


def _cut(array: Array, length: int, to: int) -> Array:
    return array[tuple(slice(to if extent == length else None) for extent in array.shape)]


def arguments_at(problem: FrameworkProblem, seed: int, where: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the function at the point of that name, as a check with that seed visits it."""
    rng = CheckPlan(seed=seed, inputs=frozenset(), outputs=frozenset()).draw(Purpose.NEARBY, 2)
    at = dict(points(FlatProblem(problem).point, rng)).get(where)
    there = problem if at else dict(variants(problem))[where]
    arrays = [shaped(*each) for each in zip(at, problem.inputs, strict=True)] if at else there.point
    with there.adapter.scope():
        return there.call.arguments(there.natives(arrays, None), "float64")


def visit(alive: list[Derivative]) -> Iterator[tuple[str, Derivative, list[Pair] | None]]:
    """Derivatives that are right where they were checked, elsewhere: what is wrong there, or None where nobody can say.

    One that is wrong is not asked again.
    """
    first = alive[0]
    for where, at in points(FlatProblem(first.problem).point, first.plan.draw(Purpose.NEARBY, 2)):
        yield from _at(where, alive, at)
    known = {mode for one in alive for mode in one.modes.values()}
    for where, problem in variants(first.problem):
        outputs = frozenset(k for k in range(len(problem.outputs)) if k in first.plan.outputs)
        others = family(problem, replace(first.plan, outputs=outputs))
        yield from _at(where, [one for one in others if set(one.modes.values()) <= known], None)


def _at(
    where: str, alive: list[Derivative], at: Sequence[Vector] | None
) -> Iterator[tuple[str, Derivative, list[Pair] | None]]:
    for made in list(alive):
        own, wrong = FlatProblem(made.problem).point, None
        look = _Look(made, FlatProblem(made.problem, own if at is None else [*at, *own[made.own :]]))
        with suppress(Exception):  # outside of its domain a function may raise anything
            if any(np.isfinite(one).any() for one in look.flat.base()):
                wrong = [] if look.plainly_right() else list(look.wrong(where))
        yield where, made, wrong
        if wrong:
            alive.remove(made)
        if wrong or wrong is None:
            break


class _Look:
    """One derivative at one point, asked along a drawn line, with cotangents of moderate size.

    Cotangents that bring elements of all sizes to one size would magnify what is lost in a saturated tail.
    """

    def __init__(self, made: Derivative, flat: FlatProblem) -> None:
        self.made, self.flat = made, flat
        rng = made.plan.draw(Purpose.NEARBY, 1)
        # In cotangents and tangents a derivative is linear, here as elsewhere.
        self.inputs = [i for i in sorted(made.plan.inputs) if i < made.own and flat.point[i].size]
        drawn = [random_weights(one.size, rng) * element_scales(one) for one in flat.point]
        self.line = [one if i in self.inputs else np.zeros_like(one) for i, one in enumerate(drawn)]
        self.weights = [random_weights(size(slot), rng) for slot in flat.outputs]

    def plainly_right(self) -> bool:
        """A cheap look along a line that moves everything: whether nothing deserves a closer one."""
        flat, moved = self.flat, list(zip(self.flat.point, self.line, strict=True))

        def central(step: float) -> list[Vector]:
            ends = [flat.forward([x + h * u for x, u in moved]) for h in (step, -step)]
            return [(right - left) / (2 * step) for right, left in zip(*ends, strict=True)]

        both = zip(central(_STEPS[1]), central(_STEPS[1] / 2), strict=True)
        expected = [(4 * fine - coarse) / 3 for coarse, fine in both]
        given = [np.where(np.isfinite(one), v, 0.0) for one, v in zip(expected, self.weights, strict=True)]
        terms = np.concatenate([v * np.where(v == 0, 0.0, one) for one, v in zip(expected, given, strict=True)])
        pulled = flat.vjp([one if k in self.made.plan.outputs else None for k, one in enumerate(given)])
        off = abs(_along(pulled, self.line) - terms.sum())
        if len(self.made.plan.outputs) < len(given) or not off <= _CLOSE * norm(terms):
            return False
        if "forward" not in self.made.modes:
            return True
        gaps = [np.abs(one - two) for one, two in zip(flat.pushed(self.line), expected, strict=True)]
        largest = [np.max(np.abs(one[np.isfinite(one)]), initial=0.0) for one in expected]
        sides = zip(expected, gaps, largest, strict=True)
        return all(np.all(~np.isfinite(one) | (gap <= _CLOSE * most)) for one, gap, most in sides)

    def wrong(self, where: str) -> Iterator[Pair]:
        """Every input against every output in every mode, with an oracle that knows its error."""
        there = baseline(self.flat)
        smooth = self._smooth(there)
        for i in self.inputs:
            along = slopes_along(there, i, self.line[i])
            ends = [self.flat.moved(i, h * self.line[i]) for h in (_FINE, -_FINE)]
            finely = [(right - left) / (2 * _FINE) for right, left in zip(*ends, strict=True)]
            moved = [k for k in sorted(self.made.plan.outputs) if self.made.moves is None or (i, k) in self.made.moves]
            for k, mode in product(moved, self.made.modes):
                asked = _Question(self, (i, k, mode), there, along[k], smooth[k])
                # The stairs of what is rounded inside look like a slope from afar, and like what was found from nearby.
                asked.off &= ~(np.abs(asked.found - asked.seen(finely[k])) <= asked.least)
                # Numbers that overflow somewhere inside are nobody's fault.
                asked.off &= np.isfinite(asked.found) | (not where.startswith("large"))
                if asked.off.any() and (asked.has_limit() or self._wrong_nearby(asked)):
                    yield asked.pair(where)

    def _smooth(self, there: ForwardBaseline) -> list[Mask]:
        """Per output, elements whose slopes have no kink, and add up: those of sorted values at ties do not.

        Where one of many elements is not smooth, others may only look so along a few lines.
        """
        flat, rng = there.flat, self.made.plan.draw(Purpose.DOUBTS)
        other = [random_weights(one.size, rng) * np.abs(one) for one in self.line]
        lines = [self.line, other, [a + b for a, b in zip(self.line, other, strict=True)]]
        along = (partial(flat.along, dict(enumerate(line))) for line in lines)
        one, two, both = (slopes_on_line(line, there.base, there.noise, there.steps) for line in along)
        found: list[Mask] = []
        for a, b, c in zip(one, two, both, strict=True):
            least = 8 * (a.error + b.error + c.error) + _CLOSE * np.maximum(np.abs(c.value), np.abs(a.value))
            smooth = ~(a.kinked | b.kinked | c.kinked) & (np.abs(a.value + b.value - c.value) <= least)
            finite = np.isfinite(there.base[len(found)])
            found.append(finite if np.all(smooth[finite]) else np.zeros_like(finite))
        return found

    def _wrong_nearby(self, asked: _Question) -> bool:
        for attempt in (1, 2):
            rng = replace(self.made.plan, attempt=attempt).draw(Purpose.NEARBY)
            there = baseline(self.flat.at(slopes.nearby_point(self.flat.point, 0, rng)))
            along = slopes_along(there, asked.input, self.line[asked.input])[asked.output]
            which = (asked.input, asked.output, asked.mode)
            if not _Question(self, which, there, along, self._smooth(there)[asked.output]).off.any():
                return False
        return True


class _Question:
    """One input, one output, one mode: what was found along the line, what was expected, and where they are apart."""

    def __init__(
        self, look: _Look, which: tuple[int, int, str], there: ForwardBaseline, along: Slopes, smooth: Mask
    ) -> None:
        self.look, self.there, (self.input, self.output, self.mode) = look, there, which
        k, mode = self.output, self.mode
        known = smooth & ~along.kinked & ~slopes.unresolved(along, there.base[k], there.computes)
        self.cotangent = np.where(known, look.weights[k], 0.0)
        self.expected, error = along.value, 8 * along.error
        if mode == "reverse":
            v = self.cotangent[known]
            self.expected = np.array([np.sum(v * along.value[known])])
            error, self.size = np.array([combined(v * along.error[known])]), norm(v * along.value[known])
            # What is left out may be infinite, and times 0 it is NaN.
            known = np.array([known.any() and (known.all() or np.isfinite(self.ask(there.flat.point)).all())])
        else:
            self.size = float(np.max(np.abs(along.value[known]), initial=0.0))
        self.least = CLEAR * self.size + LOST * self._natural()
        self.found, self.known = self.ask(there.flat.point), known
        self.off = known & ~(np.abs(self.found - self.expected) <= self.least + error)

    def _natural(self) -> float:
        """What the derivative is about as large as where the function is neither flat nor steep: f, or f / x."""
        made, root = self.look.made, self.look.made.problem
        while isinstance(root, Derived):
            root = root.first
        own, flat = self.there.flat.point[: made.own], FlatProblem(root)
        # Where all of it is 0, what it is at the given point.
        runs = [flat.forward(at) for at in (own, flat.point)]
        values = [np.concatenate([np.abs(one[np.isfinite(one)]) for one in run]) for run in runs]
        largest = next((float(one.max()) for one in values if one.any()), 1.0)
        if made.plan.order == 1:
            return largest
        return largest / min(float(np.median(element_scales(one))) for one in own if one.size)

    def seen(self, tangent: Vector) -> Vector:
        """A tangent as it is asked for: itself, or what the cotangent makes of it."""
        used = self.cotangent != 0
        return tangent if self.mode == "forward" else np.array([np.sum(self.cotangent[used] * tangent[used])])

    def ask(self, point: Sequence[Vector]) -> Vector:
        flat, u = self.there.flat.at(point), self.look.line[self.input]
        if self.mode == "forward":
            return flat.jvp(self.input, u)[self.output]
        found = flat.vjp([self.cotangent if k == self.output else None for k in range(len(flat.outputs))])
        return np.array([_along(found[self.input : self.input + 1], [u])])

    def has_limit(self) -> bool:
        """Whether the derivative has a limit from both sides that is what was expected, and not what was found."""
        means, gaps = [], []
        rng, point = self.look.made.plan.draw(Purpose.NEARBY, 3), self.there.flat.point
        line = [random_weights(one.size, rng) * element_scales(one) for one in point]
        for step in _STEPS:
            sides = [self.ask([x + h * u for x, u in zip(point, line, strict=True)]) for h in (step, -step)]
            means.append((sides[0] + sides[1]) / 2)
            gaps.append(np.abs(sides[0] - sides[1]))
        doubt = np.abs(means[0] - means[1])
        # Two sides that hardly come closer to each other are those of a jump.
        fine = (gaps[1] <= 0.3 * gaps[0] + _CLOSE * np.abs(means[1])) & (doubt <= 1e-2 * self.size + self.least)
        fine &= np.abs(means[1] - self.expected) <= 1e-2 * self.size + self.least + 10 * doubt
        return bool(np.any(self.off & fine & ~(np.abs(self.found - means[1]) <= self.least + 20 * doubt)))

    def pair(self, where: str) -> Pair:
        """For the report, and for a diagnosis."""
        flat, worst = self.there.flat, int(np.argmax(self.off))
        gap, unit = abs(float(self.found[worst] - self.expected[worst])), self.size or 1.0
        told = GradComparison(
            input=flat.inputs[self.input].name,
            output=flat.outputs[self.output].name,
            dtype=self.there.computes,
            mode="forward" if self.mode == "forward" else "reverse",
            order=self.look.made.plan.order,
            at=where,
            verdict=GradVerdict.FAIL,
            reason=f"expected {self.expected[worst]:.6g} along a probe, found {self.found[worst]:.6g}",
            oracle="differences",
            error=gap / unit,
            tolerance=self.least / unit,
            scale=self.size,
            probes=1,
        )
        given = [self.cotangent if k == self.output else None for k in range(len(flat.outputs))]
        gradient = flat.vjp(given)[self.input] if self.mode == "reverse" else None
        return Pair(self.input, self.output, told, self.cotangent, gradient, baseline=self.there)


def _along(gradients: Sequence[Vector | None], line: Sequence[Vector]) -> float:
    pairs = zip(gradients, line, strict=True)
    return float(sum(np.sum((g * u)[u != 0]) for g, u in pairs if g is not None))
