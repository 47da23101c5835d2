"""Rows of a captured case: one comparison of two tensors → a row of the report, and its findings."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from karat.bundles.manifest import Comparator, TensorRecord
from karat.compare.change import MetricChange, Verdict
from karat.findings import Finding, Severity
from karat.tensors.outcome import Comparison, Numbers, within

Entry = tuple[MetricChange | None, tuple[Finding, ...]]

# What no tolerance is about: the tensors are not even of one kind.
_BROKEN = frozenset({"dtype-changed", "shape-changed", "type-changed"})


def output_row(comparison: Comparison, comparator: Comparator) -> Entry:
    """An expected tensor, new against old, with the old side's tolerance."""
    findings = tuple(_kinder(f, comparator) for f in _named(comparison))
    verdict = _verdict(comparison, findings)
    comparison = _recorded(comparison)
    return _row(comparison, verdict, _because(comparison)), findings


def input_row(comparison: Comparison) -> Entry:
    """An input; one that changed is no failure of its own, but it is said about the whole case."""
    same = _is_bit_equal(comparison)
    damage = tuple(f for f in comparison.findings if f.kind == "bundle-damaged")
    verdict = Verdict.SAME if same else Verdict.DRIFT
    because = _bit_equal(comparison) if same else "the two captures had different inputs"
    return _row(comparison, verdict, because), damage


def lost_row(record: TensorRecord) -> Entry:
    """A tensor that only the old side has."""
    message = f"{within(record.name)}expected {record.dtype}{list(record.shape)}, found nothing on the new side"
    finding = Finding(
        kind="lost-tensor", severity=Severity.FAIL, metric=record.name, message=message
    )
    return _one_side(record, Verdict.INCOMPLETE, "it is gone"), (finding,)


def gained_row(record: TensorRecord) -> Entry:
    """A tensor that only the new side has."""
    message = f"{within(record.name)}expected no such tensor, found {record.dtype}{list(record.shape)}, which is new"
    finding = Finding(
        kind="gained-tensor", severity=Severity.WARN, metric=record.name, message=message
    )
    return _one_side(record, Verdict.NEW, "the old side has no such tensor"), (finding,)


def _one_side(record: TensorRecord, verdict: Verdict, because: str) -> MetricChange:
    tensor = Comparison(name=record.name, dtype=record.dtype, shape=record.shape)
    return MetricChange(
        metric=record.name, verdict=verdict, because=because, rule="bundle", tensor=tensor
    )


def _named(comparison: Comparison) -> tuple[Finding, ...]:
    # The metric says which tensor it is, so the place need not say it again.
    return tuple(
        replace(f, metric=comparison.name, where=None if f.where == comparison.name else f.where)
        for f in comparison.findings
    )


def _kinder(finding: Finding, comparator: Comparator) -> Finding:
    """Where nobody recorded a tolerance, a dtype's own is a guess, and crossing it no proof."""
    unknown = comparator.name == "caller" and comparator.rtol is None and comparator.atol is None
    if finding.kind == "tensor-mismatch" and unknown:
        message = (
            f"{finding.message}; the capture recorded no tolerance, so the dtype's own was used"
        )
        return replace(finding, severity=Severity.WARN, message=message)
    return finding


def _verdict(comparison: Comparison, findings: tuple[Finding, ...]) -> Verdict:
    if any(f.severity is Severity.FAIL for f in findings):
        return Verdict.BREAK
    if any(f.severity is Severity.WARN for f in findings):
        return Verdict.DRIFT
    return Verdict.SAME if _is_bit_equal(comparison) else Verdict.NOISE


def _is_bit_equal(comparison: Comparison) -> bool:
    numbers = comparison.numbers
    if any(f.kind in _BROKEN for f in comparison.findings):
        return False
    return numbers is not None and numbers.bit_equal == numbers.elements


def _bit_equal(comparison: Comparison) -> str:
    elements = comparison.numbers.elements if comparison.numbers else 0
    return f"all {elements:,} elements are bit-equal"


def _recorded(comparison: Comparison) -> Comparison:
    """The tolerance was given to the comparison, but nobody gave it: it was recorded."""
    tolerance = comparison.tolerance
    if tolerance is None or tolerance.origin != "given":
        return comparison
    return structs.replace(comparison, tolerance=structs.replace(tolerance, origin="recorded"))


def _because(comparison: Comparison) -> str:
    if _is_bit_equal(comparison):
        return _bit_equal(comparison)
    numbers, tolerance = comparison.numbers, comparison.tolerance
    if numbers is None or tolerance is None:
        return next((f.message for f in comparison.findings), "compared exactly")
    rule = f"rtol {tolerance.rtol:g}, atol {tolerance.atol:g} ({tolerance.origin})"
    if numbers.mismatches:
        return f"{numbers.mismatches:,} of {numbers.elements:,} elements lie outside {rule}"
    return f"{numbers.elements - numbers.bit_equal:,} elements differ, within {rule}"


def _row(comparison: Comparison, verdict: Verdict, because: str) -> MetricChange:
    numbers = comparison.numbers or Numbers(elements=0, bit_equal=0)
    return MetricChange(
        metric=comparison.name,
        verdict=verdict,
        because=because,
        rule="bundle",
        max_abs_rel_diff=numbers.max_rel,
        max_step=_place(numbers.max_rel_at),
        first_diff_step=_place(numbers.first_mismatch),
        bit_equal=numbers.bit_equal,
        n_shared=numbers.elements,
        nan_gained=max(0, numbers.nan_actual - numbers.nan_expected),
        nan_lost=max(0, numbers.nan_expected - numbers.nan_actual),
        tensor=structs.replace(comparison, findings=()),
    )


def _place(index: tuple[int, ...] | None) -> str | None:
    return None if index is None else f"[{', '.join(map(str, index))}]"
