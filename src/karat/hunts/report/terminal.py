"""What a terminal shows: a hunt's report, how far a hunt is, one point with its attempts; and a hunt at work.

Who listens to a hunt shows its status, drawn anew, on a terminal, and plain lines elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING

import msgspec

from karat.changepoints.series import Outcome
from karat.findings import UsageError, suggest
from karat.hunts.journal import Journal, show_command
from karat.hunts.model import Attempt, CommandRow, Decision, HuntReport, Point, StageReport
from karat.hunts.report import sentences as say
from karat.hunts.report.assemble import build_report
from karat.hunts.report.sentences import duration, flags, value
from karat.report import terminal
from karat.report.terminal import Line
from karat.report.words import count, printable
from karat.system.command import Command

if TYPE_CHECKING:
    from rich.live import Live

_STYLES = {
    **dict.fromkeys(("regression", "crash", "hang"), "bold red"),
    **dict.fromkeys(("improvement", "recovery"), "green"),
    **dict.fromkeys(("dip", "shift"), "yellow"),
}
_SUSPECTS = 8
_POINTS = 6
_PAUSE = 1.0  # Seconds between two drawings: each reads the journal.
_OUTCOME_STYLES = {"ok": "green", "crash": "bold red", "hang": "bold magenta", "broken": "yellow"}


def report_lines(report: HuntReport, *, width: int | None = None) -> Iterator[Line]:
    yield ((say.conclusion(report), "bold"),)
    yield from (((said, "yellow"),) for said in say.at_the_top(report))
    if report.split is not None:
        yield ()
        yield from (((line, "bold"),) for line in say.split_sentences(report.split))
        rows = say.split_table(report.split, report.units)
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
            yield _fact("try", change.reproduce, 8)
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
        said = (change.span.metric, say.amount(change), say.between(change), say.how_sure(change))
        yield (f"  {change.kind:<12}", _STYLES.get(change.kind, "")), ("  ".join(said), "")
    for (outcome, signature), points in say.failures(stage).items():
        style = "dim" if outcome == "broken" else "red"
        yield (f"  {outcome:<12}", style), (f"{say.listed(points, _POINTS)}: {signature}", "")
    for reason, points in say.lacking(stage).items():
        yield (("  missing     ", "dim"), (f"{say.listed(points, _POINTS)}: {reason}", ""))
    marks = [(one.point.label, flag) for one in stage.points for flag in one.flags]
    odd = [f"{label}: {flag}" for label, flag in marks if not flag.startswith(say.SHARED)]
    shared = len(marks) - len(odd)
    if shared:
        yield ((f"  {count(shared, 'point')} had the same under test as others, and share their runs", "dim"),)
    for note in (*odd, say.flaky(stage), *stage.notes):
        if note:
            yield ((f"  {note}", "yellow"),)
    for note in say.noises(stage):
        yield ((f"  {note}", "dim"),)


def status_lines(report: HuntReport, width: int | None = None, *, at_work: bool = False) -> Iterator[Line]:
    """How far a hunt is: every stage, or the one `at_work` alone."""
    who = f" (process {report.process})" if report.process else ""
    counted = say.measured(report)
    if report.seconds_left:
        counted += f", about {duration(report.seconds_left)} left at this stage"
    yield ((f"{report.name}: {report.state}{who}", "bold"), (f"  {counted}", "dim"))
    for stage in report.stages[-1 if at_work else 0 :]:
        left = f", ≈{count(stage.expected_left, 'run')} to go" if stage.expected_left else ""
        missing = sum(point.outcome is Outcome.MISSING for point in stage.points)
        lacking = f", {missing:,} not available" if missing else ""
        yield ()
        progress = f"  {stage.state}: {say.tried(stage)}{lacking}{left}"
        yield (f"{stage.title} [{stage.key}]", "bold"), (progress, "dim")
        yield ((f"  {say.strip(stage.points, stage.changes, (width or 100) - 2)}", ""),)
        for change in stage.changes:
            yield ((f"  {change.message}", "yellow"),)
        for run in report.running:
            if run.stage == stage.key:
                yield ("  now   ", "cyan"), (f"{run.point}  ", "cyan"), (f"{duration(run.seconds)}  {run.why}", "dim")
        if stage.likely_next and report.state == "running":
            yield (("  next  ", "dim"), (", ".join(stage.likely_next[:4]), "dim"))
        tried = [point for point in stage.points if point.attempts]
        # The newest first: where there is little room, the oldest are left out.
        for point in sorted(tried, key=lambda p: p.attempts[-1].started)[:-9:-1]:
            shown = say.averages(point.values, report.units)
            yield ((f"  {point.point.label}  ", "dim"), (shown or say.came_of(point.attempts[-1], report.units), ""))
    for note in report.notes:
        yield ()
        yield ((note, "yellow"),)


class ShownAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, with what it ran."""

    attempt: Attempt
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
    for attempt in journal.attempts(stage, point.id):
        which = stage, point.id, attempt.number
        log = journal.log(*which).decode("utf-8", "backslashreplace") if logs else None
        attempts.append(ShownAttempt(attempt=attempt, commands=journal.commands(*which), log=log))
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
        why = f"  {attempt.purpose}{f', {attempt.why}' if attempt.why else ''}"
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


