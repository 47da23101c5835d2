"""A problem: a differentiable function at a point, as the mathematics sees it: numpy arrays in and out.

`adapters.framework_problem.open_problem` makes problems; oracles, controls, laws and diagnosis use them and know no
framework. `FlatProblem` shows one as real vectors, a complex tensor as its real and imaginary parts; the convention of
`Problem.vjp` for complex tensors is what makes one inner product serve for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from karat.findings import UsageError
from karat.tensors.block_array import BlockArray, wrapped
from karat.tensors.device_array import on_device, random_signs

Array = NDArray[Any]
Arrays = Sequence[Array]
Gradients = Sequence[Array | None]  # or cotangents: None where there is none
Vector = NDArray[np.float64]


class TensorSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A place where a differentiable tensor goes in or comes out."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # as given, by karat's names: float64, float32, bfloat16, float8_e4m3fn, complex128, …
    complex: bool = False


class Unsupported(Exception):  # noqa: N818 - a fact about the function, not an error of anybody's
    """The framework or the function cannot do what was asked (no jvp, no float64, no complex)."""


class Problem(Protocol):
    """A function at a point. Arrays are float64 or complex128 on this side, whatever the framework computes in.

    `dtype=None` computes in double precision (float64, complex128); a name computes in that precision, and
    the result is widened exactly. Arrays given are never modified, arrays returned belong to the caller.
    """

    op: str
    framework: str
    device: str
    # Differentiable inputs alone; integers, booleans and non-tensors are bound inside.
    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]
    point: tuple[Array, ...]

    @property
    def forwards(self) -> int: ...

    @property
    def backwards(self) -> int: ...

    @property
    def computes(self) -> str:
        """The precision in which a double-precision run really computes: float32 for a kernel that knows no other."""

    def forward(self, at: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]: ...

    def vjp(self, at: Arrays, cotangents: Gradients, *, dtype: str | None = None) -> tuple[Array | None, ...]:
        """Jᵀv: a gradient per input; None where the framework gives none. A None cotangent is left out.

        For complex inputs: the convention ∂/∂Re + i·∂/∂Im of Re⟨v, f⟩ (torch's), whatever the framework's own is.
        """

    def jvp(self, at: Arrays, tangents: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        """J·u by forward mode; Unsupported where there is none."""

    def forward_complex(self, at: Arrays) -> tuple[Array, ...]:
        """The outputs at complex points of real inputs, for complex steps; Unsupported, or whatever error there is."""


def misuse(message: str, next_command: str) -> UsageError:
    """For an argument of `gradcheck` that is not what it takes."""
    return UsageError(f"gradcheck: {message}", next_command=next_command)


def error_line(error: Exception) -> str:
    """The type of an error and the first line of its message; the message alone for `Unsupported`."""
    first = (str(error).strip().splitlines() or [""])[0][:300]
    if first and isinstance(error, Unsupported):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


class WrongShape(Exception):  # noqa: N818 - what a backward did, not an error of karat's
    """A gradient or tangent has another shape than what it belongs to."""


class FlatProblem:
    def __init__(self, problem: Problem, at: Sequence[Vector] | None = None) -> None:
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
        # A step may leave the domain, and functions say so in many ways.
        with suppress(Exception):
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

    def moved(self, index: int, step: Vector) -> list[Vector]:
        at = list(self.point)
        at[index] = at[index] + step
        return self.forward(at)

    def shifted(self, distance: float) -> list[Vector]:
        """The outputs where every element of every input is the same distance away."""
        return self.forward([one + distance for one in self.point])

    def moved_complex(self, index: int, step: Vector) -> list[NDArray[np.complex128]]:
        """The outputs at an imaginary step; raises whatever the function raises."""
        at: list[Array] = self._shaped(self.point)
        at[index] = (self.point[index] + 1j * step).reshape(self.inputs[index].shape)
        return [wrapped(one.reshape(-1)) for one in self.problem.forward_complex(at)]

    def vjp(self, cotangents: Sequence[Vector | None]) -> list[Vector | None]:
        given = [None if one is None else shaped(one, slot) for one, slot in zip(cotangents, self.outputs, strict=True)]
        found = self.problem.vjp(self._shaped(self.point), given)
        return [None if one is None else _checked(one, slot) for one, slot in zip(found, self.inputs, strict=True)]

    def jvp(self, index: int, tangent: Vector) -> list[Vector]:
        """J·u at the point, along one input."""
        return self.pushed([tangent if n == index else np.zeros_like(one) for n, one in enumerate(self.point)])

    def pushed(self, tangents: Sequence[Vector]) -> list[Vector]:
        """J·u at the point, along all inputs at once."""
        found = self.problem.jvp(self._shaped(self.point), self._shaped(tangents))
        return [_checked(one, slot) for one, slot in zip(found, self.outputs, strict=True)]

    def nudged(self, unit: float, rng: np.random.Generator) -> FlatProblem:
        """The same a few units in the last place away: what changes there is what round-off may change."""
        signs = [random_signs(one.size, rng, one) for one in self.point]
        return self.at([one * (1 + 4 * unit * sign) for one, sign in zip(self.point, signs, strict=True)])

    def at(self, point: Sequence[Vector]) -> FlatProblem:
        return FlatProblem(self.problem, point)

    def _shaped(self, at: Sequence[Vector]) -> list[Array]:
        # Adapters copy what they are given.
        return [shaped(one, slot, copy=False) for one, slot in zip(at, self.inputs, strict=True)]


def size(slot: TensorSlot) -> int:
    """How many real numbers a slot holds."""
    return int(np.prod(slot.shape, dtype=np.int64)) * (2 if slot.complex else 1)


def vector(array: Array) -> Vector:
    """A tensor's real numbers, complex ones as pairs."""
    whole = array.reshape(-1) if on_device(array) else np.ascontiguousarray(array).reshape(-1)
    if np.iscomplexobj(whole):
        whole = whole.astype(np.complex128, copy=False).view(np.float64)
    found: Vector = wrapped(whole.astype(np.float64, copy=False))
    return found


def shaped(one: Vector, slot: TensorSlot, *, copy: bool = True) -> Array:
    """A vector in its slot's shape, as an array of its own."""
    large = on_device(one) or isinstance(one, BlockArray)
    whole = one if large else np.array(one, dtype=np.float64, copy=copy or None)
    return (whole.view(np.complex128) if slot.complex else whole).reshape(slot.shape)


def _checked(found: Array, slot: TensorSlot) -> Vector:
    found = found if on_device(found) else np.asarray(found)
    if found.shape != slot.shape:
        raise WrongShape(f"{slot.name} has shape {slot.shape}, its derivative {found.shape}")
    if slot.complex and not np.iscomplexobj(found):
        found = found.astype(np.complex128)
    elif not slot.complex and np.iscomplexobj(found):
        raise WrongShape(f"{slot.name} is real, its derivative is complex")
    return vector(found)
