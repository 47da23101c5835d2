"""From the journal alone to the report: at any moment, also of a hunt that was killed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from statistics import fmean

import msgspec
from msgspec import structs

from karat.changepoints.series import Outcome
from karat.hunts.journal.database import resume_command, show_command
from karat.hunts.journal.journal import Journal
from karat.hunts.journal.records import AttemptRow, ChangeRow, StageRow
from karat.hunts.model import (
    ChangeReport,
    Culprit,
    Decision,
    HuntReport,
    Metric,
    Point,
    PointReport,
    Span,
    StageReport,
    Suspect,
)
from karat.hunts.report.reproduce import reproduce_command
from karat.hunts.report.sentences import between, flags, sure, value
from karat.hunts.search.observations import observed_in
from karat.hunts.settings import HuntSettings
from karat.hunts.stages import alike, dips
from karat.hunts.timelines.container_engine import Kind


def culprits(
    stages: Sequence[StageReport], parents: Mapping[str, str], metrics: Sequence[Metric]
) -> tuple[Culprit, ...]:
    """As close as the hunt came to every change of the stages that look into no other."""
    tree = {stage.key: stage for stage in stages}
    known = {metric.name: metric for metric in metrics}
    numbers: dict[tuple[str, int], int] = {}
    found = [
        _culprit(path, _dipped(leaf, change, path, numbers), known)
        for stage in stages
        if not parents.get(stage.key)
        for change in stage.changes
        for path, leaf in _ends(stage, change, tree, ())
    ]
    first: dict[object, Culprit] = {}
    for number, culprit in enumerate(found):
        first.setdefault(_whose(culprit) or number, culprit)
    return tuple(first.values())


def _whose(culprit: Culprit) -> tuple[object, ...]:
    """The one commit that made a change, and the way it went; nothing where it is not one.

    A branch that took in the main line has its changes, too, so that a commit may be found more than once.
    """
    if len(culprit.suspects) != 1:
        return ()
    span, suspect = culprit.change.span, culprit.suspects[0]
    up = (span.after or 0.0) > (span.before or 0.0)
    return culprit.metric, up, suspect.part, suspect.id


def _ends(
    stage: StageReport, change: ChangeReport, tree: Mapping[str, StageReport], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ChangeReport]]:
    """The finest changes below a change that may be it; the change itself where none shows."""
    here = (*path, stage.key)
    finer = tree.get(change.zoom)
    below = [c for c in finer.changes if alike(c.span, change.span)] if finer else []
    if finer is None or not below:
        yield here, _of_the_merge(change, finer)
        return
    for one in below:
        yield from _ends(finer, one, tree, here)


def _of_the_merge(change: ChangeReport, finer: StageReport | None) -> ChangeReport:
    """The change with the merge as its only suspect, where the merged branch was looked into and ends as it was before it."""
    moved = [n for n, commit in change.new.parts.items() if change.old.parts.get(n) != commit]
    part = change.verdict.part or (moved[0] if len(moved) == 1 else "")
    merge = change.new.parts.get(part)
    if finer is None or finer.state != "done" or finer.timeline != "commits":
        return change
    if not merge or not finer.points:
        return change
    # Any other line of commits ends with the new point's own; the branch of a merge ends before it.
    tip = finer.points[-1]
    if tip.point.parts.get(part, merge) == merge or not _as_before(tip, change.span):
        return change
    alone = tuple(one for one in change.suspects if (one.part, one.id) == (part, merge))
    return structs.replace(change, suspects=alone or change.suspects)


def _as_before(point: PointReport, span: Span) -> bool:
    """Whether a point was tried, and is rather as it was before a change than after it."""
    if span.before is None or span.after is None:
        works = point.outcome is Outcome.OK
        fails = point.outcome in (Outcome.CRASH, Outcome.HANG)
        return works if span.before is not None else fails
    values = point.values.get(span.metric, ())
    return bool(values) and abs(fmean(values) - span.before) < abs(fmean(values) - span.after)


def _dipped(
    leaf: ChangeReport,
    coarse: ChangeReport,
    path: tuple[str, ...],
    numbers: dict[tuple[str, int], int],
) -> ChangeReport:
    """The change with the number of its dip in the whole hunt: every stage counts its own from 0.

    Whether it is a dip can mostly be told only where both of its ends are seen: at the coarsest stage.
    """
    for stage, change in ((path[0], coarse), (path[-1], leaf)):
        if change.dip is not None:
            number = numbers.setdefault((stage, change.dip), len(numbers))
            return structs.replace(leaf, kind=change.kind, dip=number)
    return leaf


def _culprit(path: tuple[str, ...], change: ChangeReport, known: Mapping[str, Metric]) -> Culprit:
    metric = known.get(change.span.metric)
    return Culprit(
        change=change,
        stage=path[-1],
        path=path,
        metric=change.span.metric,
        better=metric.better if metric else None,
        suspects=_blamed(change),
        message=change.message,
    )


def _blamed(change: ChangeReport) -> tuple[Suspect, ...]:
    """Suspects without the repositories that swapping has cleared."""
    verdict = change.verdict
    parts = (verdict.part,) if verdict.part else verdict.parts if verdict.interaction else ()
    return tuple(one for one in change.suspects if one.part in parts) or change.suspects


_LOG = 4000
"""Bytes of a log that a report shows; `karat hunt show` has all of it."""
_NOTHING = Decision(asks=())


def build_report(journal: Journal) -> HuntReport:
    """Everything that is known of a hunt now."""
    facts, rows = journal.facts(), journal.stages()
    state = hunt_state(journal)
    settings = settings_of_journal(facts)
    resume = _resume(journal, settings) if state == "stopped" else ""
    stages = tuple(_Stage(journal, row, settings, state).report() for row in rows)
    metrics = journal.metrics()
    return HuntReport(
        karat=facts.get("karat", ""),
        name=facts.get("name", ""),
        file=facts.get("file", ""),
        journal=str(journal.path),
        command=tuple(msgspec.json.decode(facts.get("command", "[]"))),
        state=state,
        stages=stages,
        culprits=culprits(stages, {row.key: row.parent for row in rows}, [m for m, _ in metrics]),
        runs=journal.runs(),
        seconds=sum(stage.seconds for stage in stages),
        notes=_notes(facts, resume),
        resume=resume,
        units={metric.name: unit for metric, unit in metrics if unit},
        betters={metric.name: metric.better for metric, _ in metrics if metric.better},
    )


def hunt_state(journal: Journal) -> str:
    """done, running, or stopped: a journal that says running, and that nobody writes, is of a hunt that was killed."""
    said = journal.facts().get("state", "running")
    return "stopped" if said == "running" and journal.writer() is None else said


def settings_of_journal(facts: Mapping[str, str]) -> HuntSettings | None:
    """The settings as they were kept; None where this karat does not understand them."""
    try:
        return msgspec.json.decode(facts.get("settings", ""), type=HuntSettings)
    except msgspec.MsgspecError:
        return None


def _resume(journal: Journal, settings: HuntSettings | None) -> str:
    """What goes on with a hunt that is stopped: where its budget is spent, with twice as much."""
    runs, limit = journal.runs(), settings.search.max_runs if settings is not None else 0
    return str(resume_command(str(journal.path), budget=2 * runs if 0 < limit <= runs else 0))


def _notes(facts: Mapping[str, str], resume: str) -> tuple[str, ...]:
    if not resume:
        return ()
    why = facts.get("why") if facts.get("state") == "stopped" else "its process was killed"
    return (f"The hunt is not finished: {why}. To go on: {resume}",)


class _Stage:
    """One stage on its way into the report."""

    def __init__(
        self, journal: Journal, row: StageRow, settings: HuntSettings | None, state: str
    ) -> None:
        self._journal, self._row, self._settings = journal, row, settings
        self._state = state if row.state == "running" else row.state
        self._points = journal.points(row.key)
        self._entries: dict[str, list[AttemptRow]] = {}
        for entry in journal.attempts(row.key):
            self._entries.setdefault(entry.attempt.point, []).append(entry)

    def report(self) -> StageReport:
        """The stage as the report has it."""
        row, decision = self._row, self._row.decision or _NOTHING
        attempts = [e.attempt for entries in self._entries.values() for e in entries]
        own = [a for a in attempts if not a.shared_with]
        return StageReport(
            key=row.key,
            title=row.title,
            timeline=row.timeline,
            state=self._state,
            points=tuple(self._point_reports()),
            changes=self._changes(decision.spans),
            analyses=decision.analyses,
            missed=decision.missed,
            runs=len(own),
            seconds=sum(attempt.seconds for attempt in own),
            flake_rate=decision.flake_rate,
            notes=(*row.notes, *decision.notes),
        )

    def _point_reports(self) -> list[PointReport]:
        last = {
            point.id: entries[-1].attempt
            for point in self._points
            if (entries := self._entries.get(point.id))
        }
        said = flags([(p, [e.attempt for e in self._entries.get(p.id, ())]) for p in self._points])
        reports = []
        for point in self._points:
            attempts = tuple(e.attempt for e in self._entries.get(point.id, ()))
            outcome = outcome_of(self._entries.get(point.id, ()))
            failed = outcome not in (None, Outcome.OK)
            number = last[point.id].number if point.id in last else 0
            reports.append(
                PointReport(
                    point=point,
                    outcome=Outcome.MISSING if point.missing and outcome is None else outcome,
                    values=observed_in(attempts).values,
                    attempts=attempts,
                    log=self._log(point, number) if failed else "",
                    flags=said.get(point.id, ()),
                )
            )
        return reports

    def _log(self, point: Point, number: int) -> str:
        text = self._journal.log(self._row.key, point.id, number)
        return text[-_LOG:].decode("utf-8", "backslashreplace")

    def _changes(self, spans: Sequence[Span]) -> tuple[ChangeReport, ...]:
        found, pairs = self._journal.changes(self._row.key), dips(spans)
        return tuple(
            self._change(span, found.get(number, ChangeRow()), pairs.get(number))
            for number, span in enumerate(spans)
        )

    def _change(self, span: Span, found: ChangeRow, dip: int | None) -> ChangeReport:
        old, new = self._points[span.good], self._points[span.bad]
        change = ChangeReport(
            span=span,
            old=old,
            new=new,
            kind="dip" if dip is not None and span.kind != "crash" else span.kind,
            dip=dip,
            verdict=found.verdict,
            suspects=found.suspects,
            zoom=found.zoom,
            reproduce=self._reproduce(new),
        )
        return msgspec.structs.replace(change, message=change_sentence(change))

    def _reproduce(self, point: Point) -> str:
        """One line for a shell, or the command that shows every step."""
        entries = self._entries.get(point.id)
        identity = entries[-1].attempt.identity if entries else {}
        number = entries[-1].attempt.number if entries else 0
        line = self._settings and reproduce_command(
            self._settings, self._row.timeline, point, identity, engine=self._client(point, number)
        )
        # It goes into issues: the journal is that of hunt.toml's folder, and no path of this machine.
        return line or str(show_command(point.id, stage=self._row.key))

    def _client(self, point: Point, number: int) -> Kind:
        """The container engine that was really used, whichever hunt.toml left to be found."""
        ran = self._journal.commands(self._row.key, point.id, number)
        names = {PurePath(command.argv[0]).name for command in ran}
        return "podman" if "podman" in names else "docker"


def outcome_of(entries: Sequence[AttemptRow]) -> Outcome | None:
    """One word for all attempts at a point: ok if it ever was, else the first that is evidence, else broken."""
    outcomes = [entry.attempt.outcome for entry in entries]
    for wanted in (Outcome.OK, Outcome.CRASH, Outcome.HANG, Outcome.BROKEN):
        if wanted in outcomes:
            return wanted
    return None


def change_sentence(change: ChangeReport) -> str:
    """`MLUPS 577.2 → 536.7, last good 2023-08-24, first bad 2023-08-26 (99%)`."""
    span = change.span
    levels = (
        f" {value(span.before)} → {value(span.after)}"
        if span.before is not None and span.after is not None
        else ""
    )
    return f"{span.metric}{levels}, {between(change)} ({sure(span.confidence)})"


def read_report(path: Path) -> HuntReport:
    """The report of a journal's file."""
    with Journal(path) as journal:
        return build_report(journal)
