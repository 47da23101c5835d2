"""Second order: x ↦ Jᵀv at a fixed v is a function like any other, and can be checked like one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from karat.gradients.adapter import Flat
from karat.gradients.opened import OpenedProblem
from karat.gradients.problem import Unsupported

if TYPE_CHECKING:
    from karat.gradients.problem import Array, Arrays


class GradientProblem(OpenedProblem):
    """The gradient of another problem, for one cotangent; its outputs are named `grad(x)`."""

    def __init__(self, first: OpenedProblem, cotangents: Sequence[Array | None]) -> None:
        super().__init__(op=first.op, call=first.call, adapter=first.adapter)
        self.first = first
        self.device = first.device
        self.inputs = first.inputs
        self.outputs = tuple(
            msgspec.structs.replace(slot, name=f"grad({slot.name})") for slot in first.inputs
        )
        self.point = first.point
        self.notes = first.notes
        self.double = first.double
        self._cotangents = tuple(cotangents)

    def flat(self, dtype: str | None) -> Flat:
        """The gradient over tensors."""
        return self.adapter.differentiated(self.first.flat(dtype), self._native())

    def forward_complex(self, at: Arrays) -> tuple[Array, ...]:
        """The gradient at complex points. Gradients are conjugated (see `Problem.vjp`), analytic functions are not."""
        if any(slot.complex for slot in self.inputs):
            raise Unsupported("the gradient with respect to a complex input is not analytic")
        return tuple(np.conj(one) for one in super().forward_complex(at))

    def _native(self) -> list[object | None]:
        like = self._likes[0] if self._likes else None
        return [
            None
            if one is None
            else self.adapter.from_numpy(
                one, "complex128" if np.iscomplexobj(one) else "float64", like
            )
            for one in self._cotangents
        ]


def gradient_problem(first: OpenedProblem, cotangents: Sequence[Array | None]) -> GradientProblem:
    """The gradient of `first`, opened: it runs once, so that what cannot be differentiated says so now."""
    if first.backward is not None:
        raise Unsupported("a backward that a person wrote has no derivative of its own")
    made = GradientProblem(first, cotangents)
    made.forward(made.point)
    return made