class Listener:
    """Hears what a hunt does; this one is silent.

    It must not raise, and need not hurry: nobody measures meanwhile in this process.
    """

    def opened(self, stage: str, title: str, points: Sequence[Point], runs: int) -> None:
        """A stage begins, or goes on after so many runs."""

    def finished(self, attempt: Attempt) -> None:
        """An attempt is over, and in the journal."""

    def decided(self, decision: Decision) -> None:
        """What is known now, and what comes next."""

    def said(self, message: str) -> None:
        """One sentence for a person."""

    def waiting(self) -> None:
        """A run began, or nothing happened for a moment: time to redraw a clock."""

    def closed(self) -> None:
        """The hunt is over, or was stopped."""


class LineListener(Listener):
    """One line per attempt, for logs."""

    def __init__(self, units: Mapping[str, str], stream: IO[str]) -> None:
        self._units, self._stream = units, stream
        self._labels: dict[str, str] = {}
        self._runs, self._left, self._since = 0, 0, 0

    def opened(self, stage: str, title: str, points: Sequence[Point], runs: int) -> None:
        self._labels, self._left = {point.id: point.label for point in points}, 0
        self._runs += runs
        missing = sum(bool(point.missing) for point in points)
        lacking = f", {missing:,} of them not available" if missing else ""
        ends = f" ({points[0].label} … {points[-1].label})" if points else ""
        where = f"stage {stage}, {title}" if stage != "0" else title
        self.said(f"{where}: {count(len(points), 'point')}{ends}{lacking}")

    def decided(self, decision: Decision) -> None:
        self._left, self._since = decision.expected_left or 0, 0

    def finished(self, attempt: Attempt) -> None:
        self._runs += not attempt.shared_with
        self._since += 1
        total = f"/≈{self._runs + max(self._left - self._since, 0)}" if self._left else ""
        took = f"as {attempt.shared_with}" if attempt.shared_with else duration(attempt.seconds)
        label = self._labels.get(attempt.point, attempt.point)
        what = f"{label} {say.came_of(attempt, self._units)} ({took}) {attempt.why}"
        self.said(f"[{self._runs}{total}] {what}")

    def said(self, message: str) -> None:
        terminal.say(message, self._stream)


class LiveListener(Listener):
    """What `karat hunt status` shows of the stage at work, drawn anew as things happen.

    From the hunt's own thread: it comes by at least twice a second, and nothing is seen half made.
    """

    def __init__(self, stream: IO[str], journal: Journal) -> None:
        self._stream, self._journal = stream, journal
        self._live: Live | None = None
        self._drawn = -_PAUSE

    def _draw(self) -> None:
        from rich.text import Text

        if time.monotonic() - self._drawn < _PAUSE:
            return
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._stream), auto_refresh=False, transient=True)
            self._live.start()
        size = self._live.console.size
        shown = status_lines(build_report(self._journal, logs=False), size.width, at_work=True)
        lines = [Text.assemble(*((printable(text), style) for text, style in line), no_wrap=True) for line in shown]
        for line in lines:
            line.truncate(size.width, overflow="ellipsis")
        self._live.update(Text("\n").join(lines[: max(3, size.height - 1)]), refresh=True)
        self._drawn = time.monotonic()

    def finished(self, attempt: Attempt) -> None:  # noqa: ARG002 - a listener's signature
        self._draw()

    def waiting(self) -> None:
        self._draw()

    def said(self, message: str) -> None:
        from rich.text import Text

        self._draw()
        if self._live is not None:
            self._live.console.print(Text(printable(message), style="yellow"))

    def closed(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def listener_for(stream: IO[str], environ: Mapping[str, str], units: Mapping[str, str], journal: Journal) -> Listener:
    """Someone who shows on the stream what a hunt does."""
    terminal = stream.isatty() and environ.get("TERM") != "dumb"
    return LiveListener(stream, journal) if terminal else LineListener(units, stream)
