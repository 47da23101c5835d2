"""The front door: the plan of a hunt, a journal for a new one, and a hunt into it with an engine of its own, until it ends.

In: hunt.toml, a journal and what options say instead. Out: the report. Called by `karat.hunt` and `karat hunt resume`. And one
point of it by hand, or two in turns, which the journal does not keep (`karat hunt try`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Literal

import msgspec
from msgspec import structs

from karat.changepoints.series import Outcome
from karat.engines.job import open_engine
from karat.findings import UsageError
from karat.hunts import settings as tables
from karat.hunts.driver import INTERRUPTED, mark_stopped, run_hunt
from karat.hunts.hunt_toml import Overrides, apply_overrides, hunt_name, ignore_in_git, read, workspace_of
from karat.hunts.journal import Journal, archive, discard, is_empty, show_command
from karat.hunts.model import Attempt, HuntReport, HuntRow, Point
from karat.hunts.probe.jobs import job_for
from karat.hunts.probe.outcomes import read_attempt, search_metrics
from karat.hunts.report.assemble import build_report, engine_used
from karat.hunts.report.reproduce import reproduce_script
from karat.hunts.report.sentences import duration, listed
from karat.hunts.report.terminal import Listener, find_point, listener_for
from karat.hunts.search.inference import judge
from karat.hunts.search.observations import observed_in
from karat.hunts.search.strategies import strategy_for
from karat.hunts.settings import HuntSettings, parse_duration, split_command, stages
from karat.hunts.timelines.timeline import Workspace, mark_skipped, notes_on, open_timeline
from karat.report.words import count
from karat.system.command import Command


def new_journal(path: Path, file: Path, settings: HuntSettings, *, fresh: bool = False) -> Journal:
    """The journal of a hunt that begins; one that is there is archived (`fresh`) or refused."""
    if path.exists() and fresh:
        archive(path)
    elif path.exists() and not is_empty(path):
        with Journal(path) as journal:
            report, process = build_report(journal), journal.writer()
        if process is not None:
            said = f"expected no other hunt into {path}, found process {process} writing it"
            raise UsageError(said, next_command=Command("karat", "hunt", "status", str(path)))
        if report.runs:
            what = "a hunt that is not finished" if report.resume else "a finished hunt"
            said = f"expected no journal at {path}, found {what} with {count(report.runs, 'run')}"
            following = report.resume or Command("karat", "hunt", "report", str(path))
            raise UsageError(f"{said}; --fresh starts over and archives it", next_command=following)
        # Nobody misses it: nothing was run, and nobody is at work.
        discard(path)
    return Journal.create(path, hunt_row(file, settings, workspace_of(file, settings)))


def hunt_row(file: Path, settings: HuntSettings, place: Workspace) -> HuntRow:
    return HuntRow(
        name=hunt_name(file, settings),
        file=str(file.absolute()),
        root=str(place.root),
        hunt=place.hunt,
        settings=tables.settings_json(settings),
        command=tuple(map(tables.without_assignments, split_command(settings.probe.command))),
        metrics=search_metrics(settings),
    )


class HuntInterrupted(KeyboardInterrupt):
    """Ctrl-C, with the report of what was measured until then."""

    def __init__(self, report: HuntReport) -> None:
        super().__init__()
        self.report = report


def settings_of(journal: Journal) -> tuple[Path, HuntSettings, Overrides]:
    """The file of a journal's hunt, what it says today, or what was given without a file, and what options said."""
    facts = journal.facts()
    # Where it was when the hunt began; in this folder, if the whole folder has moved.
    file = Path(facts.get("file", ""))
    file = Path(file.name) if not file.exists() and Path(file.name).is_file() else file
    plain = journal.fact("given", HuntSettings) if "given" in facts else read(file)
    return file, plain, journal.fact("overrides", Overrides, "{}")


def resume_hunt(path: Path, said: Overrides, progress: IO[str] | None, abandoned: Callable[[], None]) -> HuntReport:
    """Go on with the hunt of a journal, with what options say now, and otherwise with what they said when it began."""
    with Journal.resume(path) as journal:
        facts = journal.facts()
        file, plain, before = settings_of(journal)
        together = said.over(before)
        settings = tables.settings_json(apply_overrides(plain, together))
        journal.fact("settings", dict[str, Any])  # or it is damaged
        if changed := tables.changed_settings(facts["settings"], settings):
            found = f"expected {file.name} as it was when the hunt began, found other values of {', '.join(changed)}"
            following = Command("karat", "hunt", "run", str(file), "--journal", str(path), "--fresh")
            raise UsageError(f"{found}: what was measured before and after would not compare", next_command=following)
        journal.set_fact("settings", settings)
        return hunt_into(journal, file, plain, together, progress, abandoned)


