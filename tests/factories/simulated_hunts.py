"""Simulated timelines: points with true values, a strategy, and runs that end in any order."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from karat.changepoints.series import Outcome
from karat.hunts.model import Decision, Observed, Strategy

METRIC = "m"


@dataclass
class Simulated:
    """A timeline whose points have true values; None: broken."""

    truth: Sequence[float | None]
    spread: float = 0.0
    """Of one run, relative."""
    flakes: float = 0.0
    """Of a metric that is 0 or 1: how often a run says the opposite where the truth is 0."""
    crashes: float = 0.0
    """How often a run crashes, whatever the point."""
    crashing: frozenset[int] = frozenset()
    """Points that always crash."""
    outliers: Mapping[int, float] = field(default_factory=dict)
    """Point → what its first run says."""
    builds: float = 0.0
    """Standard deviation from build to build, relative; the same in all runs of a point."""
    drift: float = 0.0
    """Of the machine, from run to run."""
    workers: tuple[float, ...] = (0.0,)
    """What each worker adds, relative; a run gets one at random."""
    night: float = 0.0
    """How far day and night move it either way; a run takes an hour."""
    seed: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._built = [1 + self._rng.gauss(0, self.builds) for _ in self.truth] if self.builds else []
        self.seen: dict[int, Observed] = {}
        self.runs = 0
        self.asked: list[int] = []
        self.decisions: list[Decision] = []
        self.history: list[tuple[dict[int, Observed], dict[int, int], int]] = []

    def run(self, at: int) -> None:
        """One run of a point."""
        before = self.seen.get(at, Observed())
        value, outcome = self._result(at, first=not before.outcomes)
        worker = self._rng.randrange(len(self.workers)) if len(self.workers) > 1 else 0
        if value:
            off = self.drift * self.runs + self.workers[worker] + self.night * math.sin(math.tau * self.runs / 24)
            value *= (self._built[at] if self.builds else 1) * (1 + off)
        values = before.values.get(METRIC, ())
        self.seen[at] = Observed(
            values={METRIC: values if value is None else (*values, value)},
            outcomes=(*before.outcomes, outcome),
            signatures=(*before.signatures, "Boom: it" if outcome is Outcome.CRASH else ""),
            started=(*before.started, 3600.0 * self.runs),
            where=(*before.where, f"worker {worker}"),
        )
        self.runs += 1

    def _result(self, at: int, *, first: bool) -> tuple[float | None, Outcome]:
        true = self.truth[at]
        if true is None:
            return None, Outcome.BROKEN
        if at in self.crashing or self._rng.random() < self.crashes:
            return None, Outcome.CRASH
        if first and at in self.outliers:
            return self.outliers[at], Outcome.OK
        if not true:
            return float(self._rng.random() < self.flakes), Outcome.OK
        return true * (1 + self._rng.gauss(0, self.spread)), Outcome.OK

    def hunt(self, strategy: Strategy, slots: int = 1, most: int = 20_000) -> Decision:
        """Runs until the strategy has enough; with several slots, runs end in any order."""
        flying: list[int] = []
        while True:
            pending = {at: flying.count(at) for at in flying}
            room = slots - len(flying)
            self.history.append((dict(self.seen), pending, room))
            decision = strategy.decide(dict(self.seen), pending, room)
            self.decisions.append(decision)
            assert len(decision.asks) <= room
            flying += [ask.index for ask in decision.asks]
            self.asked += [ask.index for ask in decision.asks]
            if not flying:
                return decision
            self.run(flying.pop(self._rng.randrange(len(flying))))
            assert self.runs < most, "it does not end"

    def neighbours(self, at: int) -> tuple[int, int] | None:
        """The last point before `at` and the first from it on that can be run."""
        able = [k for k, true in enumerate(self.truth) if true is not None]
        before, after = [k for k in able if k < at], [k for k in able if k >= at]
        return (before[-1], after[0]) if before and after else None


def pairs(decision: Decision) -> list[tuple[int, int]]:
    """What an answer says, in its order."""
    return [(span.good, span.bad) for span in decision.spans]


def stepped(count: int, *changes: tuple[int, float]) -> list[float | None]:
    """A level of 100 that is multiplied at each place."""
    level, out = 100.0, list[float | None]()
    at = dict(changes)
    for index in range(count):
        level *= at.get(index, 1.0)
        out.append(level)
    return out
