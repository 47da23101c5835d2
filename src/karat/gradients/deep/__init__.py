"""Modes composed and higher orders: each derivative is a function, and its own derivative is checked like any other.

A framework has two rules for an operator, reverse and forward mode, and often differentiates one rule by the other. A
rule can be right and yet be made of parts whose own derivatives are wrong, so every rule that was found right becomes a
problem of its own that `examine` checks in both modes:

    the gradient (x, v) ↦ Jᵀv      reverse mode, order 2; forward over reverse
    the tangent (x, u) ↦ J·u       reverse over forward; forward over forward
    the gradient's gradient        reverse mode, order 3, and so on

What is expected is the slope of the rule that was found right, never another rule. Cotangents and tangents are inputs
as well: a backward that takes its cotangent for a constant is wrong in its second order. A gradient's gradient is that with
respect to the function's own inputs, so each order adds cotangents to what goes in, and as much comes out as before.

A rule that has no derivative (no forward mode, a backward that is differentiable once) is no fault at `level="deep"`: a
note says what could not be looked at. Where `order=` asks for it, it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from karat.gradients.adapters import FlatFunction
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.draws import CheckPlan, Purpose, random_weights
from karat.gradients.examine import Pair
from karat.gradients.problem import Array, Arrays, Gradients, TensorSlot, Unsupported, error_line, shaped, size
from karat.gradients.report import Mode

HIGHEST = 4  # the highest order there is


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
        """The gradient at complex points. Gradients are conjugated (see `FrameworkProblem.vjp`), analytic functions are not."""
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
            found = self.adapter.forward(self.adapter.pushed(self.flat(dtype)), given)
            return tuple(self.adapter.to_numpy(one) for one in found)


@dataclass(frozen=True, slots=True)
class Derivative:
    """A function to check: the one that was given, or a derivative of it."""

    problem: FrameworkProblem
    plan: CheckPlan
    modes: Mapping[str, Mode]  # what reverse and forward mode are called here; without those that it does not have
    own: int  # how many of its inputs are the function's own
    # Inputs and outputs between which it is not zero where it was checked; None where it was not.
    moves: frozenset[tuple[int, int]] | None = None

    def checked(self, pairs: Sequence[Pair]) -> Derivative:
        return replace(self, moves=frozenset((one.input, one.output) for one in pairs if not one.zero))


def function_of(problem: FrameworkProblem, plan: CheckPlan) -> Derivative:
    modes: dict[str, Mode] = {"reverse": "reverse", "forward": "forward"} if plan.forward else {"reverse": "reverse"}
    return Derivative(problem, plan, modes, len(problem.inputs))


def gradient_of(first: Derivative, *, forward: bool) -> Derivative:
    """The gradient of a function, to be checked; raises what the framework does where there is none."""
    order = first.plan.order + 1
    made = GradientProblem(first.problem, replace(first.plan, order=order).cotangents(first.problem, Purpose.ORDERS))
    made.forward(made.point)  # so that this shows now
    plan = replace(
        first.plan,
        order=order,
        forward=forward,
        forward_alone=False,
        extra=(),
        inputs=frozenset(first.plan.inputs | set(range(first.own, len(made.inputs)))),
        outputs=frozenset(i for i in first.plan.inputs if i < first.own),
    )
    modes: dict[str, Mode] = {"reverse": "reverse"}
    modes |= {"forward": "forward-over-reverse"} if forward else {}
    return Derivative(made, plan, modes, first.own)


def tangent_of(first: Derivative) -> Derivative:
    """The tangent of a function along one drawn direction."""
    plan, problem = first.plan, first.problem
    draws = enumerate(problem.inputs)
    drawn = [shaped(random_weights(size(slot), plan.draw(Purpose.ORDERS, 1, i)), slot) for i, slot in draws]
    made = TangentProblem(problem, drawn)
    made.forward(made.point)
    inputs = plan.inputs | {len(problem.inputs) + i for i in plan.inputs}
    plan = replace(plan, order=2, forward=True, forward_alone=False, extra=(), inputs=frozenset(inputs))
    return Derivative(made, plan, {"reverse": "reverse-over-forward", "forward": "forward-over-forward"}, first.own)


def available(wanted: Derivative) -> tuple[Derivative | None, list[str]]:
    """The derivative with the modes that it has, and notes on those that it has not."""
    problem, plan = wanted.problem, wanted.plan
    modes, notes = dict(wanted.modes), []
    for mode, word in wanted.modes.items():
        try:
            if mode == "forward":
                problem.jvp(problem.point, problem.point)
            elif all(one is None for one in problem.vjp(problem.point, plan.cotangents(problem, Purpose.ORDERS))):
                raise Unsupported("it gives no gradient at all")  # noqa: TRY301 - as where the framework says so
        except Exception as error:  # noqa: BLE001 - frameworks refuse in many ways
            notes.append(f"{word} mode of order {plan.order} was not looked at: {error_line(error)}")
            del modes[mode]
    plan = replace(plan, forward="forward" in modes)
    return (replace(wanted, plan=plan, modes=modes) if modes else None), notes


def family(problem: FrameworkProblem, plan: CheckPlan) -> Iterator[Derivative]:
    """The function and its derivatives of second order, as far as there are any."""
    first = function_of(problem, plan)
    makers: tuple[Callable[[], Derivative], ...] = (lambda: gradient_of(first, forward=True), lambda: tangent_of(first))
    for make in (lambda: first, *makers[: 2 if plan.forward else 1]):
        try:
            made, _ = available(make())
        except Exception:  # noqa: BLE001, S112 - frameworks refuse in many ways
            continue
        if made is not None:
            yield made
