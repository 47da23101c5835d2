"""A trial: what all laws of a backward share: a point, cotangents, a gradient, and how much round-off may do.

Bounds come from round-off alone. Two ways of computing the same sum of N terms differ by about eps·√N times the
size of the terms; `MARGIN` times that is allowed. A backward that cancels large terms is off by more, and is no
less lawful: so a deviation that is too large is looked at again, with cotangents a few eps away. Round-off is
another one then, and what it moved by is allowed; a broken law is broken by as much as before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.draws import random_weights
from karat.gradients.problem import Array, Gradients
from karat.gradients.report import GradVerdict, Property
from karat.gradients.roundoff import INACCURATE, eps_of
from karat.tensors.device_array import LARGE, random_signs

MARGIN = 64.0
RUNS = 3  # of the same, to see whether it is the same
_LOOKS = 3  # how often a deviation that is too large is looked at again

# Gradients for a point and cotangents, in two ways.
Attempt = Callable[[Sequence[Array], Sequence[Array]], "TwoWays"]


@dataclass(frozen=True, slots=True)
class TwoWays:
    """Gradients that were computed in two ways, and the sizes of what they were put together from."""

    found: Gradients
    expected: Gradients
    sizes: Sequence[Gradients] = ()

    @property
    def off(self) -> list[float]:
        """The largest deviation of each input's gradient."""
        differences = [self.difference(index) for index in range(len(self.found))]
        return [0.0 if one is None else float(np.abs(one).max(initial=0.0)) for one in differences]

    def difference(self, index: int) -> Array | None:
        """Found less expected; zero where what it was put together from is not finite."""
        found, expected = self.found[index], self.expected[index]
        if found is None or expected is None:
            return found if expected is None else -expected
        off = np.where((found == expected) | ~np.isfinite(expected), 0.0, found - expected)
        for part in (one[index] for one in self.sizes):
            off = off if part is None else np.where(np.isfinite(part), off, 0.0)
        return np.where(np.isnan(off), np.inf, off)


