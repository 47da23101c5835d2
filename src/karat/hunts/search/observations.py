"""Observations: what the attempts at a point say, and of one metric: numbers per point, and points that give none. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import msgspec

from karat.changepoints.series import Outcome
from karat.hunts.model import CRASH, Attempt, Metric, Observed, Seen
from karat.hunts.search.noise import Circumstance, Circumstances
from karat.hunts.settings import REBUILD


def observed_in(attempts: Iterable[Attempt]) -> Observed:
    """Samples of the attempts that were ok, and of a hunted crash those where it happened; every outcome."""
    values: dict[str, tuple[float, ...]] = {}
    listed = list(attempts)
    for attempt in listed:
        for metric, samples in attempt.samples.items():
            if attempt.outcome is Outcome.OK or metric == CRASH:
                values[metric] = (*values.get(metric, ()), *samples)
    return Observed(
        values=values,
        outcomes=tuple(attempt.outcome for attempt in listed),
        signatures=tuple(attempt.signature for attempt in listed),
        started=tuple(attempt.started for attempt in listed),
        where=tuple(attempt.where for attempt in listed),
        builds=tuple(attempt.identity.get(REBUILD, "") for attempt in listed),
    )


Values = Mapping[int, Sequence[float]]  # A point's place → its numbers.
TRIES = 3  # So often a point that crashed is run before it counts as one that gives no value: crashes can be flaky.
_FAILED = (Outcome.CRASH, Outcome.HANG)


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """One metric, at the points that have been run."""

    values: Mapping[int, tuple[float, ...]]
    """One number per attempt, in order of the points; of a binary metric 0 (good) or 1 (bad), one per sample."""
    under: Circumstances  # When and where each number was measured; without points of which that is not known.
    dead: frozenset[int]  # Points that were run and give no value; they are not run again.
    again: frozenset[int]  # Points that failed so far, and may not fail the next time.
    failed: frozenset[int]  # Those of the dead that crashed or hung, rather than being broken.


def read_metric(metric: Metric, seen: Seen) -> Readings:
    values: dict[int, tuple[float, ...]] = {}
    under: dict[int, list[Circumstance]] = {}
    dead, again, failed = set[int](), set[int](), set[int]()
    for index in sorted(seen):
        at = seen[index]
        numbers = samples(metric, at)
        if numbers:
            values[index] = numbers
            fine = [k for k, outcome in enumerate(at.outcomes) if outcome is Outcome.OK]
            if len(fine) == len(numbers) and len(at.started) == len(at.where) == len(at.outcomes):
                builds = at.builds or ("",) * len(at.outcomes)
                under[index] = [Circumstance(at.started[k], at.where[k], builds[k]) for k in fine]
        elif at.outcomes:
            failures = [outcome for outcome in at.outcomes if outcome in _FAILED]
            # A hang costs its whole time limit, and is seldom a flake.
            weight = len(failures) + failures.count(Outcome.HANG)
            if len(failures) == len(at.outcomes) and weight < TRIES:
                again.add(index)
                continue
            dead.add(index)
            if weight >= TRIES:
                failed.add(index)
    dead_, again_, failed_ = frozenset(dead), frozenset(again), frozenset(failed)
    return Readings(values=values, under=under, dead=dead_, again=again_, failed=failed_)


def samples(metric: Metric, at: Observed) -> tuple[float, ...]:
    numbers = [value for value in at.values.get(metric.name, ()) if math.isfinite(value)]
    fine = sum(outcome is Outcome.OK for outcome in at.outcomes)
    if not metric.binary:
        # One number per attempt: repeats within one share its build, its machine and its luck.
        attempts = max(fine, 1)
        size = len(numbers) // attempts
        if size < 2 or len(numbers) % attempts:
            return tuple(numbers)
        one = min if metric.lowest else median
        return tuple(one(numbers[start : start + size]) for start in range(0, len(numbers), size))
    bad = sum(value != 0 for value in numbers)
    if metric.name == CRASH:
        # Whoever collects values of attempts that were ok has none of those that crashed.
        bad = max(bad, sum(outcome in _FAILED for outcome in at.outcomes))
    good = fine if metric.name == CRASH and not numbers else sum(value == 0 for value in numbers)
    return (0.0,) * good + (1.0,) * bad


def count_runs(seen: Seen) -> int:
    """How many runs there were; one that counts for several points, because all are the same build, is one."""
    timed = {run for at in seen.values() for run in zip(at.started, at.where, strict=True)}
    return len(timed) + sum(len(at.outcomes) - len(at.started) for at in seen.values())