def hunt_into(
    journal: Journal,
    file: Path,
    plain: HuntSettings,
    overrides: Overrides,
    progress: IO[str] | None,
    abandoned: Callable[[], None],
) -> HuntReport:
    """Hunt until there is nothing left to ask; `abandoned` is called where an engine could not be closed."""
    # For a resume.
    journal.set_fact("overrides", msgspec.json.encode(overrides).decode())
    settings, place = apply_overrides(plain, overrides), workspace_of(file, plain)
    units = {metric.name: metric.unit for metric in settings.probe.metrics}
    listener = Listener() if progress is None else listener_for(progress, os.environ, units, journal)
    try:
        ignore_in_git(place)
        engine = open_engine(settings.engine, place.work, listener.said)
        try:
            return run_hunt(settings, place, engine, journal, listener)
        finally:
            engine.close()
            if engine.abandoned:
                abandoned()
    except KeyboardInterrupt as error:
        if journal.facts()["state"] == "running":  # before anything was driven
            mark_stopped(journal, INTERRUPTED)
        raise HuntInterrupted(build_report(journal)) from error


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that would come first: its point, why, and its commands as a person would type them."""

    point: Point
    why: str
    commands: tuple[str, ...]  # The last one is what is measured.


class HuntPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a hunt would do."""

    schema: str = "karat.hunt-plan/1"
    stages: tuple[str, ...]
    points: tuple[Point, ...]  # Of the first stage; finer ones depend on what it finds.
    first: tuple[PlannedRun, ...]
    expected: int | None  # Runs of the first stage, as far as the strategy can say before it has seen anything.
    sweep: int  # Runs that trying every point once would take.
    longest: float  # Seconds a run may take at most: its warm-ups and repeats, each to its time-out.
    slots: int = 1  # How many runs at a time.
    gpus: float = 0  # GPUs of each run.
    notes: tuple[str, ...] = ()


def plan(settings: HuntSettings, place: Workspace) -> HuntPlan:
    """What a hunt would do: its points, the first runs, the cost of a sweep."""
    wanted = stages(settings)
    with closing(open_timeline(settings, wanted[0], None, place)) as timeline:
        points = mark_skipped(timeline.points, settings.skip)
        strategy = strategy_for(settings.search, points, search_metrics(settings))
        decision = strategy.decide({}, {}, max(1, settings.engine.slots))
        environment, steps = tables.environment_values(settings), []
        for ask in decision.asks:
            job = job_for(timeline, points[ask.index], settings, key="plan", place=place)
            lines = tuple(
                shlex.join(tables.redact(word, environment) for word in command.argv) for command in job.commands
            )
            steps.append(PlannedRun(point=points[ask.index], why=ask.text(points), commands=lines))
        notes = tuple(notes_on(timeline, points, settings.skip))
    probe = settings.probe
    return HuntPlan(
        stages=tuple(stage.text for stage in wanted),
        points=points,
        first=tuple(steps),
        expected=decision.expected_left,
        sweep=sum(not point.missing for point in points),
        longest=parse_duration(probe.timeout) * (probe.repeats + probe.warmups),
        slots=max(1, settings.engine.slots),
        gpus=settings.engine.gpus,
        notes=notes,
    )


