"""Ground: what all laws of a backward share: a point, cotangents, a gradient, and how much round-off may do.

Bounds come from round-off alone. Two ways of computing the same sum of N terms differ by about eps·√N times the
size of the terms; `MARGIN` times that is allowed. Where the forward is computed again in another order, what an
error of one eps in the inputs does to the gradient is measured, and allowed as many times over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from karat.gradients.opened import OpenedProblem
from karat.gradients.precision import eps_of
from karat.gradients.problem import Problem
from karat.gradients.report import GradVerdict, Property

if TYPE_CHECKING:
    from karat.gradients.problem import Array

MARGIN = 64.0
_STEP_BITS = 12
"""Inputs are moved by 2¹² eps to see what an eps does: far enough to show, near enough to be straight."""

Tolerance = Callable[["Array"], float]
Gradients = Sequence["Array | None"]


class Ground:
    """One problem, at its point, with cotangents drawn from a generator."""

    def __init__(
        self,
        problem: Problem,
        rng: np.random.Generator,
        *,
        tolerance: Tolerance | None = None,
        runs: int = 3,
        allowed: float = 0.0,
    ) -> None:
        self.problem = problem
        self.rng = rng
        self.runs = max(2, runs)
        self.allowed = allowed
        self._tolerance = tolerance
        self.cotangents = self.draw()
        self.gradients: Gradients = problem.vjp(problem.point, self.cotangents)

    @property
    def native(self) -> OpenedProblem | None:
        """The problem with its framework's side, if it has one."""
        return self.problem if isinstance(self.problem, OpenedProblem) else None

    @cached_property
    def eps(self) -> float:
        """Of the precision in which the function computes."""
        return eps_of(self.problem.computes)

    @cached_property
    def repeated(self) -> list[Gradients]:
        """The same gradient again, as often as asked for."""
        at = self.problem.point
        return [self.problem.vjp(at, self.cotangents) for _ in range(self.runs - 1)]

    @cached_property
    def noise(self) -> list[float]:
        """What repetition alone does to each gradient."""
        found = []
        for index, first in enumerate(self.gradients):
            others = (run[index] for run in self.repeated)
            found.append(max((apart(one, first) for one in others), default=0.0))
        return found

    @cached_property
    def trembling(self) -> list[float]:
        """What one eps in the inputs does to each gradient."""
        step = self.eps * 2.0**_STEP_BITS
        moved = [one + step * self.signs(one) * np.abs(one) for one in self.problem.point]
        try:
            found = self.problem.vjp(moved, self.cotangents)
        except Exception:  # noqa: BLE001 - a point beside this one may be outside of the domain
            return [0.0] * len(self.gradients)
        return [
            apart(one, first) * 2.0**-_STEP_BITS
            for one, first in zip(found, self.gradients, strict=True)
        ]

    def draw(self) -> tuple[Array, ...]:
        """A cotangent per output."""
        return tuple(
            self.normal(slot.shape, is_complex=slot.complex) for slot in self.problem.outputs
        )

    def normal(self, shape: tuple[int, ...], *, is_complex: bool = False) -> Array:
        """Normal numbers, that a kernel in its own precision sees as they are."""
        found: Array = np.asarray(self.rng.standard_normal(shape))
        if is_complex:
            found = np.asarray(found + 1j * self.rng.standard_normal(shape))
        if self.problem.computes != "float64":
            found = found.astype(np.complex64 if is_complex else np.float32)
        return found.astype(np.complex128 if is_complex else np.float64, copy=False)

    def signs(self, like: Array) -> Array:
        """Plus and minus one."""
        return np.asarray(self.rng.integers(0, 2, like.shape) * 2.0 - 1.0)

    def bound(self, index: int, *sizes: Array | None, recomputed: bool = False) -> float:
        """How far two ways of computing this gradient may be apart."""
        largest = max((size_of(one) for one in sizes), default=0.0)
        count = sum(one.size for one in self.cotangents) + self.problem.point[index].size
        if self._tolerance is not None and sizes and sizes[0] is not None:
            floor = self._tolerance(sizes[0])
        else:
            floor = MARGIN * self.eps * largest * float(np.sqrt(count))
        floor += 2.0 * self.noise[index]
        if recomputed:
            floor += MARGIN * self.trembling[index]
        return floor

    def property(
        self,
        name: str,
        verdict: GradVerdict,
        detail: str = "",
        measured: float | None = None,
        bound: float | None = None,
    ) -> Property:
        """The law's outcome, in the precision it was tried in."""
        return Property(
            name=name,
            verdict=verdict,
            detail=detail,
            measured=measured,
            bound=bound,
            dtype=self.problem.computes,
        )

    def equal(
        self,
        name: str,
        found: Gradients,
        expected: Gradients,
        what: str,
        *,
        sizes: Sequence[Gradients] = (),
        recomputed: bool = False,
    ) -> Property:
        """Whether two sets of gradients are the same within round-off; the worst input speaks."""
        worst, measured, allowed, detail = -1.0, 0.0, 0.0, ""
        for index, slot in enumerate(self.problem.inputs):
            bound = self.bound(
                index,
                expected[index],
                *(one[index] for one in sizes),
                recomputed=recomputed,
            )
            off = apart(found[index], expected[index])
            ratio = off / bound if bound else np.inf if off else 0.0
            if ratio > worst:
                worst, measured, allowed = ratio, off, bound
                detail = where(slot.name, found[index], expected[index])
        failed = worst > 1.0
        return self.property(
            name,
            GradVerdict.FAIL if failed else GradVerdict.PASS,
            f"{what}: {detail}" if failed else "",
            float(measured),
            float(allowed),
        )


def size_of(array: Array | None) -> float:
    """The largest finite absolute value."""
    if array is None or not array.size:
        return 0.0
    sizes = np.abs(array)
    return float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))


def apart(found: Array | None, expected: Array | None) -> float:
    """The largest distance of two elements; None is zero, and what is not finite is near to itself alone."""
    if found is None or expected is None:
        return size_of(found if expected is None else expected)
    return float(np.max(_distances(found, expected), initial=0.0))


def where(name: str, found: Array | None, expected: Array | None) -> str:
    """The worst element in words."""
    if found is None or expected is None:
        return f"gradient of {name}: expected {_said(expected)}, found {_said(found)}"
    if not found.size:
        return f"gradient of {name} is empty"
    worst = np.unravel_index(int(np.argmax(_distances(found, expected))), found.shape)
    at = f"[{', '.join(str(int(n)) for n in worst)}]" if worst else ""
    return f"gradient of {name}{at}: expected {expected[worst]:.6g}, found {found[worst]:.6g}"


def _said(array: Array | None) -> str:
    return "None" if array is None else f"values up to {size_of(array):.3g}"


def _distances(found: Array, expected: Array) -> Array:
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(found - expected)
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    return np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))
