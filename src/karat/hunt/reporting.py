"""Reporting: from the journal alone to everything a hunt found, at any moment, also of a hunt that was killed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

import msgspec

from karat.changes.series import Outcome
from karat.hunt.advice import resume as resume_command, show
from karat.hunt.container_engine import Kind
from karat.hunt.culprits import culprits
from karat.hunt.flags import flags
from karat.hunt.journal import Journal
from karat.hunt.journal_rows import Entry, Found, StageRow
from karat.hunt.point import Point
from karat.hunt.report import ChangeReport, HuntReport, PointReport, StageReport
from karat.hunt.report_sentences import between, sure, value
from karat.hunt.reproduce import one_line
from karat.hunt.searching import Decision, Span
from karat.hunt.seeing import seen_of
from karat.hunt.settings import HuntSettings
from karat.hunt.zooming import dips

_LOG = 4000
"""Bytes of a log that a report shows; `karat hunt show` has all of it."""
_NOTHING = Decision(asks=())


def report_of(journal: Journal) -> HuntReport:
    """Everything that is known of a hunt now."""
    facts, rows = journal.facts(), journal.stages()
    state = state_of(journal)
    settings = settings_of(facts)
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


def state_of(journal: Journal) -> str:
    """done, running, or stopped: a journal that says running, and that nobody writes, is of a hunt that was killed."""
    said = journal.facts().get("state", "running")
    return "stopped" if said == "running" and journal.writer() is None else said


def settings_of(facts: Mapping[str, str]) -> HuntSettings | None:
    """The settings as they were kept; None where this karat does not understand them."""
    try:
        return msgspec.json.decode(facts.get("settings", ""), type=HuntSettings)
    except msgspec.MsgspecError:
        return None


def _resume(journal: Journal, settings: HuntSettings | None) -> str:
    """What goes on with a hunt that is stopped: where its budget is spent, with twice as much."""
    runs, limit = journal.runs(), settings.search.max_runs if settings is not None else 0
    return resume_command(str(journal.path), budget=2 * runs if 0 < limit <= runs else 0)


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
        self._entries: dict[str, list[Entry]] = {}
        for entry in journal.entries(row.key):
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
                    values=seen_of(attempts).values,
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
            self._change(span, found.get(number, Found()), pairs.get(number))
            for number, span in enumerate(spans)
        )

    def _change(self, span: Span, found: Found, dip: int | None) -> ChangeReport:
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
        return msgspec.structs.replace(change, message=sentence(change))

    def _reproduce(self, point: Point) -> str:
        """One line for a shell, or the command that shows every step."""
        entries = self._entries.get(point.id)
        identity = entries[-1].attempt.identity if entries else {}
        number = entries[-1].attempt.number if entries else 0
        line = self._settings and one_line(
            self._settings, self._row.timeline, point, identity, engine=self._client(point, number)
        )
        # It goes into issues: the journal is that of hunt.toml's folder, and no path of this machine.
        return line or show(point.id, stage=self._row.key)

    def _client(self, point: Point, number: int) -> Kind:
        """The container engine that was really used, whichever hunt.toml left to be found."""
        ran = self._journal.commands(self._row.key, point.id, number)
        names = {PurePath(command.argv[0]).name for command in ran}
        return "podman" if "podman" in names else "docker"


def outcome_of(entries: Sequence[Entry]) -> Outcome | None:
    """One word for all attempts at a point: ok if it ever was, else the first that is evidence, else broken."""
    outcomes = [entry.attempt.outcome for entry in entries]
    for wanted in (Outcome.OK, Outcome.CRASH, Outcome.HANG, Outcome.BROKEN):
        if wanted in outcomes:
            return wanted
    return None


def sentence(change: ChangeReport) -> str:
    """`MLUPS 577.2 → 536.7, after 2023-08-24, not after 2023-08-26 (99%)`."""
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
        return report_of(journal)
