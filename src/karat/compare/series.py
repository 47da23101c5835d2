"""Old × new series → Change. Completeness first, then drift."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from karat.compare.change import MetricChange, Verdict
from karat.compare.completeness import (
    Shared,
    gains,
    last_sample,
    losses,
    precision,
    truncation,
    truncation_alone,
)
from karat.compare.judge import Judgement, drift_finding, judge, metric_change
from karat.compare.numbers import Numbers
from karat.compare.rules import Rule, RuleBook
from karat.compare.structure import compare_structure
from karat.findings import Finding, Severity
from karat.goldens.shapes import Metric, Series

Judged = tuple[list[MetricChange], list[Finding]]


def shared_metrics(old: Series, new: Series) -> list[str]:
    """Names of the curves both sides have, in the order of the seed's CSV."""
    return sorted(old.metrics.keys() & new.metrics.keys())


def pairs_of(
    old: Series, new: Series, rules: RuleBook, path: str
) -> Iterator[tuple[Metric, Metric, Rule]]:
    """What `score` needs for one file; many files are scored in one go."""
    for name in shared_metrics(old, new):
        yield old.metrics[name], new.metrics[name], rules.rule_for(name, path)


def judge_series(
    old: Series, new: Series, numbers: Sequence[Numbers], rules: RuleBook, path: str
) -> Judged:
    """Rows and findings of one file whose numbers are known."""
    shared = [
        Shared(name, old.metrics[name], new.metrics[name], n, rules.rule_for(name, path))
        for name, n in zip(shared_metrics(old, new), numbers, strict=True)
    ]
    rows: list[MetricChange] = []
    findings: list[Finding] = []
    cut, stop = truncation(shared)
    if cut is not None:
        findings.append(cut)
    elif (both := truncation_alone(new.metrics, Severity.WARN)) is not None:
        findings.append(both)
    for item in shared:
        row, found = _judge_metric(item, stop, truncated=cut is not None)
        rows.append(row)
        findings.extend(found)
    findings.extend(_lost_and_gained(old, new, rows))
    for more_rows, more_findings in _beside(old, new, rules, path):
        rows += more_rows
        findings += more_findings
    return rows, findings


def _judge_metric(
    s: Shared, stop: int | None, *, truncated: bool
) -> tuple[MetricChange, list[Finding]]:
    judgement = judge(s.numbers, s.rule)
    lost = losses(s, stop, truncated=truncated)
    shown = judgement
    if truncated or any(f.severity is not Severity.INFO for f in lost):
        shown = Judgement(Verdict.INCOMPLETE, _incomplete(s.numbers, stop))
    row = metric_change(s.name, s.numbers, s.rule, shown, curve=True)
    maybe = (_no_usable_steps(s), precision(s), drift_finding(row, judgement))
    findings = [*lost, *gains(s), *(finding for finding in maybe if finding is not None)]
    return row, findings


def _incomplete(n: Numbers, stop: int | None) -> str:
    if stop is not None:
        return f"the run stops at step {stop}; its numbers cover {n.n_steps} step(s) only"
    return f"{n.steps_lost} step(s) lost, {n.nan_gained} new NaN"


def _no_usable_steps(s: Shared) -> Finding | None:
    if s.numbers.n_steps:
        return None
    if not len(s.old.steps) and not len(s.new.steps):
        why, severity = "neither side has a step", Severity.WARN
    elif not s.numbers.n_shared:
        sampled = last_sample(s.old) is not None and last_sample(s.new) is not None
        why, severity = "the two sides share no step", Severity.FAIL if sampled else Severity.WARN
    elif s.numbers.zeros == s.numbers.n_shared and not s.numbers.from_zero:
        why, severity = "every value is zero, or nearly, on both sides", Severity.INFO
    elif s.numbers.both_missing == s.numbers.n_shared:
        why, severity = "every value is NaN on both sides, so nothing was compared", Severity.WARN
    else:
        why, severity = "no shared step has two finite values and a non-zero old one", Severity.WARN
    return Finding(
        kind="no-usable-steps",
        severity=severity,
        metric=s.name,
        message=f"{s.name}: no usable step, so it has no row in the CSV: {why}",
        numbers={"n_shared": s.numbers.n_shared, "nan_gained": s.numbers.nan_gained},
    )


