"""Measuring: points become jobs, jobs become attempts, and attempts are in the journal before anyone hears of them."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from karat.changepoints.series import Outcome
from karat.engines.job import Command, Engine, Job, JobResult, Ran
from karat.hunts.journal.journal import Journal
from karat.hunts.journal.records import SEARCH, AttemptRow, CommandRow, environment_values, redact
from karat.hunts.model import Attempt, Metric, Observed, Point, Window
from karat.hunts.probe import outcomes
from karat.hunts.probe.jobs import job_for
from karat.hunts.report.live import Listener
from karat.hunts.search.observations import observed_in
from karat.hunts.settings import HuntSettings
from karat.hunts.timelines.timeline import Timeline, Workspace
from karat.report.words import count


@dataclass(frozen=True, slots=True, kw_only=True)
class HuntContext:
    """What every part of a hunt works with."""

    settings: HuntSettings
    place: Workspace
    engine: Engine
    journal: Journal
    listener: Listener
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStage:
    """A stage at work: its timeline is open, its points are in the journal."""

    key: str
    depth: int
    title: str
    timeline: Timeline
    points: Sequence[Point]
    window: Window | None = None


class HuntStopped(Exception):  # noqa: N818 - it is what was asked for, not a bug
    """The hunt ends before its answer: the budget is spent, or a person said so."""


_EVIDENCE = frozenset({Outcome.OK, Outcome.CRASH, Outcome.HANG})


class AttemptIndex:
    """Every attempt of a hunt so far."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._by_point: dict[tuple[str, str], list[AttemptRow]] = defaultdict(list)
        self._originals: dict[str, list[Attempt]] = defaultdict(list)
        self.runs = 0
        """Those that were really run; shared ones cost nothing."""
        for entry in journal.attempts():
            self._keep(entry)

    def add(
        self, entry: AttemptRow, *, log: bytes = b"", commands: Sequence[CommandRow] = ()
    ) -> None:
        """One more; it is in the journal first."""
        self._journal.add_attempt(entry, log=log, commands=commands)
        self._keep(entry)

    def _keep(self, entry: AttemptRow) -> None:
        attempt = entry.attempt
        self._by_point[attempt.stage, attempt.point].append(entry)
        self.runs += not attempt.shared_with
        if attempt.identity_key and attempt.outcome in _EVIDENCE and not attempt.shared_with:
            self._originals[attempt.identity_key].append(attempt)

    def count(self, stage: str, point: str) -> int:
        """How many there are of a point."""
        return len(self._by_point.get((stage, point), ()))

    def of(self, stage: str, point: str, retries: int, purpose: str = SEARCH) -> list[Attempt]:
        """Those of one purpose that say something.

        An attempt whose machine was lost says nothing until the point was tried elsewhere, `retries` times.
        """
        entries = [e for e in self._by_point.get((stage, point), ()) if e.purpose == purpose]
        lost = sum(entry.lost for entry in entries)
        return [e.attempt for e in entries if not e.lost or lost > retries]

    def measured(self, stages: frozenset[str]) -> tuple[str, ...]:
        """Identities that were measured in these stages."""
        return tuple(
            key for key, those in self._originals.items() if any(a.stage in stages for a in those)
        )

    def sources(self, identity_key: str) -> list[Attempt]:
        """The attempts of the first point at which this was under test."""
        those = self._originals.get(identity_key, [])
        return [a for a in those if (a.stage, a.point) == (those[0].stage, those[0].point)]


