"""Examine series: run the detector over each, and report each change as a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from math import sqrt
from statistics import fmean, variance
from time import perf_counter
from typing import Any

import msgspec
from msgspec import structs

from karat.changepoints.detector.detect import FEWEST, detect, newest
from karat.changepoints.readers.read import SeriesCollection
from karat.changepoints.series import (
    Analysis,
    ChangeKind,
    DetectOptions,
    Newest,
    Observation,
    Outcome,
    Series,
    SeriesChange,
    Step,
    improves,
    step_kind,
)
from karat.findings import CannotVerify, ExitCode, Finding, Severity, exit_code, warn
from karat.report.result import Result
from karat.report.words import count, few
from karat.system.command import Command
from karat.system.git import is_commit_id

_TOGETHER = 3
_NEWEST = 1000  # points that the newest is judged by
_AROUND = 100  # points on either side of a change that tell whether another metric moved there, too
_MOVED = 4.0  # standard errors
KINDS = {
    ChangeKind.REGRESSION: ("level-regressed", Severity.FAIL),
    ChangeKind.IMPROVEMENT: ("level-improved", Severity.INFO),
    ChangeKind.SHIFT: ("level-shifted", Severity.WARN),
    ChangeKind.DIP: ("dip", Severity.WARN),
    ChangeKind.TREND: ("trend", Severity.WARN),
    ChangeKind.NOISE: ("noise-changed", Severity.INFO),
    ChangeKind.CRASH: ("crash-range", Severity.WARN),
    ChangeKind.GAP: ("gap", Severity.INFO),
}


def change_findings(series: Series, analysis: Analysis) -> Iterator[Finding]:
    labels = [point.label for point in series.observations]
    made = partial(Finding, path=series.source, metric=series.metric)
    for change in analysis.changes:
        kind, severity = KINDS[change.kind]
        steps = [analysis.steps[number] for number in change.steps]
        message, then = change.message, None
        if change.kind is ChangeKind.CRASH:
            then = _log(series.observations[change.first])
            if not any(point.outcome is Outcome.OK for point in series.observations[change.last :]):
                severity, message = Severity.FAIL, f"{message}; nothing after it has a value"
        elif change.kind is ChangeKind.TREND and improves(series.better, (change.after or 0) - (change.before or 0)):
            severity = Severity.INFO
        elif len(steps) == 1:
            (step,) = steps
            if (step.earliest, step.latest) != (step.last_good, step.first_bad):
                message += f"; it may be anywhere between {labels[step.earliest]} and {labels[step.latest]}"
            if change.kind is not ChangeKind.IMPROVEMENT:
                then = _between(series, step)
        where = " … ".join(dict.fromkeys(labels[at] for at in (change.first, change.last)))
        numbers = _numbers(series, steps, change)
        yield made(kind=kind, severity=severity, message=message, where=where, numbers=numbers, next=then)


def newest_findings(series: Series, newest: Newest) -> Iterator[Finding]:
    """Whether the newest points are a change; what cannot be told is not passed off as the same."""
    last = series.observations[-1]
    if last.outcome in {Outcome.CRASH, Outcome.HANG}:
        kind, severity = "crash-range", Severity.FAIL
    elif newest.verdict == "change":
        kind, severity = KINDS[step_kind(series.better, newest.step) if newest.step else ChangeKind.SHIFT]
    elif newest.verdict == "unsure" and newest.p_value is None:
        kind, severity = "nothing-compared", Severity.WARN
    else:
        return
    steps = [newest.step] if newest.step else []
    made = partial(Finding, path=series.source, metric=series.metric, where=last.label, message=newest.message)
    then = _log(last) or (_between(series, steps[0]) if steps else None)
    yield made(kind=kind, severity=severity, numbers=_numbers(series, steps, None), next=then)


def _numbers(series: Series, steps: Sequence[Step], change: SeriesChange | None) -> dict[str, float | int | str | None]:
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
    if change is not None and change.before is not None:
        found |= {"before": change.before, "after": change.after, "p_value": change.p_value}
    elif change is not None and not steps:
        found["points"] = change.last - change.first + 1
    if change is not None and change.signature:
        found["signature"] = change.signature
    return found


def _log(point: Observation) -> str | None:
    """How to look at what a point left."""
    if not point.log or point.outcome in {Outcome.OK, Outcome.MISSING}:
        return None
    if isinstance(point.log, Command):
        return point.log
    look = ("git", "show") if _is_version(point) else ("tail", "-n", "40")
    return Command(*look, point.log)


def _is_version(point: Observation) -> bool:
    commit, colon, _ = point.log.partition(":")
    return bool(colon) and is_commit_id(commit) and point.label.startswith(commit[:10])


def _between(series: Series, step: Step) -> str:
    """What to do about a change: versions of a golden are compared, points of a hunt shown, anything else is hunted."""
    good, bad = series.observations[step.last_good], series.observations[step.first_bad]
    if isinstance(bad.log, Command):
        return bad.log
    if _is_version(good) and _is_version(bad):
        old, (new, _, path) = good.log.partition(":")[0], bad.log.partition(":")
        only = () if set("*?{") & set(path) else ("--only", path)
        return Command("karat", "diff", old[:10], new[:10], *only)
    return "karat hunt init"


class SeriesReport(msgspec.Struct, frozen=True, kw_only=True):
    """One series, with what the detector said of it."""

    series: Series
    analysis: Analysis
    newest: Newest | None = None  # Online only.

    @property
    def outcomes(self) -> Counter[Outcome]:
        return Counter(point.outcome for point in self.series.observations)


class ChangesReport(Result, msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `karat changes` says."""

    entries: tuple[SeriesReport, ...]
    findings: tuple[Finding, ...]  # Gravest first.
    notes: tuple[str, ...]
    options: DetectOptions
    online: bool = False
    seconds: float = 0.0
    fail_on: tuple[str, ...] = ("fail",)

    @property
    def exit_code(self) -> ExitCode:
        return exit_code(self.findings, fail_on=self.fail_on)

    def to_json(self) -> bytes:
        from karat.changepoints.report import to_json

        return to_json(self)

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "metric": change.metric,
                "kind": change.kind.value,
                "first": entry.series.observations[change.first].label,
                "last": entry.series.observations[change.last].label,
                "before": entry.analysis.steps[change.steps[0]].before.value if change.steps else change.before,
                "after": entry.analysis.steps[change.steps[0]].after.value if change.steps else change.after,
                "message": change.message,
            }
            for entry in self.entries
            for change in entry.analysis.changes
        ]

    def headline(self) -> str:
        points = sum(len(entry.series.observations) for entry in self.entries)
        return f"{count(len(self.rows()), 'change')} in {len(self.entries):,} series of {points:,} points"


