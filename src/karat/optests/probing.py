"""Probing: an op test that checked no gradient is asked for one, so that "has no gradient" is a fact, not a claim."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from karat.gradients import events
from karat.optests import places
from karat.optests.subjects import Subject, subject_at, written_by
from karat.optests.values import members

Outcome = Literal["raises", "zero", "gradient"]


def probe(test: Any, test_name: str) -> events.NoGrad | None:
    """Asks the op of a test for gradients; None where nothing goes in or comes out that could have one."""
    written = written_by(test)
    differentiable = [one.name for one in members(written.inputs) if one.differentiable]
    if not differentiable:
        return None
    device = places.device_name(None, written.framework)
    with places.at(device, written.framework) as like:
        subject = subject_at(written, device, like)
        outcome, detail = _asked(subject, tuple(differentiable), getattr(test, "backward", None))
    return events.NoGrad(op=written.op, test=test_name, outcome=outcome, detail=detail)


def _asked(subject: Subject, wrt: tuple[str, ...], backward: Any) -> tuple[Outcome, str]:
    from karat.gradients.opening import open_problem  # noqa: PLC0415 - only for classes without a check

    try:
        problem = open_problem(
            lambda *tensors: tuple(subject(*tensors).values()),
            subject.tensors,
            op=subject.written.op,
            names=subject.names,
            wrt=wrt,
            backward=backward,
            framework=subject.written.framework,
        )
        # Not ones: the gradient of a softmax's sum is zero, and that of the softmax is not.
        rng = np.random.default_rng(len(wrt))
        cotangents = [rng.standard_normal(slot.shape) for slot in problem.outputs]
        gradients = problem.vjp(problem.point, cotangents)
    except Exception as error:  # noqa: BLE001 - whatever a framework raises for an op without a gradient
        return "raises", f"{type(error).__name__}: {error}".splitlines()[0][:300]
    for slot, gradient in zip(problem.inputs, gradients, strict=True):
        if gradient is not None and np.any(gradient != 0):
            return "gradient", f"the gradient of {slot.name} is not zero"
    return "zero", "every gradient is None or zero"
