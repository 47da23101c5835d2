"""Runs in low precision: the same function at the same rounded inputs, low and in double, again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from karat.gradients.low_judging import Calm, rms
from karat.gradients.problem import Problem
from karat.gradients.rounding import Precision, rounded

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]
    Gradients = Sequence[Array | None]

FIRST = 4
MORE = 8
"""Made only where the first ones failed: few samples make a poor estimate of a spread."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One output's cotangent in one precision."""

    problem: Any
    output: int
    cotangent: Any
    precision: Precision
    rng: Any

    def cotangents(self, one: Array) -> list[Array | None]:
        return [one if i == self.output else None for i in range(len(self.problem.outputs))]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The gradients of every input: low, double, and double a rounding away."""

    low: Any
    double: Any
    near: Any


def rounded_run(problem: Problem, dtype: str, cotangents: Gradients) -> tuple[Gradients, Gradients]:
    """The gradients in a low precision and in double, both at the rounded inputs and cotangents."""
    at = [rounded(one, dtype) for one in problem.point]
    given = [None if one is None else rounded(one, dtype) for one in cotangents]
    return problem.vjp(at, given, dtype=dtype), problem.vjp(at, given)


def calm_of(asked: Asked) -> Calm:
    """What the forward tells of roundings."""
    low, double, near = (np.stack(side) for side in zip(*_forwards(asked), strict=True))
    usable = np.isfinite(double) & np.isfinite(low) & np.isfinite(near)
    lost = np.isfinite(double) & ~np.isfinite(low)
    precision = asked.precision
    tiny = (double != 0) & (np.abs(double) < precision.smallest_normal)
    low, double, near = (np.where(usable, one, 0.0) for one in (low, double, near))
    moved, own = (
        rms(near - double) / reach_of(precision),
        precision.roundoff * _sizes(asked, double),
    )
    strayed = rms(low - double) / (np.hypot(moved, own) + precision.smallest)
    return Calm(
        unrest=max(1.0, float(np.quantile(strayed, 0.9))),
        each=strayed,
        outputs=strayed.size,
        level=size_of(double),
        overflows=int(lost.any(0).sum()),
        underflows=int(tiny.any(0).sum()),
    )


def _sizes(asked: Asked, stack: Array) -> Array:
    """How large each number is; the parts of a complex one are rounded together, and are as uncertain as the whole."""
    each = rms(stack)
    if not asked.problem.outputs[asked.output].complex:
        return each
    return np.broadcast_to(np.sqrt(np.square(each).sum(-1, keepdims=True)), each.shape)


def _forwards(asked: Asked) -> Iterator[tuple[Array, Array, Array]]:
    """The output in low precision, in double, and in double some roundings away."""
    for i in range(FIRST):
        at, _ = _neighbour(asked, i)
        moved = [_moved(one, reach_of(asked.precision), asked) for one in at]
        low = asked.problem.forward(at, dtype=asked.precision.name)
        double, near = asked.problem.forward(at), asked.problem.forward(moved)
        yield parts(low[asked.output]), parts(double[asked.output]), parts(near[asked.output])


def runs_of(asked: Asked, numbers: range) -> Iterator[Run]:
    """Runs whose double gradients are finite; the first of them at the point itself."""
    for i in numbers:
        at, cotangent = _neighbour(asked, i)
        reach = reach_of(asked.precision)
        double = asked.problem.vjp(at, asked.cotangents(cotangent))
        if not all(one is None or np.isfinite(one).all() for one in double):
            continue
        near = asked.problem.vjp(
            [_moved(one, reach, asked) for one in at],
            asked.cotangents(_moved(cotangent, reach, asked)),
        )
        low = asked.problem.vjp(at, asked.cotangents(cotangent), dtype=asked.precision.name)
        yield Run(low=low, double=double, near=near)


def _neighbour(asked: Asked, i: int) -> tuple[list[Array], Array]:
    """Run 0: the given point and cotangent, rounded. Others: a rounding or two away, with other signs and sizes."""
    name = asked.precision.name
    if i == 0:
        return rounded_point(asked), rounded(asked.cotangent, name)
    signs = asked.rng.choice([-1.0, 1.0], asked.cotangent.shape)
    sizes = asked.rng.uniform(0.5, 1.5, asked.cotangent.shape)
    at = [rounded(_moved(one, 2.0, asked), name) for one in rounded_point(asked)]
    return at, rounded(asked.cotangent * signs * sizes, name)


def _moved(array: Array, reach: float, asked: Asked) -> Array:
    """Every element by up to `reach` roundings of its own size."""
    size = reach * asked.precision.roundoff
    if np.iscomplexobj(array):
        real, imag = (asked.rng.uniform(-size, size, array.shape) for _ in range(2))
        return np.asarray(array.real * (1 + real) + 1j * array.imag * (1 + imag))
    return np.asarray(array * (1 + asked.rng.uniform(-size, size, array.shape)))


def reach_of(precision: Precision) -> float:
    """Several roundings, so that branches that a rounding may flip are seen to flip; one in float8."""
    return float(np.clip(0.02 / precision.roundoff, 1.0, 4.0))


def rounded_point(asked: Asked) -> list[Array]:
    return [rounded(one, asked.precision.name) for one in asked.problem.point]


def parts(array: Array) -> Array:
    """Real numbers alone: a complex array with a last axis for its two parts."""
    if np.iscomplexobj(array):
        return np.stack([array.real, array.imag], -1)
    return np.asarray(array, np.float64)


def size_of(array: Array) -> float:
    return float(np.sqrt(np.square(np.abs(array)).mean())) if array.size else 0.0
