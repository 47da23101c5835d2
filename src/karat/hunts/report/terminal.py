"""What a terminal shows: a hunt's report, how far a hunt is, one point with its attempts and how to run it by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from statistics import fmean

import msgspec

from karat.changepoints.series import Outcome
from karat.findings import UsageError, suggest
from karat.hunts.journal.database import show_command
from karat.hunts.journal.journal import Journal
from karat.hunts.journal.records import CommandRow
from karat.hunts.model import Attempt, HuntReport, Point, StageReport
from karat.hunts.report import sentences as say
from karat.hunts.report.assemble import build_report
from karat.hunts.report.sentences import duration, flags, value
from karat.hunts.report.split import split_sentences, split_table
from karat.report.terminal import Line
from karat.report.words import count
from karat.system.command import Command

_STYLES = {
    **dict.fromkeys(("regression", "crash", "hang"), "bold red"),
    **dict.fromkeys(("improvement", "recovery"), "green"),
    **dict.fromkeys(("dip", "shift"), "yellow"),
}
_SUSPECTS = 8
_POINTS = 6
_OUTCOME_STYLES = {"ok": "green", "crash": "bold red", "hang": "bold magenta", "broken": "yellow"}


def report_lines(report: HuntReport, *, width: int | None = None) -> Iterator[Line]:
    yield ((say.conclusion(report), "bold"),)
    yield from (((said, "yellow"),) for said in say.at_the_top(report))
    if report.split is not None:
        yield ()
        yield from (((line, "bold"),) for line in split_sentences(report.split))
        rows = split_table(report.split, report.units)
        wide = max(len(row[1]) for row in rows)
        yield from (((f"  {row[0]:<8}  {row[1]:<{wide}}  {row[2]}", ""),) for row in rows)
    for culprit in report.culprits:
        yield ()
        change = culprit.change
        moved = say.amount(change, report.units.get(culprit.metric, ""))
        yield (say.heading(culprit, report), _STYLES.get(change.kind, "")), (f"  {culprit.metric}  {moved}", "")
        yield _fact("when", say.between(change), 8)
        if dates := say.dates(change):
            yield _fact("", dates, 8)
        if say.blame(change):
            yield _fact("where", say.blame(change), 8)
        for one in culprit.suspects[:_SUSPECTS]:
            yield _fact("culprit" if say.named(culprit) else "suspect", say.suspect(one), 8)
            if one.link:
                yield _fact("", one.link, 8)
        if len(culprit.suspects) > _SUSPECTS:
            yield _fact("", f"… and {len(culprit.suspects) - _SUSPECTS:,} more", 8)
        yield from (_fact("compare", address, 8) for address in say.compared(culprit.suspects))
        yield _fact("sure", say.confirmed(change), 8)
        if change.reproduce:
            # Further lines of a quoted word are not set in: the blanks would be part of it.
            first, *further = change.reproduce.split("\n")
            yield _fact("try", first, 8)
            yield from (((line, ""),) for line in further)
    for stage in report.stages:
        yield ()
        yield from _stage(stage, width or 100)
        if missed := say.missed(stage, report):
            yield ((f"  {missed}", "dim"),)
    for note in report.notes:
        yield ()
        yield ((note, "yellow"),)
    yield ()
    yield ((f"{say.measured(report)}; journal {report.journal}", "dim"),)


def _fact(label: str, text: str, width: int = 12) -> Line:
    return ((f"  {label:<{width}}", "dim"), (text, ""))


def _stage(stage: StageReport, width: int) -> Iterator[Line]:
    state = "" if stage.state == "done" else f" ({stage.state})"
    yield ((f"{stage.title}{state}", "bold"), (f"  {say.tried(stage)}", "dim"))
    yield ((f"  {say.strip(stage.points, stage.changes, width - 2)}", ""),)
    for change in stage.changes:
        said = (change.span.metric, say.amount(change), say.between(change), say.sure(change.span.confidence))
        yield (f"  {change.kind:<12}", _STYLES.get(change.kind, "")), ("  ".join(said), "")
    for (outcome, signature), points in say.failures(stage).items():
        style = "dim" if outcome == "broken" else "red"
        yield (f"  {outcome:<12}", style), (f"{say.listed(points, _POINTS)}: {signature}", "")
    for reason, points in say.lacking(stage).items():
        yield (("  missing     ", "dim"), (f"{say.listed(points, _POINTS)}: {reason}", ""))
    odd = [
        f"{one.point.label}: {flag}" for one in stage.points for flag in one.flags if not flag.startswith(say.SHARED)
    ]
    shared = sum(flag.startswith(say.SHARED) for one in stage.points for flag in one.flags)
    if shared:
        yield ((f"  {count(shared, 'point')} had the same under test as others, and share their runs", "dim"),)
    for note in (*odd, say.flaky(stage), *stage.notes):
        if note:
            yield ((f"  {note}", "yellow"),)
    for note in say.noises(stage):
        yield ((f"  {note}", "dim"),)


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
    expected_left: int | None  # Runs still to come, as far as can be said.
    changes: tuple[str, ...]


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How far a hunt is. Schema karat.hunt-status/1."""

    schema: str = "karat.hunt-status/1"
    name: str
    journal: str
    state: str  # running, done, stopped.
    process: int | None  # Who is writing it.
    runs: int
    seconds: float  # Of measuring.
    seconds_left: float | None  # Of the stage at work, as far as can be said; finer ones come after it.
    stages: tuple[StageStatus, ...]
    running: tuple[RunNow, ...]
    notes: tuple[str, ...]


