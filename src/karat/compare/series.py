"""Old × new series → rows and findings: is the new curve all there, and only then, how far did it move?

A run that died leaves every metric without samples from some step on; a run that diverged leaves one metric NaN while
the others go on. The two need different words, so all metrics of a file are looked at together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from karat.compare.change import Explanation, MetricChange, Verdict
from karat.compare.judge import MetricJudgement, capped, drift_finding, explained, judge, metric_change, truly
from karat.compare.numbers import CurveNumbers, align
from karat.compare.rules import Rule, RuleBook
from karat.findings import Finding, Severity, fail, info, warn
from karat.goldens.shapes import Metric, Series
from karat.report.words import count


class SharedMetric(msgspec.Struct, frozen=True, gc=False):
    name: str
    old: Metric
    new: Metric
    numbers: CurveNumbers
    rule: Rule


def pairs_of(old: Series, new: Series, rules: RuleBook, path: str) -> Iterator[tuple[Metric, Metric, Rule]]:
    """What `score` needs for one file, in the order of the seed's CSV; many files are scored in one go."""
    for name in sorted(old.metrics.keys() & new.metrics.keys()):
        yield old.metrics[name], new.metrics[name], rules.rule_for(name, path, "series")


def judge_series(
    old: Series, new: Series, numbers: Sequence[CurveNumbers], rules: RuleBook, path: str
) -> tuple[list[MetricChange], list[Finding]]:
    """Rows and findings of one file whose numbers are known."""
    shared = []
    for name, n in zip(sorted(old.metrics.keys() & new.metrics.keys()), numbers, strict=True):
        one, other, rule = old.metrics[name], new.metrics[name], rules.rule_for(name, path, "series")
        shared.append(SharedMetric(name, one, other, truly(n, one, other, rules, name, path, shape="series"), rule))
    rows: list[MetricChange] = []
    findings: list[Finding] = []
    cut, stop = _truncation(shared)
    if cut is not None:
        findings.append(cut)
    elif (both := truncation_alone(new.metrics, Severity.WARN)) is not None:
        findings.append(both)
    for item in shared:
        row, found = _judge_metric(item, stop, truncated=cut is not None)
        rows.append(row)
        findings.extend(found)
    before, after = _beside(old, new), _beside(new, old)
    gone, came = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    apart = [
        *_curves_lost_and_gained(old, new),
        *(_one_sided(name, Verdict.INCOMPLETE, "lost-metric", Severity.FAIL, "the value is gone") for name in gone),
        *(_one_sided(name, Verdict.NEW, "gained-metric", Severity.INFO, "a new value") for name in came),
    ]
    rows += [other for other, _ in apart if other is not None]
    findings += [finding for _, finding in apart]
    left = {name: value for name, value in before.items() if name in after}
    right = {name: after[name] for name in left}
    for item in shared:
        if item.old.extra or item.new.extra:
            left[item.name], right[item.name] = item.old.extra, item.new.extra
    if left:
        from karat.compare.document import compare_structure

        more_rows, more_findings = compare_structure(left, right, rules, path)
        rows += more_rows
        findings += more_findings
    return rows, findings


def _judge_metric(s: SharedMetric, stop: int | None, *, truncated: bool) -> tuple[MetricChange, list[Finding]]:
    judgement = judge(s.numbers, s.rule)
    explanation = None if judgement.verdict is Verdict.SAME else _explanation(s, judgement.severity)
    if explanation is not None:
        judgement = explained(judgement, explanation, s.rule)
    lost = list(_losses(s, stop, truncated=truncated))
    shown = judgement
    if truncated or any(f.severity is not Severity.INFO for f in lost):
        n = s.numbers
        because = f"{count(n.steps_lost, 'step')} lost, {n.nan_gained} new NaN"
        if stop is not None:
            because = f"the run stops at step {stop}; its numbers cover only {count(n.n_steps, 'step')}"
        shown = MetricJudgement(Verdict.INCOMPLETE, because)
    row = metric_change(s.name, s.numbers, s.rule, shown, curve=True)
    row = row if explanation is None else replace(row, explanation=explanation)
    wrong = explanation is not None and explanation.wrong
    maybe = (_no_usable_steps(s), None if wrong else _precision(s), drift_finding(row, judgement))
    return row, [*lost, *_gains(s), *(finding for finding in maybe if finding is not None)]