def plan_lines(found: HuntPlan) -> Iterator[str]:
    """The plan in about ten lines; `--json` has every point and every command."""
    points = found.points
    missing = [point for point in points if point.missing]
    between = f" ({points[0].label} … {points[-1].label})" if len(points) > 1 else ""
    yield f"stages: {', then '.join(found.stages)}"
    yield f"points: {len(points):,} at the first stage{between}"
    if missing:
        yield f"  not available: {listed(missing, 4)}: {missing[0].missing}"
    expected = f"about {count(found.expected, 'run')}" if found.expected is not None else "some runs"
    yield f"runs: {expected} to start with, more where something changed; a sweep takes {found.sweep:,}"
    rounds = -(-(found.expected if found.expected is not None else found.sweep) // found.slots)
    yield f"time: {duration(rounds * found.longest)} at most to start with: {duration(found.longest)} a run, plus preparation"
    gpus = f", {found.slots * found.gpus:g} GPUs ({found.gpus:g} a run)" if found.gpus else ", no GPUs"
    yield f"machine: {count(found.slots, 'run')} at a time{gpus}"
    for step in found.first[:1]:
        steps = f", after {count(len(step.commands) - 1, 'step')} of preparation" if len(step.commands) > 1 else ""
        yield f"first: {step.point.label} ({step.why}): {step.commands[-1]}{steps}"
    yield from found.notes[:3]


AGAIN = 3  # Runs of each of two points, unless more or fewer are asked for.


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What `karat hunt try` ran. Schema karat.hunt-try/1."""

    schema: str = "karat.hunt-try/1"
    stage: str
    points: tuple[Point, ...]  # The one asked for; with --against the other one first.
    attempts: tuple[Attempt, ...]
    verdicts: dict[str, Literal["differ", "same", "unsure"]] = msgspec.field(default_factory=dict)
    """Metric → whether the two differ; nothing where one was run."""

    @property
    def code(self) -> int:
        """0: it works, or the two do not differ; 1: it fails, or they do; 3: it cannot be run, or that is not clear."""
        outcomes = {attempt.outcome for attempt in self.attempts}
        if outcomes & {Outcome.BROKEN, Outcome.MISSING} or "unsure" in self.verdicts.values():
            return 3
        failed = outcomes & {Outcome.CRASH, Outcome.HANG} if len(self.points) == 1 else ()
        return int(bool(failed) or "differ" in self.verdicts.values())


def try_point(
    journal: Journal,
    name: str,
    *,
    stage: str | None = None,
    against: str | None = None,
    times: int | None = None,
    said: Callable[[Point, Attempt, str], None],
) -> Tried:
    """Run a point, or two in turns; `against` may be `parent`: the point before. `said` hears of each, with its output."""
    key, point = find_point(journal, name, stage)
    file, plain, overrides = settings_of(journal)
    settings, place = apply_overrides(plain, overrides), workspace_of(file, plain)
    wanted = [point]
    if against == "parent":
        before = next((old for old, new in pairwise(journal.points(key)) if new.id == point.id), None)
        if before is None:
            wrong = f"--against parent: expected a point before {point.label}, found none"
            raise UsageError(wrong, next_command=Command("karat", "hunt", "status", str(journal.path)))
        wanted = [before, point]
    elif against is not None:
        wanted = [find_point(journal, against, key)[1], point]
    row, known, attempts = journal.stage(key), stages(settings), list[Attempt]()
    ignore_in_git(place)
    # In a work area of its own: the hunt may be running.
    own = structs.replace(settings.engine, kind="local", slots=1)
    config = known[min(key.count("/"), len(known) - 1)]
    with (
        closing(open_engine(own, place.work / "try")) as engine,
        closing(open_timeline(settings, config, row.window if row else None, place)) as timeline,
    ):
        for number in range(1, (times or (AGAIN if against else 1)) + 1):
            for one in wanted:
                engine.submit(job_for(timeline, one, settings, key=f"try-{number}-{one.id}", place=place))
                (result,) = engine.wait()
                attempt = read_attempt(result, settings, stage=key, point=one, number=number, place=place)
                attempts.append(attempt)
                shown = [ran for ran in result.ran if ran.role == "measure" or (ran.exit_code and not ran.skipped)]
                said(one, attempt, b"".join(r.output for r in shown).decode("utf-8", "backslashreplace"))
    verdicts = {}
    for metric in search_metrics(settings) if against is not None else ():
        old, new = (observed_in(tried for tried in attempts if tried.point == one.id) for one in wanted)
        search = settings.search
        judged = judge(old, new, metric, smallest=search.smallest, confidence=search.confidence)
        verdicts[metric.name] = judged.verdict
    return Tried(stage=key, points=tuple(wanted), attempts=tuple(attempts), verdicts=verdicts)


def script_of(journal: Journal, name: str, stage: str | None) -> str:
    key, point = find_point(journal, name, stage)
    settings, row = settings_of(journal)[1], journal.stage(key)
    tried = journal.attempts(key, point.id)
    identity = next((one.identity for one in reversed(tried) if one.identity), {})
    kind = "split" if settings.split is not None else row.timeline if row else ""
    script = reproduce_script(settings, kind, point, identity, engine=engine_used(journal, key, tried))
    if not script:
        said = f"expected a point that a script can put under test, found {point.label}, which takes a hunt's work area"
        raise UsageError(said, next_command=show_command(point.id, stage=key, verb="try"))
    return script