def status_of(journal: Journal) -> tuple[Status, HuntReport]:
    """How far a hunt is, and the report it has so far."""
    report = build_report(journal)
    left = {row.key: row.decision.expected_left for row in journal.stages() if row.decision is not None}
    stages = tuple(
        StageStatus(
            key=stage.key,
            title=stage.title,
            state=stage.state,
            points=len(stage.points),
            missing=sum(point.outcome is Outcome.MISSING for point in stage.points),
            tried=sum(point.outcome not in (None, Outcome.MISSING) for point in stage.points),
            runs=stage.runs,
            expected_left=0 if stage.state == "done" else left.get(stage.key),
            changes=tuple(change.message for change in stage.changes),
        )
        for stage in report.stages
    )
    running = report.state == "running"
    seconds_left = None
    if running and stages and stages[-1].expected_left is not None:
        # Runs still to come at what the last ones took, over the slots that the engine has.
        took = [a.seconds for p in report.stages[-1].points for a in p.attempts if not a.shared_with]
        said = journal.facts().get("slots", "")
        slots = max(1, int(said)) if said.isdecimal() and len(said) < 9 else 1
        seconds_left = stages[-1].expected_left * fmean(took[-20:]) / slots if took else None
    status = Status(
        name=report.name,
        journal=report.journal,
        state=report.state,
        process=journal.writer(),
        runs=report.runs,
        seconds=report.seconds,
        seconds_left=seconds_left,
        stages=stages,
        running=tuple(
            RunNow(stage=stage, point=point, why=why, seconds=max(0.0, time.time() - since))
            for stage, point, why, since in (journal.running() if running else ())
        ),
        notes=report.notes,
    )
    return status, report


def status_lines(status: Status, report: HuntReport, width: int | None = None) -> Iterator[Line]:
    who = f" (process {status.process})" if status.process else ""
    counted = f"{count(status.runs, 'run')}, {duration(status.seconds)} of measuring"
    if status.seconds_left:
        counted += f", about {duration(status.seconds_left)} left at this stage"
    yield ((f"{status.name}: {status.state}{who}", "bold"), (f"  {counted}", "dim"))
    for one, stage in zip(status.stages, report.stages, strict=True):
        left = f", ≈{count(one.expected_left, 'run')} to go" if one.expected_left else ""
        lacking = f", {one.missing:,} not available" if one.missing else ""
        progress = f"  {one.state}: {one.tried:,} of {one.points:,} points tried{lacking}{left}"
        yield ()
        yield (f"{one.title} [{one.key}]", "bold"), (progress, "dim")
        yield ((f"  {say.strip(stage.points, stage.changes, (width or 100) - 2)}", ""),)
        for message in one.changes:
            yield ((f"  {message}", "yellow"),)
        tried = [point for point in stage.points if point.attempts]
        for point in sorted(tried, key=lambda p: p.attempts[-1].started)[-8:]:
            last = point.attempts[-1]
            failed = f"{last.outcome.value}: {last.signature or last.note}".rstrip(": ")
            shown = say.averages(point.values, report.units) if point.values else failed
            yield ((f"  {point.point.label}  ", "dim"), (shown, ""))
    if status.running:
        yield ()
    for run in status.running:
        yield (("now  ", "cyan"), (f"{run.point}  {duration(run.seconds)}  {run.why}", ""))
    for note in status.notes:
        yield ()
        yield ((note, "yellow"),)


class ShownAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, with what it ran."""

    attempt: Attempt
    purpose: str  # search, swap N, confirm N (of change N).
    commands: tuple[CommandRow, ...]
    log: str | None = None


class ShownPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a hunt. Schema karat.hunt-point/1."""

    schema: str = "karat.hunt-point/1"
    stage: str
    point: Point
    flags: tuple[str, ...]
    attempts: tuple[ShownAttempt, ...]
    journal: str


def find_point(journal: Journal, name: str, stage: str | None) -> tuple[str, Point]:
    """The point that a name means: its id or label, or the beginning of one; in the coarsest stage that has it."""
    every = [(s, p) for s, p in journal.every_point() if stage is None or s == stage]
    if stage is not None and not every:
        known = [row.key for row in journal.stages()]
        said = f"--stage: expected one of {', '.join(known) or '(none yet)'}, found {stage!r}{suggest(stage, known)}"
        raise UsageError(said, next_command=Command("karat", "hunt", "status", str(journal.path)))
    for matches in (
        [(s, p) for s, p in every if name in {p.id, p.label}],
        [(s, p) for s, p in every if p.id.startswith(name) or p.label.startswith(name)],
        [(s, p) for s, p in every if any(part.startswith(name) for part in p.parts.values())],
    ):
        ids = dict.fromkeys(p.id for _, p in matches)
        if len(ids) == 1:
            # Of several stages that have the point, the first in which it was tried.
            return next((m for m in matches if journal.attempts(m[0], m[1].id)), matches[0])
        if ids:
            said = f"expected one point, found {len(ids)} that begin with {name!r}: {', '.join(list(ids)[:5])}"
            where, first = matches[0]
            raise UsageError(said, next_command=show_command(first.id, stage=where, journal=str(journal.path)))
    labels = [p.label for _, p in every]
    said = f"expected a point of the hunt, found none that begins with {name!r}{suggest(name, labels)}"
    raise UsageError(said, next_command=Command("karat", "hunt", "status", str(journal.path)))


def show_point(journal: Journal, stage: str, point: Point, *, logs: bool) -> ShownPoint:
    attempts = []
    for row in journal.attempts(stage, point.id):
        which = stage, point.id, row.attempt.number
        log = journal.log(*which).decode("utf-8", "backslashreplace") if logs else None
        shown = ShownAttempt(attempt=row.attempt, purpose=row.purpose, commands=journal.commands(*which), log=log)
        attempts.append(shown)
    marks = flags([one.attempt for one in attempts])
    return ShownPoint(stage=stage, point=point, flags=marks, attempts=tuple(attempts), journal=str(journal.path))


def point_lines(what: ShownPoint) -> Iterator[Line]:
    point = what.point
    yield ((point.label, "bold"), (f"  stage {what.stage}", "dim"))
    if point.id != point.label:
        yield _fact("id", point.id)
    if point.when is not None:
        yield _fact("when", point.when.isoformat(sep=" ", timespec="seconds"))
    yield from (_fact(name, text) for name, text in point.parts.items())
    if point.missing:
        yield _fact("missing", point.missing)
    for flag in what.flags:
        yield ((f"  {flag}", "yellow"),)
    for one in what.attempts:
        attempt = one.attempt
        outcome = attempt.outcome.value, _OUTCOME_STYLES.get(attempt.outcome.value, "")
        why = f"  {one.purpose}{f', {attempt.why}' if attempt.why else ''}"
        yield ()
        yield (f"attempt {attempt.number}: ", "bold"), outcome, (why, "dim")
        facts = {name: ", ".join(map(value, samples)) for name, samples in attempt.samples.items()}
        said = {"signature": attempt.signature, "note": attempt.note, "shared with": attempt.shared_with}
        for name, text in (*facts.items(), *((name, text) for name, text in said.items() if text)):
            yield _fact(name, text)
        if attempt.started:
            began = datetime.fromtimestamp(attempt.started, UTC)
            yield _fact("ran", f"{began:%Y-%m-%d %H:%M:%S} UTC, {duration(attempt.seconds)}, {attempt.where}")
        yield from (_fact("under test", f"{name} = {text}") for name, text in attempt.identity.items())
    if not what.attempts and not point.missing:
        yield ((("  not tried"), "dim"),)
    yield ()
    stage = "" if what.stage == "0" else what.stage
    yield ("by hand: ", "bold"), (str(show_command(point.id, stage=stage, journal=what.journal, verb="try")), "")
