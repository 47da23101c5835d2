"""Golden × run, both series: one result per curve, and whether the run came to its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from msgspec import structs

from karat.compare.completeness import last_sample, truncation_alone
from karat.compare.gate import Gate, gate, gate_median, mode_of, relative_error, share_used
from karat.compare.gate_document import gate_leaves
from karat.compare.gate_judging import Judging
from karat.compare.gate_kind import likely_kind
from karat.compare.gate_result import Deviation, MetricResult, Outcome, tolerance_text, unknown
from karat.compare.rules import Rule
from karat.findings import Finding, Severity
from karat.goldens.shapes import Metric, Series, Values

_DEVIATIONS_KEPT = 50


def gate_series(
    golden: Series, actual: Series, judging: Judging
) -> tuple[list[MetricResult], list[Finding]]:
    """Results of every metric of the golden, and of what only the run has."""
    results = [
        _curve(name, metric, actual, judging) for name, metric in sorted(golden.metrics.items())
    ]
    beside = {**golden.scalars, **golden.others}
    if beside:
        found = {**actual.scalars, **actual.others}
        results += gate_leaves(beside, {k: v for k, v in found.items() if k in beside}, judging)
    names = _names(actual) - _names(golden)
    if names:
        results.append(unknown("metric", sorted(names)))
    results += _further(golden, actual)
    return results, [*_ends(golden, actual), *_cut_golden(golden)]


def _further(golden: Series, actual: Series) -> Iterator[MetricResult]:
    """Steps behind the golden's last: nobody knows whether they are as they should be."""
    spans, most = [], 0
    for name, metric in sorted(golden.metrics.items()):
        got = actual.metrics.get(name)
        if got is None or not len(metric.steps):
            continue
        more = got.steps[got.steps > metric.steps[-1]]
        if len(more):
            spans.append(f"{name} {more[0]}–{more[-1]}")
            most = max(most, len(more))
    if spans:
        yield structs.replace(unknown("step", spans), total=most)


def _names(series: Series) -> set[str]:
    return {*series.metrics, *series.scalars, *series.others}


def _curve(name: str, golden: Metric, actual: Series, judging: Judging) -> MetricResult:
    rule = judging.rule(name)
    exemption = judging.exempt(name, None)
    metric = actual.metrics.get(name)
    if metric is None:
        demanded = int(np.count_nonzero(~np.isnan(golden.values)))
        other = name in actual.scalars or name in actual.others
        return MetricResult(
            metric=name,
            outcome=Outcome.MISSING_ACTUAL,
            kind="missing-actual",
            check=mode_of(rule),
            tolerance=tolerance_text(rule),
            rule=rule.pattern,
            origin=rule.origin,
            total=demanded,
            failed=demanded,
            missing=demanded,
            likely="it is a single value there, not a curve" if other else None,
            exemption=exemption,
        )
    return curve_result(name, golden, metric, rule, exemption)


def aligned(golden: Metric, actual: Metric) -> tuple[Values, np.ndarray]:
    """The run's values at the golden's steps, and whether it has the step at all."""
    got = np.full(len(golden.steps), np.nan)
    if not len(actual.steps):
        return got, np.zeros(len(golden.steps), dtype=bool)
    at = np.minimum(np.searchsorted(actual.steps, golden.steps), len(actual.steps) - 1)
    present = actual.steps[at] == golden.steps
    got[present] = actual.values[at[present]]
    return got, present


def curve_result(
    name: str, golden: Metric, actual: Metric, rule: Rule, exemption: int | None = None
) -> MetricResult:
    """The result of one curve that both sides have."""
    got, present = aligned(golden, actual)
    mode = mode_of(rule)
    by_median = mode == "median" or (mode == "info" and rule.steady)
    if by_median:
        verdict = gate_median(golden.steps, golden.values, got, present, rule)
    else:
        verdict = gate(golden.values, got, present, rule)
    outcome, kind = _outcome(verdict, mode)
    deviations = list(_deviations(verdict, golden, got))
    likely = None
    # How a curve runs beside a bound says nothing.
    if kind and not (mode == "range" and verdict.complete):
        timing = rule.steady
        likely = likely_kind(golden.steps, golden.values, got, verdict, timing=timing)
    worse = verdict.worse if verdict.medians is None else verdict.missing
    return MetricResult(
        metric=name,
        outcome=outcome,
        kind=kind,
        check=mode,
        tolerance=tolerance_text(rule),
        rule=rule.pattern,
        origin=rule.origin,
        total=int(np.count_nonzero(verdict.demanded)),
        compared=verdict.compared,
        failed=int(np.count_nonzero(verdict.missing | verdict.broken | worse)),
        missing=int(np.count_nonzero(verdict.missing)),
        broken=int(np.count_nonzero(verdict.broken)),
        better=int(np.count_nonzero(verdict.better)),
        allowed=verdict.allowed,
        first=deviations[0] if deviations else None,
        worst=_worst(verdict, golden, got),
        deviations=tuple(deviations),
        likely=likely,
        medians=verdict.medians,
        used=_used(verdict),
        exemption=exemption,
    )