class Trial:
    """One problem, at its point, with cotangents drawn from a generator."""

    def __init__(
        self, problem: FrameworkProblem, rng: np.random.Generator, *, allowed: float, strict: bool = False
    ) -> None:
        self.problem, self.rng, self.allowed, self.strict = problem, rng, allowed, strict
        self.cotangents = self.draw()
        self.gradients: Gradients = problem.vjp(problem.point, self.cotangents)
        self.again: list[Gradients] = []  # the same, where a law came by it
        self.watched: dict[str, Property] = {}  # laws that one run has shown
        self.native_outputs: Sequence[Any] = ()  # what came out of it

    @cached_property
    def eps(self) -> float:
        return eps_of(self.problem.computes)

    @cached_property
    def repeated(self) -> list[Gradients]:
        left = RUNS - 1 - len(self.again)
        return [*self.again, *(self.problem.vjp(self.problem.point, self.cotangents) for _ in range(left))]

    @cached_property
    def outputs(self) -> Sequence[Array]:
        return self.problem.forward(self.problem.point)

    @cached_property
    def noise(self) -> list[float]:
        """What repetition alone does to each gradient."""
        each = enumerate(self.gradients)
        return [max((largest_gap(run[n], first) for run in self.repeated), default=0.0) for n, first in each]

    def usual(self, at: Sequence[Array], cotangents: Sequence[Array]) -> Gradients:
        if at is self.problem.point and cotangents is self.cotangents:
            return self.gradients
        return self.problem.vjp(at, cotangents)

    def draw(self) -> tuple[Array, ...]:
        return tuple(self.normal(slot.shape, is_complex=slot.complex) for slot in self.problem.outputs)

    def normal(self, shape: tuple[int, ...], *, is_complex: bool = False) -> Array:
        """Normal numbers (weights, where there are very many), that a kernel in its own precision sees as they are."""
        count = math.prod(shape)
        if count >= LARGE and not is_complex:
            return random_weights(count, self.rng, self.problem.point[0]).reshape(shape)
        found: Array = np.asarray(self.rng.standard_normal(shape))
        if is_complex:
            found = np.asarray(found + 1j * self.rng.standard_normal(shape))
        if self.problem.computes != "float64":
            found = found.astype(np.complex64 if is_complex else np.float32)
        return found.astype(np.complex128 if is_complex else np.float64, copy=False)

    def signs(self, like: Array) -> Array:
        found: Array = random_signs(like.size, self.rng, like).reshape(like.shape)
        return found

    def bound(self, index: int, compared: TwoWays) -> float:
        """How far two ways of computing this gradient may be apart."""
        sizes = [largest(one[index]) for one in (compared.expected, *compared.sizes)]
        return self._floors[index] + MARGIN * self.another_order * max(sizes)

    @cached_property
    def _floors(self) -> list[float]:
        """What would move the outputs by less than their last place is nothing: the gradient of a constant is all rounding."""
        whole = max(largest(v) * largest(out) for v, out in zip(self.cotangents, self.outputs, strict=True))
        points = map(largest, self.problem.point)
        sides = zip(self.noise, points, strict=True)
        return [2.0 * noise + (4 * self.eps * whole / point if point else 0.0) for noise, point in sides]

    @cached_property
    def another_order(self) -> float:
        """What summing in another order changes, as a share, for one unit in the last place of each term."""
        return self.eps * float(np.sqrt(sum(one.size for one in (*self.problem.point, *self.cotangents))))

    def outcome(
        self, name: str, failure: str = "", measured: float | None = None, bound: float | None = None, size: float = 0.0
    ) -> Property:
        """The law's outcome, in the precision it was tried in; it holds where there is no failure.

        `size` is what was compared, of which a small share is inaccurate and no more.
        """
        verdict, dtype = GradVerdict.FAIL if failure else GradVerdict.PASS, self.problem.computes
        slack = INACCURATE if dtype == "float64" and not self.strict else 0.0
        if failure and measured is not None and measured <= slack * size:
            verdict = GradVerdict.INACCURATE
        return Property(name=name, verdict=verdict, detail=failure, measured=measured, bound=bound, dtype=dtype)

    def judge(self, name: str, what: str, attempt: Attempt, *, moving: bool = False) -> Property:
        """Whether two ways of computing gradients agree within round-off; the worst input is reported.

        `moving`: the point is moved as well when round-off is looked for, as the forward is computed again.
        """
        compared = attempt(self.problem.point, self.cotangents)
        bounds = [self.bound(n, compared) for n in range(len(self.problem.inputs))]
        off = compared.off
        if any(one > bound for one, bound in zip(off, bounds, strict=True)):
            # How much each deviation changes under changes that only round-off notices.
            moved = [0.0] * len(bounds)
            with suppress(Exception):  # a point beside this one may be outside of the domain
                for _ in range(_LOOKS):
                    at = self.nudged(self.problem.point, 2.0**-20) if moving else self.problem.point
                    again = attempt(at, self.nudged(self.cotangents, 256 * self.eps))
                    for n in range(len(moved)):
                        change = largest_gap(again.difference(n), compared.difference(n))
                        moved[n] = max(moved[n], change) if np.isfinite(change) else moved[n]
            bounds = [bound + 4.0 * one for bound, one in zip(bounds, moved, strict=True)]
        ratios = [one / bound if bound else np.inf if one else 0.0 for one, bound in zip(off, bounds, strict=True)]
        worst = int(np.argmax(ratios))
        failure, size = "", 0.0
        if ratios[worst] > 1.0:
            label, found = self.problem.inputs[worst].name, compared.found[worst]
            failure = f"{what}: {describe_difference(label, found, compared.expected[worst])}"
            size = max(largest(one[worst]) for one in (compared.expected, *compared.sizes))
        return self.outcome(name, failure, float(off[worst]), float(bounds[worst]), size)

    def judge_outputs(self, name: str, what: str, other: Callable[[Sequence[Array]], Sequence[Array]]) -> Property:
        """Whether another way of computing the outputs agrees within round-off; the worst output is reported."""
        problem = self.problem
        compared = TwoWays(other(problem.point), self.outputs)
        floor = MARGIN * self.another_order
        for index, slot in enumerate(problem.outputs):
            off, usual = compared.off[index], compared.expected[index]
            bound = floor * largest(usual)
            if off > bound:
                for _ in range(_LOOKS):
                    at = self.nudged(problem.point, 2.0**-20)
                    again = TwoWays(other(at), problem.forward(at))
                    bound += 4.0 * largest_gap(again.difference(index), compared.difference(index))
            if off > bound:
                failure = describe_difference(slot.name, compared.found[index], usual, "output ")
                return self.outcome(name, f"{what}: {failure}", off, bound, largest(usual))
        return self.outcome(name)

    def nudged(self, arrays: Sequence[Array], step: float) -> tuple[Array, ...]:
        """The same but for a relative step, up or down, in every element."""
        return tuple(one * (1.0 + step * self.signs(one)) for one in arrays)


Law = Callable[[Trial], Property | None]


def largest(array: Array | None) -> float:
    if array is None or not array.size:
        return 0.0
    sizes = np.abs(array)
    found = float(sizes.max())
    return found if math.isfinite(found) else float(sizes.max(initial=0.0, where=np.isfinite(sizes)))


def largest_gap(found: Array | None, expected: Array | None) -> float:
    """The largest distance of two elements; None is zero, and what is not finite is near to itself alone."""
    if found is None or expected is None:
        return largest(found if expected is None else expected)
    if np.array_equal(found, expected):  # as nearly always
        return 0.0
    return float(np.max(_distances(found, expected), initial=0.0))


def describe_difference(name: str, found: Array | None, expected: Array | None, what: str = "gradient of ") -> str:
    if found is None or expected is None:
        have, want = ("None" if one is None else f"values up to {largest(one):.3g}" for one in (found, expected))
        return f"{what}{name}: expected {want}, found {have}"
    if not found.size:
        return f"{what}{name} is empty"
    worst = np.unravel_index(int(np.argmax(_distances(found, expected))), found.shape)
    at = f"[{', '.join(str(int(n)) for n in worst)}]" if worst else ""
    return f"{what}{name}{at}: expected {expected[worst]:.6g}, found {found[worst]:.6g}"


def _distances(found: Array, expected: Array) -> Array:
    off = np.abs(found - expected)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    return np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))
