"""Modes composed and higher orders: each derivative is a function, and its own derivative is checked like any other.

A framework has two rules for an operator, reverse and forward mode, and often differentiates one rule by the other. A
rule can be right and yet be made of parts whose own derivatives are wrong, so every rule that was found right becomes a
problem of its own (`adapters.derived`) that `examine` checks in both modes:

    the gradient (x, v) ↦ Jᵀv      reverse mode, order 2; forward over reverse
    the tangent (x, u) ↦ J·u       reverse over forward; forward over forward
    the gradient's gradient        reverse mode, order 3, and so on

What is expected is the slope of the rule that was found right, never another rule. Cotangents and tangents are inputs
as well: a backward that takes its cotangent for a constant is wrong in its second order.

A rule that has no derivative (no forward mode, a backward that is differentiable once) is no fault at `level="deep"`: a
note says what could not be looked at. Where `order=` asks for it, it is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from karat.gradients.adapters.derived import gradient_problem, tangent_problem
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.draws import CheckPlan, Purpose, random_weights
from karat.gradients.examine import Pair
from karat.gradients.problem import Unsupported, error_line, shaped, size
from karat.gradients.report import Mode

HIGHEST = 4  # the highest order there is


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
    made = gradient_problem(first.problem, replace(first.plan, order=order).cotangents(first.problem, Purpose.ORDERS))
    plan = replace(
        first.plan,
        order=order,
        forward=forward,
        forward_alone=False,
        extra=(),
        inputs=frozenset(first.plan.inputs | set(range(first.own, len(made.inputs)))),
        outputs=frozenset(i for i in first.plan.inputs if i < first.own),
    )
    modes: dict[str, Mode] = (
        {"reverse": "reverse", "forward": "forward-over-reverse"} if forward else {"reverse": "reverse"}
    )
    return Derivative(made, plan, modes, first.own)


def tangent_of(first: Derivative) -> Derivative:
    """The tangent of a function along one drawn direction."""
    plan, problem = first.plan, first.problem
    drawn = [
        shaped(random_weights(size(slot), plan.draw(Purpose.ORDERS, 1, i)), slot)
        for i, slot in enumerate(problem.inputs)
    ]
    made = tangent_problem(problem, drawn)
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
