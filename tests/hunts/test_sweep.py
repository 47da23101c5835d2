from __future__ import annotations

import pytest

from factories.simulated_hunts import Simulated, pairs, stepped
from karat.changepoints.series import Outcome
from karat.hunts.model import Metric, Observed
from karat.hunts.search.strategies import open_strategy
from karat.hunts.settings import SearchSettings

SPEED = Metric(name="m", better="higher")
SWEEP = SearchSettings(strategy="sweep")


def test_every_point_that_is_there_is_run_once_and_the_detector_has_the_word() -> None:
    truth = [None if at in {13, 40} else value for at, value in enumerate(stepped(90, (41, 0.95)))]
    world = Simulated(truth, spread=0.005)
    answer = world.hunt(open_strategy(SWEEP, 90, [SPEED], missing={7}), slots=4)
    assert sorted(world.asked) == [at for at in range(90) if at != 7]
    assert [(s.good, s.bad, s.between, s.kind) for s in answer.spans] == [(39, 41, (40,), "regression")]
    assert answer.missed is not None
    assert answer.missed.longest_dip == 0
    assert answer.expected_left == 0


def test_a_change_that_is_zoomed_into_is_run_until_it_shows() -> None:
    world = Simulated([588.4, 578.0], spread=0.001)
    levels = {"m": (588.0, 578.0)}
    answer = world.hunt(open_strategy(SWEEP, 2, [SPEED], levels=levels), slots=2)
    assert pairs(answer) == [(0, 1)]
    world = Simulated(stepped(9, (5, 0.97)), spread=0.001)
    answer = world.hunt(open_strategy(SWEEP, 9, [SPEED], levels={"m": (100.0, 97.0)}), slots=2)
    assert pairs(answer) == [(4, 5)]
    assert set(world.asked) == set(range(9))


def test_nothing_is_said_before_everything_was_run() -> None:
    world = Simulated(stepped(40, (20, 0.9)))
    world.hunt(open_strategy(SWEEP, 40, [SPEED]))
    assert all(not decision.spans for decision in world.decisions[:-1])
    assert [decision.expected_left for decision in world.decisions] == list(range(40, -1, -1))


def test_a_flaky_test_is_swept_with_its_flakes_in_mind() -> None:
    world = Simulated([0.0] * 60 + [1.0] * 60, flakes=0.05, seed=2)
    answer = world.hunt(open_strategy(SWEEP, 120, [Metric(name="m", binary=True)]), slots=8)
    assert pairs(answer) == [(59, 60)]
    assert answer.flake_rate is not None


def test_where_no_more_may_be_run_it_says_what_is_known_so_far() -> None:
    world = Simulated(stepped(50, (9, 0.9)))
    strategy = open_strategy(SWEEP, 50, [SPEED])
    for at in range(20):
        world.run(at)
    answer = strategy.decide(world.seen, {}, 0)
    assert (pairs(answer), answer.asks) == ([(8, 9)], ())
    assert answer.missed is not None
    assert (answer.missed.runs_to_rule_out, answer.expected_left) == (30, 30)
    assert not strategy.decide(world.seen, {20: 1}, 0).spans, "while something is under way, it is waited for"


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.HANG])
@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        (range(20, 23), [(19, 20, "crash"), (22, 23, "recovery")]),
        (range(37, 40), [(36, 37, "crash")]),
        (range(3), [(2, 3, "recovery")]),
        (range(39, 40), [(38, 39, "crash")]),
        (range(20, 21), []),
    ],
    ids=["middle", "end", "start", "newest", "a hole"],
)
def test_failures_that_last_are_a_change_where_they_begin_and_where_they_end(
    failing: range, expected: list[tuple[int, int, str]], outcome: Outcome
) -> None:
    seen = {
        at: Observed(outcomes=(outcome,))
        if at in failing
        else Observed(values={"m": (100.0 + at % 3,), "other": (1.0,)}, outcomes=(Outcome.OK,))
        for at in range(40)
    }
    answer = open_strategy(SWEEP, 40, [SPEED, Metric(name="other")]).decide(seen, {}, 1)
    assert [(s.good, s.bad, s.kind) for s in answer.spans] == expected
    assert all((s.before is None) == (s.kind == "recovery") for s in answer.spans)
    assert all((s.after is None) == (s.kind == "crash") for s in answer.spans)


def test_a_level_that_moves_across_failures_is_told_beside_them_and_what_is_missing_lies_between() -> None:
    world = Simulated(stepped(60, (30, 0.8)), crashing=frozenset(range(28, 32)))
    answer = world.hunt(open_strategy(SWEEP, 60, [SPEED], missing={27}))
    assert [(s.good, s.bad, s.between, s.kind) for s in answer.spans] == [
        (26, 28, (27,), "crash"),
        (26, 32, (27, 28, 29, 30, 31), "regression"),
        (31, 32, (), "recovery"),
    ]


def test_flaky_crashes_side_by_side_are_no_change() -> None:
    worlds = [Simulated([100.0] * 256, crashes=0.1, seed=seed) for seed in range(10)]
    found = [world.hunt(open_strategy(SWEEP, 256, [SPEED])).spans for world in worlds]
    assert sum(map(len, found)) <= 1


def test_what_the_detector_says_is_in_the_numbers_of_the_whole_timeline() -> None:
    names = [f"v{at}" for at in range(60)]
    world = Simulated(stepped(60, (40, 0.8)), spread=0.001)
    strategy = open_strategy(SWEEP, 60, [SPEED], missing=range(10, 20), names=names)
    assert pairs(world.hunt(strategy)) == [(39, 40)]


def test_what_a_coarser_stage_saw_is_no_difference_of_two_builds() -> None:
    for seed in range(8):
        world = Simulated([588.4, 578.0], spread=0.001, seed=seed)
        answer = world.hunt(open_strategy(SWEEP, 2, [SPEED], levels={"m": (588.0, 578.0)}))
        assert pairs(answer) == [(0, 1)]
        assert world.runs <= 24
        # Nor is it seen where it is not.
        world = Simulated([588.0, 588.0], spread=0.001, seed=seed)
        assert pairs(world.hunt(open_strategy(SWEEP, 2, [SPEED], levels={"m": (588.0, 578.0)}))) == []
