"""Gradient checks of op tests: what the original's arguments mean, handed to `karat.gradcheck`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from karat.findings import UsageError, suggest
from karat.gradients.report import GradReport
from karat.optests.bfloat16 import convert_uint16_to_float
from karat.optests.subjects import Subject
from karat.optests.values import Array, Slot, members


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a test asked to be checked."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    no_grad: frozenset[str] = frozenset()
    rtol: float | None = None
    delta: float | None = None
    grads: Any = None
    """`user_defined_grads`: one array per input."""
    cotangents: Any = None
    """`user_defined_grad_outputs`: one array per output."""
    more: dict[str, Any] = msgspec.field(default_factory=dict)


def check(test: Any, subject: Subject, asked: Asked) -> GradReport:
    """The gradients of a subject, checked; whoever keeps evidence has heard of it afterwards."""
    from karat.gradients.checking import gradcheck  # noqa: PLC0415 - the mathematics, only for checks

    wrt = _inputs(subject, asked)
    outputs = tuple(one for name in asked.outputs for one in _outputs(subject, name))

    def wanted(*tensors: Any) -> tuple[Any, ...]:
        found = subject(*tensors)
        _all_there(subject, outputs, found)
        return tuple(found[name] for name in outputs)

    return gradcheck(
        wanted,
        subject.tensors,
        op=subject.written.op,
        names=subject.names,
        output_names=outputs,
        wrt=wrt,
        backward=_backward(test, subject),
        rtol=asked.rtol,
        delta=asked.delta,
        grads=None if asked.grads is None else _arrays(asked.grads, wrt, "user_defined_grads"),
        cotangents=None
        if asked.cotangents is None
        else _arrays(asked.cotangents, outputs, "user_defined_grad_outputs"),
        identity=f"{subject.written.op} {type(test).__name__}.{test.id().rpartition('.')[2]}",
        framework=subject.written.framework,
        **asked.more,
    )


def _inputs(subject: Subject, asked: Asked) -> tuple[str, ...]:
    """Names of tensors to check: those asked for, lists by their tensors, less those set aside."""
    known = {slot.name: slot for slot in subject.written.inputs}
    found: list[str] = []
    for name in asked.inputs:
        found += _expanded(name, known, subject)
    reached = {
        member.name for name in subject.plan.slots for member in known[name].members
    }  # an input that no parameter takes has no gradient to speak of
    lost = [name for name in found if name not in reached]
    if lost:
        raise UsageError(
            f"{subject.written.op}: check_grad asks for {', '.join(lost)}, which does not reach python_api; "
            f"it takes {', '.join(sorted(reached)) or 'no input'}",
            next_command="set self.python_api to a function that takes every input that is checked",
        )
    return tuple(name for name in dict.fromkeys(found) if name not in asked.no_grad)


def _expanded(name: str, known: dict[str, Slot], subject: Subject) -> list[str]:
    if name in subject.names:
        return [name]
    if name in known:
        return [member.name for member in known[name].members]
    every = [*known, *(one.name for one in members(subject.written.inputs))]
    raise UsageError(
        f"{subject.written.op}: check_grad: expected an input out of {', '.join(dict.fromkeys(every))}, "
        f"found {name!r}{suggest(name, every)}",
        next_command=f"self.check_grad([{every[0]!r}], …)" if every else "set self.inputs in setUp",
    )


def _outputs(subject: Subject, name: str) -> tuple[str, ...]:
    return subject.expand(name)


def _all_there(subject: Subject, wanted: Sequence[str], found: dict[str, Any]) -> None:
    lost = [name for name in wanted if name not in found]
    if lost:
        raise UsageError(
            f"{subject.written.op}: check_grad: expected the output {', '.join(lost)}, found {', '.join(found) or 'none'}",
            next_command="set self.python_out_sig to the names of what python_api gives, in order",
        )


def _arrays(given: Any, names: tuple[str, ...], what: str) -> tuple[Array, ...]:
    """One array per name, with bfloat16 widened."""
    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(listed) != len(names):
        raise UsageError(
            f"{what}: expected an array for each of {', '.join(names)}, found {len(listed)}",
            next_command=f"{what}=[…] with {len(names)} arrays, in the order of the names",
        )
    return tuple(_wide(np.asarray(one)) for one in listed)


def _wide(array: Array) -> Array:
    if array.dtype == np.uint16:
        array = convert_uint16_to_float(array)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _backward(test: Any, subject: Subject) -> Any:
    return getattr(test, "backward", None) if subject.written.framework == "numpy" else None
