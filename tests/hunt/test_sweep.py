from __future__ import annotations

from factories.simulated_hunts import Simulated, pairs, stepped
from karat.hunt.searching import Metric
from karat.hunt.settings import SearchSettings
from karat.hunt.strategies import open_strategy

SPEED = Metric(name="m", better="higher")
SWEEP = SearchSettings(strategy="sweep")


def test_every_point_that_is_there_is_run_once_and_the_detector_has_the_word() -> None:
    truth = [None if at in {13, 40} else value for at, value in enumerate(stepped(90, (41, 0.95)))]
    world = Simulated(truth, spread=0.005)
    answer = world.hunt(open_strategy(SWEEP, 90, [SPEED], missing={7}), slots=4)
    assert sorted(world.asked) == [at for at in range(90) if at != 7]
    assert [(s.good, s.bad, s.between, s.kind) for s in answer.spans] == [
        (39, 41, (40,), "regression")
    ]
    assert [len(analysis.steps) for analysis in answer.analyses] == [1]
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


def test_a_budget_ends_it_and_says_so() -> None:
    world = Simulated([100.0] * 50)
    settings = SearchSettings(strategy="sweep", max_runs=20)
    answer = world.hunt(open_strategy(settings, 50, [SPEED]), slots=3)
    assert world.runs == 20
    assert answer.notes == ("stopped at 20 runs (max_runs): 30 points were not run",)
    assert answer.missed is not None
    assert answer.missed.runs_to_rule_out == 30