_TICK = 0.5
"""Seconds after which a listener may redraw its clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAttempt:
    """One attempt under way."""

    stage: OpenStage
    point: Point
    number: int
    purpose: str
    why: str
    job: Job


class Measurer:
    """Runs points on the engine, and keeps what came of them."""

    def __init__(self, kit: HuntContext) -> None:
        self._kit = kit
        self._flight: dict[str, RunningAttempt] = {}
        self._attempted = AttemptIndex(kit.journal)
        self._kinds = {stage.key: stage.timeline for stage in kit.journal.stages()}
        self._keys = itertools.count(self._attempted.runs + 1)
        self._secrets = environment_values(kit.settings)
        self._slots = 0

    @property
    def in_flight(self) -> Sequence[RunningAttempt]:
        """The attempts under way."""
        return tuple(self._flight.values())

    @property
    def room(self) -> int:
        """How many more may start now: free slots, and what the budget leaves."""
        free = self._kit.engine.slots - len(self._flight)
        limit = self._kit.settings.search.max_runs
        left = limit - self._attempted.runs - len(self._flight) if limit else free
        return max(0, min(free, left))

    @property
    def spent(self) -> bool:
        """Whether the budget is."""
        return 0 < self._kit.settings.search.max_runs <= self._attempted.runs

    def stopped(self) -> HuntStopped:
        """What to raise when the budget is spent."""
        return HuntStopped(
            f"the budget of {count(self._kit.settings.search.max_runs, 'run')} is spent"
        )

    def attempts(self, stage: OpenStage, point: Point, purpose: str = SEARCH) -> list[Attempt]:
        """What is known of a point from attempts of one purpose."""
        retries = self._kit.settings.engine.retries
        return self._attempted.of(stage.key, point.id, retries, purpose)

    def start(self, stage: OpenStage, point: Point, why: str, purpose: str = SEARCH) -> None:
        """Put a point under test."""
        self._tell_slots()
        kit, key = self._kit, f"run-{next(self._keys)}"
        number = self._attempted.count(stage.key, point.id) + self._flying(stage, point) + 1
        # A point that is asked for once more is meant: what others measured is no answer then.
        known = self._known(stage) if number == 1 and purpose == SEARCH else ()
        job = job_for(stage.timeline, point, kit.settings, key=key, known=known, place=kit.place)
        self._flight[key] = RunningAttempt(
            stage=stage, point=point, number=number, purpose=purpose, why=why, job=job
        )
        kit.journal.run_started(stage.key, point.id, number, why)
        kit.listener.started(stage.key, point, why)
        kit.engine.submit(job)

    def _tell_slots(self) -> None:
        """Whoever says how long it will take hears how many run at a time: a cluster has what it has, and it changes."""
        slots = self._kit.engine.slots
        if slots != self._slots:
            self._slots = slots
            self._kit.journal.set_fact("slots", str(slots))
            self._kit.listener.room(slots)

    def wait(self) -> Sequence[RunningAttempt]:
        """Runs that are over; their attempts are in the journal."""
        results = self._kit.engine.wait(_TICK)
        if not results:
            self._kit.listener.waiting()
        return [self._finish(result) for result in results if result.key in self._flight]

    def measure(
        self, stage: OpenStage, purpose: str, why: str
    ) -> Callable[[Sequence[Point]], Sequence[Observed]]:
        """A function that runs points and waits for all of them, for those who swap and confirm.

        Each call is one more attempt at each of its points. What the journal has of this purpose is not run again: a
        hunt that is resumed hears what it heard before.
        """
        asked: Counter[str] = Counter()

        def measured(points: Sequence[Point]) -> Sequence[Observed]:
            wanted: list[tuple[Point, int]] = []
            for point in points:
                asked[point.id] += 1
                wanted.append((point, asked[point.id]))
            self._complete(stage, wanted, purpose, why)
            return [
                observed_in([self.attempts(stage, point, purpose)[nth - 1]])
                for point, nth in wanted
            ]

        return measured

    def _complete(
        self, stage: OpenStage, wanted: Sequence[tuple[Point, int]], purpose: str, why: str
    ) -> None:
        """Run until every point has as many attempts of this purpose as are wanted."""
        for point, _ in wanted:
            self._kit.journal.add_mixed_point(stage.key, point)
        while lacking := [
            point for point, nth in wanted if len(self.attempts(stage, point, purpose)) < nth
        ]:
            fresh = [point for point in lacking if not self._flying(stage, point)]
            for point in fresh[: self.room]:
                self.start(stage, point, why, purpose)
            if not self._flight:
                raise self.stopped()
            self.wait()

    def _flying(self, stage: OpenStage, point: Point) -> int:
        return sum(
            run.stage.key == stage.key and run.point.id == point.id for run in self._flight.values()
        )

    def _known(self, stage: OpenStage) -> tuple[str, ...]:
        """Identities that were measured on timelines of this kind."""
        self._kinds[stage.key] = stage.timeline.name
        alike = frozenset(key for key, kind in self._kinds.items() if kind == stage.timeline.name)
        return self._attempted.measured(alike)

    def _finish(self, result: JobResult) -> RunningAttempt:
        run = self._flight.pop(result.key)
        attempt = outcomes.read_attempt(
            result,
            self._kit.settings,
            stage=run.stage.key,
            point=run.point,
            number=run.number,
            place=self._kit.place,
        )
        attempt = structs.replace(attempt, why=run.why)
        if result.shared:
            self._share(run, attempt)
            return run
        entry = AttemptRow(attempt=attempt, purpose=run.purpose, lost=bool(result.lost))
        commands = [
            _command_row(command, ran, self._secrets)
            for command, ran in zip(run.job.commands, result.ran, strict=False)
        ]
        self._attempted.add(entry, log=log_of(result), commands=commands)
        self._kit.listener.finished(attempt)
        return run

    def _share(self, run: RunningAttempt, attempt: Attempt) -> None:
        """The very same thing was measured already: its attempts are this point's, too."""
        for offset, source in enumerate(self._attempted.sources(attempt.identity_key)):
            copy = structs.replace(
                attempt,
                number=run.number + offset,
                outcome=source.outcome,
                samples=source.samples,
                signature=source.signature,
                hunted=source.hunted,
                shared_with=source.point,
            )
            self._attempted.add(AttemptRow(attempt=copy, purpose=run.purpose))
            self._kit.listener.finished(copy)


def _command_row(command: Command, ran: Ran, environment: Mapping[str, str]) -> CommandRow:
    return CommandRow(
        role=command.role,
        name=command.name,
        argv=tuple(redact(word, environment) for word in command.argv),
        cwd=command.cwd,
        env=tuple(sorted(command.env)),
        exit_code=ran.exit_code,
        signal=ran.signal,
        timed_out=ran.timed_out,
        skipped=ran.skipped,
        error=ran.error,
        seconds=ran.seconds,
    )


def log_of(result: JobResult) -> bytes:
    """What all commands printed, each under a line that says how it ended."""
    parts = [b"%s\n%s" % (_headline(ran).encode(), ran.output) for ran in result.ran]
    if result.lost:
        parts.append(f"--- lost: {result.lost}\n".encode())
    return b"\n".join(part.rstrip(b"\n") for part in parts) + (b"\n" if parts else b"")


def _headline(ran: Ran) -> str:
    how = "not needed" if ran.skipped else ran.error or _ended(ran)
    return f"--- {ran.role}{f' {ran.name}' if ran.name else ''}: {how}"


def _ended(ran: Ran) -> str:
    if ran.timed_out:
        return f"out of time after {ran.seconds:.1f} s"
    if ran.signal is not None:
        return f"signal {ran.signal} after {ran.seconds:.1f} s"
    return f"exit code {ran.exit_code}, {ran.seconds:.1f} s"
