from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

import pytest

from karat.changepoints.series import Outcome
from karat.hunts.attribution import confirm
from karat.hunts.model import Metric, Observed, Point, Verdict
from karat.hunts.search.inference import judge

SPEED = Metric(name="speed", better="higher")
OLD, NEW = Point(id="old", label=""), Point(id="new", label="")


class Bench:
    """Two points whose machine may become slower while it runs."""

    def __init__(self, old: float, new: float, *, noise: float = 0.002, drift: float = 0.0) -> None:
        self.levels, self.noise, self.drift = {"old": old, "new": new}, noise, drift
        self.random, self.order = random.Random(3), list[str]()

    def measure(self, points: Sequence[Point]) -> list[Observed]:
        return [self._seen(point.id) for point in points]

    def _seen(self, name: str) -> Observed:
        self.order.append(name)
        factor = (1 - self.drift) ** len(self.order) * (1 + self.random.gauss(0, self.noise))
        value = self.levels[name] * factor
        return Observed(values={"speed": (value,)}, outcomes=(Outcome.OK,), signatures=("",))


def confirmed(bench: Bench, times: int = 3, direction: float = 0.0) -> Verdict:
    judged = partial(judge, metric=SPEED, smallest=0.01)
    return confirm(OLD, NEW, SPEED, bench.measure, judged, times=times, direction=direction)


def test_they_are_run_in_turns_and_as_often_as_asked() -> None:
    bench = Bench(100, 90)
    verdict = confirmed(bench, times=4)
    assert bench.order[:8] == ["old", "new"] * 4
    assert verdict.confirmed
    assert verdict.confidence > 0.99
    assert "they differ" in verdict.tried[0]


def test_what_does_not_differ_any_more_is_not_confirmed() -> None:
    verdict = confirmed(Bench(100, 100), times=4)
    assert verdict.confirmed is False
    assert "they do not differ" in verdict.tried[0]


def test_a_machine_that_becomes_slower_makes_no_difference() -> None:
    assert confirmed(Bench(100, 100, drift=0.001), times=6).confirmed is not True


def test_noise_is_met_with_more_runs_and_then_said() -> None:
    bench = Bench(100, 99, noise=0.05)
    verdict = confirmed(bench, times=2)
    assert verdict.confirmed is None
    assert len(bench.order) == 4 * 4
    assert "unclear" in verdict.tried[0]


@pytest.mark.parametrize(("direction", "expected"), [(-10.0, True), (10.0, False), (0.0, True)])
def test_a_change_to_the_other_side_is_another_one(direction: float, *, expected: bool) -> None:
    assert confirmed(Bench(100, 90), direction=direction).confirmed is expected


def test_a_side_that_gives_no_value_confirms_nothing() -> None:
    def measure(points: Sequence[Point]) -> list[Observed]:
        return [
            Observed(outcomes=(Outcome.BROKEN,), signatures=("",))
            if point is NEW
            else Observed(values={"speed": (1.0,)}, outcomes=(Outcome.OK,), signatures=("",))
            for point in points
        ]

    verdict = confirm(OLD, NEW, SPEED, measure, partial(judge, metric=SPEED), times=2)
    assert verdict.confirmed is None
    assert verdict.tried == ("run again: no value for the culprit",)
