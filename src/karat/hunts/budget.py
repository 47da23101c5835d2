"""Budgets of a hunt: runs, time at work and cost, over all stages and all resumes. What the journal has counts."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import NamedTuple

from karat.engines.job import Job, JobResult
from karat.hunts.model import Attempt
from karat.hunts.report.sentences import duration
from karat.hunts.settings import HuntSettings, parse_duration
from karat.report.words import count


class Limit(NamedTuple):
    option: str
    most: float  # 0: none.
    used: float
    text: str  # Of what it is spent: `40 runs`, `10 min`.

    @property
    def more(self) -> tuple[str, str]:
        """The option with twice as much as was used, for a resume."""
        twice = math.ceil(2 * max(self.most, self.used))
        return self.option, f"{twice} s" if self.option == "--max-time" else str(twice)


class Budget:
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
