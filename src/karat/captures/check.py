"""What a test, or a script that captures, may have to catch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from karat.bundles.compare import compare_values
from karat.bundles.manifest import Comparator, Identity
from karat.bundles.structure import flatten
from karat.bundles.values import Flat
from karat.findings import Finding, KaratError, Severity, UsageError
from karat.tensors.comparison import Comparison, Numbers, Report, within
from karat.tensors.tensor import CannotStore


class Mismatch(AssertionError):  # noqa: N818 - a test fails with it, as with any assertion
    """Actual is not what was expected; `report` has all the numbers."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


class CaptureFailed(KaratError):  # noqa: N818 - what happened, as findings are named
    """A case that should have been captured was not; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message, next_command=finding.next or "karat --help")
        self.finding = finding


class CaptureWarning(UserWarning):
    """A case was not captured, and nobody asked to be strict about it."""


# Users know them by these names, and tracebacks should say them.
for _public in (Mismatch, CaptureFailed, CaptureWarning):
    _public.__module__ = "karat"

# DOC-HERE evidence: Evidence: what a test hands over once its comparison passed.

Program = str | os.PathLike[str] | bytes | bytearray | memoryview | None
"""A path, or the bytes themselves."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One case to be."""

    identity: Identity
    inputs: Any
    expected: Any
    """A nested value, or what `flatten` made of it."""
    comparator: Comparator
    seen: tuple[Any, ...] = ()
    """All values that took part, for the sake of their devices."""
    program: Any = None
    """A `Program`; what else it is, is said when it is written."""
    program_name: str | None = None
    seeds: Mapping[str, int | str] | None = None
    raw: bool = False
    strides: bool = False
    findings: tuple[Finding, ...] = ()


def program_of(value: Any) -> Path | bytes | None:
    """The program as a path or as bytes; what is neither has no form."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | os.PathLike):
        return Path(os.fsdecode(value))
    raise CannotStore(f"program: expected a path or bytes, found {type(value).__name__}")


# DOC-HERE mismatch: The words of a mismatch: what differs, by how much, and where; per tensor, worst things first.

_SHOWN = 20


def describe(report: Report, title: str) -> str:
    """The whole report as text for a failed assertion."""
    failed = [c for c in report.comparisons if not c.passed]
    lines = [_headline(report, failed, title)]
    lines += [f"  {f.kind}: {f.message}" for f in report.findings]
    for comparison in failed[:_SHOWN]:
        lines += _tensor(comparison)
    if len(failed) > _SHOWN:
        lines.append(f"  … and {len(failed) - _SHOWN} more")
    return "\n".join(lines)


def _headline(report: Report, failed: list[Comparison], title: str) -> str:
    total = len(report.comparisons)
    if not total:
        return f"{title}: nothing was compared, so nothing was verified"
    if failed:
        return f"{title}: {len(failed)} of {total} compared values differ from what was expected"
    return f"{title}: actual is not built like what was expected"


def _tensor(comparison: Comparison) -> Iterator[str]:
    shape = "×".join(map(str, comparison.shape)) or "0-d"
    yield f"  {comparison.name}: {comparison.dtype} {shape}"
    for finding in comparison.findings:
        # What a mismatch says in one sentence stands below, line by line.
        said = finding.kind == "tensor-mismatch" and comparison.numbers is not None
        if finding.severity != Severity.INFO and not said:
            yield f"    {finding.kind}: {finding.message.removeprefix(within(comparison.name))}"
    if comparison.numbers is not None:
        yield from (f"    {line}" for line in _numbers(comparison.numbers))
    if comparison.tolerance is not None:
        t = comparison.tolerance
        yield f"    tolerance: rtol {t.rtol:g}, atol {t.atol:g} ({_ORIGINS[t.origin]})"


_ORIGINS = {"given": "as given", "dtype": "of the dtype", "recorded": "as recorded"}


def _numbers(n: Numbers) -> Iterator[str]:
    share = n.mismatches / n.elements if n.elements else 0.0
    first = f", the first at {_index(n.first_mismatch)}" if n.first_mismatch is not None else ""
    yield f"mismatches: {n.mismatches:,} of {n.elements:,} ({share:.2%}){first}"
    if n.max_abs:
        yield f"worst: {_worst(n)}"
    yield from _measures(n)
    if n.nan_expected or n.nan_actual or n.inf_expected or n.inf_actual:
        yield (
            f"not finite: expected {n.nan_expected:,} NaN and {n.inf_expected:,} inf, "
            f"actual {n.nan_actual:,} NaN and {n.inf_actual:,} inf"
        )


def _worst(n: Numbers) -> str:
    text = f"|actual − expected| = {n.max_abs:g}"
    if n.max_abs_at is not None:
        text += f" at {_index(n.max_abs_at)}"
    if n.max_expected is not None and n.max_actual is not None:
        text += f" (expected {n.max_expected:.9g}, actual {n.max_actual:.9g})"
    return text


def _measures(n: Numbers) -> Iterator[str]:
    found = {
        "mean abs": n.mean_abs,
        "max rel": n.max_rel,
        "SQNR dB": n.sqnr_db,
        "cosine": n.cosine,
    }
    words = [f"{name} {value:.6g}" for name, value in found.items() if value is not None]
    if n.max_ulp is not None:
        words.insert(2, f"max ULP {n.max_ulp:,}")
    if words:
        yield ", ".join(words)


def _index(at: tuple[int, ...] | None) -> str:
    return f"[{', '.join(map(str, at or ()))}]"


# DOC-HERE comparing: Comparing before capturing: a mismatch raises, and what passed becomes the case's comparator.


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
