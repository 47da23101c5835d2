from __future__ import annotations

import numpy as np
import pytest

from factories.noise import noise, series_of
from karat.changepoints.detector.detect import newest
from karat.changepoints.series import Observation, Outcome, Series


def calm(n: int = 40) -> list[float]:
    return [float(value) for value in 100 + np.random.default_rng(1).standard_normal(n) * 0.2]


def with_last(last: Observation) -> Series:
    return Series(metric="m", observations=(*series_of(calm()).observations, last))


def test_a_new_level_is_a_change() -> None:
    answer = newest(series_of([*calm(), 95.0, 95.1, 94.9]))
    assert answer.verdict == "change"
    assert answer.step is not None
    assert (answer.step.last_good, answer.step.first_bad) == (39, 40)
    assert answer.p_value == answer.step.p_value
    assert answer.message.startswith("speed fell from")


def test_one_point_off_is_unsure_and_says_how_many_more_would_tell() -> None:
    answer = newest(series_of([*calm(), 95.0]))
    assert answer.verdict == "unsure"
    assert answer.points_needed in {1, 2}
    assert "more point" in answer.message
    more = [95.0] * answer.points_needed
    assert newest(series_of([*calm(), 95.0, *more])).verdict == "change"


def test_a_point_like_the_others_is_the_same() -> None:
    answer = newest(series_of(calm()))
    assert answer.verdict == "same"
    assert answer.step is None


def test_a_change_long_ago_is_not_new() -> None:
    values = [*calm(), *(value - 5 for value in calm(20))]
    assert newest(series_of(values)).verdict == "same"
    assert newest(series_of(values[:43])).verdict == "change"
    assert newest(series_of(values[:50]), recent=12).verdict == "change"


def test_flat_series_are_seldom_called_changed() -> None:
    generator = np.random.default_rng(2)
    verdicts = [newest(series_of(noise("t3", 60, generator))).verdict for _ in range(60)]
    assert verdicts.count("change") <= 2
    assert verdicts.count("same") >= 50


@pytest.mark.parametrize("outcome", [Outcome.CRASH, Outcome.HANG])
def test_a_newest_point_that_failed_is_a_change_unless_the_one_before_did(outcome: Outcome) -> None:
    failed = Observation(label="night", outcome=outcome, signature="KeyError: 'x'")
    answer = newest(with_last(failed))
    assert answer.verdict == "change"
    assert "KeyError" in answer.message
    again = with_last(failed)
    again = Series(metric="m", observations=(*again.observations, failed))
    assert newest(again).verdict == "same"


@pytest.mark.parametrize("outcome", [Outcome.BROKEN, Outcome.MISSING])
def test_a_newest_point_that_could_not_be_tried_says_nothing(outcome: Outcome) -> None:
    answer = newest(with_last(Observation(label="night", outcome=outcome)))
    assert answer.verdict == "unsure"
    assert "night has no value" in answer.message


def test_a_newest_point_that_ran_and_left_no_value_is_not_taken_for_the_one_before() -> None:
    answer = newest(with_last(Observation(label="night")))
    assert (answer.verdict, answer.message) == ("unsure", "night has no value")


def test_a_crash_before_a_new_level_does_not_take_its_words() -> None:
    crash = Observation(label="night", outcome=Outcome.CRASH, signature="ImportError: x")
    items = series_of([*calm(), 95.0, 95.1, 94.9]).observations
    series = Series(metric="m", observations=(*items[:42], crash, *items[42:]))
    answer = newest(series)
    assert answer.verdict == "change"
    assert "fell" in answer.message


def test_too_few_points_and_none() -> None:
    assert newest(series_of([1.0, 2.0])).verdict == "unsure"
    assert newest(Series(metric="m", observations=())).message == "the series is empty"
