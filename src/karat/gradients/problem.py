"""A problem: a differentiable function at a point, as the mathematics sees it: numpy arrays in and out.

Adapters make problems (`opening.open_problem`); oracles, probes, controls, properties and diagnosis use them and
know no framework.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]
    Arrays = Sequence[Array]


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A place where a differentiable tensor goes in or comes out."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    """As given, by karat's names: float64, float32, bfloat16, float8_e4m3fn, complex128, …"""
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
    inputs: tuple[Slot, ...]
    """Differentiable inputs alone; integers, booleans and non-tensors are bound inside."""
    outputs: tuple[Slot, ...]
    point: tuple[Array, ...]
    forwards: int
    backwards: int

    @property
    def computes(self) -> str:
        """The precision in which a double-precision run really computes: float32 for a kernel that knows no other."""
        ...

    def forward(self, at: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        """The outputs at a point."""
        ...

    def vjp(
        self, at: Arrays, cotangents: Sequence[Array | None], *, dtype: str | None = None
    ) -> tuple[Array | None, ...]:
        """Jᵀv: a gradient per input; None where the framework gives none. A None cotangent is left out.

        For complex inputs: the convention ∂/∂Re + i·∂/∂Im of Re⟨v, f⟩ (torch's), whatever the framework's own is.
        """
        ...

    def jvp(self, at: Arrays, tangents: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        """J·u by forward mode; Unsupported where there is none."""
        ...

    def forward_complex(self, at: Arrays) -> tuple[Array, ...]:
        """The outputs at complex points of real inputs, for complex steps; Unsupported, or whatever error there is."""
        ...
