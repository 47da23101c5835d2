"""Outputs: what an op gave against what its test expects. Comparing nothing is a failure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
import numpy as np

from karat.optests.subjects import Subject
from karat.optests.values import Array, Member, Slot

# Below these nothing can be told in that precision: a few units in the last place, as the original has them.
_FLOORS = {"bfloat16": 1e-2, "float16": 1e-3}


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """How far an output may be from what is expected: |found − expected| ≤ atol + rtol·|expected|."""

    atol: float
    rtol: float
    equal_nan: bool = False

    def at_least(self, dtype: str) -> Tolerance:
        """The same, but no tighter than the dtype allows."""
        floor = _FLOORS.get(dtype, 0.0)
        return Tolerance(
            atol=max(self.atol, floor), rtol=max(self.rtol, floor), equal_nan=self.equal_nan
        )


def compare_outputs(
    subject: Subject, tolerance: Tolerance, left_out: Collection[str]
) -> tuple[str, ...]:
    """The names of outputs that were compared and are as expected; AssertionError for one that is not."""
    found = subject.outputs()
    wanted = [
        member
        for slot in subject.written.outputs
        if slot.name not in left_out and _is_given(slot, subject)
        for member in slot.members
        if member.name not in left_out
    ]
    if not wanted:
        raise AssertionError(
            f"{subject.written.op}: check_output compared nothing: self.outputs names no output that python_api "
            f"gives ({', '.join(found) or 'none'}) and that is not left out"
        )
    worst = _lowest([one.dtype for slot in subject.written.inputs for one in slot.members])
    for member in wanted:
        _compare_one(subject, member, found, tolerance.at_least(worst))
    return tuple(member.name for member in wanted)


def array_of(framework: str, value: Any) -> Array:
    """A tensor's numbers: floats widened exactly, integers and booleans as they are."""
    from karat.gradients.adapter import named  # noqa: PLC0415 - only once there is a tensor

    adapter = named(framework)
    if not adapter.owns(value):
        return np.asarray(value)
    if adapter.dtype_of(value).startswith(("int", "uint", "bool")):
        plain = value.detach().cpu() if framework == "torch" else value
        return np.asarray(plain.numpy() if hasattr(plain, "numpy") else plain)
    return np.asarray(adapter.to_numpy(value))


def _is_given(slot: Slot, subject: Subject) -> bool:
    """With `python_out_sig`, outputs that it does not name are not python_api's to give."""
    names = subject.written.out_names
    if names is None:
        return True
    return slot.name in names or any(member.name in names for member in slot.members)


def _lowest(dtypes: list[str]) -> str:
    return max(dtypes, key=lambda one: _FLOORS.get(one, 0.0), default="float64")


def _compare_one(
    subject: Subject, member: Member, found: Mapping[str, Any], tolerance: Tolerance
) -> None:
    op, device = subject.written.op, subject.device
    if member.name not in found:
        raise AssertionError(
            f"{op}: expected the output {member.name!r}, found {', '.join(found) or 'none'}; "
            "set self.python_out_sig to the names of what python_api gives, or leave it out with no_check_set"
        )
    actual = array_of(subject.written.framework, found[member.name])
    expected = member.array
    if actual.shape != expected.shape:
        raise AssertionError(
            f"{op}: output {member.name!r} on {device}: expected the shape {expected.shape}, found {actual.shape}"
        )
    if _sort(actual) != _sort(expected):
        raise AssertionError(
            f"{op}: output {member.name!r} on {device}: expected {_sort(expected)} ({member.dtype}), "
            f"found {_sort(actual)} ({actual.dtype})"
        )
    limits = tolerance.at_least(member.dtype)
    close = np.isclose(
        actual, expected, rtol=limits.rtol, atol=limits.atol, equal_nan=limits.equal_nan
    )
    if not close.all():
        raise AssertionError(_difference(subject, member, actual, close, limits))


def _sort(array: Array) -> str:
    """Precision is the tolerance's business; whether these are truths, whole numbers or fractions is not."""
    return {"b": "booleans", "i": "integers", "u": "integers", "c": "complex numbers"}.get(
        array.dtype.kind, "floating-point numbers"
    )


def _difference(
    subject: Subject, member: Member, actual: Array, close: Array, limits: Tolerance
) -> str:
    """Where it differs most, and how much of it does."""
    with np.errstate(invalid="ignore"):
        wide = np.result_type(actual, member.array, np.float64)
        error = np.abs(actual.astype(wide) - member.array.astype(wide))
    error = np.where(close, -1.0, np.where(np.isnan(error), np.inf, error))
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    at = tuple(int(one) for one in worst)
    expected, found = member.array[worst].item(), actual[worst].item()
    both_nan = expected != expected and found != found  # noqa: PLR0124 - NaN alone differs from itself, complex or not
    return (
        f"{subject.written.op}: output {member.name!r} on {subject.device} is not as expected in "
        f"{int((~close).sum())} of {close.size} elements; worst at {at}: expected {expected!r}, found {found!r} "
        f"(atol={limits.atol:g}, rtol={limits.rtol:g})"
        f"{'; if NaN is right there, say equal_nan=True' if both_nan else ''}"
    )