def _lost_and_gained(old: Series, new: Series, rows: list[MetricChange]) -> Iterator[Finding]:
    for name in sorted(old.metrics.keys() - new.metrics.keys()):
        metric = old.metrics[name]
        if name in new.scalars or name in new.others:
            rows.append(_row(name, Verdict.INCOMPLETE, "was a curve, is not any more"))
            yield _found(
                "type-changed", Severity.FAIL, name, f"{name}: was a curve, is a single value now"
            )
            continue
        n = int(np.count_nonzero(np.isfinite(metric.values)))
        rows.append(replace(_row(name, Verdict.INCOMPLETE, "the metric is gone"), steps_lost=n))
        yield _found(
            "lost-metric",
            Severity.FAIL,
            name,
            f"{name}: the metric is gone ({n} steps with a value)",
        )
    for name in sorted(new.metrics.keys() - old.metrics.keys()):
        metric = new.metrics[name]
        n = int(np.count_nonzero(np.isfinite(metric.values)))
        rows.append(
            replace(_row(name, Verdict.NEW, "the old golden has no such metric"), steps_gained=n)
        )
        if name in old.scalars or name in old.others:
            yield _found(
                "type-changed", Severity.WARN, name, f"{name}: was a single value, is a curve now"
            )
        else:
            yield _found(
                "gained-metric", Severity.INFO, name, f"{name}: a new metric with {n} steps"
            )


def _row(name: str, verdict: Verdict, because: str) -> MetricChange:
    return MetricChange(metric=name, verdict=verdict, because=because)


def _found(kind: str, severity: Severity, metric: str, message: str) -> Finding:
    return Finding(kind=kind, severity=severity, metric=metric, message=message)


def _beside(old: Series, new: Series, rules: RuleBook, path: str) -> Iterator[Judged]:
    """What stands beside the curves, and in their blocks, that is no curve."""
    before, after = _loose(old, new), _loose(new, old)
    for name in sorted(before.keys() - after.keys()):
        row = _row(name, Verdict.INCOMPLETE, "the value is gone")
        yield [row], [_found("lost-metric", Severity.FAIL, name, f"{name}: the value is gone")]
    for name in sorted(after.keys() - before.keys()):
        row = _row(name, Verdict.NEW, "the old golden has no such value")
        yield [row], [_found("gained-metric", Severity.INFO, name, f"{name}: a new value")]
    shared = before.keys() & after.keys()
    left, right = {n: before[n] for n in shared}, {n: after[n] for n in shared}
    for name in old.metrics.keys() & new.metrics.keys():
        if old.metrics[name].extra or new.metrics[name].extra:
            left[name], right[name] = old.metrics[name].extra, new.metrics[name].extra
    if left:
        yield compare_structure(left, right, rules, path)


def _loose(side: Series, other: Series) -> dict[str, Any]:
    """Scalars and other values of a side, without names that are a curve on the other side."""
    found = {**side.scalars, **side.others}
    return {name: value for name, value in found.items() if name not in other.metrics}


def judge_alone(new: Series) -> list[Finding]:
    """What can be said of a series without an old side: is it complete by its own account?"""
    findings: list[Finding] = []
    cut = truncation_alone(new.metrics, Severity.FAIL)
    if cut is not None:
        findings.append(cut)
    if not new.metrics and not new.scalars and not new.others:
        findings.append(
            Finding(kind="empty", severity=Severity.FAIL, message="the golden holds no metric")
        )
    for name, metric in new.metrics.items():
        if len(metric.values) == 0 or not np.isfinite(metric.values).any():
            findings.append(_found("empty", Severity.WARN, name, f"{name}: not one finite value"))
    return findings