def _explanation(s: SharedMetric, severity: Severity | None) -> Explanation | None:
    # What is judged by its median, or counted in whole numbers, may well move in steps; nor is jitter worth a word.
    n, whole = s.numbers, not s.numbers.decimals_old
    rough = severity is not None and not s.rule.steady and not (whole and severity is Severity.INFO)
    if not rough and not n.suspect:
        return None
    from karat.compare.explain import exactly, explain  # most goldens have not moved

    pair = align(s.old, s.new)
    decimals = n.decimals_old, n.decimals_new
    if n.suspect and (found := exactly(pair.steps, pair.old, pair.new, decimals)) is not None:
        return found
    if not rough:
        return None
    usable = np.isfinite(pair.old) & np.isfinite(pair.new)
    drift = inf if whole or s.rule.exact else s.rule.drift_mean
    return explain(pair.steps[usable], pair.old[usable], pair.new[usable], drift=drift, decimals=n.decimals_old)


def _no_usable_steps(s: SharedMetric) -> Finding | None:
    n = s.numbers
    if n.n_steps:
        return None
    why, severity = "no shared step has two finite values and a non-zero old one", Severity.WARN
    if not n.n_shared:
        sampled = last_sample(s.old) is not None and last_sample(s.new) is not None
        why, severity = "the two sides share no step", Severity.FAIL if sampled else Severity.WARN
    elif n.zeros == n.n_shared and not n.from_zero:
        why, severity = "every value is zero, or nearly, on both sides", Severity.INFO
    elif n.both_missing == n.n_shared:
        why = "every value is NaN on both sides, so nothing was compared"
    message = f"{s.name}: no usable step, so it has no row in the CSV: {why}"
    numbers = {"n_shared": n.n_shared, "nan_gained": n.nan_gained}
    return Finding(kind="no-usable-steps", severity=severity, metric=s.name, message=message, numbers=numbers)


def _curves_lost_and_gained(old: Series, new: Series) -> Iterator[tuple[MetricChange | None, Finding]]:
    for name in sorted(old.metrics.keys() - new.metrics.keys()):
        values = old.metrics[name].values
        n = int(np.count_nonzero(np.isfinite(values)))
        if name in new.scalars or name in new.others:
            what = "was a curve, is a single value now"
            yield _one_sided(name, Verdict.INCOMPLETE, "type-changed", Severity.FAIL, what)
        elif np.isnan(values).all():
            yield None, info("dropped-placeholders", f"{name}: the metric is gone; it never had a value", metric=name)
        else:
            what = f"the metric is gone ({count(n, 'step')} with a value)"
            row, finding = _one_sided(name, Verdict.INCOMPLETE, "lost-metric", Severity.FAIL, what)
            yield replace(row, steps_lost=n), finding
    for name in sorted(new.metrics.keys() - old.metrics.keys()):
        values = new.metrics[name].values
        n = int(np.count_nonzero(np.isfinite(values)))
        kind, severity, what = "gained-metric", Severity.INFO, f"a new metric with {count(n, 'step')}"
        if name in old.scalars or name in old.others:
            kind, severity, what = "type-changed", Severity.WARN, "was a single value, is a curve now"
        elif np.isnan(values).all():
            yield None, info("format-only", f"{name}: a new metric without a value", metric=name)
            continue
        row, finding = _one_sided(name, Verdict.NEW, kind, severity, what)
        yield replace(row, steps_gained=n), finding


def _one_sided(name: str, verdict: Verdict, kind: str, severity: Severity, what: str) -> tuple[MetricChange, Finding]:
    found = Finding(kind=kind, severity=severity, message=f"{name}: {what}", metric=name)
    return MetricChange(metric=name, verdict=verdict, because=what), found


def _beside(side: Series, other: Series) -> dict[str, Any]:
    """What a side has beside its curves, without names that are a curve on the other side."""
    found = {**side.scalars, **side.others}
    return {name: value for name, value in found.items() if name not in other.metrics}


