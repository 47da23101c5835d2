"""Golden × run, both series: one result per curve, its likely cause, and whether the run came to its end."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

import numpy as np
from msgspec.structs import replace

from karat.compare.explain import decimals_of, exactly, explain
from karat.compare.gate.result import (
    SHOWN,
    CheckOutcome,
    Deviation,
    Gate,
    Judging,
    MetricResult,
    allowance,
    at_steps,
    gate,
    gate_median,
    outcome_of,
    relative_error,
    result_of,
    share_inside,
    share_used,
    unknown,
)
from karat.compare.gate.values import gate_leaves, missing_result
from karat.compare.rules import Rule
from karat.compare.series import last_sample, truncation_alone
from karat.findings import Finding, Severity, fail
from karat.goldens.shapes import Metric, Series, Steps, Values
from karat.report.words import count

_DEVIATIONS_KEPT = 50


def gate_series(golden: Series, actual: Series, judging: Judging) -> tuple[list[MetricResult], list[Finding]]:
    """Results of every metric of the golden, and of what only the run has."""
    results = []
    for name, metric in sorted(golden.metrics.items()):
        rule, exemption = judging.rule(name), judging.exempt(name, None)
        if (got := actual.metrics.get(name)) is not None:
            results.append(curve_result(name, metric, got, rule, exemption))
            continue
        demanded = int(np.count_nonzero(~np.isnan(metric.values)))
        other = name in actual.scalars or name in actual.others
        likely = "it is a single value there, not a curve" if other else None
        results.append(missing_result(name, rule, demanded, exemption, likely=likely))
    beside = {**golden.scalars, **golden.others}
    if beside:
        found = {**actual.scalars, **actual.others}
        results += gate_leaves(beside, {k: v for k, v in found.items() if k in beside}, judging)
    findings, wanted = [], _names(golden)
    local = judging.book.local(judging.path) if judging.book.local is not None else {}
    for one in (*(one for some in local.values() for one in some), *judging.book.rules):
        if one.sets.get("required") and one.pattern not in wanted and fnmatchcase(judging.path, one.path):
            said = f"{one.pattern}: expected the golden to have it, because it is gated [{one.origin}], found no such metric"
            findings.append(fail("lost-metric", said, metric=one.pattern))
    if names := _names(actual) - wanted:
        results.append(unknown("metric", sorted(names)))
    # Steps behind the golden's last: nobody knows whether they are as they should be.
    both = [
        (name, metric, actual.metrics[name])
        for name, metric in sorted(golden.metrics.items())
        if name in actual.metrics
    ]
    behind = [(name, got.steps[got.steps > metric.steps[-1]]) for name, metric, got in both if len(metric.steps)]
    if spans := [f"{name} {more[0]}–{more[-1]}" for name, more in behind if len(more)]:
        results.append(replace(unknown("step", spans), total=max(len(more) for _, more in behind)))
    # Whether the whole run stopped early: every curve that has later samples lacks them here.
    ends = {name: end for name, metric in golden.metrics.items() if (end := last_sample(metric)) is not None}
    stops: list[int] = []
    for name, _, got in both:
        # A step with an infinity was reached, and diverged.
        if name in ends and len(written := got.steps[~np.isnan(got.values)]):
            stops.append(int(written[-1]))
            if stops[-1] >= ends[name]:
                break
    else:
        if stops:
            last, end = max(stops), max(ends.values())
            said, numbers = f"the run stops at step {last} of {end}", {"last_step": last, "expected_last_step": end}
            findings.append(
                fail("truncated", f"{said}: it died, or was cut off", where=f"step {last}", numbers=numbers)
            )
    # A golden that was taken from a run that died guards less than it seems to.
    if cut := truncation_alone(golden.metrics, Severity.WARN):
        findings.append(replace(cut, kind="short-run", message=f"in the golden: {cut.message}"))
    return results, findings


def _names(series: Series) -> set[str]:
    return {*series.metrics, *series.scalars, *series.others}


def curve_result(name: str, golden: Metric, actual: Metric, rule: Rule, exemption: int | None = None) -> MetricResult:
    expected, mode = golden.values, rule.mode
    by_median = mode == "median" or (mode in SHOWN and rule.steady)
    if not by_median and mode not in SHOWN and actual.steps is golden.steps:  # as of nearly all
        used = share_inside(expected, actual.values, rule)
        if used is not None:
            total = len(expected)
            more = {"total": total, "compared": total, "allowed": allowance(total, rule)}
            return result_of(name, rule, CheckOutcome.PASS, used=used, exemption=exemption, **more)
    got, present = at_steps(golden, actual)
    if np.count_nonzero(absent := ~np.isnan(expected) & np.isnan(got)) <= rule.missing:
        expected = np.where(absent, np.nan, expected)
    if by_median:
        verdict = gate_median(golden.steps, golden.values, got, present, rule)
    else:
        verdict = gate(expected, got, present, rule)
    outcome, kind = _outcome(verdict, mode)
    error, tolerance = verdict.error, verdict.tolerance
    if (pair := verdict.medians) is not None:
        error, tolerance = np.array([pair.got - pair.expected]), np.array([pair.tolerance])
    result = result_of(
        name,
        rule,
        outcome,
        kind,
        total=int(np.count_nonzero(verdict.demanded)),
        compared=verdict.compared,
        allowed=verdict.allowed,
        medians=pair,
        used=share_used(error, tolerance),
        exemption=exemption,
    )
    noticed = verdict.missing | verdict.broken | verdict.worse | verdict.better
    if not (noticed.any() or (pair and (pair.worse or pair.better))):
        return result  # nearly all are
    deviations = list(_deviations(verdict, golden, got))
    likely = None
    # How a curve runs beside a bound says nothing, and what is only shown is not to be explained.
    if kind and not (mode in {"range", "info"} and verdict.complete):
        likely = likely_kind(golden.steps, golden.values, got, verdict, timing=rule.steady)
    worse = verdict.worse if verdict.medians is None else verdict.missing
    gone = int(np.count_nonzero(verdict.missing | verdict.broken))
    if gone and gone + np.count_nonzero(worse & verdict.demanded) <= verdict.allowed:
        spared = f"the rule spares {count(verdict.allowed, 'step')} out of tolerance, but none without a value"
        likely = f"{likely}; {spared}" if likely else spared
    extra = int(np.count_nonzero(worse & ~verdict.demanded))
    if kind and extra and not gone:
        likely = f"the golden has no value at {count(extra, 'step')} where the run has one: is it of a run that died?"
    # The value that is furthest out of its tolerance, in the direction that decided.
    out = np.flatnonzero(verdict.worse if verdict.worse.any() else verdict.better)
    worst = None
    if len(out):
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            excess = np.abs(verdict.error[out]) / np.maximum(verdict.tolerance[out], 1e-300)
        worst = _deviation(verdict, golden, got, int(out[int(np.argmax(excess))]))
    return replace(
        result,
        failed=int(np.count_nonzero(verdict.missing | verdict.broken | worse)),
        missing=int(np.count_nonzero(verdict.missing)),
        broken=int(np.count_nonzero(verdict.broken)),
        better=int(np.count_nonzero(verdict.better)),
        first=deviations[0] if deviations else None,
        worst=worst,
        deviations=tuple(deviations),
        likely=likely,
    )


def _outcome(verdict: Gate, mode: str) -> tuple[CheckOutcome, str]:
    absent = "" if verdict.complete else "lost-steps" if verdict.missing.any() else "new-nan"
    found = {"compared": verdict.compared > 0, "fails": verdict.fails, "improves": verdict.improves}
    return outcome_of(mode, absent, "out-of-tolerance", **found)


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
    elif not verdict.demanded[index]:
        return Deviation(place=int(golden.steps[index]), how="unexpected", got=float(got[index]))
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


def likely_kind(steps: Steps, expected: Values, got: Values, gate: Gate, *, timing: bool) -> str | None:
    """One sentence, or None if the curves say nothing in particular."""
    if (absent := _absent(steps, gate)) is not None:
        return absent
    if gate.medians is not None:
        pair = gate.medians
        if not (pair.worse or pair.better) or not pair.expected:
            return None
        ratio = pair.got / pair.expected - 1
        word = ("slower" if ratio > 0 else "faster") if timing else ("higher" if ratio > 0 else "lower")
        return f"{abs(ratio):.1%} {word} over the whole window, by the median"
    usable = gate.demanded & ~gate.missing & ~gate.broken
    bad = (gate.worse if gate.fails else gate.better)[usable]
    if not bad.any():
        return None
    steps, expected, got = steps[usable], expected[usable], got[usable]
    found = exactly(steps, expected, got, (decimals_of(expected), decimals_of(got)))
    found = found or explain(steps, expected, got, off=bad)
    return None if found is None else found.sentence


def _absent(steps: Steps, gate: Gate) -> str | None:
    gone = gate.missing | gate.broken
    if not gone.any():
        return None
    demanded = gate.demanded
    if gone[demanded].all():
        return "no values: it was never recorded, or never finite"
    first = int(np.flatnonzero(gone)[0])
    to_the_end = bool(gone[first:][demanded[first:]].all())
    if to_the_end and gate.broken[first:][demanded[first:]].all():
        return f"not finite from step {steps[first]} on: the run diverged, or died and left NaN"
    if to_the_end:
        last = int(steps[np.flatnonzero(demanded & ~gone)[-1]])
        end = int(steps[np.flatnonzero(demanded)[-1]])
        return f"ends at step {last} of {end}: the run was cut off"
    return f"{count(int(np.count_nonzero(gone)), 'step')} without a value, the run goes on behind them"
