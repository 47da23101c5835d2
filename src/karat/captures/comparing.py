"""Comparing before capturing: a mismatch raises, and what passed becomes the case's comparator."""

from __future__ import annotations

import msgspec

from karat.bundles.comparing import compare_values
from karat.bundles.flat import Flat
from karat.bundles.flattening import flatten
from karat.bundles.manifest import Comparator, Identity
from karat.captures.errors import Mismatch
from karat.captures.mismatch import describe
from karat.findings import Finding, Severity, UsageError
from karat.tensors.outcome import Report
from karat.tensors.tensor import CannotStore


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """How actual is to be compared with expected."""

    rtol: float | None = None
    atol: float | None = None
    equal_nan: bool = False
    check_dtype: bool = True
    note: str | None = None


class Passed(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A comparison that could have failed, and did not."""

    report: Report
    comparator: Comparator
    expected: Flat
    """Taken apart once, for comparing and for writing: tensors may come from a device."""


def compared(expected: object, actual: object, question: Question, title: str) -> Passed:
    """What passed; `Mismatch` otherwise."""
    __tracebackhide__ = True
    flat = _flat(expected, f"{title}: expected")
    report = compare_values(
        flat,
        _flat(actual, f"{title}: actual"),
        rtol=question.rtol,
        atol=question.atol,
        equal_nan=question.equal_nan,
        check_dtype=question.check_dtype,
    )
    if not report.passed:
        raise Mismatch(describe(report, title), report)
    comparator = Comparator(
        name="karat",
        rtol=question.rtol,
        atol=question.atol,
        equal_nan=question.equal_nan,
        check_dtype=question.check_dtype,
        note=question.note,
        results=report.comparisons,
    )
    return Passed(report=report, comparator=comparator, expected=flat)


def _flat(value: object, which: str) -> Flat:
    __tracebackhide__ = True
    try:
        return flatten(value, "expected")
    except CannotStore as error:
        # What cannot be compared is no match; and where in karat it was noticed is of no interest.
        raise UsageError(
            f"{which} cannot be compared: {error}",
            next_command="golden.capture(…) after a comparison of your own",
        ) from None


def by_caller(identity: Identity, note: str | None) -> tuple[Comparator, Finding]:
    """The comparator of a test that compared by its own means, and the finding that says so."""
    finding = Finding(
        kind="caller-compared",
        severity=Severity.INFO,
        message=f"{identity.test} compared by its own means; golden.check would leave the numbers",
        where=identity.test,
    )
    return Comparator(name="caller", note=note), finding