def _outcome(verdict: Gate, mode: str) -> tuple[Outcome, str]:
    if not verdict.complete:
        return Outcome.FAIL, "lost-steps" if verdict.missing.any() else "new-nan"
    if mode == "info":
        return Outcome.INFO, "out-of-tolerance" if verdict.fails else ""
    if not verdict.compared:
        return Outcome.NOTHING_COMPARED, "nothing-compared"
    if verdict.fails:
        return Outcome.FAIL, "out-of-tolerance"
    return (Outcome.IMPROVED, "improved") if verdict.improves else (Outcome.PASS, "")


def _deviations(verdict: Gate, golden: Metric, got: Values) -> Iterator[Deviation]:
    """What is not as it should be, in the order of steps; what objects before what is welcome."""
    objecting = np.flatnonzero(verdict.missing | verdict.broken | verdict.worse)
    for index in objecting[:_DEVIATIONS_KEPT]:
        yield _deviation(verdict, golden, got, int(index))
    pair = verdict.medians
    if pair is not None and (pair.worse or pair.better):
        error = pair.got - pair.expected
        yield Deviation(
            place=f"median of steps {pair.first}–{pair.last}",
            how="worse" if pair.worse else "better",
            expected=pair.expected,
            got=pair.got,
            error=error,
            relative=relative_error(error, pair.expected),
            tolerance=pair.tolerance,
        )
    for index in np.flatnonzero(verdict.better)[: _DEVIATIONS_KEPT - len(objecting)]:
        yield _deviation(verdict, golden, got, int(index))


def _deviation(verdict: Gate, golden: Metric, got: Values, index: int) -> Deviation:
    expected, error = float(verdict.target[index]), float(verdict.error[index])
    if verdict.missing[index]:
        how = "missing"
    elif verdict.broken[index]:
        how = "not-finite"
    else:
        how = "worse" if verdict.worse[index] else "better"
    return Deviation(
        place=int(golden.steps[index]),
        how=how,
        expected=expected,
        got=None if how == "missing" else float(got[index]),
        error=None if np.isnan(error) else error,
        relative=relative_error(error, expected),
        tolerance=float(verdict.tolerance[index]),
    )


def _worst(verdict: Gate, golden: Metric, got: Values) -> Deviation | None:
    """The value that is furthest out of its tolerance, in the direction that decided."""
    flags = verdict.worse if verdict.worse.any() else verdict.better
    at = np.flatnonzero(flags)
    if not len(at):
        return None
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        excess = np.abs(verdict.error[at]) / np.maximum(verdict.tolerance[at], 1e-300)
    return _deviation(verdict, golden, got, int(at[int(np.argmax(excess))]))


def _used(verdict: Gate) -> float | None:
    pair = verdict.medians
    if pair is None:
        return share_used(verdict.error, verdict.tolerance)
    return share_used(np.array([pair.got - pair.expected]), np.array([pair.tolerance]))


def _cut_golden(golden: Series) -> Iterator[Finding]:
    """A golden that was taken from a run that died guards less than it seems to."""
    cut = truncation_alone(golden.metrics, Severity.WARN)
    if cut is not None:
        yield replace(cut, kind="short-run", message=f"in the golden: {cut.message}")


def _last_written(metric: Metric) -> int | None:
    """The last step that is no NaN: one with an infinity was reached, and diverged."""
    at = np.flatnonzero(~np.isnan(metric.values))
    return int(metric.steps[at[-1]]) if len(at) else None


def _ends(golden: Series, actual: Series) -> Iterator[Finding]:
    """Whether the whole run stopped early: every curve that has later samples lacks them here."""
    ends: list[int] = []
    stops: list[int | None] = []
    for name, metric in golden.metrics.items():
        end = last_sample(metric)
        if end is None:
            continue
        got = actual.metrics.get(name)
        stop = None if got is None else _last_written(got)
        if stop is not None and stop >= end:
            return
        ends.append(end)
        stops.append(stop)
    known = [stop for stop in stops if stop is not None]
    if not ends or not known:
        return
    yield Finding(
        kind="truncated",
        severity=Severity.FAIL,
        message=f"the run stops at step {max(known)} of {max(ends)}: it died, or was cut off",
        where=f"step {max(known)}",
        numbers={"last_step": max(known), "expected_last_step": max(ends)},
    )
