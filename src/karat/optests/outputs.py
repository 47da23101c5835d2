"""Outputs: what an op gave against what its test expects. Comparing nothing is a failure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from karat.optests.subjects import Subject
from karat.optests.values import Array, Member, Slot, members

# Below these nothing can be told in that precision: a few units in the last place, as the original has them.
_FLOORS = {"bfloat16": 1e-2, "float16": 1e-3}

__unittest = True  # as in `op_test`


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """How far an output may be from what is expected: |found − expected| ≤ atol + rtol·|expected|."""

    atol: float
    rtol: float
    equal_nan: bool = False

    def at_least(self, dtypes: Iterable[str]) -> Tolerance:
        """The same, but no tighter than the lowest of the dtypes allows."""
        floor = max((_FLOORS.get(one, 0.0) for one in dtypes), default=0.0)
        return Tolerance(
            atol=max(self.atol, floor), rtol=max(self.rtol, floor), equal_nan=self.equal_nan
        )

    def close(self, found: Array, expected: Array) -> Array:
        """Where the two are near enough; whole numbers are compared as such, since not all have a float."""
        if self.atol < 1 and found.dtype.kind in "biu":
            return np.asarray(found == expected)
        return np.isclose(found, expected, rtol=self.rtol, atol=self.atol, equal_nan=self.equal_nan)


def compare_outputs(subject: Subject, tolerance: Tolerance, left_out: Collection[str]) -> None:
    """AssertionError for an output that is not as expected, and if there is none to compare."""
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
    for member in wanted:
        _compare_one(subject, member, found, _limits(subject, member, tolerance))


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


def _limits(subject: Subject, member: Member, tolerance: Tolerance) -> Tolerance:
    """For fractions, no tighter than the precision allows; whole numbers are off by what the author says, or not."""
    if sort_of(member.array) in {"integers", "booleans"}:
        return Tolerance(atol=tolerance.atol, rtol=0.0)
    return tolerance.at_least(
        [member.dtype, *(one.dtype for one in members(subject.written.inputs))]
    )


def _compare_one(
    subject: Subject, member: Member, found: Mapping[str, Any], limits: Tolerance
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
    if sort_of(actual) != sort_of(expected):
        raise AssertionError(
            f"{op}: output {member.name!r} on {device}: expected {sort_of(expected)} ({member.dtype}), "
            f"found {sort_of(actual)} ({actual.dtype})"
        )
    close = limits.close(actual, expected)
    if not close.all():
        raise AssertionError(_difference(subject, member, actual, close, limits))


def sort_of(array: Array) -> str:
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
