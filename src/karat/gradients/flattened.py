"""Flattened: a problem as real vectors; a complex tensor is a vector of its real and imaginary parts.

The convention of `Problem.vjp` for complex tensors is what makes one inner product serve for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.gradients.problem import Problem, Slot

Array = NDArray[Any]
Vector = NDArray[np.float64]


class WrongShape(Exception):  # noqa: N818 - what a backward did, not an error of karat's
    """A gradient or tangent has another shape than what it belongs to."""


class Flat:
    """A problem that takes and gives vectors."""

    def __init__(self, problem: Problem, at: Sequence[Vector] | None = None) -> None:
        self.problem = problem
        self.inputs = problem.inputs
        self.outputs = problem.outputs
        self.point = [vector(one) for one in problem.point] if at is None else list(at)

    def forward(self, at: Sequence[Vector]) -> list[Vector]:
        """The outputs at a point; NaN where the function refuses it or gives other shapes there."""
        try:
            found = self.problem.forward(self._shaped(at))
        except Exception:  # noqa: BLE001 - a step may leave the domain, and functions say so in many ways
            return [np.full(size(slot), np.nan) for slot in self.outputs]
        return [
            vector(one) if one.shape == slot.shape else np.full(size(slot), np.nan)
            for one, slot in zip(found, self.outputs, strict=True)
        ]

    def base(self) -> list[Vector]:
        """The outputs at the point itself; what the function raises there is raised."""
        return [vector(one) for one in self.problem.forward(self._shaped(self.point))]

    def moved(self, index: int, step: Vector) -> list[Vector]:
        """The outputs where one input is a step away."""
        at = list(self.point)
        at[index] = at[index] + step
        return self.forward(at)

    def shifted(self, distance: float) -> list[Vector]:
        """The outputs where every element of every input is the same distance away."""
        return self.forward([one + distance for one in self.point])

    def moved_complex(self, index: int, step: Vector) -> list[NDArray[np.complex128]]:
        """The outputs at an imaginary step; raises whatever the function raises."""
        at: list[Array] = self._shaped(self.point)
        at[index] = at[index] + 1j * step.reshape(self.inputs[index].shape)
        found = self.problem.forward_complex(at)
        return [np.asarray(one).reshape(-1) for one in found]

    def vjp(self, cotangents: Sequence[Vector | None]) -> list[Vector | None]:
        """Jᵀv at the point."""
        given = [
            None if one is None else shaped(one, slot)
            for one, slot in zip(cotangents, self.outputs, strict=True)
        ]
        found = self.problem.vjp(self._shaped(self.point), given)
        return [_checked(one, slot) for one, slot in zip(found, self.inputs, strict=True)]

    def jvp(self, index: int, tangent: Vector) -> list[Vector]:
        """J·u at the point, along one input."""
        tangents = [np.zeros_like(one) for one in self.point]
        tangents[index] = tangent
        found = self.problem.jvp(self._shaped(self.point), self._shaped(tangents))
        given = [_checked(one, slot) for one, slot in zip(found, self.outputs, strict=True)]
        return [
            np.zeros(size(slot)) if one is None else one
            for one, slot in zip(given, self.outputs, strict=True)
        ]

    def jostled(self, unit: float, rng: np.random.Generator) -> Flat:
        """The same a few units in the last place away: what changes there is what round-off may change."""
        signs = [rng.integers(0, 2, one.size) * 2.0 - 1 for one in self.point]
        return self.at(
            [one * (1 + 4 * unit * sign) for one, sign in zip(self.point, signs, strict=True)]
        )

    def at(self, point: Sequence[Vector]) -> Flat:
        """The same at another point."""
        return Flat(self.problem, point)

    def _shaped(self, at: Sequence[Vector]) -> list[Array]:
        return [shaped(one, slot) for one, slot in zip(at, self.inputs, strict=True)]


def size(slot: Slot) -> int:
    """How many real numbers a slot holds."""
    return int(np.prod(slot.shape, dtype=np.int64)) * (2 if slot.complex else 1)


def vector(array: Array) -> Vector:
    """A tensor's real numbers, complex ones as pairs."""
    whole = np.ascontiguousarray(array).reshape(-1)
    if np.iscomplexobj(whole):
        return whole.astype(np.complex128, copy=False).view(np.float64)
    return whole.astype(np.float64, copy=False)


def shaped(one: Vector, slot: Slot) -> Array:
    """A vector in its slot's shape, as an array of its own."""
    whole = np.array(one, dtype=np.float64)
    return (whole.view(np.complex128) if slot.complex else whole).reshape(slot.shape)


def _checked(found: Array | None, slot: Slot) -> Vector | None:
    if found is None:
        return None
    found = np.asarray(found)
    if found.shape != slot.shape:
        raise WrongShape(f"{slot.name} has shape {slot.shape}, its derivative {found.shape}")
    if slot.complex and not np.iscomplexobj(found):
        found = found.astype(np.complex128)
    elif not slot.complex and np.iscomplexobj(found):
        raise WrongShape(f"{slot.name} is real, its derivative is complex")
    return vector(found)
