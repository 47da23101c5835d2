from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from factories.simulated_hunts import Simulated, pairs, stepped
from karat.changepoints.series import Outcome
from karat.hunts.model import Metric, Observed
from karat.hunts.search.strategies import open_strategy
from karat.hunts.settings import SearchSettings

SPEED = Metric(name="m", better="higher")
TEST = Metric(name="m", binary=True)
# Whatever is made of these is the same level, or far from it.
FACTORS = st.sampled_from([0.8, 0.9, 1.25, 1.5])


@st.composite
def histories(draw: st.DrawFn) -> Simulated:
    """Noise-free, up to three changes anywhere, any points broken."""
    count = draw(st.integers(1, 60))
    places = draw(st.lists(st.integers(1, max(count - 1, 1)), max_size=3, unique=True))
    truth = stepped(count, *[(at, draw(FACTORS)) for at in places])
    broken = draw(st.sets(st.integers(0, count - 1), max_size=count // 2))
    return Simulated([None if at in broken else true for at, true in enumerate(truth)], seed=draw(st.integers(0, 9)))


@pytest.mark.slow
@settings(max_examples=60)
@given(histories(), st.sampled_from([1, 3, 8]))
def test_without_noise_every_answer_is_true_and_no_difference_of_tested_neighbours_is_left_out(
    world: Simulated, slots: int
) -> None:
    answer = world.hunt(open_strategy(SearchSettings(), len(world.truth), [SPEED]), slots)
    able = [at for at, true in enumerate(world.truth) if true is not None]
    tested = [at for at in able if at in world.seen]
    expected = [(a, b) for a, b in pairwise(tested) if world.truth[a] != pytest.approx(world.truth[b])]
    assert pairs(answer) == expected
    # Exact: nothing that can be run lies between the neighbours of an answer.
    assert all(able.index(bad) == able.index(good) + 1 for good, bad in expected)
    assert [span.before for span in answer.spans] == pytest.approx([world.truth[a] for a, _ in expected])
    assert [span.after for span in answer.spans] == pytest.approx([world.truth[b] for _, b in expected])
    assert all(set(s.between) == {k for k in range(s.good + 1, s.bad) if world.truth[k] is None} for s in answer.spans)


@pytest.mark.slow
@settings(max_examples=40)
@given(histories(), st.sampled_from([1, 4]))
def test_a_broken_point_is_run_once_and_asks_are_within_the_room(world: Simulated, slots: int) -> None:
    world.hunt(open_strategy(SearchSettings(), len(world.truth), [SPEED]), slots)
    broken = [at for at, true in enumerate(world.truth) if true is None]
    assert all(world.asked.count(at) <= 1 for at in broken)
    assert all(0 <= at < len(world.truth) for at in world.asked)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 120), st.sampled_from([1, 2, 8]))
def test_noise_of_any_size_comes_to_an_end(seed: int, count: int, slots: int) -> None:
    rng = random.Random(seed)
    world = Simulated(
        stepped(count, (rng.randrange(1, count), 0.97)),
        spread=rng.choice([0.0005, 0.005, 0.03, 0.3]),
        crashes=rng.choice([0.0, 0.2]),
        seed=seed,
    )
    world.hunt(open_strategy(SearchSettings(), count, [SPEED]), slots, most=12 * count + 20)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([1, 5]))
def test_a_resumed_search_goes_on_as_the_one_that_was_killed(seed: int, slots: int) -> None:
    """Any prefix, told to a new strategy in any order of the points, gives the same decision."""
    rng = random.Random(seed)
    world = Simulated(stepped(90, (31, 0.95), (60, 1.04)), spread=0.005, crashes=0.1, seed=seed)
    world.hunt(open_strategy(SearchSettings(), 90, [SPEED]), slots)
    for seen, pending, room in rng.sample(world.history, min(8, len(world.history))):
        shuffled = dict(rng.sample(sorted(seen.items()), len(seen)))
        fresh = open_strategy(SearchSettings(), 90, [SPEED]).decide(shuffled, pending, room)
        assert fresh == world.decisions[world.history.index((seen, pending, room))]


