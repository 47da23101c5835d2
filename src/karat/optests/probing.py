"""Probing: an op whose test left gradients unchecked is asked for them, so that "has no gradient" is a fact, not a claim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from karat.gradients import events
from karat.gradients.problem import Unsupported
from karat.optests import places
from karat.optests.subjects import Subject, subject_at, written_by
from karat.optests.values import members

if TYPE_CHECKING:
    from karat.gradients.problem import Problem

Outcome = Literal["raises", "zero", "gradient"]
Answers = dict[str, tuple[Outcome, str]]
"""Input → what came of asking for its gradient, and a detail."""


def probe(test: Any, test_name: str, checked: Iterable[str] = ()) -> list[events.NoGrad]:
    """Asks the op of a test for the gradients that were not checked; an op that does not even run is not asked."""
    written = written_by(test)
    every = [one.name for one in members(written.inputs) if one.differentiable]
    wrt = tuple(name for name in every if name not in set(checked))
    if not wrt:
        return []
    device = places.device_name(None, written.framework)
    with places.at(device, written.framework) as like:
        subject = subject_at(written, device, like)
        backward = getattr(test, "backward", None)
        # For all of them at once: there are kernels of Paddle that end the process if asked for some alone.
        found = (
            gradients_of(lambda: _opened(subject, every, backward), wrt) if _runs(subject) else {}
        )
    return [
        events.NoGrad(op=written.op, input=name, test=test_name, outcome=outcome, detail=detail)
        for name, (outcome, detail) in found.items()
    ]


def _runs(subject: Subject) -> bool:
    """Whether the op gives its outputs: one that is broken raises for other reasons than having no gradient."""
    try:
        subject.outputs()
    except Exception:  # noqa: BLE001 - whatever a framework raises
        return False
    return True


def _opened(subject: Subject, wrt: Sequence[str], backward: Any) -> Problem:
    from karat.gradients.opening import open_problem  # noqa: PLC0415 - only for classes without a check

    return open_problem(
        lambda *tensors: tuple(subject(*tensors).values()),
        subject.tensors,
        op=subject.written.op,
        names=subject.names,
        wrt=wrt,
        backward=backward,
        framework=subject.written.framework,
    )


def gradients_of(opened: Callable[[], Problem], wrt: Sequence[str]) -> Answers:
    """What comes of asking for the gradients of inputs, at a random cotangent; nothing of what cannot be asked."""
    try:
        problem = opened()
        if not problem.outputs:
            return dict.fromkeys(wrt, ("zero", "nothing that comes out is a float"))
        # Not ones: the gradient of a softmax's sum is zero, and that of the softmax is not.
        rng = np.random.default_rng(len(wrt))
        cotangents = [rng.standard_normal(slot.shape) for slot in problem.outputs]
        gradients = problem.vjp(problem.point, cotangents)
    except Unsupported:
        return {}  # nobody was asked: numpy without a backward, a frozen input of Paddle's
    except Exception as error:  # noqa: BLE001 - whatever a framework raises for an op without a gradient
        said = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        return dict.fromkeys(wrt, ("raises", said))
    pairs = zip(problem.inputs, gradients, strict=True)
    return {slot.name: _told(gradient) for slot, gradient in pairs if slot.name in wrt}


def _told(gradient: Any) -> tuple[Outcome, str]:
    if gradient is not None and np.any(gradient != 0):
        return "gradient", "it is not zero"
    return "zero", "it is None or zero"
