"""Status: how far a hunt is, from its journal, while it runs or after."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import fmean

import msgspec

from karat.changes.series import Outcome
from karat.hunt.journal import Journal
from karat.hunt.journal_rows import StageRow
from karat.hunt.report import HuntReport, PointReport, StageReport
from karat.hunt.report_sentences import duration, strip, value
from karat.hunt.reporting import report_of
from karat.report.terminal import Line
from karat.report.words import count

_SHOWN = 8


class RunNow(msgspec.Struct, frozen=True, kw_only=True):
    """A run under way."""

    stage: str
    point: str
    why: str
    seconds: float


class StageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far one stage is."""

    key: str
    title: str
    state: str
    points: int
    missing: int
    tried: int
    runs: int
    expected_left: int | None
    """Runs still to come, as far as can be said."""
    changes: tuple[str, ...]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How far a hunt is. Schema karat.hunt-status/1."""

    schema: str = "karat.hunt-status/1"
    name: str
    journal: str
    state: str
    """running, done, stopped."""
    process: int | None
    """Who is at work on it."""
    runs: int
    seconds: float
    """Of measuring."""
    seconds_left: float | None
    """Of the stage at work, as far as can be said; finer ones come after it."""
    stages: tuple[StageStatus, ...]
    running: tuple[RunNow, ...]
    notes: tuple[str, ...]


def status_of(journal: Journal) -> tuple[Status, HuntReport]:
    """How far a hunt is, and the report it has so far."""
    report, rows = report_of(journal), {row.key: row for row in journal.stages()}
    stages = tuple(_stage(stage, rows[stage.key]) for stage in report.stages)
    running = report.state == "running"
    status = Status(
        name=report.name,
        journal=report.journal,
        state=report.state,
        process=journal.writer(),
        runs=report.runs,
        seconds=report.seconds,
        seconds_left=_seconds_left(journal, report, stages) if running else None,
        stages=stages,
        running=tuple(
            RunNow(stage=stage, point=point, why=why, seconds=max(0.0, time.time() - since))
            for stage, point, why, since in (journal.running() if running else ())
        ),
        notes=report.notes,
    )
    return status, report


def _stage(stage: StageReport, row: StageRow) -> StageStatus:
    missing = sum(p.outcome is Outcome.MISSING for p in stage.points)
    tried = sum(p.outcome not in (None, Outcome.MISSING) for p in stage.points)
    left = row.decision.expected_left if row.decision is not None else None
    return StageStatus(
        key=stage.key,
        title=stage.title,
        state=stage.state,
        points=len(stage.points),
        missing=missing,
        tried=tried,
        runs=stage.runs,
        expected_left=0 if stage.state == "done" else left,
        changes=tuple(change.message for change in stage.changes),
    )


def _seconds_left(
    journal: Journal, report: HuntReport, stages: tuple[StageStatus, ...]
) -> float | None:
    """Runs still to come at what the last ones took, over the slots that the engine has."""
    if not stages or stages[-1].expected_left is None:
        return None
    took = [a.seconds for p in report.stages[-1].points for a in p.attempts if not a.shared_with]
    said = journal.facts().get("slots", "")
    slots = max(1, int(said)) if said.isdecimal() else 1
    return stages[-1].expected_left * fmean(took[-20:]) / slots if took else None


def lines(status: Status, report: HuntReport, width: int | None = None) -> Iterator[Line]:
    """The status for a person."""
    who = f" (process {status.process})" if status.process else ""
    yield ((f"{status.name}: {status.state}{who}", "bold"), (f"  {_counted(status)}", "dim"))
    for one, stage in zip(status.stages, report.stages, strict=True):
        yield ()
        yield from _stage_lines(one, stage, report, width or 100)
    if status.running:
        yield ()
    for run in status.running:
        yield (("now  ", "cyan"), (f"{run.point}  {duration(run.seconds)}  {run.why}", ""))
    for note in status.notes:
        yield ()
        yield ((note, "yellow"),)


def _counted(status: Status) -> str:
    left = (
        f", about {duration(status.seconds_left)} left at this stage" if status.seconds_left else ""
    )
    return f"{count(status.runs, 'run')}, {duration(status.seconds)} of measuring{left}"


def _stage_lines(
    one: StageStatus, stage: StageReport, report: HuntReport, width: int
) -> Iterator[Line]:
    left = f", ≈{count(one.expected_left, 'run')} to go" if one.expected_left else ""
    lacking = f", {one.missing:,} cannot be had" if one.missing else ""
    yield (
        (f"{one.title} [{one.key}]", "bold"),
        (f"  {one.state}: {one.tried:,} of {one.points:,} points tried{lacking}{left}", "dim"),
    )
    yield ((f"  {strip(stage.points, stage.changes, width - 2)}", ""),)
    for message in one.changes:
        yield ((f"  {message}", "yellow"),)
    tried = [point for point in stage.points if point.attempts]
    for point in sorted(tried, key=lambda p: p.attempts[-1].started)[-_SHOWN:]:
        yield ((f"  {point.point.label}  ", "dim"), (_result(point, report), ""))


def _result(point: PointReport, report: HuntReport) -> str:
    if point.values:
        return ", ".join(
            f"{value(fmean(samples))} {report.units.get(name) or name}"
            for name, samples in point.values.items()
        )
    last = point.attempts[-1]
    return f"{last.outcome.value}: {last.signature or last.note}".rstrip(": ")