@pytest.mark.slow
def test_all_lasting_changes_of_noisy_histories_are_found_with_a_fraction_of_the_runs() -> None:
    """Measured on thousands by benchmarks/hunt_search.py: recall 0.99 and more with 48 runs of 256."""
    found = wrong = true = runs = 0
    for seed in range(30):
        rng = random.Random(seed)
        places = [rng.randrange(10, 80), rng.randrange(90, 160), rng.randrange(170, 246)]
        factors = [1 + rng.choice([-1, 1]) * rng.uniform(0.02, 0.06) for _ in places]
        truth = stepped(256, *zip(places, factors, strict=True))
        world = Simulated([None if rng.random() < 0.1 else value for value in truth], spread=0.005, seed=seed)
        answer = set(pairs(world.hunt(open_strategy(SearchSettings(), 256, [SPEED]))))
        expected = {world.neighbours(at) for at in places}
        found, wrong = found + len(answer & expected), wrong + len(answer - expected)
        true, runs = true + len(expected), runs + world.runs
    assert found >= 0.96 * true
    assert wrong <= 0.03 * true
    assert runs <= 30 * 64


@pytest.mark.slow
def test_a_flat_history_has_no_change_and_costs_little_more_than_its_grid() -> None:
    worlds = [Simulated([100.0] * 256, spread=0.005, seed=seed) for seed in range(12)]
    answers = [world.hunt(open_strategy(SearchSettings(), 256, [SPEED])) for world in worlds]
    assert sum(len(answer.spans) for answer in answers) <= 1
    assert sum(world.runs for world in worlds) <= 12 * 36


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "most"),
    [
        (lambda rng: 0.005 * math.exp(rng.gauss(0, 1)), 1),
        (lambda rng: rng.gauss(0, 0.05 if rng.random() < 0.03 else 0.005), 1),
        # Two modes, a coin for each run; until points are run again they look like changes.
        (lambda rng: rng.choice([-0.01, 0.01]) + rng.gauss(0, 0.001), 1),
    ],
    ids=["lognormal", "outliers", "two modes"],
)
def test_noise_of_another_kind_is_no_change(noise: Callable[[random.Random], float], most: int) -> None:
    spans = 0
    for seed in range(15):
        rng = random.Random(seed)
        strategy = open_strategy(SearchSettings(), 128, [SPEED])
        seen: dict[int, Observed] = {}
        while (decision := strategy.decide(seen, {}, 1)).asks:
            before = seen.get(decision.asks[0].index, Observed())
            values = (*before.values.get("m", ()), 100 * (1 + noise(rng)))
            outcomes = (*before.outcomes, Outcome.OK)
            seen[decision.asks[0].index] = Observed(values={"m": values}, outcomes=outcomes)
        spans += len(decision.spans)
    assert spans <= most


@pytest.mark.slow
@pytest.mark.parametrize("length", [16, 25, 40])
def test_a_dip_as_long_as_the_grid_is_found_wherever_it_is(length: int) -> None:
    for first in range(3, 253 - length, 17):
        world = Simulated(stepped(256, (first, 0.95), (first + length, 1 / 0.95)), seed=first)
        answer = world.hunt(open_strategy(SearchSettings(), 256, [SPEED]))
        assert pairs(answer) == [(first - 1, first), (first + length - 1, first + length)]
        assert answer.missed is not None
        assert answer.missed.longest_dip < 16


@pytest.mark.slow
def test_whatever_lasts_as_long_as_was_wished_is_found() -> None:
    """Also a stretch of crashes, of which the grid meets a single point."""
    wish = SearchSettings(min_dip=8)
    for first in range(6, 246, 13):
        dip = Simulated(stepped(256, (first, 0.95), (first + 8, 1 / 0.95)), seed=first)
        crashes = Simulated(stepped(256), crashing=frozenset(range(first, first + 8)), seed=first)
        for world in (dip, crashes):
            answer = world.hunt(open_strategy(wish, 256, [SPEED]))
            assert pairs(answer) == [(first - 1, first), (first + 7, first + 8)]
            assert world.runs < 70
            assert answer.missed is not None
            assert (answer.missed.length, answer.missed.chance) == (8, 0)


