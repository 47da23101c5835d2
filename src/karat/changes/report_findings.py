"""Findings of changes: each change of a series as one thing that a person should know. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from karat.changes.change import Analysis, Change, ChangeKind, Newest, Step
from karat.changes.series import Observation, Outcome, Series
from karat.findings import Finding, Severity

_KINDS = {
    ChangeKind.REGRESSION: ("level-regressed", Severity.FAIL),
    ChangeKind.IMPROVEMENT: ("level-improved", Severity.INFO),
    ChangeKind.SHIFT: ("level-shifted", Severity.WARN),
    ChangeKind.DIP: ("dip", Severity.WARN),
    ChangeKind.CRASH: ("crash-range", Severity.WARN),
    ChangeKind.GAP: ("gap", Severity.INFO),
}


def change_findings(series: Series, analysis: Analysis) -> Iterator[Finding]:
    """One finding per change."""
    for change in analysis.changes:
        kind, severity = _KINDS[change.kind]
        if change.kind is ChangeKind.CRASH and still(series, change):
            severity = Severity.FAIL
        steps = [analysis.steps[number] for number in change.steps]
        yield Finding(
            kind=kind,
            severity=severity,
            message=change.message + _ending(series, change, steps),
            path=series.source,
            metric=series.metric,
            where=_where(series, change),
            numbers=_numbers(series, steps, change),
            next=_next(series, change, steps),
        )


def still(series: Series, change: Change) -> bool:
    """Whether a crash goes on: nothing after it has a value."""
    return not any(point.outcome is Outcome.OK for point in series.observations[change.last :])


def newest_findings(series: Series, newest: Newest) -> Iterator[Finding]:
    """Whether the newest points are a change; what cannot be told is not passed off as the same."""
    last = series.observations[-1]
    if last.outcome in {Outcome.CRASH, Outcome.HANG}:
        kind, severity = "crash-range", Severity.FAIL
    elif newest.verdict == "change":
        kind, severity = _direction(series, newest.step)
    elif newest.verdict == "unsure" and newest.p_value is None:
        kind, severity = "nothing-compared", Severity.WARN
    else:
        return
    steps = [newest.step] if newest.step else []
    yield Finding(
        kind=kind,
        severity=severity,
        message=newest.message,
        path=series.source,
        metric=series.metric,
        where=last.label,
        numbers=_numbers(series, steps, None),
        next=_log(last) or (_between(series, steps[0]) if steps else None),
    )


def _direction(series: Series, step: Step | None) -> tuple[str, Severity]:
    if series.better not in {"higher", "lower"} or step is None:
        return _KINDS[ChangeKind.SHIFT]
    better = (step.absolute > 0) == (series.better == "higher")
    return _KINDS[ChangeKind.IMPROVEMENT if better else ChangeKind.REGRESSION]


def too_short(series: Series, fewest: int) -> Finding:
    """A series about which nothing can be told is not one without changes."""
    values = sum(point.outcome is Outcome.OK for point in series.observations)
    return Finding(
        kind="nothing-compared",
        severity=Severity.WARN,
        message=f"{series.metric}: expected at least {fewest} points with a value, found {values};"
        " whether it changed cannot be told",
        path=series.source,
        metric=series.metric,
        numbers={"values": values, "points": len(series.observations)},
    )


def _ending(series: Series, change: Change, steps: Sequence[Step]) -> str:
    if change.kind is ChangeKind.CRASH:
        return "; nothing after it has a value" if still(series, change) else ""
    if len(steps) != 1:
        return ""
    step = steps[0]
    if (step.earliest, step.latest) == (step.last_good, step.first_bad):
        return ""
    early, late = series.observations[step.earliest].label, series.observations[step.latest].label
    return f"; it may lie anywhere between {early} and {late}"


def _where(series: Series, change: Change) -> str:
    first, last = series.observations[change.first].label, series.observations[change.last].label
    return first if first == last else f"{first} … {last}"


def _numbers(
    series: Series, steps: Sequence[Step], change: Change | None
) -> dict[str, float | int | str | None]:
    found: dict[str, float | int | str | None] = {}
    if steps:
        step = steps[0]
        found |= {
            "before": step.before.value,
            "after": step.after.value,
            "relative": step.relative,
            "p_value": max(one.p_value for one in steps),
            "confidence": min(one.confidence for one in steps),
            "last_good": series.observations[step.last_good].label,
            "first_bad": series.observations[step.first_bad].label,
        }
    if change is not None and not steps:
        found["points"] = change.last - change.first + 1
    if change is not None and change.signature:
        found["signature"] = change.signature
    return found


def _next(series: Series, change: Change, steps: Sequence[Step]) -> str | None:
    if change.kind is ChangeKind.CRASH:
        return _log(series.observations[change.first])
    if change.kind is ChangeKind.REGRESSION or (change.kind is ChangeKind.SHIFT and steps):
        return _between(series, steps[0])
    return None


def _log(point: Observation) -> str | None:
    """How to look at what a point left."""
    if not point.log or point.outcome in {Outcome.OK, Outcome.MISSING}:
        return None
    if _is_hunted(point):
        return point.log
    return (
        f"git show {quote(point.log)}" if _is_version(point) else f"tail -n 40 {quote(point.log)}"
    )


def _is_hunted(point: Observation) -> bool:
    return point.log.startswith("karat hunt show ")


def _is_version(point: Observation) -> bool:
    commit, colon, _ = point.log.partition(":")
    return bool(colon) and len(commit) in {40, 64} and point.label.startswith(commit[:10])


def _between(series: Series, step: Step) -> str:
    """What to do about a change: versions of a golden are compared, points of a hunt shown, anything else is hunted."""
    good, bad = series.observations[step.last_good], series.observations[step.first_bad]
    if _is_hunted(bad):
        return bad.log
    if _is_version(good) and _is_version(bad):
        old, (new, _, path) = good.log.partition(":")[0], bad.log.partition(":")
        only = "" if set("*?{") & set(path) else f" --only {quote(path)}"
        return f"karat diff {old[:10]} {new[:10]}{only}"
    return "karat hunt init"