def examine(
    collected: SeriesCollection, options: DetectOptions, *, online: bool = False, fail_on: tuple[str, ...] = ("fail",)
) -> ChangesReport:
    """The report of all series; without a single value there is none."""
    started = perf_counter()
    points = [point for one in collected.series for point in one.observations]
    # A series without any value is not one without changes.
    if not any(point.outcome is Outcome.OK for point in points):
        outcomes = Counter(point.outcome.value for point in points)
        counts = ", ".join(f"{n:,} {outcome}" for outcome, n in outcomes.items()) or "no points"
        odd = next((f"; {finding.message}" for finding in collected.findings), "")
        then = next((f.next for f in collected.findings if f.next), "karat changes --help")
        raise CannotVerify(f"nothing was compared: expected values, found none ({counts}{odd})", next_command=then)
    entries = []
    for whole in collected.series:
        # The newest point is judged by those before it, and not by the history of years: it costs the same every night.
        one = structs.replace(whole, observations=whole.observations[-_NEWEST:]) if online else whole
        analysis = detect(one, options)
        verdict = newest(one, options, analysis=analysis) if online else None
        entries.append(SeriesReport(series=one, analysis=analysis, newest=verdict))
    findings = [*collected.findings]
    for entry in entries:
        values, metric = entry.outcomes[Outcome.OK], entry.series.metric
        if values < FEWEST:  # a series about which nothing can be told is not one without changes
            said = f"{metric}: expected at least {FEWEST} points with a value, found {values}"
            numbers = {"values": values, "points": len(entry.series.observations)}
            message, where = f"{said}; whether it changed cannot be told", entry.series.source
            findings.append(warn("nothing-compared", message, path=where, metric=metric, numbers=numbers))
        if entry.newest is not None:
            findings += newest_findings(entry.series, entry.newest)
        else:
            findings += change_findings(entry.series, entry.analysis)
    findings.sort(key=lambda finding: finding.severity.rank)
    notes = list(collected.notes)
    undecided = [e for e in entries if e.series.better is None and e.analysis.steps]
    if undecided:
        names = ", ".join(dict.fromkeys(e.series.metric for e in undecided[:3]))
        more = " …" if len(undecided) > 3 else ""
        unknown = f"it is not known whether higher or lower is better for {names}{more}"
        notes.append(f"{unknown}; use --better so that regressions fail")
    if online and any(len(one.observations) > _NEWEST for one in collected.series):
        notes.append(f"the newest point is judged by the {_NEWEST:,} newest")
    return ChangesReport(
        entries=tuple(entries),
        findings=tuple(findings),
        notes=(*notes, *_together(entries)),
        options=options,
        online=online,
        seconds=perf_counter() - started,
        fail_on=fail_on,
    )