def test_a_wish_that_may_fail_now_and_then_costs_less() -> None:
    runs = []
    for sure in (0.5, 0.95):
        world = Simulated(stepped(256))
        missed = world.hunt(open_strategy(SearchSettings(min_dip=8, min_dip_sure=sure), 256, [SPEED])).missed
        assert missed is not None
        assert missed.chance <= 1 - sure + 0.02
        runs.append(world.runs)
    assert runs[0] < 0.6 * runs[1]


def test_what_could_have_been_missed_is_said_with_its_price() -> None:
    world = Simulated([100.0] * 100)
    missed = world.hunt(open_strategy(SearchSettings(grid=10), 100, [SPEED])).missed
    assert missed is not None
    assert missed.runs_to_rule_out == 100 - len(world.seen)
    tested = sorted(world.seen)
    assert missed.longest_dip == max(b - a - 1 for a, b in pairwise(tested))
    assert missed.message.startswith(f"a dip or a stretch of crashes of up to {missed.longest_dip} points")
    assert "of up to" in missed.message
    # Wherever a dip of this length may lie: how many of its places have no tested point.
    places = range(100 - missed.length + 1)
    unseen = [at for at in places if not world.seen.keys() & set(range(at, at + missed.length))]
    assert missed.chance == pytest.approx(len(unseen) / len(places))
    everything = Simulated([100.0] * 30)
    missed = everything.hunt(open_strategy(SearchSettings(grid=1), 30, [SPEED])).missed
    assert missed is not None
    assert (missed.longest_dip, missed.runs_to_rule_out) == (0, 0)


@pytest.mark.slow
def test_one_outlier_is_run_again_and_makes_no_change() -> None:
    for at in (0, 40, 79):
        world = Simulated([100.0] * 80, spread=0.003, outliers={at: 80.0})
        answer = world.hunt(open_strategy(SearchSettings(grid=1), 80, [SPEED]))
        assert pairs(answer) == []
        assert len(world.seen[at].outcomes) > 1


def test_a_deterministic_metric_needs_one_run_per_point() -> None:
    world = Simulated(stepped(128, (77, 0.98)))
    answer = world.hunt(open_strategy(SearchSettings(), 128, [SPEED]))
    assert pairs(answer) == [(76, 77)]
    assert max(len(at.outcomes) for at in world.seen.values()) == 1


def test_where_equal_is_better_the_smallest_difference_counts() -> None:
    truth = stepped(64, (40, 1 + 1e-6))
    equal = Metric(name="m", better="equal")
    answer = Simulated(truth).hunt(open_strategy(SearchSettings(), 64, [equal]))
    assert [(s.good, s.bad, s.kind) for s in answer.spans] == [(39, 40, "shift")]
    assert pairs(Simulated(truth).hunt(open_strategy(SearchSettings(), 64, [SPEED]))) == []


@pytest.mark.parametrize(
    ("better", "factor", "kind"),
    [
        ("higher", 0.9, "regression"),
        ("higher", 1.1, "improvement"),
        ("lower", 1.1, "regression"),
        ("lower", 0.9, "improvement"),
        (None, 0.9, "shift"),
        ("equal", 1.1, "shift"),
    ],
)
def test_the_kind_of_a_change(better: str | None, factor: float, kind: str) -> None:
    metric = Metric(name="m", better=better)  # type: ignore[arg-type]
    answer = Simulated(stepped(20, (10, factor))).hunt(open_strategy(SearchSettings(), 20, [metric]))
    assert [span.kind for span in answer.spans] == [kind]


