from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import karat
from karat.gradients import slopes
from karat.gradients.report import GradReport, GradVerdict


def _relu(at_zero: float, point: Any, fn: Any = None) -> GradReport:
    def backward(i: Any, _o: Any, c: Any) -> Any:
        x = i[0]
        return (np.where(x > 0, 1.0, np.where(x == 0, at_zero, 0.0)) * c[0],)

    return karat.gradcheck(
        fn or (lambda x: np.maximum(x, 0)), (point,), backward=backward, properties=()
    )


@given(st.lists(st.tuples(*[st.floats(-1e3, 1e3)] * 3), min_size=1, max_size=8))
def test_an_interval_holds_both_slopes(rows: list[tuple[float, float, float]]) -> None:
    v, slope, jump = np.array(rows).T
    low, high = slopes.interval(v, slope, jump)
    right, left = np.sum(v * (slope + jump / 2)), np.sum(v * (slope - jump / 2))
    assert low <= min(right, left) + 1e-6
    assert high >= max(right, left) - 1e-6


@pytest.mark.parametrize("at_zero", [0.0, 0.5, 1.0])
def test_any_subgradient_is_accepted_and_flagged(at_zero: float) -> None:
    point = np.array([0.0, 1.0, -1.0, 2.0, 0.0, 0.7, -0.1, 3.0, 0.2, 0.4])
    report = _relu(at_zero, point)
    assert report.verdict is GradVerdict.PASS, report.reason
    assert report.comparisons[0].kinks == 2
    assert "one-sided" in report.comparisons[0].reason


@pytest.mark.parametrize("at_zero", [-0.1, 1.1, 7.0])
def test_what_is_no_subgradient_fails(at_zero: float) -> None:
    point = np.array([0.0, 1.0, -1.0, 2.0, 0.5, 0.7, -0.1, 3.0, 0.2, 0.4])
    report = _relu(at_zero, point)
    assert report.verdict is GradVerdict.FAIL
    assert "at a kink" in report.reason


def test_nothing_but_kinks_is_looked_at_nearby() -> None:
    report = _relu(0.0, np.zeros(20))
    assert report.verdict is GradVerdict.PASS, report.reason
    assert report.comparisons[0].kinks == 20
    assert any("nearby" in note for note in report.notes)


def test_a_wrong_gradient_away_from_the_kinks_is_found_nearby() -> None:
    report = karat.gradcheck(
        lambda x: np.maximum(x, 0),
        (np.zeros(20),),
        backward=lambda i, _o, c: (np.where(i[0] > 0, 2.0, 0.0) * c[0],),
        properties=(),
    )
    assert report.verdict is GradVerdict.FAIL


def test_a_tie_that_is_counted_twice_fails() -> None:
    point = np.array([[1.0, 1.0, 0.0], [2.0, 0.0, 2.0], [0.0, 1.0, 0.5]])

    def check(share: Any) -> GradReport:
        return karat.gradcheck(
            lambda x: x.max(-1),
            (point,),
            backward=lambda i, o, c: (share(i[0] == o[0][:, None]) * c[0][:, None],),
            properties=(),
        )

    assert check(lambda tied: tied * 1.0).verdict is GradVerdict.FAIL
    assert check(lambda tied: tied / tied.sum(-1, keepdims=True)).verdict is GradVerdict.PASS


def test_a_tie_between_two_inputs_that_is_counted_twice_fails() -> None:
    x = np.array([1.0, 2.0, 3.0, -1.0])
    y = np.array([1.0, 0.0, 3.0, 5.0])

    def check(at_tie: float) -> GradReport:
        def backward(i: Any, _o: Any, c: Any) -> Any:
            first = np.where(i[0] > i[1], 1.0, np.where(i[0] == i[1], at_tie, 0.0))
            second = np.where(i[0] < i[1], 1.0, np.where(i[0] == i[1], at_tie, 0.0))
            return first * c[0], second * c[0]

        return karat.gradcheck(np.maximum, (x, y), backward=backward, properties=())

    assert check(0.5).verdict is GradVerdict.PASS
    assert check(1.0).verdict is GradVerdict.FAIL


@pytest.mark.parametrize("attempt", range(slopes.ATTEMPTS))
def test_nearby_is_near_and_elsewhere(attempt: int) -> None:
    point = [np.array([0.0, 1.0, -4.0, np.inf])]
    (moved,) = slopes.nearby_point(point, attempt, np.random.default_rng(0))
    assert np.isinf(moved[3])
    assert np.all(moved[:3] != point[0][:3])
    assert np.all(np.abs(moved[:3] - point[0][:3]) <= [0.25, 0.25, 0.5])
