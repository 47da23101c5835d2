"""Measuring: points become jobs, jobs become attempts, and attempts are in the journal before anyone hears of them."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec import structs

from karat.changepoints.series import Outcome
from karat.engines.job import Engine, Job, JobResult
from karat.hunts.journal import Journal
from karat.hunts.model import SEARCH, Attempt, CommandRow, Metric, Observed, Point, Window
from karat.hunts.probe.jobs import job_for
from karat.hunts.probe.outcomes import read_attempt
from karat.hunts.report.sentences import duration
from karat.hunts.report.terminal import Listener
from karat.hunts.search.observations import observed_in
from karat.hunts.settings import REBUILD, HuntSettings, environment_values, parse_duration, redact
from karat.hunts.timelines.timeline import Timeline, Workspace
from karat.report.words import count
from karat.system.secrets import scrub, secrets_in

_PAIRED = ("confirm", "alone")
_EVIDENCE = frozenset({Outcome.OK, Outcome.CRASH, Outcome.HANG})


class Limit(NamedTuple):
    option: str
    most: float  # 0: none.
    used: float
    text: str  # Of what it is spent: `40 runs`, `10 min`.


class Budget:
    """Runs, time at work and cost, over all stages and all resumes. What the journal has counts."""

    def __init__(self, settings: HuntSettings, attempts: Iterable[Attempt]) -> None:
        self._settings, known = settings, list(attempts)
        self.runs, self.cost, self._dearest = 0, 0.0, 0.0
        # Time at work: when at least one run was under way, and since this process began.
        self._worked, end = 0.0, 0.0
        for attempt in sorted(known, key=lambda one: one.started):
            self._worked += max(attempt.started + attempt.seconds - max(end, attempt.started), 0.0)
            end = max(end, attempt.started + attempt.seconds)
            self.add(attempt)
        self._since = time.monotonic()

    def add(self, attempt: Attempt) -> None:
        self.runs += not attempt.shared_with
        self.cost += attempt.cost
        self._dearest = max(self._dearest, attempt.cost)

    def price(self, job: Job, result: JobResult, *, first: bool) -> float:
        """What a run cost, by [cost]; an image is paid for once, by the `first` run of its point."""
        cost, gpus = self._settings.cost, max(self._settings.engine.gpus, 1)
        built = any(one.role == "build" or one.name == "install" for one in result.ran if not one.skipped)
        pulled = first and any(command.name == "pull" for command in job.commands)
        return cost.run + cost.build * built + cost.pull * pulled + cost.gpu_second * gpus * result.seconds

    @property
    def limits(self) -> tuple[Limit, ...]:
        search = self._settings.search
        longest = parse_duration(search.max_time)
        worked = self._worked + time.monotonic() - self._since
        return (
            Limit("--max-runs", search.max_runs, self.runs, count(search.max_runs, "run")),
            Limit("--max-time", longest, worked, duration(longest)),
            Limit("--max-cost", search.max_cost, self.cost, f"{search.max_cost:g} ({self.cost:.4g} used)"),
        )

    def room(self, flying: int) -> float:
        """How many more runs may start while so many are under way."""
        runs, longest, cost = self.limits
        left = math.inf
        if runs.most:
            left = runs.most - runs.used - flying
        if longest.most and longest.used >= longest.most:
            left = 0
        if cost.most:
            # As much as the dearest so far; before the first, what is known beforehand.
            prices = self._settings.cost
            each = self._dearest or prices.run + prices.build + prices.pull
            affordable = (cost.most - cost.used) / each - flying if each else 1 - flying
            left = min(left, math.floor(affordable))
        return max(left, 0)

    @property
    def spent(self) -> Limit | None:
        """The limit that lets nothing start any more; None: something may."""
        if self.room(0) > 0:
            return None
        return min((one for one in self.limits if one.most), key=lambda one: (one.most - one.used) / one.most)


@dataclass(frozen=True, slots=True)
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

    def __init__(self, why: str, more: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.more = more  # What a resume has to say to go on.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAttempt:
    stage: OpenStage
    point: Point
    number: int
    purpose: str
    why: str
    job: Job


class Measurer:
    """Runs points on the engine, and keeps what came of them."""

    def __init__(self, hunt: HuntContext) -> None:
        self._hunt = hunt
        self._flight: dict[str, RunningAttempt] = {}
        self._by_point: dict[tuple[str, str], list[Attempt]] = defaultdict(list)
        self._originals: dict[str, list[Attempt]] = defaultdict(list)
        """Identity → its attempts that were really run, and say something."""
        self._shared = set[str]()  # Identities of several points.
        known = hunt.journal.attempts()
        self.budget = Budget(hunt.settings, known)
        for attempt in known:
            self._keep(attempt)
        self._kinds = {stage.key: stage.timeline for stage in hunt.journal.stages()}
        self._keys = itertools.count(self.budget.runs + 1)
        self._environment = environment_values(hunt.settings)
        self._secrets = (*secrets_in(os.environ), *secrets_in(self._environment, named=self._environment))
        self._slots = 0

    @property
    def in_flight(self) -> Sequence[RunningAttempt]:
        return tuple(self._flight.values())

    @property
    def room(self) -> int:
        """How many more may start now: free slots, and what the budget leaves."""
        free = self._hunt.engine.slots - len(self._flight)
        return int(min(free, self.budget.room(len(self._flight))))

    def runs_of(self, stage: OpenStage, *, but: str) -> int:
        """How many of a stage's runs searched or confirmed, and not for that purpose."""
        tried = (one for (key, _), those in self._by_point.items() if key == stage.key for one in those)
        mine = (one for one in tried if one.purpose.startswith((SEARCH, "confirm")) and one.purpose != but)
        return sum(not one.shared_with for one in mine)

    def stopped(self) -> HuntStopped:
        if (spent := self.budget.spent) is None:
            return HuntStopped("there is no slot to run anything in")
        # For a resume: the option with twice as much as was used.
        twice = math.ceil(2 * max(spent.most, spent.used))
        more = (spent.option, f"{twice} s" if spent.option == "--max-time" else str(twice))
        return HuntStopped(f"the budget of {spent.text} is spent", more)

    def attempts(self, stage: OpenStage, point: Point, purpose: str = SEARCH) -> list[Attempt]:
        """Those of one purpose at a point that say something.

        An attempt whose machine was lost says nothing until the point was tried elsewhere, `retries` times.
        """
        tried = [one for one in self._by_point.get((stage.key, point.id), ()) if one.purpose == purpose]
        if tried and tried[0].identity_key in self._shared and purpose == SEARCH:
            # Points where the same thing was under test are one: what is run at any of them counts for all.
            return [a for a in self._originals[tried[0].identity_key] if a.stage in self._alike(stage)]
        lost = sum(one.lost for one in tried)
        return [one for one in tried if not one.lost or lost > self._hunt.settings.engine.retries]

    def _keep(self, attempt: Attempt) -> None:
        self._by_point[attempt.stage, attempt.point].append(attempt)
        self._shared |= {attempt.identity_key} if attempt.shared_with else set()
        if attempt.identity_key and attempt.outcome in _EVIDENCE and not attempt.shared_with:
            self._originals[attempt.identity_key].append(attempt)

    def start(self, stage: OpenStage, point: Point, why: str, purpose: str = SEARCH) -> None:
        hunt, key = self._hunt, f"run-{next(self._keys)}"
        if hunt.engine.slots != self._slots:
            # Whoever says how long it will take must know: a cluster has what it has, and it changes.
            self._slots = hunt.engine.slots
            hunt.journal.set_fact("slots", str(self._slots))
        number = len(self._by_point.get((stage.key, point.id), ())) + self._flying(stage, point) + 1
        # A point that is asked for once more is meant: what others measured is no answer then.
        known: tuple[str, ...] = ()
        if number == 1 and purpose == SEARCH:
            alike = self._alike(stage)
            known = tuple(key for key, those in self._originals.items() if any(a.stage in alike for a in those))
        own = hunt.settings.commits or hunt.settings.checkouts
        tried = point
        if own.rebuild > 1 and stage.timeline.name in {"commits", "checkouts"}:
            tried = structs.replace(point, parts={**point.parts, REBUILD: str((number - 1) % own.rebuild)})
        # Both sides of a change that is confirmed run back to back in one slot: slots differ, too.
        nth = sum(one.purpose == purpose for one in self._by_point.get((stage.key, point.id), ()))
        nth += self._flying(stage, point)
        pair = f"{stage.key} {purpose} {nth}" if purpose.startswith(_PAIRED) else ""
        job = job_for(stage.timeline, tried, hunt.settings, key=key, known=known, place=hunt.place, beside=pair)
        self._flight[key] = RunningAttempt(stage=stage, point=point, number=number, purpose=purpose, why=why, job=job)
        hunt.journal.run_started(stage.key, point.id, number, why)
        hunt.listener.waiting()
        hunt.engine.submit(job)

    def wait(self) -> Sequence[RunningAttempt]:
        """Runs that are over; their attempts are in the journal."""
        results = self._hunt.engine.wait(0.5)  # after which a listener may redraw its clock
        if not results and (spent := self.budget.spent) and spent.option == "--max-time":
            # What is under way would go on for hours, perhaps; a resume runs it again.
            for key in list(self._flight):
                self._hunt.engine.cancel(key)
                del self._flight[key]
            self._hunt.journal.clear_running()
            raise self.stopped()
        if not results:
            self._hunt.listener.waiting()
        return [self._finish(result) for result in results if result.key in self._flight]

    def measure(self, stage: OpenStage, purpose: str, why: str) -> Callable[[Sequence[Point]], Sequence[Observed]]:
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
                self._hunt.journal.add_mixed_point(stage.key, point)
            while lacking := [p for p, nth in wanted if len(self.attempts(stage, p, purpose)) < nth]:
                fresh = [point for point in lacking if not self._flying(stage, point)]
                for point in fresh[: self.room]:
                    self.start(stage, point, why, purpose)
                if not self._flight:
                    raise self.stopped()
                self.wait()
            return [observed_in([self.attempts(stage, point, purpose)[nth - 1]]) for point, nth in wanted]

        return measured

    def _alike(self, stage: OpenStage) -> set[str]:
        """Stages of the same timeline, which put things under test in the same way."""
        kind = self._kinds[stage.key] = stage.timeline.name
        return {key for key, one in self._kinds.items() if one == kind}

    def _flying(self, stage: OpenStage, point: Point) -> int:
        return sum(run.stage.key == stage.key and run.point.id == point.id for run in self._flight.values())

    def _finish(self, result: JobResult) -> RunningAttempt:
        run = self._flight.pop(result.key)
        hunt, key = self._hunt, run.stage.key
        attempt = read_attempt(result, hunt.settings, stage=key, point=run.point, number=run.number, place=hunt.place)
        signature, note = self._redacted(attempt.signature), self._redacted(attempt.note)
        cost = self.budget.price(run.job, result, first=run.number == 1)
        attempt = structs.replace(attempt, signature=signature, note=note, why=run.why, cost=cost)
        attempt = structs.replace(attempt, purpose=run.purpose, lost=bool(result.lost))
        if result.shared and not attempt.signature:  # else: another commit than the point's was under test
            # The attempts of the first point at which this was under test.
            those = self._originals.get(attempt.identity_key, [])
            sources = [a for a in those if (a.stage, a.point) == (those[0].stage, those[0].point)]
            for offset, source in enumerate(sources):
                came = {name: getattr(source, name) for name in ("outcome", "samples", "signature", "hunted")}
                came["cost"] = cost if not offset else 0.0
                self._add(structs.replace(attempt, **came, number=run.number + offset, shared_with=source.point))
            return run
        commands = []
        for command, ran in zip(run.job.commands, result.ran, strict=False):
            argv, error = tuple(map(self._redacted, command.argv)), self._redacted(ran.error)
            kept = {"argv": argv, "env": sorted(command.env), "name": command.name, "cwd": command.cwd, "error": error}
            commands.append(msgspec.convert({**structs.asdict(ran), **kept}, CommandRow))
        log = self._redacted(log_of(result).decode("utf-8", "surrogateescape"))
        self._add(attempt, log=log.encode("utf-8", "surrogateescape"), commands=commands)
        return run

    def _redacted(self, text: str) -> str:
        """A text without the values that hunt.toml sets and without secrets of this environment; the engine has hidden its own."""
        return scrub(redact(text, self._environment), self._secrets)

    def _add(self, attempt: Attempt, *, log: bytes = b"", commands: Sequence[CommandRow] = ()) -> None:
        """One more attempt; it is in the journal before anyone hears of it."""
        self._hunt.journal.add_attempt(attempt, log=log, commands=commands)
        self.budget.add(attempt)
        self._keep(attempt)
        self._hunt.listener.finished(attempt)


def log_of(result: JobResult) -> bytes:
    """What all commands printed, each under a line that says how it ended."""
    parts = []
    for ran in result.ran:
        if ran.skipped or ran.error:
            how = "not needed" if ran.skipped else ran.error
        elif ran.timed_out:
            how = f"timed out after {ran.seconds:.1f} s"
        elif ran.signal is not None:
            how = f"signal {ran.signal} after {ran.seconds:.1f} s"
        else:
            how = f"exit code {ran.exit_code}, {ran.seconds:.1f} s"
        head = f"--- {ran.role}{f' {ran.name}' if ran.name else ''}: {how}\n"
        parts.append(head.encode() + ran.output)
    if result.lost:
        parts.append(f"--- lost: {result.lost}\n".encode())
    return b"".join(part.rstrip(b"\n") + b"\n" for part in parts)