def test_a_change_within_a_broken_range_is_the_range() -> None:
    truth = [None if 40 <= at < 90 else value for at, value in enumerate(stepped(128, (60, 0.95)))]
    world = Simulated(truth)
    answer = world.hunt(open_strategy(SearchSettings(), 128, [SPEED]))
    assert pairs(answer) == [(39, 90)]
    assert set(answer.spans[0].between) <= set(range(40, 90))
    # Closed in on from both sides, and not tried point by point.
    assert sum(40 <= at < 90 for at in world.seen) < 25


def test_points_that_are_missing_are_never_asked_for_and_stand_in_the_answer() -> None:
    missing = set(range(30, 36)) | {0, 63}
    world = Simulated(stepped(64, (33, 0.9)))
    answer = world.hunt(open_strategy(SearchSettings(), 64, [SPEED], missing=missing))
    assert not missing & set(world.asked)
    asks = [ask for decision in world.decisions for ask in decision.asks]
    middles = [(ask, ask.ends) for ask in asks if "midpoint" in ask.why]
    assert middles
    assert all(low < ask.index < high for ask, (low, high) in middles)
    assert not missing & {end for _, ends in middles for end in ends}
    assert [(s.good, s.bad, s.between) for s in answer.spans] == [(29, 36, tuple(range(30, 36)))]


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_short_timelines(count: int) -> None:
    world = Simulated(stepped(count, (1, 0.9)))
    answer = world.hunt(open_strategy(SearchSettings(), count, [SPEED]))
    assert pairs(answer) == ([(0, 1)] if count > 1 else [])


def test_a_timeline_where_nothing_runs_ends_soon() -> None:
    world = Simulated([None] * 500)
    answer = world.hunt(open_strategy(SearchSettings(), 500, [SPEED]))
    assert pairs(answer) == []
    assert world.runs < 60


def test_what_is_known_is_said_at_any_time() -> None:
    world = Simulated(stepped(256, (100, 0.9)), spread=0.005)
    strategy = open_strategy(SearchSettings(), 256, [SPEED])
    for _ in range(30):
        world.run(strategy.decide(world.seen, {}, 1).asks[0].index)
    answer = strategy.decide(world.seen, {}, 0)
    assert (answer.asks, answer.unsettled) == ((), ()), "no room is no verdict on a metric"
    assert [span.good < 100 <= span.bad for span in answer.spans] == [True]


def test_several_metrics_share_runs_and_have_a_map_each() -> None:
    metrics = [Metric(name="speed", better="higher"), Metric(name="loss", better="lower")]
    strategy = open_strategy(SearchSettings(), 100, metrics)
    seen: dict[int, Observed] = {}
    while (decision := strategy.decide(seen, {}, 1)).asks:
        at = decision.asks[0].index
        values = {"speed": (100.0 if at < 30 else 90.0,), "loss": (1.0 if at < 71 else 1.5,)}
        seen[at] = Observed(values=values, outcomes=(Outcome.OK,))
    assert [(s.metric, s.good, s.bad) for s in decision.spans] == [("speed", 29, 30), ("loss", 70, 71)]
    assert len(seen) < 35


def test_a_lasting_crash_nobody_hunts_is_a_change_and_a_single_one_is_a_hole() -> None:
    world = Simulated(stepped(100, (20, 0.9)), crashing=frozenset(range(61, 100)) | {10})
    answer = world.hunt(open_strategy(SearchSettings(), 100, [SPEED]))
    assert [(s.good, s.bad, s.kind, s.after is None) for s in answer.spans] == [
        (19, 20, "regression", False),
        (60, 61, "crash", True),
    ]


@pytest.mark.slow
def test_flaky_crashes_are_tried_again() -> None:
    right = 0
    for seed in range(20):
        world = Simulated(stepped(128, (50, 0.95)), spread=0.005, crashes=0.1, seed=seed)
        right += pairs(world.hunt(open_strategy(SearchSettings(), 128, [SPEED]))) == [(49, 50)]
    assert right >= 18


