"""Compare before capturing: a mismatch raises, and what passed becomes a candidate for a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from karat.bundles.compare import compare_values
from karat.bundles.manifest import Comparator, Identity
from karat.bundles.structure import flatten
from karat.bundles.values import Flat
from karat.bundles.write import CaseContent
from karat.captures.functions import CaptureDetails
from karat.findings import Finding, KaratError, Severity, UsageError, info
from karat.tensors.comparison import ComparisonReport, Criteria, within
from karat.tensors.dtypes import checked
from karat.tensors.report import facts
from karat.tensors.tensor import CannotStore

_SHOWN = 20


class Mismatch(AssertionError):  # noqa: N818 - a test fails with it, as with any assertion
    """Actual is not what was expected; `report` has all the numbers."""

    def __init__(self, message: str, report: ComparisonReport) -> None:
        super().__init__(message)
        self.report = report


class CaptureFailed(KaratError):  # noqa: N818 - what happened, as findings are named
    """A case that should have been captured was not; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message, next_command=finding.next or "karat --help")
        self.finding = finding


class CaptureWarning(UserWarning):
    """A case was not captured, and capturing is not strict."""


# Users know them by these names, and tracebacks should say them.
for _public in (Mismatch, CaptureFailed, CaptureWarning):
    _public.__module__ = "karat"


# A comparison that passed, and what is expected: a value, or what `flatten` made of it.
Passed = tuple[Comparator, Any]


class CaseToCapture(CaseContent, frozen=True, kw_only=True, eq=False):
    seen: tuple[Any, ...] = ()  # All values that took part; the manifest records their devices.
    findings: tuple[Finding, ...] = ()


def _criteria(details: CaptureDetails) -> Criteria:
    told = {name: details[name] for name in Criteria.__annotations__ if name in details}  # type: ignore[literal-required]
    return cast("Criteria", told)


def compare(expected: object, actual: object, title: str, details: CaptureDetails) -> tuple[ComparisonReport, Passed]:
    """What passed: karat's comparison, and the expected value, taken apart once; `Mismatch` otherwise."""
    __tracebackhide__ = True
    criteria, flat = _criteria(details), _flat(expected, f"{title}: expected")
    report = compare_values(flat, _flat(actual, f"{title}: actual"), **criteria)
    if not report.passed:
        raise Mismatch(describe_mismatch(report, title), report)
    comparator = Comparator(name="karat", **criteria, note=details.get("note"), results=report.comparisons)
    return report, (comparator, flat)


def _flat(value: object, which: str) -> Flat:
    __tracebackhide__ = True
    try:
        return flatten(value, "expected")
    except CannotStore as error:
        # What cannot be compared is no match; where in karat that was noticed does not matter.
        then = "golden.capture(…) after a comparison of your own"
        raise UsageError(f"{which} cannot be compared: {error}", next_command=then) from None


def by_caller(expected: object, details: CaptureDetails) -> Passed:
    """What the caller compared by its own means."""
    for name, given in (("rtol", details.get("rtol")), ("atol", details.get("atol"))):
        checked(name, given, 0.0)
    return Comparator(name="caller", **_criteria(details), note=details.get("note")), expected


def candidate(
    identity: Identity, values: Mapping[str, Any], passed: Passed, details: CaptureDetails, *, raw: bool = False
) -> CaseToCapture:
    """The case to capture, of `inputs`, `expected` and perhaps `actual`."""
    comparator, expected = passed
    said = f"{identity.test} compared by its own means; golden.check would record the numbers"
    return CaseToCapture(
        identity=identity,
        inputs=values["inputs"],
        expected=expected,
        comparator=comparator,
        seen=tuple(values.values()),
        program=details.get("program"),
        program_name=details.get("program_name"),
        seeds=details.get("seeds") or {},
        findings=(info("caller-compared", said, where=identity.test),) if comparator.name == "caller" else (),
        raw=raw,
    )


def describe_mismatch(report: ComparisonReport, title: str) -> str:
    """The whole report as text for a failed assertion: per tensor, the worst first."""
    failed = [c for c in report.comparisons if not c.passed]
    total = len(report.comparisons)
    if not total:
        headline = "nothing was compared, so nothing was verified"
    elif failed:
        headline = f"{len(failed)} of {total} compared values differ from what was expected"
    else:
        headline = "actual is not built like what was expected"
    lines = [f"{title}: {headline}", *(f"  {f.kind}: {f.message}" for f in report.findings)]
    for comparison in failed[:_SHOWN]:
        (_, what), *measured = facts(comparison)
        lines.append(f"  {comparison.name}: {what}")
        grave = (finding for finding in comparison.findings if finding.severity != Severity.INFO)
        lines += [f"    {one.kind}: {one.message.removeprefix(within(comparison.name))}" for one in grave]
        if words := ", ".join(f"{name} {said}" for name, said in measured if said):
            lines.append(f"    {words}")
    if len(failed) > _SHOWN:
        lines.append(f"  … and {len(failed) - _SHOWN} more")
    return "\n".join(lines)
