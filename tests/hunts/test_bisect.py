from __future__ import annotations

import random
from typing import Literal

import pytest
from hypothesis import given, settings, strategies as st

from factories.simulated_hunts import Simulated, pairs, stepped
from karat.changepoints.series import Outcome
from karat.findings import UsageError
from karat.hunts.model import Metric, Observed, Strategy
from karat.hunts.search.strategies import open_strategy
from karat.hunts.settings import SearchSettings

SPEED = Metric(name="m", better="higher")
TEST = Metric(name="m", binary=True)


def bisect(count: int, metric: Metric = TEST, **search: object) -> Strategy:
    names = [f"p{at}" for at in range(count)]
    chosen = SearchSettings(strategy="bisect", **search)  # type: ignore[arg-type]
    return open_strategy(chosen, count, [metric], names=names)


@st.composite
def breaks(draw: st.DrawFn) -> tuple[int, Simulated]:
    count = draw(st.integers(2, 80))
    at = draw(st.integers(1, count - 1))
    broken = draw(st.sets(st.integers(1, count - 2), max_size=count // 2)) if count > 2 else set()
    truth = [None if k in broken else float(k >= at) for k in range(count)]
    return at, Simulated(truth, seed=draw(st.integers(0, 9)))


@pytest.mark.slow
@settings(max_examples=60)
@given(breaks(), st.sampled_from([1, 3, 8]))
def test_without_flakes_the_answer_is_exact(made: tuple[int, Simulated], slots: int) -> None:
    at, world = made
    answer = world.hunt(bisect(len(world.truth)), slots)
    expected = world.neighbours(at)
    assert pairs(answer) == ([expected] if expected else [])
    broken = [k for k, true in enumerate(world.truth) if true is None]
    assert all(world.asked.count(k) <= 1 for k in broken)


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([1, 4]))
def test_a_resumed_search_goes_on_as_the_one_that_was_killed(seed: int, slots: int) -> None:
    rng = random.Random(seed)
    world = Simulated([0.0] * 50 + [1.0] * 70, flakes=0.1, seed=seed)
    world.hunt(bisect(120), slots)
    for seen, pending, room in rng.sample(world.history, min(6, len(world.history))):
        shuffled = dict(rng.sample(sorted(seen.items()), len(seen)))
        fresh = bisect(120).decide(shuffled, pending, room)
        assert fresh == world.decisions[world.history.index((seen, pending, room))]


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 6])
def test_a_test_that_fails_one_time_in_ten_is_pinned_down(slots: int) -> None:
    """Plain bisect gives about half right answers here (benchmarks/hunt_search.py)."""
    right = runs = 0
    for seed in range(40):
        at = random.Random(seed).randrange(1, 256)
        world = Simulated([0.0] * at + [1.0] * (256 - at), flakes=0.1, seed=seed)
        answer = world.hunt(bisect(256), slots)
        right += pairs(answer) == [(at - 1, at)]
        runs += world.runs
    assert right >= 38
    assert runs <= 40 * 32 * (1 if slots == 1 else 3)


@pytest.mark.slow
def test_a_failure_that_was_a_flake_has_no_culprit() -> None:
    none = 0
    for seed in range(20):
        world = Simulated([0.0] * 100, flakes=0.1, outliers={99: 1.0}, seed=seed)
        answer = world.hunt(bisect(100))
        none += not answer.spans
        assert answer.spans or "explained by flakes" in answer.notes[0]
    assert none >= 19


def test_ends_that_do_not_differ_are_a_note_and_no_answer() -> None:
    answer = Simulated([100.0] * 50, spread=0.005).hunt(bisect(50, SPEED))
    assert answer.spans == ()
    assert answer.notes == ("m: the two ends do not differ; there is nothing to bisect",)
    answer = Simulated([1.0] * 50).hunt(bisect(50))
    assert answer.notes == ("m: both ends are bad; the rest is explained by flakes",)


@pytest.mark.slow
def test_levels_are_bisected_through_noise() -> None:
    right = runs = 0
    for seed in range(30):
        rng = random.Random(seed)
        at = rng.randrange(1, 256)
        truth = stepped(256, (at, rng.choice([0.97, 1.03])))
        world = Simulated([None if rng.random() < 0.1 else true for true in truth], spread=0.005, seed=seed)
        right += pairs(world.hunt(bisect(256, SPEED))) == [world.neighbours(at)]
        runs += world.runs
    assert right >= 28
    assert runs <= 30 * 20


@pytest.mark.parametrize(("better", "threshold"), [("higher", 93.0), ("lower", 104.0)])
def test_a_threshold_says_what_is_bad(better: str, threshold: float) -> None:
    metric = Metric(name="m", better=better, threshold=threshold)  # type: ignore[arg-type]
    down = better == "higher"
    truth = stepped(100, (20, 0.97 if down else 1.03), (60, 0.9 if down else 1.1))
    answer = Simulated(truth).hunt(bisect(100, metric))
    assert [(s.good, s.bad, s.kind) for s in answer.spans] == [(59, 60, "regression")]


