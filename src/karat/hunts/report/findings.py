"""Findings of a hunt: what its report comes to, and with it the exit code. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from karat.changepoints.series import Outcome
from karat.findings import Finding, Severity
from karat.hunts.journal.database import show_command
from karat.hunts.model import Culprit, HuntReport, StageReport
from karat.hunts.report.sentences import (
    REBUILT,
    doubtful,
    failures,
    headline,
    lacking,
    listed,
    never_rebuilt,
    nothing_compared,
)
from karat.report.words import count

_KINDS = {
    "regression": ("level-regressed", Severity.FAIL),
    "improvement": ("level-improved", Severity.INFO),
    "shift": ("level-shifted", Severity.WARN),
    "dip": ("dip", Severity.WARN),
    "crash": ("crash-range", Severity.FAIL),
}
_NAMED = 4


def findings_of(report: HuntReport) -> tuple[Finding, ...]:
    """What a person should know of a hunt: that it is not finished, then its changes."""
    return (
        *_unfinished(report),
        *(_change(culprit, report) for culprit in report.culprits),
        *(finding for stage in report.stages for finding in _of_stage(stage, report)),
    )


def _change(culprit: Culprit, report: HuntReport) -> Finding:
    change = culprit.change
    kind, severity = _KINDS.get(change.kind, _KINDS["shift"])
    if kind == "level-shifted" and culprit.better == "equal":
        severity = Severity.FAIL
    if doubtful(change):
        severity = max(severity, Severity.WARN, key=lambda one: one.rank)
    return Finding(
        kind=kind,
        severity=severity,
        message=headline(culprit, report.units.get(culprit.metric, "")),
        metric=culprit.metric,
        where=change.new.id,
        numbers={"before": change.span.before, "after": change.span.after, "confidence": change.span.confidence},
        next=show_command(change.new.id, stage=culprit.stage, journal=report.journal),
    )  # fmt: skip


def _unfinished(report: HuntReport) -> Iterator[Finding]:
    if report.state == "stopped":
        said = report.notes[0] if report.notes else "the hunt is not finished"
        yield Finding(
            kind="hunt-unfinished", severity=Severity.WARN, message=said, next=report.resume
        )
    if report.state == "done" and nothing_compared(report):
        yield _nothing(report)
    if report.state == "done" and never_rebuilt(report):
        yield _one_build(report)


def _one_build(report: HuntReport) -> Finding:
    """That every point passed says nothing where all were the same build."""
    tried = [point for stage in report.stages for point in stage.points if point.values]
    return Finding(
        kind="nothing-compared",
        severity=Severity.WARN,
        message=f"expected a build of its own for each point, found the very same built files at all {len(tried)}",
        where=tried[-1].point.id,
        next=show_command(tried[-1].point.id, journal=report.journal, log=True),
    )


def _nothing(report: HuntReport) -> Finding:
    """Where fewer than two points gave a value, nothing was found because nothing was compared."""
    points = [p for stage in report.stages for p in stage.points]
    tried = [p for p in points if p.outcome not in (None, Outcome.MISSING)]
    failed = next((p for p in tried if p.outcome is not Outcome.OK), None)
    gave = sum(bool(p.values) for p in tried)
    return Finding(
        kind="hunt-unfinished",
        severity=Severity.WARN,
        message=f"expected two points that give a value at least, found {gave} of {count(len(tried), 'point')} tried",
        next=show_command(failed.point.id, journal=report.journal, log=True)
        if failed
        else "karat hunt run --dry-run",
    )


def _crashes(stage: StageReport, report: HuntReport) -> Iterator[Finding]:
    """Points that failed by themselves; where failures begin and stay, that is a change of its own."""
    known = {change.new.id for change in stage.changes if change.kind == "crash"}
    for (outcome, signature), points in failures(stage).items():
        if outcome == Outcome.BROKEN.value or known & {point.id for point in points}:
            continue
        yield Finding(
            kind="crash-range",
            severity=Severity.WARN,
            message=f"{stage.title}: {outcome} at {listed(points, _NAMED)}: {signature}",
            where=points[0].id,
            next=show_command(points[0].id, stage=stage.key, journal=report.journal, log=True),
        )


def _of_stage(stage: StageReport, report: HuntReport) -> Iterator[Finding]:
    yield from _crashes(stage, report)
    for reason, points in lacking(stage).items():
        yield Finding(
            kind="points-missing",
            severity=Severity.INFO,
            message=f"{stage.title}: {count(len(points), 'point')} cannot be had, {points[0].label} the first: {reason}",
            where=points[0].label,
        )
    for point in stage.points:
        for flag in point.flags:
            if flag.endswith(REBUILT):
                yield Finding(
                    kind="nothing-rebuilt",
                    severity=Severity.WARN,
                    message=f"{point.point.label}: {flag}",
                    where=point.point.id,
                    next=show_command(point.point.id, stage=stage.key, journal=report.journal),
                )
    for note in stage.notes:
        if note.startswith(NOT_REPRODUCED):
            yield Finding(
                kind="not-reproduced", severity=Severity.WARN, message=note, where=stage.key
            )


NOT_REPRODUCED = "The change does not show here"
"""How the note of a finer stage begins that does not see what the coarser one found."""
