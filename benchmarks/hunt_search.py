"""The search on simulated histories: recall, precision and runs of sweep, plain bisect, neighbours from the ends, adaptive.

A history: 256 or 4,096 builds, 10% of them broken, on levels with noise of 0.5% (standard deviation of one run).

- lasting: 1 to 4 changes of 2 to 6%, up or down, each level holding for at least 1/32 of the history;
- dips: 1 to 3 such changes, and one dip of 2 to 6%: from one point to four times the grid long;
- flaky test: pass or fail, one break, good builds fail 10% of the time; and the same where nothing ever broke, and the
  last build failed by bad luck;
- flaky runs: as lasting, and each run crashes 10% of the time.

A change is found if the answer names the exact neighbours among the builds that can be run. Plain bisect and comparing
neighbours from the ends are small simulations of what tools do; the others are karat's own. Runs that found a build broken
count. One run at a time: nothing is speculated.

Run: python benchmarks/hunt_search.py [--histories 100] [--seed 6] [--only lasting]
"""

from __future__ import annotations

import argparse
import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from karat.changepoints.series import Outcome
from karat.hunts.model import Metric, Observed
from karat.hunts.search.requests import grid_width
from karat.hunts.search.strategies import open_strategy
from karat.hunts.settings import SearchSettings

SPREAD = 0.005
BROKEN = 0.1
FLAKY = 0.1
Pair = tuple[int, int]
Search = Callable[["World"], set[Pair]]


@dataclass
class World:
    """One history, and whoever runs builds of it."""

    levels: np.ndarray
    """The true value of each build; of a test 0 (good) or 1 (bad)."""
    broken: np.ndarray
    changes: Sequence[int]
    """First builds of a new level."""
    rng: np.random.Generator
    test: bool = False
    crashes: float = 0.0
    dip: Pair | None = None
    seen: dict[int, Observed] = field(default_factory=dict)
    runs: int = 0

    @property
    def count(self) -> int:
        return len(self.levels)

    def run(self, at: int) -> float | None:
        """One more run of a build; None: no value."""
        self.runs += 1
        value = self._value(at)
        before = self.seen.get(at, Observed())
        if value is None:
            outcome = Outcome.BROKEN if self.broken[at] else Outcome.CRASH
            self.seen[at] = Observed(values=before.values, outcomes=(*before.outcomes, outcome))
            return None
        values = (*before.values.get("m", ()), value)
        self.seen[at] = Observed(values={"m": values}, outcomes=(*before.outcomes, Outcome.OK))
        return value

    def _value(self, at: int) -> float | None:
        if self.broken[at] or self.rng.random() < self.crashes:
            return None
        if self.test:
            return 1.0 if self.levels[at] else float(self.rng.random() < FLAKY)
        return float(self.levels[at] * (1 + SPREAD * self.rng.standard_normal()))

    def truth(self) -> set[Pair]:
        return {pair for at in self.changes if (pair := self.neighbours(at))}

    def neighbours(self, at: int) -> Pair | None:
        """The last build before a change and the first after it that can be run."""
        able = np.flatnonzero(~self.broken)
        place = int(np.searchsorted(able, at))
        return (int(able[place - 1]), int(able[place])) if 0 < place < len(able) else None


def lasting(rng: np.random.Generator, count: int, most: int = 4) -> World:
    apart = count // 32
    number = int(rng.integers(1, most + 1))
    while True:
        changes = np.sort(rng.integers(apart, count - apart, size=number))
        if number == 1 or np.diff(changes).min() >= apart:
            break
    levels = np.full(count, 100.0)
    for at in changes:
        levels[at:] *= 1 + rng.choice([-1, 1]) * rng.uniform(0.02, 0.06)
    return World(levels, rng.random(count) < BROKEN, [int(at) for at in changes], rng)


def with_dip(rng: np.random.Generator, count: int) -> World:
    """A dip that keeps its distance from the other changes; short ones are as frequent as long ones."""
    grid = grid_width(count, 0)
    while True:
        world = lasting(rng, count, 3)
        length = max(1, round(grid * 4 ** rng.uniform(-2, 1)))
        first = int(rng.integers(4, count - length - 4))
        near = [at for at in world.changes if first - 8 <= at <= first + length + 8]
        able = np.flatnonzero(~world.broken[first : first + length])
        if not near and len(able):
            break
    world.levels[first : first + length] *= 1 + rng.choice([-1, 1]) * rng.uniform(0.02, 0.06)
    world.dip = (first, length)
    world.changes = sorted([*world.changes, first, first + length])
    return world


