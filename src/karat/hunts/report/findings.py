"""Findings of a hunt: what its report comes to, and with it the exit code. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from karat.changepoints.series import Outcome
from karat.findings import Finding, Severity, fail, info, warn
from karat.hunts.journal.database import show_command
from karat.hunts.model import HuntReport, StageReport
from karat.hunts.report import sentences as say
from karat.report.words import count

NOT_REPRODUCED = "The change does not show here"
"""How the note of a finer stage begins that does not see what the coarser one found."""
_KINDS = {
    "regression": ("level-regressed", Severity.FAIL),
    "improvement": ("level-improved", Severity.INFO),
    "shift": ("level-shifted", Severity.WARN),
    "dip": ("dip", Severity.WARN),
    "crash": ("crash-range", Severity.FAIL),
    "hang": ("crash-range", Severity.FAIL),
    "recovery": ("crash-range", Severity.INFO),
}


def findings_of(report: HuntReport) -> tuple[Finding, ...]:
    """What a person should know of a hunt: that it is not finished, then its changes."""
    stages = (finding for stage in report.stages for finding in _of_stage(stage, report.journal))
    return (*_of_hunt(report), *stages)


def _of_hunt(report: HuntReport) -> Iterator[Finding]:
    points = [point for stage in report.stages for point in stage.points]
    if report.state == "stopped":
        said = report.notes[0] if report.notes else "the hunt is not finished"
        yield warn("hunt-unfinished", said, next=report.resume)
    if report.state == "done" and say.nothing_compared(report):
        # Where fewer than two points gave a value, nothing was found because nothing was compared.
        tried = [p for p in points if p.outcome not in (None, Outcome.MISSING)]
        failed = next((p.point.id for p in tried if p.outcome is not Outcome.OK), None)
        gave = sum(bool(p.values) for p in tried)
        said = f"expected at least two points with a value, found {gave} of {count(len(tried), 'point')} tried"
        then = None if failed is None else show_command(failed, journal=report.journal, log=True)
        yield warn("hunt-unfinished", said, next=then or "karat hunt run --dry-run")
    for name, said in zip(report.never_rebuilt, say.rebuilds(report), strict=True):
        newest = next((p.point.id for p in reversed(points) if p.values), "")
        then = show_command(newest, journal=report.journal, log=True) if newest else None
        yield fail("nothing-rebuilt", said, where=name, next=then)
    if report.state == "done" and say.one_build(report):
        # That every point passed says nothing where all were the same build.
        built = [p.point.id for p in points if p.values]
        said = f"expected each point to have its own build, found the same built files at all {len(built)}"
        then = show_command(built[-1], journal=report.journal, log=True)
        yield warn("nothing-compared", said, where=built[-1], next=then)
    for culprit in report.culprits:
        change, span = culprit.change, culprit.change.span
        kind, severity = _KINDS.get(change.kind, _KINDS["shift"])
        if kind == "level-shifted" and culprit.better == "equal":
            severity = Severity.FAIL
        # What does not stand any more, or could not be seen again, fails nobody's build.
        if say.doubtful(change) or change.dip is not None:
            severity = max(severity, Severity.WARN, key=lambda one: one.rank)
        yield Finding(
            kind=kind,
            severity=severity,
            message=say.headline(culprit, report.units.get(culprit.metric, "")),
            metric=culprit.metric,
            where=change.new.id,
            numbers={"before": span.before, "after": span.after, "confidence": span.confidence},
            next=show_command(change.new.id, stage=culprit.stage, journal=report.journal),
        )


def _of_stage(stage: StageReport, journal: str) -> Iterator[Finding]:
    # Where failures begin and stay, that is a change of its own.
    known = {change.new.id for change in stage.changes if change.kind in say.FAILURES}
    for (outcome, signature), points in say.failures(stage).items():
        if outcome != Outcome.BROKEN.value and not known & {point.id for point in points}:
            said = f"{stage.title}: {outcome} at {say.listed(points, 4)}: {signature}"
            then = show_command(points[0].id, stage=stage.key, journal=journal, log=True)
            yield warn("crash-range", said, where=points[0].id, next=then)
    for reason, points in say.lacking(stage).items():
        first, number = points[0].label, count(len(points), "point")
        said = f"{stage.title}: {number} not available, {first} the first: {reason}"
        yield info("points-missing", said, where=first)
    for metric in stage.unsettled:
        said = next((note for note in stage.notes if note.startswith(f"{metric} is not settled")), metric)
        yield warn("metric-unsettled", f"{stage.title}: {said}", metric=metric, where=stage.key)
    for note in stage.notes:
        if note.startswith(NOT_REPRODUCED):
            yield warn("not-reproduced", note, where=stage.key)
