"""A problem: a differentiable function at a point, as the mathematics sees it: numpy arrays in and out.

`adapters.framework_problem` makes problems; oracles, controls and diagnosis use them and know no framework. `FlatProblem`
shows one as real vectors, a complex tensor as its real and imaginary parts; the convention of `FrameworkProblem.vjp` for
complex tensors is what makes one inner product serve for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from karat.findings import UsageError
from karat.tensors.device_array import LARGE, drawn, on_device, random_signs

if TYPE_CHECKING:
    from karat.gradients.adapters.framework_problem import FrameworkProblem

Array = NDArray[Any]
Arrays = Sequence[Array]
Gradients = Sequence[Array | None]  # or cotangents: None where there is none
Vector = NDArray[np.float64]
Rows = Any  # a vector for each of several points; one array, where vectors are short


class TensorSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A place where a differentiable tensor goes in or comes out."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # as given, by karat's names: float64, float32, bfloat16, float8_e4m3fn, complex128, …
    complex: bool = False


class Unsupported(Exception):  # noqa: N818 - a fact about the function, not an error of anybody's
    """The framework or the function cannot do what was asked (no jvp, no float64, no complex)."""


def misuse(message: str, next_command: str) -> UsageError:
    """For an argument of `gradcheck` that is not what it takes."""
    return UsageError(f"gradcheck: {message}", next_command=next_command)


def error_line(error: Exception) -> str:
    """The type of an error and the first line of its message; the message alone for `Unsupported`."""
    first = (str(error).strip().splitlines() or [""])[0][:300]
    if first and isinstance(error, Unsupported):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


class MalformedGradient(ValueError):  # noqa: N818 - a fact about a backward
    """A backward gave what cannot be the gradient of its input: too many, too few, another shape."""


class FlatProblem:
    def __init__(self, problem: FrameworkProblem, at: Sequence[Vector] | None = None) -> None:
        self.problem = problem
        self.inputs = problem.inputs
        self.outputs = problem.outputs
        self.point = [vector(one) for one in problem.point] if at is None else list(at)
        self.known: list[Vector] | None = None  # the outputs at the point, once they are
        self.line: list[Any] = []  # what they do along a short line (`roundoff`), until it is asked for
        self.scales: dict[int, Vector] = {}  # how far to step (`roundoff`), by input

    def forward(self, at: Sequence[Vector]) -> list[Vector]:
        """The outputs at a point; NaN where the function refuses it or gives other shapes there."""
        found: Sequence[Array | None] = [None] * len(self.outputs)
        with suppress(Exception):  # a step may leave the domain, and functions say so in many ways
            found = self.problem.forward(self._shaped(at))
        return [
            np.full(size(slot), np.nan) if one is None or one.shape != slot.shape else vector(one)
            for one, slot in zip(found, self.outputs, strict=True)
        ]

    def base(self) -> list[Vector]:
        """The outputs at the point itself; what the function raises there is raised."""
        if self.known is None:
            self.known = [vector(one) for one in self.problem.forward(self._shaped(self.point))]
        return list(self.known)

    def sizes(self, base: Sequence[Vector]) -> list[Vector]:
        """What the round-off of each output at the point is a share of."""
        return [np.abs(one) for one in base]

    def moved(self, index: int, step: Vector) -> list[Vector]:
        at = list(self.point)
        at[index] = at[index] + step
        return self.forward(at)

    def along(self, line: Mapping[int, Vector | float], distances: Sequence[float]) -> list[Rows]:
        """Per output, a row for each distance along a line of some inputs; NaN as in `forward`."""
        slots = (*self.inputs, *self.outputs)
        if any(size(slot) >= LARGE for slot in slots) or any(map(on_device, self.point)):
            points = ([one + h * line[n] if n in line else one for n, one in enumerate(self.point)] for h in distances)
            return list(zip(*map(self.forward, points), strict=True))
        # Of few numbers all rows are one array, and every line of mathematics is one for all of them.
        steps = np.array(distances)[:, None]
        rows = []
        for n, (one, slot) in enumerate(zip(self.point, self.inputs, strict=True)):
            moved = one + steps * line[n] if n in line else one[None].repeat(len(steps), 0)
            rows.append((moved.view(np.complex128) if slot.complex else moved).reshape(len(steps), *slot.shape))
        found: list[Rows] = [np.full((len(steps), size(slot)), np.nan) for slot in self.outputs]
        for n, values in enumerate(self.problem.glimpses(zip(*rows, strict=True))):
            for whole, one, slot in zip(found, values, self.outputs, strict=False):
                if one.shape == slot.shape:
                    whole[n] = one.reshape(-1).view(np.float64)
        return found

    def moved_complex(self, index: int, step: Vector) -> list[NDArray[np.complex128]]:
        """The outputs at an imaginary step; raises whatever the function raises."""
        at: list[Array] = self._shaped(self.point)
        at[index] = (self.point[index] + 1j * step).reshape(self.inputs[index].shape)
        return [one.reshape(-1) for one in self.problem.forward_complex(at)]

    def vjp(self, cotangents: Sequence[Vector | None]) -> list[Vector | None]:
        sides = zip(cotangents, self.outputs, strict=True)
        given = [None if one is None else shaped(one, slot, copy=False) for one, slot in sides]
        found = self.problem.vjp(self._shaped(self.point), given)
        return [None if one is None else _checked(one, slot) for one, slot in zip(found, self.inputs, strict=True)]

    def jvp(self, index: int, tangent: Vector) -> list[Vector]:
        """J·u at the point, along one input."""
        return self.pushed([tangent if n == index else np.zeros_like(one) for n, one in enumerate(self.point)])

    def pushed(self, tangents: Sequence[Vector]) -> list[Vector]:
        """J·u at the point, along all inputs at once."""
        found = self.problem.jvp(self._shaped(self.point), self._shaped(tangents))
        return [_checked(one, slot) for one, slot in zip(found, self.outputs, strict=True)]

    def nudged(self, unit: float, seed: int | tuple[int, ...]) -> FlatProblem:
        """The same a few units in the last place away: what changes there is what round-off may change."""
        signs = drawn(random_signs, seed, self.point)
        return self.at([one * (1 + 4 * unit * sign) for one, sign in zip(self.point, signs, strict=True)])

    def at(self, point: Sequence[Vector]) -> FlatProblem:
        return FlatProblem(self.problem, point)

    def _shaped(self, at: Sequence[Vector]) -> list[Array]:
        # Adapters copy what they are given.
        return [shaped(one, slot, copy=False) for one, slot in zip(at, self.inputs, strict=True)]


def size(slot: TensorSlot) -> int:
    """How many real numbers a slot holds."""
    return prod(slot.shape) * (2 if slot.complex else 1)


def vector(array: Array) -> Vector:
    """A tensor's real numbers, complex ones as pairs."""
    if type(array) is np.ndarray and array.dtype == np.float64 and array.size < LARGE:  # as nearly always
        return np.ascontiguousarray(array).reshape(-1)
    whole = array.reshape(-1) if on_device(array) else np.ascontiguousarray(array).reshape(-1)
    if np.iscomplexobj(whole):
        whole = whole.astype(np.complex128, copy=False).view(np.float64)
    found: Vector = whole.astype(np.float64, copy=False)
    return found


def shaped(one: Vector, slot: TensorSlot, *, copy: bool = True) -> Array:
    """A vector in its slot's shape, as an array of its own."""
    whole = one if on_device(one) else np.array(one, dtype=np.float64, copy=copy or None)
    whole = whole.view(np.complex128) if slot.complex else whole
    return whole if whole.shape == slot.shape else whole.reshape(slot.shape)


def _checked(found: Array, slot: TensorSlot) -> Vector:
    if type(found) is np.ndarray and found.shape == slot.shape and found.dtype == np.float64 and not slot.complex:
        return vector(found)  # as nearly always
    found = found if on_device(found) else np.asarray(found)
    if found.shape != slot.shape:
        raise MalformedGradient(f"{slot.name} has shape {slot.shape}, its derivative {found.shape}")
    if slot.complex and not np.iscomplexobj(found):
        found = found.astype(np.complex128)
    elif not slot.complex and np.iscomplexobj(found):
        raise MalformedGradient(f"{slot.name} is real, its derivative is complex")
    return vector(found)
