"""The search on simulated histories: recall, precision, runs and calibration of adaptive, sweep, bisect and what others do.

A history: 256 or 4,096 builds, 10% of them broken, on levels with noise of 0.5% (standard deviation of one run).

- lasting: 1 to 4 changes of 2 to 6%, up or down, each level holding for at least 1/32 of the history;
- dips: 1 to 3 such changes, and one dip of 2 to 6%: from one point to four times the grid long;
- flaky test: pass or fail, one break, good builds fail 10% of the time; and the same where nothing ever broke, and the
  last build failed by bad luck;
- flaky runs: as lasting, and each run crashes 10% of the time;
- four steps and a dip of 8: 4 lasting changes and a dip of 8 points; adaptive also with min_dip = 8;
- crash stretch: as lasting with 1 or 2 changes, and 8 builds in a row that always crash; both ways of adaptive;
- flat: nothing changes;
- lasting and flat, each in every noise of `NOISES`: builds that differ, workers that differ, a machine that drifts, day and
  night, heavy tails, and noise that is correlated from run to run (AR).

A change is found if the answer names the exact neighbours among the builds that can be run. Plain bisect, a Bayesian search
for one change (as git_bayesect does it) and comparing neighbours from the ends are small simulations of what tools do; the
others are karat's own. Runs that found a build broken count. One run at a time: nothing is speculated.

`false` is changes per history that are not there: the answer's pair holds no true change, nor does a pair beside it.
`99%` is how many of the answers called at least 99% sure are right, exactly.

Run: python benchmarks/hunt_search.py [--histories 100] [--seed 6] [--only lasting] [--count 256] [--search adaptive] [--jobs 2]
"""

from __future__ import annotations

import argparse
import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import lgamma
from multiprocessing import get_context
from typing import Any

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
Search = Callable[["World"], "dict[Pair, float]"]  # The pairs of neighbours between which it changed, and how sure.


@dataclass(frozen=True)
class Noise:
    """The noise of one run, and what comes on top of it, relative."""

    build: float = 0.0  # Standard deviation from build to build: layout, link order.
    worker: float = 0.0  # The same from worker to worker; there are four, and a run gets one at random.
    drift: float = 0.0  # Of the machine, per run.
    night: float = 0.0  # Amplitude of day and night; a day is 24 runs.
    tails: float = 0.0  # Degrees of freedom of Student's t in place of a Gauss; of the same standard deviation.
    run: float = SPREAD  # Standard deviation from run to run.
    memory: float = 0.0  # How much of one run's noise is left in the next (AR 1).


NOISES = {
    "plain": Noise(),
    "builds 0.5%": Noise(build=0.005),
    "builds 0.5%, quiet runs": Noise(build=0.005, run=0.001),
    "workers 1%": Noise(worker=0.01),
    "drift -3% in 60 runs": Noise(drift=-0.03 / 60),
    "day and night 1%": Noise(night=0.01),
    "heavy tails": Noise(tails=3),
    "AR 0.8": Noise(memory=0.8),
    "builds, workers and drift": Noise(build=0.0025, worker=0.005, drift=-0.03 / 120),
}


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
    noise: Noise = Noise()
    failing: Pair | None = None  # First and length of the builds that always crash.
    rebuild: int = 1  # Each build is made in so many ways, which take turns.
    seen: dict[int, Observed] = field(default_factory=dict)
    runs: int = 0

    @property
    def count(self) -> int:
        return len(self.levels)

    def __post_init__(self) -> None:
        self._off = self.noise.build * self.rng.standard_normal(self.count)
        self._workers = self.noise.worker * self.rng.standard_normal(4)
        self._last = float(self.rng.standard_normal())
        self._others = self.noise.build * np.random.default_rng(int(1e9 * abs(self._last))).standard_normal(
            (2, self.count)
        )

    def run(self, at: int) -> float | None:
        """One more run of a build; None: no value."""
        self.runs += 1
        worker = int(self.rng.integers(4)) if self.noise.worker else 0
        value = self._value(at, worker)
        before = self.seen.get(at, Observed())
        if nth := len(before.outcomes) % self.rebuild:
            value = value and value * (1 + float(self._others[nth - 1, at] - self._off[at]))
        outcome = Outcome.OK if value is not None else Outcome.BROKEN if self.broken[at] else Outcome.CRASH
        values = before.values if value is None else {"m": (*before.values.get("m", ()), value)}
        self.seen[at] = Observed(values=values, outcomes=(*before.outcomes, outcome), **self._context(before, worker))
        return value

    def _context(self, before: Observed, worker: int) -> dict[str, tuple[Any, ...]]:
        if not hasattr(before, "where"):  # an older karat
            return {}
        builds = (*before.builds, str(len(before.outcomes) % self.rebuild))
        where, started = (*before.where, f"w{worker}"), (*before.started, 3600.0 * self.runs)
        return {"where": where, "started": started, "builds": builds if self.rebuild > 1 else ()}

    def _value(self, at: int, worker: int) -> float | None:
        failing = self.failing is not None and 0 <= at - self.failing[0] < self.failing[1]
        if self.broken[at] or failing or self.rng.random() < self.crashes:
            return None
        if self.test:
            return 1.0 if self.levels[at] else float(self.rng.random() < FLAKY)
        noise, rng = self.noise, self.rng
        each = rng.standard_t(noise.tails) * math.sqrt(1 - 2 / noise.tails) if noise.tails else rng.standard_normal()
        self._last = each = noise.memory * self._last + math.sqrt(1 - noise.memory**2) * each
        off = self._off[at] + self._workers[worker] + noise.drift * self.runs
        off += noise.night * math.sin(self.runs * math.tau / 24)
        return float(self.levels[at] * (1 + off + noise.run * each))

    def truth(self) -> set[Pair]:
        return {pair for at in self.changes if (pair := self.neighbours(at))}

    def neighbours(self, at: int) -> Pair | None:
        """The last build before a change and the first after it that can be run."""
        able = np.flatnonzero(~self.broken)
        place = int(np.searchsorted(able, at))
        return (int(able[place - 1]), int(able[place])) if 0 < place < len(able) else None


