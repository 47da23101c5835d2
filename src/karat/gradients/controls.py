"""Controls: gradients made wrong on purpose; a check that does not fail on each is no evidence.

The judgement is the very one that the real gradient got, with the same probes and tolerances. No forward is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from karat.gradients.comparing import Met, judge
from karat.gradients.flattened import Vector
from karat.gradients.tolerances import norm

OFF = 0.01
"""One per cent: the least error that a check has to notice."""

Group = tuple[Vector, Sequence[Met]]
"""A gradient for one cotangent, and how it met its expectations."""


def controls(
    groups: Sequence[Group],
    shape: tuple[int, ...],
    scales: Vector,
    *,
    rtol: float | None,
    rng: np.random.Generator,
) -> dict[str, bool]:
    """Corruption → whether the check failed on it."""
    corruptions: dict[str, Callable[[Vector, Met], float]] = {
        "zero": lambda _gradient, _met: 0.0,
        "x1.01": lambda _gradient, met: (1 + OFF) * met.found,
        "sign": lambda _gradient, met: -met.found,
    }
    caught = {
        name: _fails(
            [[_with(met, change(g, met)) for met in all_met] for g, all_met in groups], rtol
        )
        for name, change in corruptions.items()
    }
    drawn = int(rng.integers(0, max(1, scales.size)))
    caught["one element"] = _element(groups, scales, drawn, rtol)
    caught["worst element"] = _element(groups, scales, _worst_place(groups, scales), rtol)
    swapped = [_transposed(gradient, shape) for gradient, _ in groups]
    if any(one is not None for one in swapped):
        caught["transposed"] = _fails(
            [
                [met if other is None else _with(met, _dot(other, met)) for met in all_met]
                for other, (_, all_met) in zip(swapped, groups, strict=True)
            ],
            rtol,
        )
    return caught


def _fails(groups: Sequence[Sequence[Met]], rtol: float | None) -> bool:
    return any(judge(one, rtol=rtol).failed for one in groups)


def _with(met: Met, found: float) -> Met:
    return Met(met.expected, found, met.tolerance)


def _dot(gradient: Vector, met: Met) -> float:
    moved = met.expected.direction != 0
    return float(np.dot(gradient[moved], met.expected.direction[moved]))


def _element(groups: Sequence[Group], scales: Vector, place: int, rtol: float | None) -> bool:
    return _fails(
        [
            [
                _with(met, met.found + met.expected.direction[place] * _off(g, scales, place))
                for met in m
            ]
            for g, m in groups
        ],
        rtol,
    )


def _off(gradient: Vector, scales: Vector, place: int) -> float:
    """One per cent of the element, or of a typical one if it is smaller than that."""
    weight = float(scales[place])
    if weight == 0:
        return 0.0
    return OFF * max(abs(float(gradient[place])), typical(gradient, scales) / weight)


def typical(gradient: Vector, scales: Vector) -> float:
    """The typical size of a gradient's elements, each times the scale of its input."""
    terms = gradient * scales
    terms = terms[np.isfinite(terms) & (scales > 0)]
    return norm(terms) / float(np.sqrt(max(1, terms.size)))


def _worst_place(groups: Sequence[Group], scales: Vector) -> int:
    """The element that every direction gives the least weight."""
    seen = np.zeros_like(scales)
    for met in groups[0][1]:
        np.maximum(seen, np.abs(met.expected.direction), out=seen)
    weight = np.divide(seen, scales, out=np.full_like(seen, np.inf), where=scales > 0)
    return int(np.argmin(weight))


def _transposed(gradient: Vector, shape: tuple[int, ...]) -> Vector | None:
    """The gradient with its last two axes exchanged and read in the old shape; None where nothing would change."""
    if len(shape) < 2 or min(shape[-2:]) < 2 or gradient.size != int(np.prod(shape)):
        return None
    other: Vector = np.swapaxes(gradient.reshape(shape), -1, -2).reshape(-1)
    return other if norm(other - gradient) > OFF * norm(gradient) else None