def judge_alone(new: Series) -> list[Finding]:
    """What can be said of a series without an old side: is it complete by its own account?"""
    cut = truncation_alone(new.metrics, Severity.FAIL)
    findings = [] if cut is None else [cut]
    if not new.metrics and not new.scalars and not new.others:
        findings.append(fail("empty", "the golden holds no metric"))
    for name, metric in new.metrics.items():
        if len(metric.values) == 0 or not np.isfinite(metric.values).any():
            findings.append(warn("empty", f"{name}: no finite values", metric=name))
    return findings if cut is not None else [*findings, *_not_finite(new.metrics)]


def _not_finite(metrics: Mapping[str, Metric]) -> Iterator[Finding]:
    """Where curves have no value, apart from before their first: runs resume, and some metrics are sampled now and then."""
    end = max((at for at in map(last_sample, metrics.values()) if at is not None), default=0)
    for name, metric in metrics.items():
        finite = metric.steps[np.isfinite(metric.values)]
        if infinite := int(np.isinf(metric.values).sum()):
            yield fail("not-finite", f"{name}: {count(infinite, 'value')} infinite", metric=name)
        if len(finite) < 2:
            continue
        gaps = np.diff(finite)
        usual = np.median(gaps)
        last = int(finite[-1])
        if np.any(metric.steps > last) and end - last > usual:
            said = f"{name}: NaN after step {last}, though other metrics go on to step {end}"
            yield fail("not-finite", said, metric=name, where=f"step {last}")
        for at in np.flatnonzero(gaps > usual)[:1]:
            between = metric.steps[(metric.steps > finite[at]) & (metric.steps < finite[at + 1])]
            if len(between):
                said = f"{name}: NaN at {count(len(between), 'step')} after step {finite[at]}, amid values"
                yield warn("not-finite", said, metric=name, where=f"step {between[0]}")


def last_sample(metric: Metric) -> int | None:
    if len(metric.values) and isfinite(metric.values[-1]):
        return int(metric.steps[-1])
    finite = np.flatnonzero(np.isfinite(metric.values))
    return int(metric.steps[finite[-1]]) if len(finite) else None


def declared_end(metric: Metric) -> int | None:
    """The last step that the block says it has: {start} ∪ multiples of the interval up to the end, or before it."""
    if metric.end is None:
        return int(metric.steps[-1]) if len(metric.steps) else None
    interval = metric.interval or 1
    end = metric.end - metric.listed
    last = end - end % interval if interval > 0 else end
    return max(last, metric.start) if metric.start is not None else last


def _precedes(stop: int | None, end: int | None) -> bool:
    return end is not None and (stop is None or stop < end)


def _truncation(shared: Sequence[SharedMetric]) -> tuple[Finding | None, int | None]:
    """The finding that the run stopped early, and the step it stopped at.

    It stopped if every metric that used to have later samples has none after some step.
    """
    ends = [(last_sample(s.new), end, s.new) for s in shared if (end := last_sample(s.old)) is not None]
    if not ends or not all(_precedes(stop, end) for stop, end, _ in ends):
        return None, None
    stop = max((at for at, _, _ in ends if at is not None), default=None)
    end = max(at for _, at, _ in ends)
    kind = "truncated"
    if stop is None:
        message = f"no metric has a single sample; the old golden goes to step {end}"
    elif not any(_precedes(at, declared_end(metric)) for at, _, metric in ends):  # complete by its own account
        kind = "lost-steps"
        message = f"ends at step {stop}, the old golden at step {end}: a shorter run, or other settings"
    else:
        message = f"stops at step {stop} of {end}: the run died or was cut off"
    return _stopped(kind, Severity.FAIL, message, stop, end), stop


def _stopped(kind: str, severity: Severity, message: str, stop: int | None, end: int) -> Finding:
    where, numbers = None if stop is None else f"step {stop}", {"last_step": stop, "expected_last_step": end}
    return Finding(kind=kind, severity=severity, message=message, where=where, numbers=numbers)


def truncation_alone(metrics: Mapping[str, Metric], severity: Severity) -> Finding | None:
    """The finding that a golden stops before its own declared end, judged without an old side."""
    ends = [(last_sample(metric), declared_end(metric)) for metric in metrics.values()]
    if not ends or not all(_precedes(stop, end) for stop, end in ends):
        return None
    stop = max((at for at, _ in ends if at is not None), default=None)
    end = max(at for _, at in ends if at is not None)
    what = "no metric has a single sample" if stop is None else f"stops at step {stop}"
    return _stopped("truncated", severity, f"{what}, though the file declares steps up to {end}", stop, end)