def lasting(
    rng: np.random.Generator, count: int, most: int = 4, fewest: int = 1, noise: Noise = NOISES["plain"]
) -> World:
    apart = count // 32
    number = int(rng.integers(fewest, most + 1))
    while True:
        changes = np.sort(rng.integers(apart, count - apart, size=number))
        if number == 1 or np.diff(changes).min() >= apart:
            break
    levels = np.full(count, 100.0)
    for at in changes:
        levels[at:] *= 1 + rng.choice([-1, 1]) * rng.uniform(0.02, 0.06)
    return World(levels, rng.random(count) < BROKEN, [int(at) for at in changes], rng, noise=noise)


def flat(rng: np.random.Generator, count: int, noise: Noise = NOISES["plain"]) -> World:
    return World(np.full(count, 100.0), rng.random(count) < BROKEN, [], rng, noise=noise)


def with_dip(rng: np.random.Generator, count: int, size: int = 0) -> World:
    """A dip that keeps its distance from the other changes; short ones are as frequent as long ones, or of one size."""
    grid = grid_width(count, 0)
    while True:
        world = lasting(rng, count, 4, 4) if size else lasting(rng, count, 3)
        length = size or max(1, round(grid * 4 ** rng.uniform(-2, 1)))
        first = int(rng.integers(4, count - length - 4))
        near = [at for at in world.changes if first - 8 <= at <= first + length + 8]
        able = np.flatnonzero(~world.broken[first : first + length])
        if not near and len(able):
            break
    world.levels[first : first + length] *= 1 + rng.choice([-1, 1]) * rng.uniform(0.02, 0.06)
    world.dip = (first, length)
    world.changes = sorted([*world.changes, first, first + length])
    return world


def crash_stretch(rng: np.random.Generator, count: int) -> World:
    """Eight builds in a row that always crash, away from the changes."""
    while True:
        world = lasting(rng, count, 2)
        first = int(rng.integers(4, count - 12))
        if not any(first - 8 <= at <= first + 16 for at in world.changes) and not world.broken[first : first + 8].all():
            break
    world.failing = (first, 8)
    world.changes = sorted([*world.changes, first, first + 8])
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


def ours(strategy: str, **wish: int) -> Search:
    """One of karat's strategies, one run at a time."""

    def search(world: World) -> dict[Pair, float]:
        settings = SearchSettings(strategy=strategy, **wish)  # type: ignore[arg-type]
        metric = Metric(name="m", better="higher", binary=world.test)
        open_ = open_strategy(settings, world.count, [metric])
        room = world.count if strategy == "sweep" else 1
        while (decision := open_.decide(world.seen, {}, room)).asks:
            for ask in decision.asks:
                world.run(ask.index)
        return {(span.good, span.bad): span.confidence for span in decision.spans}

    return search