@pytest.mark.slow
def test_a_flaky_test_is_pinned_down_and_its_rate_is_learned() -> None:
    right, rates = 0, []
    for seed in range(30):
        at = random.Random(seed).randrange(8, 248)
        world = Simulated([0.0] * at + [1.0] * (256 - at), flakes=0.1, seed=seed)
        answer = world.hunt(open_strategy(SearchSettings(), 256, [TEST]))
        right += pairs(answer) == [(at - 1, at)]
        assert answer.flake_rate is not None
        rates.append(answer.flake_rate)
    assert right >= 28
    assert 0.05 < sum(rates) / len(rates) < 0.2


def test_a_zoom_runs_its_ends_and_halves_what_lies_between() -> None:
    world = Simulated(stepped(65, (40, 0.95)))
    levels = {"m": (100.0, 95.0)}
    answer = world.hunt(open_strategy(SearchSettings(), 65, [SPEED], levels=levels))
    assert pairs(answer) == [(39, 40)]
    assert world.asked[:2] == [0, 64]
    assert world.runs <= 12


@pytest.mark.parametrize("count", [2, 3, 4, 5, 9])
def test_of_a_sure_change_at_an_end_both_neighbours_are_looked_at_twice_and_none_more_often(count: int) -> None:
    for at in (1, count - 1):
        world = Simulated(stepped(count, (at, 0.96)))
        assert pairs(world.hunt(open_strategy(SearchSettings(), count, [SPEED]))) == [(at - 1, at)]
        assert max(world.asked.count(point) for point in world.asked) == 2


def test_a_zoom_takes_no_grid_from_hunt_toml_which_speaks_of_the_first_stage() -> None:
    runs, said = set(), set()
    for grid in (0, 2, 64):
        world = Simulated(stepped(65, (41, 0.97)))
        levels = {"m": (100.0, 97.0)}
        strategy = open_strategy(SearchSettings(grid=grid), 65, [SPEED], levels=levels)
        answer = world.hunt(strategy)
        assert pairs(answer) == [(40, 41)]
        assert answer.missed is not None
        runs.add(world.runs)
        said.add(answer.missed.message)
    assert len(runs) == len(said) == 1
    assert "grid" not in said.pop()


def test_repeats_within_an_attempt_share_its_luck() -> None:
    """Five samples of one attempt that agree are no proof: the next attempt at the same point is elsewhere."""
    rng = random.Random(1)
    strategy = open_strategy(SearchSettings(), 64, [SPEED])
    seen: dict[int, Observed] = {}
    while (decision := strategy.decide(seen, {}, 1)).asks:
        at = decision.asks[0].index
        luck = 100 * (1 + rng.gauss(0, 0.01))
        samples = tuple(luck * (1 + rng.gauss(0, 0.0002)) for _ in range(5))
        before = seen.get(at, Observed())
        values = (*before.values.get("m", ()), *samples)
        seen[at] = Observed(values={"m": values}, outcomes=(*before.outcomes, Outcome.OK))
    assert decision.spans == ()


def test_parallel_runs_speculate_on_both_halves() -> None:
    strategy = open_strategy(SearchSettings(grid=256), 257, [SPEED])
    ends = {0: (100.0,), 128: (90.0,), 256: (90.0,)}
    seen = {at: Observed(values={"m": v * 2}, outcomes=(Outcome.OK,) * 2) for at, v in ends.items()}
    decision = strategy.decide(seen, {}, 3)
    assert [ask.index for ask in decision.asks] == [64, 32, 96]
    assert [ask.index for ask in strategy.decide(seen, {64: 1}, 2).asks] == [32, 96]


@pytest.mark.slow
@pytest.mark.parametrize(("step", "expected"), [(0.006, []), (0.008, []), (0.011, [(59, 60)]), (0.02, [(59, 60)])])
def test_what_is_smaller_than_wanted_is_not_reported(step: float, expected: list[tuple[int, int]]) -> None:
    for seed in range(6):
        noise = random.Random(seed)
        truth = [100 * (1 + noise.gauss(0, 0.001)) * (1 - step * (at >= 60)) for at in range(120)]
        answer = Simulated(truth, spread=0.0005, seed=seed).hunt(open_strategy(SearchSettings(), 120, [SPEED]))
        assert pairs(answer) == expected