def _losses(s: SharedMetric, stop: int | None, *, truncated: bool) -> Iterator[Finding]:
    """What one metric lost, apart from what the end of a truncated run explains."""
    if not s.numbers.nan_gained and not s.numbers.steps_lost:
        return
    sampled = s.old.steps[~np.isnan(s.old.values)]
    finite = s.old.steps[np.isfinite(s.old.values)]
    if truncated:
        last = s.old.steps[0] - 1 if stop is None else stop
        sampled, finite = sampled[sampled <= last], finite[finite <= last]
    present = np.isin(finite, s.new.steps)
    alive = np.isin(finite, s.new.steps[np.isfinite(s.new.values)])
    # Timings often have no sample at the first steps, and their rule does not look there anyway.
    warm = s.old.steps[: int(len(s.old.steps) * s.rule.warm_up)] if s.rule.steady else s.old.steps[:0]
    broken, lost = finite[present & ~alive], sampled[~np.isin(sampled, s.new.steps)]
    missing = np.count_nonzero(~np.isin(np.concatenate([broken, lost]), warm))
    for kind, steps, what in (
        ("new-nan", broken, "no longer finite at {}"),
        ("lost-steps", lost, "lost {} that had a value"),
    ):
        if len(steps):
            first = int(steps[0])
            yield Finding(
                kind=kind,
                severity=Severity.INFO if missing <= s.rule.missing else Severity.FAIL,
                metric=s.name,
                where=f"step {first}",
                message=f"{s.name}: {what.format(count(len(steps), 'step'))}, first at step {first}",
                numbers={"steps": len(steps), "first_step": first},
            )


def _gains(s: SharedMetric) -> Iterator[Finding]:
    """What one metric gained, and placeholders it dropped: worth knowing, never a reason to object."""
    n = s.numbers
    # Placeholders that come and go take the declared steps with them; no value does.
    rewritten = bool(n.placeholders_lost or len(s.new.steps) - n.n_shared - n.steps_gained)
    if n.placeholders_lost:
        dropped, numbers = count(n.placeholders_lost, "step"), {"placeholders_lost": n.placeholders_lost}
        message = f'{s.name}: dropped {dropped} that only held "nan" (no sample); no value was lost'
        yield info("dropped-placeholders", message, metric=s.name, numbers=numbers)
    names = {"start_step": "start", "end_step": "end", "step_interval": "interval", "value_precision": "precision"}
    pairs = ((name, getattr(s.old, field), getattr(s.new, field)) for name, field in names.items())
    if changed := [f"{name} {a} → {b}" for name, a, b in pairs if a is not None and a != b]:
        kind = "format-only" if rewritten and s.old.precision == s.new.precision else "structure-changed"
        yield info(kind, f"{s.name}: declares {', '.join(changed)}", metric=s.name)
    if more := n.steps_gained + n.nan_lost:
        message, numbers = f"{s.name}: gained a value at {count(more, 'step')}", {"steps_gained": n.steps_gained}
        yield info("gained-steps", message, metric=s.name, numbers=numbers | {"nan_lost": n.nan_lost})


def _precision(s: SharedMetric) -> Finding | None:
    """The finding that the new values carry fewer digits (or declare to)."""
    before, after, what = s.old.precision, s.new.precision, "value_precision"
    if before is None or after is None or after >= before:
        before, after, what = s.numbers.decimals_old, s.numbers.decimals_new, "decimals in use"
        if before is None or after is None or after >= before:
            return None
        values = s.new.values[np.isfinite(s.new.values)]
        # A constant, or a handful of values, has few decimals by chance, not by rounding.
        if len(np.unique(values)) < 8 or not np.array_equal(np.round(values, after), values):
            return None
    shown = f"more than {before - 1}" if before >= 9 else str(before)
    message, numbers = f"{s.name}: {what} went from {shown} to {after}", {"decimals_old": before, "decimals_new": after}
    severity = capped(Severity.WARN, s.rule)
    return Finding(kind="precision-lost", severity=severity, metric=s.name, message=message, numbers=numbers)