def rebuilt(world: World) -> dict[Pair, float]:
    """Adaptive with `rebuild = 3`."""
    world.rebuild = 3
    return ours("adaptive")(world)


def plain_bisect(world: World) -> dict[Pair, float]:
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
            return {(low, high): 0.5}
        middle = (low + high) // 2
        at = next((k for k in inside if k >= middle), inside[-1])
        found = value(at)
        if found is None:
            continue
        if abs(found - new) < abs(found - old):
            high = at
        else:
            low = at


def bayesian(world: World) -> dict[Pair, float]:
    """One change, of unknown rates on either side (Beta priors, as git_bayesect): the run that tells most about its place.

    A value is good or bad by the line midway of the ends. Ends at 99%, after 200 runs, or when everything has been run ten times.
    """
    low, high = 0, world.count - 1
    while (old := world.run(low)) is None:
        low += 1
    while (new := world.run(high)) is None:
        high -= 1
    able = list(range(low, high + 1))
    counts = np.zeros((2, len(able)))  # bad and good runs of each build
    counts[0, -1] = counts[1, 0] = 1
    while True:
        bad, good = (np.concatenate([[0.0], np.cumsum(side)]) for side in counts)
        # The change at k: builds before k fail by one rate, the others by another, which is higher.
        logs = [
            lgamma(bad[k] + 0.2)
            + lgamma(good[k] + 2)
            - lgamma(bad[k] + good[k] + 2.2)
            + lgamma(bad[-1] - bad[k] + 2)
            + lgamma(good[-1] - good[k] + 0.2)
            - lgamma(bad[-1] - bad[k] + good[-1] - good[k] + 2.2)
            for k in range(1, len(able))
        ]
        place = np.exp(np.array(logs) - max(logs))
        place /= place.sum()
        best = int(np.argmax(place))
        if place[best] >= 0.99 or world.runs >= 200 or len(able) < 3:
            return {(able[best], able[best + 1]): float(place[best])}
        # Half of what is possible on either side tells most; a build that settled it by ten runs is left alone.
        tell = np.abs(np.cumsum(place) - 0.5) + (counts.sum(axis=0)[1:] >= 10)
        at = 1 + int(np.argmin(tell))
        value = world.run(able[at])
        if value is None:
            del able[at]
            counts = np.delete(counts, at, axis=1)
        else:
            counts[int(abs(value - new) >= abs(value - old)), at] += 1


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