def test_good_and_bad_are_points_and_the_good_one_may_be_the_newer() -> None:
    world = Simulated([0.0] * 20 + [1.0] * 40 + [0.0] * 40)
    assert pairs(world.hunt(bisect(100, good="p5", bad="p50"))) == [(19, 20)]
    assert set(world.asked) <= set(range(5, 51))
    world = Simulated([0.0] * 20 + [1.0] * 40 + [0.0] * 40)
    answer = world.hunt(bisect(100, good="p90", bad="p30"))
    assert [(s.good, s.bad, s.kind) for s in answer.spans] == [(59, 60, "improvement")]


def test_a_point_nobody_knows_is_a_mistake_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"search\.good: expected one of the 12 points .* 'p11x'.*'p11'"):
        bisect(12, good="p11x")


def test_ends_that_cannot_be_run_are_replaced_further_in() -> None:
    truth = [None] * 3 + [0.0] * 20 + [1.0] * 20 + [None] * 4
    answer = Simulated(truth).hunt(bisect(len(truth)))
    assert pairs(answer) == [(22, 23)]
    nothing = Simulated([None] * 40).hunt(bisect(40))
    assert "nothing to bisect" in nothing.notes[0]


def test_a_broken_range_is_the_answer_as_a_range() -> None:
    truth = [0.0] * 60 + [None] * 50 + [1.0] * 60
    world = Simulated(truth)
    answer = world.hunt(bisect(170))
    assert pairs(answer) == [(59, 110)]
    assert set(answer.spans[0].between) <= set(range(60, 110))
    assert world.runs < 40


def test_a_hunted_crash_is_read_off_the_outcomes() -> None:
    crash = Metric(name="crash", better="lower", binary=True)
    world = Simulated([100.0] * 64, crashing=frozenset(range(37, 64)))
    answer = world.hunt(bisect(64, crash))
    assert [(s.good, s.bad, s.kind) for s in answer.spans] == [(36, 37, "crash")]


def test_parallel_runs_speculate_on_both_halves() -> None:
    seen = {
        at: Observed(values={"m": (value,) * 3}, outcomes=(Outcome.OK,) * 3) for at, value in ((0, 0.0), (128, 1.0))
    }
    strategy = bisect(129)
    first, *others = [ask.index for ask in strategy.decide(seen, {}, 3).asks]
    assert 56 <= first <= 72
    assert min(others) < first < max(others)
    more = [ask.index for ask in strategy.decide(seen, {first: 1}, 2).asks]
    assert len(more) == 2
    assert min(more) < first < max(more)


@pytest.mark.parametrize("strategy", ["adaptive", "bisect", "sweep"])
@pytest.mark.parametrize("states", [(0.0, 1.0), (1.0, 0.0)], ids=["breaks", "is mended"])
def test_where_no_run_contradicts_another_nothing_is_called_flaky(
    strategy: Literal["adaptive", "bisect", "sweep"], states: tuple[float, float]
) -> None:
    world = Simulated([states[0]] * 9 + [states[1]] * 8)
    good, bad = ("0", "16") if states[1] else ("16", "0")
    chosen = SearchSettings(strategy=strategy, good=good, bad=bad)
    answer = world.hunt(open_strategy(chosen, 17, [TEST], names=[str(at) for at in range(17)]))
    assert pairs(answer) == [(8, 9)]
    assert answer.flake_rate == 0


def test_ends_that_were_taken_for_one_another_are_named_as_that() -> None:
    answer = Simulated([1.0] * 100 + [0.0] * 156, flakes=0.05).hunt(bisect(256))
    assert answer.spans == ()
    assert answer.notes == ("m: the good end is bad, and the bad end is good: swap good and bad in [search]",)
    # And that is what helps.
    exchanged = Simulated([1.0] * 100 + [0.0] * 156, flakes=0.05)
    assert pairs(exchanged.hunt(bisect(256, good="p255", bad="p0"))) == [(99, 100)]


def test_a_single_point_that_runs_is_not_called_one_that_does_not() -> None:
    answer = Simulated([1.0]).hunt(bisect(1))
    assert answer.notes == ("only one point gives a value: there is nothing to compare it with",)
    answer = Simulated([None, 1.0, None]).hunt(bisect(3))
    assert answer.notes == ("only one point gives a value: there is nothing to compare it with",)


@pytest.mark.parametrize("strategy", ["adaptive", "bisect"])
def test_points_between_the_sides_of_a_change_that_nobody_tried_are_said(
    strategy: Literal["adaptive", "bisect"],
) -> None:
    world = Simulated([100.0] * 80 + [None] * 60 + [90.0] * 80)
    answer = world.hunt(open_strategy(SearchSettings(strategy=strategy), 220, [SPEED]))
    (span,) = answer.spans
    untried = set(range(span.good + 1, span.bad)) - world.seen.keys()
    assert (span.good, span.bad) == (79, 140)
    assert untried
    assert f"{len(untried)} were not tried" in answer.notes[0]
    narrow = Simulated([100.0] * 80 + [None] * 4 + [90.0] * 80)
    answer = narrow.hunt(open_strategy(SearchSettings(strategy=strategy), 164, [SPEED]))
    assert answer.notes == ()
