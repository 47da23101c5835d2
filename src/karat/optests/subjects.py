"""Subjects: an op test, once set up, as a flat function over named tensors of its framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from karat.findings import UsageError
from karat.optests.arguments import Argument, FromSlot, Given, Plan, Signature, plan
from karat.optests.values import Slot, members, read_slots, widened


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What a test's setUp wrote."""

    op: str
    function: Callable[..., Any]
    framework: str
    inputs: tuple[Slot, ...]
    attrs: Mapping[str, Any]
    outputs: tuple[Slot, ...]
    out_names: tuple[str, ...] | None = None
    """`python_out_sig`: the outputs that the function gives, in order."""
    inner_names: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)
    """`python_out_sig_sub_name`: names of the tensors in a list that comes out."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A flat function: named tensors in, named tensors out."""

    written: Written
    device: str
    names: tuple[str, ...]
    tensors: tuple[Any, ...]
    plan: Plan
    signature: Signature | None

    def __call__(self, *tensors: Any) -> dict[str, Any]:
        """Every output by its name."""
        given = iter(tensors)
        slots = {
            slot.name: _as_argument(slot, [next(given) for _ in slot.members], self.signature)
            for slot in self.written.inputs
        }
        positional = [_filled(one, slots) for one in self.plan.positional]
        keyword = {name: _filled(one, slots) for name, one in self.plan.keyword.items()}
        return self.named(self.written.function(*positional, **keyword))

    def outputs(self) -> dict[str, Any]:
        """Every output at the test's own inputs."""
        return self(*self.tensors)

    def named(self, result: Any) -> dict[str, Any]:
        """What the function gave, by the names of the op's outputs; lists by the names inside them."""
        found = list(result) if isinstance(result, (tuple, list)) else [result]
        names = self._output_names()
        if len(names) == 1 and len(found) != 1:
            found = [found]
        if len(found) > len(names):
            raise UsageError(
                f"{self.written.op}: expected outputs {', '.join(names) or 'none'}, found {len(found)} results of python_api",
                next_command="set self.python_out_sig to the names of what python_api gives, in order",
            )
        flat: dict[str, Any] = {}
        for name, value in zip(names, found, strict=False):
            if isinstance(value, (tuple, list)):
                flat.update(zip(self._inner(name, len(value)), value, strict=True))
            elif value is not None:
                flat[name] = value
        return flat

    def expand(self, name: str) -> tuple[str, ...]:
        """The names of an output's tensors: itself, or those of its list."""
        for slot in self.written.outputs:
            if slot.name == name and slot.listed:
                return tuple(member.name for member in slot.members)
        return (name,)

    def _output_names(self) -> tuple[str, ...]:
        if self.written.out_names is not None:
            return self.written.out_names
        if self.signature is not None and self.signature.outputs:
            return self.signature.outputs
        return tuple(slot.name for slot in self.written.outputs) or ("Out",)

    def _inner(self, name: str, count: int) -> tuple[str, ...]:
        if name in self.written.inner_names:
            return tuple(self.written.inner_names[name])[:count]
        known = self.expand(name)
        return known if len(known) == count else tuple(f"{name}.{n}" for n in range(count))


def written_by(test: Any) -> Written:
    """What an op test's setUp left in it."""
    from karat.optests.frameworks import framework_of  # noqa: PLC0415 - only here

    function = getattr(test, "python_api", None)
    op = op_name(test)
    if not callable(function):
        raise UsageError(
            f"{op or type(test).__name__}: expected self.python_api, the function that runs the op, found {function!r}",
            next_command="set self.python_api in setUp: self.python_api = paddle.matmul",
        )
    backward = getattr(test, "backward", None)
    names = getattr(test, "python_out_sig", None)
    return Written(
        op=op,
        function=function,
        framework=getattr(test, "framework", None)
        or framework_of(function, backward=backward, original=hasattr(test, "op_type")),
        inputs=read_slots(getattr(test, "inputs", {}), "inputs"),
        attrs={k: v for k, v in (getattr(test, "attrs", None) or {}).items() if v is not None},
        outputs=read_slots(getattr(test, "outputs", {}), "outputs"),
        out_names=None if names is None else tuple(names),
        inner_names=getattr(test, "python_out_sig_sub_name", None) or {},
    )


def in_double(written: Written) -> Written:
    """The same with low precision as float64."""
    return msgspec.structs.replace(written, inputs=widened(written.inputs))


def op_name(test: Any) -> str:
    """The op: `op_type` as in the original, or `op`; else the function's name; else nothing."""
    for attribute in ("op_type", "op"):
        value = getattr(test, attribute, None)
        if isinstance(value, str) and value:
            return value
    function = getattr(test, "python_api", None)
    return str(getattr(function, "__name__", ""))


def subject_at(written: Written, device: str, like: Any) -> Subject:
    """The subject with its tensors on a device; must be called within `places.at`."""
    from karat.gradients.adapter import named  # noqa: PLC0415 - brings numpy

    adapter = named(written.framework)
    flat = list(members(written.inputs))
    tensors = tuple(adapter.from_numpy(one.array, one.dtype, like) for one in flat)
    signature = _signature(written, tensors)
    given = Given(
        op=written.op, slots=tuple(slot.name for slot in written.inputs), attrs=written.attrs
    )
    return Subject(
        written=written,
        device=device,
        names=tuple(one.name for one in flat),
        tensors=tensors,
        plan=plan(written.function, given, signature),
        signature=signature,
    )


def _signature(written: Written, tensors: Sequence[Any]) -> Signature | None:
    if written.framework != "paddle":
        return None
    from karat.optests.paddle_signatures import signature_of  # noqa: PLC0415 - Paddle is at hand

    given = iter(tensors)
    inputs = {slot.name: [next(given) for _ in slot.members] for slot in written.inputs}
    outputs = tuple(slot.name for slot in written.outputs)
    return signature_of(written.op, inputs, outputs, written.attrs)


def _as_argument(slot: Slot, tensors: list[Any], signature: Signature | None) -> Any:
    # The original hands over a list of one as the tensor in it, and its tests are written for that.
    if slot.listed and (len(tensors) != 1 or signature is None):
        return tensors
    return tensors[0]


def _filled(argument: Argument, slots: Mapping[str, Any]) -> Any:
    return slots[argument.name] if isinstance(argument, FromSlot) else argument.value