def neighbours(world: World) -> dict[Pair, float]:
    search = Neighbours(world)
    tested = [search.end(0, 1), search.end(world.count - 1, -1)]
    while search.step(tested):
        pass
    return {pair: 0.95 for pair in pairwise(tested) if search.verdict(*pair) == "differ"}


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
    false: int = 0
    right: int = 0
    sure: int = 0
    sure_right: int = 0
    runs: list[int] = field(default_factory=list)
    dips: dict[str, list[int]] = field(default_factory=dict)

    def add(self, world: World, answer: dict[Pair, float]) -> None:
        truth = world.truth()
        found = set(answer)
        self.found += len(found & truth)
        self.true += len(truth)
        self.wrong += len(found - truth)
        # What is one tested build off its place is wrong, but nothing that is not there.
        near = {at + k for pair in truth for at in pair for k in (-4, -3, -2, -1, 0, 1, 2, 3, 4)}
        self.false += sum(pair not in truth and not near & {*pair} for pair in found)
        self.right += found == truth
        called = [pair in truth for pair, sure in answer.items() if sure >= 0.99]
        self.sure += len(called)
        self.sure_right += sum(called)
        self.runs.append(world.runs)
        if world.dip is not None:
            first, length = world.dip
            ends = {world.neighbours(first), world.neighbours(first + length)}
            self.dips.setdefault(_bucket(length, world.count), []).append(ends <= found)

    def join(self, other: Score) -> None:
        for name in ("found", "true", "wrong", "false", "right", "sure", "sure_right"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.runs += other.runs
        for bucket, those in other.dips.items():
            self.dips.setdefault(bucket, []).extend(those)

    def line(self, sweep_runs: float) -> str:
        mean = float(np.mean(self.runs))
        answers = self.found + self.wrong
        shares = ((self.found, self.true), (self.found, answers), (self.right, len(self.runs)))
        recall, precision, right = (f"{a / b:.3f}" if b else "–" for a, b in shares)
        sure = f"{self.sure_right / self.sure:.4f} of {self.sure:,}" if self.sure else "–"
        return (
            f"| {recall} | {precision} | {right} | {self.false / len(self.runs):.3f} | {sure} "
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
ADAPTIVE = {"adaptive": ours("adaptive")}
FEW: dict[str, Search] = {
    "sweep": ours("sweep"),
    "plain bisect": plain_bisect,
    "Bayesian, one change": bayesian,
} | ADAPTIVE
MAPS: dict[str, Search] = {**FEW, NEIGHBOURS: neighbours}
TESTS: dict[str, Search] = {**FEW, "bisect": ours("bisect")}
WISH: dict[str, Search] = FEW | {"adaptive, min_dip = 8": ours("adaptive", min_dip=8)}
BUILDS: dict[str, Search] = FEW | {"adaptive, rebuild = 3": rebuilt}
PIECE = 10  # Histories that one process plays at a time.
Make = Callable[[np.random.Generator, int], World]
SCENARIOS: dict[str, tuple[Make, dict[str, Search]]] = {
    "lasting": (lasting, MAPS),
    "dips": (with_dip, MAPS),
    "flaky test": (flaky_test, TESTS),
    "flaky test, nothing broke": (never_broke, TESTS),
    "flaky runs": (flaky_runs, FEW),
    "four steps and a dip of 8": (partial(with_dip, size=8), WISH),
    "crash stretch of 8": (crash_stretch, WISH),
    **{
        f"{kind}, {name}": (partial(make, noise=noise), BUILDS if noise.build else FEW)
        for kind, make in (("flat", flat), ("lasting", lasting))
        for name, noise in NOISES.items()
        if (kind, name) != ("lasting", "plain")
    },
}


SMALL = {name for name in SCENARIOS if "of 8" in name}  # Only of 256 builds.


def play(task: tuple[str, int, range, int, str]) -> dict[str, Score]:
    """The same histories for every search; the noise is each one's own."""
    scenario, count, numbers, seed, only = task
    make, searches = SCENARIOS[scenario]
    scores = {name: Score() for name in searches if name.startswith(only)}
    for number in numbers:
        for name, score in scores.items():
            world = make(np.random.default_rng([seed, count, number]), count)
            score.add(world, searches[name](world))
    return scores


def show(scenario: str, count: int, histories: int, parts: list[dict[str, Score]]) -> None:
    scores = parts[0]
    for part in parts[1:]:
        for name, score in part.items():
            scores[name].join(score)
    print(f"\n### {scenario[0].upper()}{scenario[1:]}, {count:,} builds, {histories} histories\n")
    print("| search | recall | precision | right answers | false | 99% | runs | 95% | of a sweep |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, score in scores.items():
        print(f"| {name} {score.line(float(count))}")
    buckets = sorted({b for s in scores.values() for b in s.dips}, key=lambda b: int(b.split("–")[0]))
    if len(buckets) > 1:
        print(f"\n| both ends of a dip of (points; the grid is {grid_width(count, 0)}) | " + " | ".join(buckets) + " |")
        print("|---|" + "---|" * len(buckets))
        for name, score in scores.items():
            shares = (float(np.mean(score.dips[b])) if b in score.dips else float("nan") for b in buckets)
            print(f"| {name} | " + " | ".join(f"{share:.3f}" for share in shares) + " |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=100, help="per table of 256 builds; a quarter at 4,096")
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--only", action="append", help="scenarios that begin so")
    parser.add_argument("--count", type=int, choices=(256, 4096), help="only histories of so many builds")
    parser.add_argument("--search", default="", help="only those that begin so")
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    print(f"seed {asked.seed}, {asked.histories} histories of 256 builds per table, a quarter of 4,096")
    begin, total = time.perf_counter(), 0
    sizes = [
        size
        for size in ((256, asked.histories), (4096, math.ceil(asked.histories / 4)))
        if asked.count in {None, size[0]}
    ]
    tables = [
        (scenario, *size)
        for scenario in SCENARIOS
        if not asked.only or any(scenario.startswith(word) for word in asked.only)
        for size in sizes
        if size[0] == 256 or scenario not in SMALL
    ]
    tasks = [
        (scenario, count, range(first, min(first + PIECE, histories)), asked.seed, asked.search)
        for scenario, count, histories in tables
        for first in range(0, histories, PIECE)
    ]
    with get_context("fork").Pool(asked.jobs) as pool:
        played = iter(pool.imap(play, tasks) if asked.jobs > 1 else map(play, tasks))
        for scenario, count, histories in tables:
            show(scenario, count, histories, [next(played) for _ in range(0, histories, PIECE)])
            total += histories
    print(f"\n{total:,} histories, each searched in every way, in {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
