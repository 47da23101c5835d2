"""Compare before capturing: a mismatch raises, and what passed becomes a candidate for a case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from karat.bundles.compare import compare_values
from karat.bundles.manifest import Comparator, Identity
from karat.bundles.structure import flatten
from karat.bundles.values import Flat
from karat.bundles.write import CaseContent
from karat.captures.functions import CaptureDetails, CheckDetails
from karat.findings import Finding, KaratError, Severity, UsageError, info
from karat.tensors.comparison import Comparison, ComparisonReport, Criteria, TensorNumbers, within
from karat.tensors.tensor import CannotStore

_SHOWN = 20
_ORIGINS = {"given": "as given", "dtype": "of the dtype", "recorded": "as recorded"}


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


class Passed(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A comparison that passed: karat's own, or the caller's."""

    comparator: Comparator
    expected: Any  # A nested value, or what `flatten` made of it: tensors may come from a device, so that is done once.
    values: tuple[Any, ...]
    findings: tuple[Finding, ...] = ()


class CaseToCapture(CaseContent, frozen=True, kw_only=True, eq=False):
    seen: tuple[Any, ...] = ()  # All values that took part; the manifest records their devices.
    findings: tuple[Finding, ...] = ()


def compare(expected: object, actual: object, title: str, details: CheckDetails) -> tuple[ComparisonReport, Passed]:
    """What passed; `Mismatch` otherwise."""
    __tracebackhide__ = True
    criteria: Criteria = {
        "rtol": details.get("rtol"),
        "atol": details.get("atol"),
        "equal_nan": details.get("equal_nan", False),
        "check_dtype": details.get("check_dtype", True),
    }
    flat = _flat(expected, f"{title}: expected")
    report = compare_values(flat, _flat(actual, f"{title}: actual"), **criteria)
    if not report.passed:
        raise Mismatch(describe_mismatch(report, title), report)
    comparator = Comparator(name="karat", **criteria, note=details.get("note"), results=report.comparisons)
    return report, Passed(comparator=comparator, expected=flat, values=(expected, actual))


def _flat(value: object, which: str) -> Flat:
    __tracebackhide__ = True
    try:
        return flatten(value, "expected")
    except CannotStore as error:
        # What cannot be compared is no match; where in karat that was noticed does not matter.
        then = "golden.capture(…) after a comparison of your own"
        raise UsageError(f"{which} cannot be compared: {error}", next_command=then) from None


def by_caller(identity: Identity, expected: object, details: CaptureDetails) -> Passed:
    """What the caller compared by its own means, with the finding that says so."""
    said = f"{identity.test} compared by its own means; golden.check would record the numbers"
    finding = info("caller-compared", said, where=identity.test)
    comparator = Comparator(name="caller", note=details.get("note"))
    return Passed(comparator=comparator, expected=expected, values=(expected,), findings=(finding,))


def candidate(identity: Identity, inputs: Any, passed: Passed, details: CaptureDetails, **form: bool) -> CaseToCapture:
    """The case to capture; its `form` is `raw` and `strides`."""
    return CaseToCapture(
        identity=identity,
        inputs=inputs,
        expected=passed.expected,
        comparator=passed.comparator,
        seen=(inputs, *passed.values),
        program=details.get("program"),
        program_name=details.get("program_name"),
        seeds=details.get("seeds") or {},
        findings=passed.findings,
        raw=form.get("raw", False),
        strides=form.get("strides", False),
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
        lines += _tensor(comparison)
    if len(failed) > _SHOWN:
        lines.append(f"  … and {len(failed) - _SHOWN} more")
    return "\n".join(lines)


def _tensor(comparison: Comparison) -> Iterator[str]:
    shape = "×".join(map(str, comparison.shape)) or "0-d"
    yield f"  {comparison.name}: {comparison.dtype} {shape}"
    for finding in comparison.findings:
        # The sentence of a mismatch is repeated below, line by line.
        is_below = finding.kind == "tensor-mismatch" and comparison.numbers is not None
        if finding.severity != Severity.INFO and not is_below:
            yield f"    {finding.kind}: {finding.message.removeprefix(within(comparison.name))}"
    if comparison.numbers is not None:
        yield from (f"    {line}" for line in _numbers(comparison.numbers))
    if comparison.tolerance is not None:
        t = comparison.tolerance
        yield f"    tolerance: rtol {t.rtol:g}, atol {t.atol:g} ({_ORIGINS[t.origin]})"


def _numbers(n: TensorNumbers) -> Iterator[str]:
    share = n.mismatches / n.elements if n.elements else 0.0
    first = f", the first at {[*n.first_mismatch]}" if n.first_mismatch is not None else ""
    yield f"mismatches: {n.mismatches:,} of {n.elements:,} ({share:.2%}){first}"
    if n.max_abs:
        worst = f"worst: |actual − expected| = {n.max_abs:g}"
        if n.max_abs_at is not None:
            worst += f" at {[*n.max_abs_at]}"
        if n.max_expected is not None and n.max_actual is not None:
            worst += f" (expected {n.max_expected:.9g}, actual {n.max_actual:.9g})"
        yield worst
    measures = {"mean abs": n.mean_abs, "max rel": n.max_rel, "SQNR dB": n.sqnr_db, "cosine": n.cosine}
    words = [f"{name} {value:.6g}" for name, value in measures.items() if value is not None]
    if n.max_ulp is not None:
        words.insert(2, f"max ULP {n.max_ulp:,}")
    if words:
        yield ", ".join(words)
    if n.nan_expected or n.nan_actual or n.inf_expected or n.inf_actual:
        actual = f"actual {n.nan_actual:,} NaN and {n.inf_actual:,} inf"
        yield f"not finite: expected {n.nan_expected:,} NaN and {n.inf_expected:,} inf, {actual}"
