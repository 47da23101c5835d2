"""Derivatives as problems of their own: the gradient (x, v) ↦ Jᵀv, and the tangent (x, u) ↦ J·u.

Cotangents and tangents are inputs like the others: a backward that is right for every v, and takes v for a constant,
has a wrong derivative. A gradient's gradient is that with respect to the function's own inputs, so each order adds
cotangents to what goes in, and as much comes out as before.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from karat.gradients.adapters import FlatFunction
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.problem import Array, Arrays, Gradients, TensorSlot, Unsupported


class Derived(FrameworkProblem):
    """What one derivative has in common with another: more goes in."""

    def __init__(self, first: FrameworkProblem, word: str, slots: Sequence[TensorSlot], given: Gradients) -> None:
        super().__init__(op=first.op, call=first.call, adapter=first.adapter)
        if first.backward is not None:
            raise Unsupported("a backward that a person wrote has no derivative of its own")
        self.first, self.device, self.double, self.notes = first, first.device, first.double, first.notes
        more = [(slot, one) for slot, one in zip(slots, given, strict=True) if one is not None]
        named = [msgspec.structs.replace(slot, name=f"{word}({slot.name})") for slot, _ in more]
        self.inputs = (*first.inputs, *named)
        self.point = (*first.point, *(one for _, one in more))
        self.likes = (*first.likes, *(first.likes[:1] * len(more)))
        # How many of the inputs are the function's own.
        self.own: int = getattr(first, "own", len(first.inputs))


class GradientProblem(Derived):
    """The gradient of another problem; its outputs are named `grad(x)`, `grad2(x)`, … Outputs without a cotangent have no part in it."""

    def __init__(self, first: FrameworkProblem, cotangents: Gradients) -> None:
        super().__init__(first, "cotangent", first.outputs, cotangents)
        self.order: int = getattr(first, "order", 1) + 1
        word = "grad" if self.order == 2 else f"grad{self.order - 1}"
        own = first.inputs[: self.own]
        self.outputs = tuple(msgspec.structs.replace(slot, name=f"{word}({slot.name})") for slot in own)
        self._asked = [k for k, one in enumerate(cotangents) if one is not None]

    def flat(self, dtype: str | None) -> FlatFunction:
        whole = self.first.flat(dtype)

        def asked(inputs: Sequence[object]) -> tuple[object, ...]:
            outputs = whole(inputs)
            return tuple(outputs[k] for k in self._asked)

        return self.adapter.differentiated(asked, len(self.first.inputs), self.own)

    def forward_complex(self, at: Arrays) -> tuple[Array, ...]:
        """The gradient at complex points. Gradients are conjugated (see `Problem.vjp`), analytic functions are not."""
        if any(slot.complex for slot in self.inputs):
            raise Unsupported("the gradient with respect to a complex input is not analytic")
        return tuple(np.conj(one) for one in super().forward_complex(at))


class TangentProblem(Derived):
    """The tangents of another problem, by forward mode; its outputs are named `tangent(out)`."""

    def __init__(self, first: FrameworkProblem, tangents: Arrays) -> None:
        super().__init__(first, "tangent", first.inputs, tangents)
        self.outputs = tuple(msgspec.structs.replace(slot, name=f"tangent({slot.name})") for slot in first.outputs)

    def flat(self, dtype: str | None) -> FlatFunction:
        return self.adapter.pushed(self.first.flat(dtype))

    def jvp(self, at: Arrays, tangents: Arrays, *, dtype: str | None = None) -> tuple[Array, ...]:
        with self.adapter.scope():
            given = [*self.natives(at, dtype), *self.natives(tangents, dtype)]
            return tuple(
                self.adapter.to_numpy(one) for one in self.adapter.forward(self.adapter.pushed(self.flat(dtype)), given)
            )


def gradient_problem(first: FrameworkProblem, cotangents: Gradients) -> GradientProblem:
    """The gradient as a problem; Unsupported where the framework cannot. It runs once, so that this shows now."""
    made = GradientProblem(first, cotangents)
    made.forward(made.point)
    return made


def tangent_problem(first: FrameworkProblem, tangents: Arrays) -> TangentProblem:
    made = TangentProblem(first, tangents)
    made.forward(made.point)
    return made
