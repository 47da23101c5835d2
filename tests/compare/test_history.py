"""What earlier moves say about a new one."""

from __future__ import annotations

from math import isfinite

import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.compare.change import MetricChange, Verdict
from karat.compare.history import ENOUGH, EarlierMoves, Past

GOLDEN, OTHER = "t/gpt/golden_values_dev_h100.json", "t/bert/golden_values_dev_h100.json"


def about(size: float, own: list[float], others: list[float] | None = None, platform: str = "h100") -> EarlierMoves:
    moves = {GOLDEN: {"lm loss": own}, OTHER: {"lm loss": others or []}}
    return Past(moves, {GOLDEN: "h100", OTHER: platform}).about(size, "lm loss", GOLDEN, "h100")


def test_a_move_larger_than_most_is_counted_and_unusual() -> None:
    found = about(4e-3, [1e-5] * 30 + [3e-5] * 28 + [1e-2, 2e-2])
    assert (found.own, found.compared_with, found.larger_than, found.unusual) == (60, 60, 58, True)
    assert found.sentence == "larger than 58 of 60 earlier moves (typically 2.0e-05)"


def test_a_usual_move_is_not_unusual_though_it_is_large() -> None:
    found = about(5e-2, [2e-2, 8e-2, 4e-2, 6e-2, 3e-2, 9e-2, 5e-2, 7e-2])
    assert not found.unusual
    assert found.sentence == "larger than 3 of 8 earlier moves (typically 5.5e-02)"


def test_bad_refreshes_do_not_shift_what_is_usual() -> None:
    clean = [1e-5, 2e-5, 3e-5, 4e-5] * 5
    spoilt = [*clean, *[0.9] * 6]
    assert about(0.01, clean).unusual
    assert about(0.01, spoilt).deviation == pytest.approx(about(0.01, clean).deviation, rel=0.35)
    assert not about(0.01, spoilt).unusual, "a quarter of the past moved further"


def test_a_metric_that_never_moved() -> None:
    found = about(1e-6, [0.0] * 12)
    assert found.unusual
    assert found.sentence == "larger than all 12 earlier moves (most did not move it)"
    still = about(0.0, [0.0] * 12)
    assert (still.larger_than, still.unusual) == (0, False)


def test_almost_alike_moves_make_no_news_of_a_little_more() -> None:
    assert not about(1.1e-3, [1e-3] * 40).unusual
    assert about(2.5e-3, [1e-3] * 40).unusual


def test_too_few_say_so_and_how_many_it_takes() -> None:
    found = about(1.0, [1e-5] * (ENOUGH - 1))
    assert (found.compared_with, found.unusual) == (0, False)
    assert found.sentence == "7 earlier moves of this golden are too few to tell what is usual (8 needed)"
    assert about(1.0, [1e-5]).sentence.startswith("1 earlier move of this golden is too few")


def test_all_goldens_of_the_platform_help_out_and_are_named() -> None:
    found = about(1e-2, [1e-5], [1e-5] * 9 + [1.0])
    assert found.pooled == "lm loss on h100 in all goldens"
    assert found.sentence == (
        "1 earlier move of this golden is too few to tell what is usual (8 needed);"
        " larger than 10 of 11 moves of lm loss on h100 in all goldens (typically 1.0e-05)"
    )
    assert about(1e-2, [1e-5], [1e-5] * 10, platform="gb200").compared_with == 0


def test_a_golden_without_a_past() -> None:
    found = Past({}, {}).about(1e-3, "lm loss", "new.json")
    assert (found.own, found.compared_with) == (0, 0)
    assert found.sentence.startswith("0 earlier moves of this golden are too few")


@pytest.mark.parametrize("spoilt", ["steps_lost", "steps_gained", "nan_gained", "nan_lost"])
def test_what_lost_or_gained_values_has_no_size(spoilt: str) -> None:
    whole = MetricChange(metric="m", verdict=Verdict.NOISE, because="", mean_abs_rel_diff=1e-4)
    assert whole.size == 1e-4
    cut = MetricChange(metric="m", verdict=Verdict.NOISE, because="", mean_abs_rel_diff=1e-4, **{spoilt: 1})  # type: ignore[arg-type]
    assert cut.size is None
    assert MetricChange(metric="m", verdict=Verdict.INCOMPLETE, because="", mean_abs_rel_diff=1e-4).size is None


def test_a_timing_has_the_size_of_its_medians() -> None:
    row = MetricChange(metric="t", verdict=Verdict.DRIFT, because="", mean_abs_rel_diff=0.5, steady_rel_diff=-0.02)
    assert row.size == 0.02


@pytest.mark.parametrize(("earlier", "most"), [(ENOUGH, 0.04), (20, 0.02), (60, 0.01)])
def test_noise_is_seldom_called_unusual(earlier: int, most: float) -> None:
    random = np.random.default_rng(15)
    drawn = 10 ** random.normal(-4, 0.5, (1000, earlier + 1))
    wrong = sum(about(float(row[-1]), row[:-1].tolist()).unusual for row in drawn)
    assert wrong / len(drawn) <= most


sizes = st.floats(0, 10, allow_nan=False)


@given(st.lists(sizes, min_size=ENOUGH, max_size=80), sizes)
def test_counts_are_right_whatever_the_past(own: list[float], size: float) -> None:
    found = about(size, own)
    assert found.larger_than == len([one for one in own if one < size])
    assert found.compared_with == len(own)
    assert found.deviation is not None
    assert isfinite(found.deviation)


@given(st.lists(sizes, min_size=ENOUGH, max_size=40), sizes, sizes)
def test_a_larger_move_is_never_less_unusual(own: list[float], one: float, other: float) -> None:
    small, large = sorted([one, other])
    assert about(large, own).unusual >= about(small, own).unusual
