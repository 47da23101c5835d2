from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from karat.changepoints.series import Better, Outcome
from karat.hunts.model import Metric, Observed
from karat.hunts.search.inference import flake_map, judge, level_map
from karat.hunts.search.noise import Circumstance

SPEED = Metric(name="m", better="higher")
TEST = Metric(name="m", binary=True)
VALUES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=5)


def seen(*values: float) -> Observed:
    return Observed(values={"m": values}, outcomes=(Outcome.OK,) * len(values))


@pytest.mark.parametrize(
    ("old", "new", "spread", "verdict"),
    [
        ((100.0, 100.4, 99.8), (95.1, 94.8, 95.3), None, "differ"),
        ((100.0, 100.4, 99.8), (100.2, 99.7, 100.1), 0.003, "same"),
        ((100.0,), (100.9,), 0.005, "unsure"),
        ((100.0, 100.1), (97.9, 98.2), 0.003, "differ"),
        # One run each that are far apart: one of them may be an outlier.
        ((100.0,), (80.0,), 0.005, "unsure"),
        ((0.0, 0.0), (3.0, 3.0), None, "differ"),
        ((0.0, 0.0), (0.0, 0.0), None, "same"),
    ],
)
def test_levels(old: tuple[float, ...], new: tuple[float, ...], spread: float | None, verdict: str) -> None:
    assert judge(seen(*old), seen(*new), SPEED, spread=spread).verdict == verdict


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), "differ"),
        ((0.0,) * 5, (0.0,) * 5, "same"),
        ((0.0, 1.0), (1.0, 0.0), "unsure"),
    ],
)
def test_good_or_bad(old: tuple[float, ...], new: tuple[float, ...], verdict: str) -> None:
    assert judge(seen(*old), seen(*new), TEST).verdict == verdict


def test_a_point_without_a_value_decides_nothing() -> None:
    broken = Observed(outcomes=(Outcome.BROKEN,))
    judgement = judge(broken, seen(1.0, 1.0), SPEED)
    assert (judgement.verdict, judgement.probability) == ("unsure", 0.5)


@pytest.mark.parametrize(("better", "verdict"), [("higher", "same"), ("equal", "differ")])
def test_where_equal_is_better_a_small_difference_is_one(better: Better, verdict: str) -> None:
    metric = Metric(name="m", better=better)
    old, new = seen(*[1.0] * 4), seen(*[1.0 + 1e-7] * 4)
    assert judge(old, new, metric).verdict == verdict


def test_a_hunted_crash_is_seen_in_the_outcomes() -> None:
    metric = Metric(name="crash", better="lower", binary=True)
    crashed = Observed(outcomes=(Outcome.CRASH,) * 3)
    fine = Observed(outcomes=(Outcome.OK,) * 3)
    assert judge(fine, crashed, metric).verdict == "differ"
    assert judge(crashed, crashed, metric).verdict == "same"


@settings(max_examples=60)
@given(VALUES, VALUES)
def test_the_order_of_the_two_does_not_matter_and_a_scale_neither(old: list[float], new: list[float]) -> None:
    there = judge(seen(*old), seen(*new), SPEED).probability
    back = judge(seen(*new), seen(*old), SPEED).probability
    scaled = judge(seen(*[8 * x for x in old]), seen(*[8 * x for x in new]), SPEED).probability
    assert 0 <= there <= 1
    assert back == pytest.approx(there, abs=0.05)
    assert scaled == pytest.approx(there, abs=0.05)


def test_few_verdicts_are_wrong() -> None:
    """Three runs each, noise of 0.5%: with nothing changed, and with 3%."""
    rng = random.Random(4)
    wrong = decided = 0
    for _ in range(300):
        factor = rng.choice([1.0, 0.97, 1.03])
        old, new = (seen(*[100 * level * (1 + rng.gauss(0, 0.005)) for _ in range(3)]) for level in (1.0, factor))
        verdict = judge(old, new, SPEED, spread=0.005).verdict
        decided += verdict != "unsure"
        wrong += verdict == ("differ" if factor == 1.0 else "same")
    assert decided > 200
    assert wrong <= 6


def test_points_that_are_one_build_are_one_witness() -> None:
    """The very same runs, met at three points, say no more than at one; and nothing changed between them."""
    alone = {at: (97.8 if at == 20 else 100.0 + 0.3 * (at % 3),) for at in range(0, 40, 4)}
    under = {at: [Circumstance(float(at + k), "w") for k in range(len(x))] for at, x in alone.items()}
    thrice = {**alone, 21: alone[20], 22: alone[20]}
    once = level_map(alone, 40, smallest=0.01, under=under)
    shared = level_map(thrice, 40, smallest=0.01, under={**under, 21: under[20], 22: under[20]})
    chances = dict(zip(pairwise(shared.positions), shared.chance, strict=True))
    assert (chances[20, 21], chances[21, 22]) == (0, 0)
    assert chances[16, 20] <= once.chance[4]
    assert chances[16, 20] < 0.5 * level_map(thrice, 40, smallest=0.01).chance[4], "as three points it is a dip"
    tests = {at: (float(at in {20, 21}),) for at in (*range(0, 40, 2), 21)}
    ran = {at: [Circumstance(20.0 if at == 21 else at, "w")] for at in tests}
    assert flake_map(tests, 40, under=ran).chance[9] < 0.7 * flake_map(tests, 40).chance[9]