def flaky_test(rng: np.random.Generator, count: int) -> World:
    at = int(rng.integers(count // 32, count - count // 32))
    levels = (np.arange(count) >= at).astype(float)
    broken = rng.random(count) < BROKEN
    broken[[0, -1]] = False
    return World(levels, broken, [at], rng, test=True)


def never_broke(rng: np.random.Generator, count: int) -> World:
    """All good; a person saw the last build fail, once, and karat is told so by a first run there."""
    broken = rng.random(count) < BROKEN
    broken[[0, -1]] = False
    world = World(np.zeros(count), broken, [], rng, test=True)
    world.seen[count - 1] = Observed(values={"m": (1.0,)}, outcomes=(Outcome.OK,))
    return world


def flaky_runs(rng: np.random.Generator, count: int) -> World:
    world = lasting(rng, count)
    world.crashes = FLAKY
    return world


def ours(strategy: str) -> Search:
    """One of karat's strategies, one run at a time."""

    def search(world: World) -> set[Pair]:
        settings = SearchSettings(strategy=strategy)  # type: ignore[arg-type]
        metric = Metric(name="m", better="higher", binary=world.test)
        open_ = open_strategy(settings, world.count, [metric])
        room = world.count if strategy == "sweep" else 1
        while (decision := open_.decide(world.seen, {}, room)).asks:
            for ask in decision.asks:
                world.run(ask.index)
        return {(span.good, span.bad) for span in decision.spans}

    return search


def plain_bisect(world: World) -> set[Pair]:
    """`git bisect run`: one run per build, a broken one is skipped for the next, the line lies midway of the ends."""
    able: dict[int, float | None] = {}

    def value(at: int) -> float | None:
        if at not in able:
            seen = world.seen.get(at)
            told = seen.values["m"][-1] if seen is not None and seen.values else None
            able[at] = told if told is not None else world.run(at)
        return able[at]

    low, high = 0, world.count - 1
    while value(low) is None:
        low += 1
    while value(high) is None:
        high -= 1
    old, new = value(low), value(high)
    assert old is not None
    assert new is not None
    while True:
        inside = [at for at in range(low + 1, high) if at not in able or able[at] is not None]
        if not inside:
            return {(low, high)}
        middle = (low + high) // 2
        at = next((k for k in inside if k >= middle), inside[-1])
        found = value(at)
        if found is None:
            continue
        if abs(found - new) < abs(found - old):
            high = at
        else:
            low = at


@dataclass
class Neighbours:
    """Neighbours compared as distributions from the ends: differ: the midpoint; unknown: more runs; same: stop."""

    world: World
    dead: set[int] = field(default_factory=set)

    def values(self, at: int, size: int = 2) -> tuple[float, ...]:
        while len(self.world.seen.get(at, Observed()).values.get("m", ())) < size:
            if self.world.run(at) is None:
                self.dead.add(at)
                return ()
        return self.world.seen[at].values["m"]

    def end(self, at: int, step: int) -> int:
        while not self.values(at):
            at += step
        return at

    def verdict(self, low: int, high: int) -> str:
        return _compare(self.values(low), self.values(high))

    def step(self, tested: list[int]) -> bool:
        """One more build, or one more run of one; whether there was anything to do."""
        for low, high in pairwise(tested):
            verdict = self.verdict(low, high)
            free = [at for at in range(low + 1, high) if at not in self.dead]
            if verdict == "differ" and free:
                at = min(free, key=lambda k: abs(k - (low + high) / 2))
                if self.values(at):
                    tested.insert(bisect_right(tested, at), at)
                return True
            fewer = min(low, high, key=lambda k: len(self.values(k)))
            if verdict == "unknown" and len(self.values(fewer)) < 10:
                self.values(fewer, len(self.values(fewer)) + 1)
                return True
        return False


def neighbours(world: World) -> set[Pair]:
    search = Neighbours(world)
    tested = [search.end(0, 1), search.end(world.count - 1, -1)]
    while search.step(tested):
        pass
    return {pair for pair in pairwise(tested) if search.verdict(*pair) == "differ"}


def _compare(old: Sequence[float], new: Sequence[float]) -> str:
    """By the noise, which is known to it, and the 1% that is worth finding."""
    error = SPREAD * 100 * math.sqrt(1 / len(old) + 1 / len(new))
    off = abs(float(np.mean(new) - np.mean(old))) / error
    if off > 3.3:
        return "differ"
    return "same" if off < 1.5 and 1.0 / error > 2.5 else "unknown"


@dataclass
class Score:
    """What became of one search over many histories."""

    found: int = 0
    true: int = 0
    wrong: int = 0
    right: int = 0
    runs: list[int] = field(default_factory=list)
    dips: dict[str, list[int]] = field(default_factory=dict)

    def add(self, world: World, answer: set[Pair]) -> None:
        truth = world.truth()
        self.found += len(answer & truth)
        self.true += len(truth)
        self.wrong += len(answer - truth)
        self.right += answer == truth
        self.runs.append(world.runs)
        if world.dip is not None:
            first, length = world.dip
            ends = {world.neighbours(first), world.neighbours(first + length)}
            self.dips.setdefault(_bucket(length, world.count), []).append(ends <= answer)

    def line(self, sweep_runs: float) -> str:
        mean = float(np.mean(self.runs))
        recall = self.found / self.true if self.true else float("nan")
        answers = self.found + self.wrong
        precision = self.found / answers if answers else float("nan")
        return (
            f"| {recall:.3f} | {precision:.3f} | {self.right / len(self.runs):.3f} "
            f"| {mean:.1f} | {np.percentile(self.runs, 95):.0f} | 1/{sweep_runs / mean:.1f} |"
        )


_BUCKETS = (0.25, 0.5, 1.0, 2.0, 4.01)


def _bucket(length: int, count: int) -> str:
    grid = grid_width(count, 0)
    edges = [math.ceil(grid * share) for share in _BUCKETS]
    place = bisect_left(edges, length + 1)
    low = edges[place - 1] if place else 1
    return f"{low}–{edges[min(place, len(edges) - 1)] - 1}"


NEIGHBOURS = "neighbours from the ends"
MAPS = {"sweep": ours("sweep"), "plain bisect": plain_bisect, NEIGHBOURS: neighbours, "adaptive": ours("adaptive")}
TESTS = {"sweep": ours("sweep"), "plain bisect": plain_bisect, "bisect": ours("bisect"), "adaptive": ours("adaptive")}
FLAKY_MAPS = {"sweep": ours("sweep"), "plain bisect": plain_bisect, "adaptive": ours("adaptive")}
SCENARIOS: dict[str, tuple[Callable[[np.random.Generator, int], World], dict[str, Search]]] = {
    "lasting": (lasting, MAPS),
    "dips": (with_dip, MAPS),
    "flaky test": (flaky_test, TESTS),
    "flaky test, nothing broke": (never_broke, TESTS),
    "flaky runs": (flaky_runs, FLAKY_MAPS),
}


def play(scenario: str, count: int, histories: int, seed: int) -> dict[str, Score]:
    """The same histories for every search; the noise is each one's own."""
    make, searches = SCENARIOS[scenario]
    scores = {name: Score() for name in searches}
    for number in range(histories):
        for name, search in searches.items():
            world = make(np.random.default_rng([seed, count, number]), count)
            scores[name].add(world, search(world))
    return scores


def show(scenario: str, count: int, histories: int, seed: int) -> None:
    begin = time.perf_counter()
    scores = play(scenario, count, histories, seed)
    print(f"\n## {scenario}, {count:,} builds, {histories} histories ({time.perf_counter() - begin:.0f} s)\n")
    print("| search | recall | precision | right answers | runs | 95% | of a sweep |\n|---|---|---|---|---|---|---|")
    for name, score in scores.items():
        print(f"| {name} {score.line(float(count))}")
    buckets = sorted({b for s in scores.values() for b in s.dips}, key=lambda b: int(b.split("–")[0]))
    if buckets:
        print(f"\n| both ends of a dip of (points; the grid is {grid_width(count, 0)}) | " + " | ".join(buckets) + " |")
        print("|---|" + "---|" * len(buckets))
        for name, score in scores.items():
            shares = (float(np.mean(score.dips[b])) if b in score.dips else float("nan") for b in buckets)
            print(f"| {name} | " + " | ".join(f"{share:.3f}" for share in shares) + " |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=100, help="per table of 256 builds; a quarter at 4,096")
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--only", choices=list(SCENARIOS))
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.histories} histories of 256 builds per table, a quarter of 4,096")
    begin, total = time.perf_counter(), 0
    for scenario in [asked.only] if asked.only else SCENARIOS:
        for count, histories in ((256, asked.histories), (4096, math.ceil(asked.histories / 4))):
            show(scenario, count, histories, asked.seed)
            total += histories
    print(f"\n{total:,} histories, each searched in every way, in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
