"""Measuring: points become jobs, jobs become attempts, and attempts are in the journal before anyone hears of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from karat.engines.job import Command, Job, JobResult, Ran
from karat.hunt import probing
from karat.hunt.attempt import Attempt
from karat.hunt.attempted import Attempted
from karat.hunt.jobs import job_for
from karat.hunt.journal_rows import SEARCH, CommandRow, Entry
from karat.hunt.kept_settings import cleaned, secrets
from karat.hunt.kit import Kit, OpenStage, Stopped
from karat.hunt.point import Point
from karat.hunt.searching import Seen
from karat.hunt.seeing import seen_of
from karat.report.words import count

_TICK = 0.5
"""Seconds after which a listener may redraw its clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One attempt under way."""

    stage: OpenStage
    point: Point
    number: int
    purpose: str
    why: str
    job: Job


class Measuring:
    """Runs points on the engine, and keeps what came of them."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._flight: dict[str, Run] = {}
        self._attempted = Attempted(kit.journal)
        self._kinds = {stage.key: stage.timeline for stage in kit.journal.stages()}
        self._keys = itertools.count(self._attempted.runs + 1)
        self._secrets = secrets(kit.settings)
        self._slots = 0

    @property
    def in_flight(self) -> Sequence[Run]:
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

    def stopped(self) -> Stopped:
        """What to raise when the budget is spent."""
        return Stopped(f"the budget of {count(self._kit.settings.search.max_runs, 'run')} is spent")

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
        self._flight[key] = Run(
            stage=stage, point=point, number=number, purpose=purpose, why=why, job=job
        )
        kit.journal.started(stage.key, point.id, number, why)
        kit.listener.started(stage.key, point, why)
        kit.engine.submit(job)

    def _tell_slots(self) -> None:
        """Whoever says how long it will take hears how many run at a time: a cluster has what it has, and it changes."""
        slots = self._kit.engine.slots
        if slots != self._slots:
            self._slots = slots
            self._kit.journal.note("slots", str(slots))
            self._kit.listener.room(slots)

    def wait(self) -> Sequence[Run]:
        """Runs that are over; their attempts are in the journal."""
        results = self._kit.engine.wait(_TICK)
        if not results:
            self._kit.listener.waiting()
        return [self._finish(result) for result in results if result.key in self._flight]

    def measure(
        self, stage: OpenStage, purpose: str, why: str
    ) -> Callable[[Sequence[Point]], Sequence[Seen]]:
        """A function that runs points and waits for all of them, for those who swap and confirm.

        Each call is one more attempt at each of its points. What the journal has of this purpose is not run again: a
        hunt that is resumed hears what it heard before.
        """
        asked: Counter[str] = Counter()

        def measured(points: Sequence[Point]) -> Sequence[Seen]:
            wanted: list[tuple[Point, int]] = []
            for point in points:
                asked[point.id] += 1
                wanted.append((point, asked[point.id]))
            self._complete(stage, wanted, purpose, why)
            return [
                seen_of([self.attempts(stage, point, purpose)[nth - 1]]) for point, nth in wanted
            ]

        return measured

    def _complete(
        self, stage: OpenStage, wanted: Sequence[tuple[Point, int]], purpose: str, why: str
    ) -> None:
        """Run until every point has as many attempts of this purpose as are wanted."""
        for point, _ in wanted:
            self._kit.journal.mixed(stage.key, point)
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

    def _finish(self, result: JobResult) -> Run:
        run = self._flight.pop(result.key)
        attempt = probing.read(
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
        entry = Entry(attempt=attempt, purpose=run.purpose, lost=bool(result.lost))
        commands = [
            _command_row(command, ran, self._secrets)
            for command, ran in zip(run.job.commands, result.ran, strict=False)
        ]
        self._attempted.add(entry, log=log_of(result), commands=commands)
        self._kit.listener.finished(attempt)
        return run

    def _share(self, run: Run, attempt: Attempt) -> None:
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
            self._attempted.add(Entry(attempt=copy, purpose=run.purpose))
            self._kit.listener.finished(copy)


def _command_row(command: Command, ran: Ran, environment: Mapping[str, str]) -> CommandRow:
    return CommandRow(
        role=command.role,
        name=command.name,
        argv=tuple(cleaned(word, environment) for word in command.argv),
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