def _together(entries: Sequence[SeriesReport]) -> Iterator[str]:
    """Series that changed between the same two points, most likely for one reason; and those that moved there, too.

    A place that one metric names is one place: what is too little to be found anywhere is enough to be seen there.
    """
    places: dict[tuple[str, str, str], list[str]] = {}
    for entry in entries:
        label = [point.label for point in entry.series.observations]
        for step in entry.analysis.steps:
            place = (entry.series.source, label[step.last_good], label[step.first_bad])
            places.setdefault(place, []).append(entry.series.metric)
    found = []
    for (source, good, bad), metrics in places.items():
        others = [e for e in entries if e.series.source == source and e.series.metric not in metrics]
        found.append((good, bad, metrics, [e.series.metric for e in others if _moved_at(e, bad)]))
    shared = sorted((one for one in found if len(one[2] + one[3]) > 1), key=lambda one: -len(one[2] + one[3]))
    for good, bad, metrics, moved in shared[:_TOGETHER]:
        names = ", ".join(metrics[:4]) + (" …" if len(metrics) > 4 else "")
        too = f"; {few(moved, 4)} moved there, too, by less than is told alone" if moved else ""
        yield f"{len(metrics):,} series changed between {good} and {bad}: {names}{too}"


def _moved_at(entry: SeriesReport, label: str) -> bool:
    """Whether a series without a step there has other values after a point than before it."""
    points = entry.series.observations
    at = next((number for number, point in enumerate(points) if point.label == label), 0)
    if not at or any(step.earliest <= at <= step.latest for step in entry.analysis.steps):
        return False
    starts = [0, *(step.first_bad for step in entry.analysis.steps), len(points)]
    low, high = max(edge for edge in starts if edge <= at), min(edge for edge in starts if edge > at)
    before, after = points[max(low, at - _AROUND) : at], points[at : min(high, at + _AROUND)]
    sides = [[fmean(point.values) for point in side if point.values] for side in (before, after)]
    if min(map(len, sides)) < FEWEST:
        return False
    error = sqrt(sum(variance(side) / len(side) for side in sides))
    return abs(fmean(sides[0]) - fmean(sides[1])) > _MOVED * error > 0
