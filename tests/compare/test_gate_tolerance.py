"""The laws of the gate's arithmetic."""

from __future__ import annotations

from math import inf, nan
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from msgspec import structs

from karat.compare.gate import series
from karat.compare.gate.result import (
    CheckOutcome,
    Gate,
    allowance,
    direction_of,
    gate,
    gate_median,
    relative_error,
    relative_tolerance,
    share_inside,
    share_used,
    window_of,
)
from karat.compare.rules import Check, Rule, RuleBook

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ANY = st.floats()
RULES = st.builds(
    Rule,
    rtol=st.floats(0, 2),
    atol=st.floats(0, 10),
    check=st.sampled_from(get_args(Check)),
    better=st.sampled_from([None, "lower", "higher"]),
    outliers=st.integers(0, 3),
    outlier_share=st.floats(0, 0.5),
    outliers_max=st.sampled_from([inf, 0, 1, 5]),
)
PAIRS = st.lists(st.tuples(ANY, ANY, st.booleans()), min_size=1, max_size=20)


def judged(pairs: list[tuple[float, float, bool]], rule: Rule) -> Gate:
    expected, got, present = (np.array(column) for column in zip(*pairs, strict=True))
    return gate(expected.astype(float), got.astype(float), present.astype(bool), rule)


def simple(expected: list[float], got: list[float], **sets: Any) -> Gate:
    return gate(np.array(expected), np.array(got), np.ones(len(expected), dtype=bool), Rule(**sets))


@given(PAIRS, RULES)
def test_every_demanded_value_is_exactly_one_of_missing_broken_or_compared(
    pairs: list[tuple[float, float, bool]], rule: Rule
) -> None:
    found = judged(pairs, rule)
    assert not (found.missing & found.broken).any()
    out = found.worse | found.better
    assert not (out & (found.missing | found.broken | ~found.demanded)).any()
    assert not (found.worse & found.better).any()
    n = int(found.demanded.sum())
    assert found.compared == n - int((found.missing | found.broken).sum())


@given(PAIRS, RULES)
def test_what_passes_here_is_what_users_are_told_passes(pairs: list[tuple[float, float, bool]], rule: Rule) -> None:
    found = judged(pairs, rule)
    outcome, _ = series._outcome(found, "approx")
    assert found.passes == (outcome in {CheckOutcome.PASS, CheckOutcome.IMPROVED})


@given(st.lists(st.tuples(ANY, st.floats(-3, 3)), min_size=1, max_size=20), RULES)
@example([(1e308, 1e-300)], Rule(check="approx", rtol=2.0))
def test_what_the_short_way_lets_pass_the_gate_lets_pass_and_by_the_same_share(
    moved: list[tuple[float, float]], rule: Rule
) -> None:
    expected, by = (np.array(column) for column in zip(*moved, strict=True))
    with np.errstate(all="ignore"):
        got = expected + by * np.minimum(rule.atol + relative_tolerance(rule) * np.abs(expected), 1e308)
    found = gate(expected, got, np.ones(len(moved), dtype=bool), rule)
    share = share_inside(expected, got, rule)
    if share is not None:
        assert found.passes
        assert not (found.worse | found.better).any()
        assert share == share_used(found.error, found.tolerance)
    elif rule.mode not in {"range", "exact", "prefix"} and found.complete and not (found.worse | found.better).any():
        # Nothing is left to the long way but what is next to a bound, or has none.
        used = share_used(found.error, found.tolerance)
        bounded = (found.tolerance > 0) & np.isfinite(found.tolerance)
        assert used is None or used > 1 - 1e-8 or not bounded.all()


@given(PAIRS, RULES, st.floats(1, 100))
def test_a_wider_tolerance_never_shuts_an_open_gate(
    pairs: list[tuple[float, float, bool]], rule: Rule, more: float
) -> None:
    narrow = judged(pairs, rule)
    wide = judged(pairs, structs.replace(rule, rtol=(rule.rtol or 0) * more, atol=rule.atol * more))
    assert not (wide.worse & ~narrow.worse).any()
    assert not (wide.better & ~narrow.better).any()
    if narrow.passes:
        assert wide.passes


@given(PAIRS, RULES, st.integers(0, 19), st.sampled_from([nan, inf, -inf]))
def test_what_is_not_finite_never_passes(
    pairs: list[tuple[float, float, bool]], rule: Rule, at: int, bad: float
) -> None:
    pairs[at % len(pairs)] = (1.0, bad, True)
    found = judged(pairs, rule)
    assert not found.complete
    assert not found.passes


@given(PAIRS, RULES, st.integers(0, 19), ANY)
def test_what_is_missing_never_passes(
    pairs: list[tuple[float, float, bool]], rule: Rule, at: int, other: float
) -> None:
    pairs[at % len(pairs)] = (2.5, other, False)
    assert not judged(pairs, rule).passes


@pytest.mark.parametrize("got", [inf, -inf, nan, 1.0])
@pytest.mark.parametrize("rtol", [0.1, inf])
def test_an_infinite_expectation_can_not_be_met_not_even_by_itself(got: float, rtol: float) -> None:
    assert not simple([inf], [got], rtol=rtol).passes
    assert not simple([inf], [got], rtol=rtol, better="lower", outliers=5).passes


@given(PAIRS, RULES, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(pairs: list[tuple[float, float, bool]], rule: Rule, dice: Any) -> None:
    shuffled = list(pairs)
    dice.shuffle(shuffled)
    one, other = judged(pairs, rule), judged(shuffled, rule)
    assert (one.passes, one.fails, one.improves, one.allowed) == (
        other.passes,
        other.fails,
        other.improves,
        other.allowed,
    )


@given(PAIRS, RULES)
def test_what_is_exact_is_approximate_too(pairs: list[tuple[float, float, bool]], rule: Rule) -> None:
    if judged(pairs, structs.replace(rule, check="exact", better=None)).passes:
        assert judged(pairs, structs.replace(rule, check="approx", better=None)).passes


@given(PAIRS, RULES)
def test_one_sided_checks_object_to_a_part_of_what_two_sided_ones_do(
    pairs: list[tuple[float, float, bool]], rule: Rule
) -> None:
    both = judged(pairs, structs.replace(rule, check="approx", better=None))
    low = judged(pairs, structs.replace(rule, check="at-least"))
    high = judged(pairs, structs.replace(rule, check="at-most"))
    assert not (low.worse & high.worse).any()
    assert np.array_equal(low.worse | high.worse, both.worse)
    assert np.array_equal(low.better, high.worse)


@given(PAIRS, RULES, st.integers(0, 5))
def test_one_more_outlier_than_allowed_shuts_the_gate(
    pairs: list[tuple[float, float, bool]], rule: Rule, spare: int
) -> None:
    del pairs
    total = 40
    rule = structs.replace(rule, check="approx", rtol=0.5, atol=0.0, better=None)
    allowed = allowance(total, rule)
    got = np.ones(total)
    got[: min(allowed + spare, total)] = 9.0
    found = gate(np.ones(total), got, np.ones(total, dtype=bool), rule)
    assert found.passes == (min(allowed + spare, total) <= allowed)


@pytest.mark.parametrize(("total", "allowed"), [(3, 1), (50, 1), (199, 1), (200, 2), (300, 3), (2900, 29), (9999, 50)])
def test_megatrons_allowance(total: int, allowed: int) -> None:
    rule = Rule(rtol=0.05, outliers=1, outlier_share=0.01, outliers_max=50)
    assert allowance(total, rule) == min(max(total // 100, 1), 50) == allowed


@given(st.integers(0, 10_000), RULES)
def test_an_allowance_is_a_count_of_what_there_is(total: int, rule: Rule) -> None:
    allowed = allowance(total, rule)
    assert allowed == 0 or 0 < allowed <= total - allowed
    assert allowance(total, structs.replace(rule, check="exact")) == 0


@pytest.mark.parametrize(("total", "allowed"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (9, 4)])
def test_outliers_are_never_more_than_the_others(total: int, allowed: int) -> None:
    """A lone value that is off is no outlier: nothing could ever fail."""
    assert allowance(total, Rule(rtol=0.05, outliers=1000)) == allowed
    if total:
        assert simple([1.0] * total, [9.0] * total, rtol=0.05, outliers=1000).fails


def test_nothing_demanded_is_nothing_compared() -> None:
    found = simple([nan, nan], [1.0, nan], rtol=1.0)
    assert (found.compared, found.passes, found.fails) == (0, False, False)


def test_an_error_beyond_the_range_of_floats_is_out_of_any_tolerance() -> None:
    assert simple([1e308], [-1e308], rtol=inf).fails


def test_a_value_that_left_zero_is_out_of_any_relative_tolerance() -> None:
    assert simple([0.0], [1e-9], rtol=inf).fails
    assert simple([0.0], [1e-9], rtol=0.5, atol=1e-6).passes


@pytest.mark.parametrize(
    ("metric", "mode", "direction", "rtol"),
    [
        ("graph_breaks", "exact", "lower", 0.0),
        ("generated_tokens", "exact", None, 0.0),
        ("lm loss", "approx", None, 1e-2),
        ("num-zeros", "approx", None, 5e-2),
        ("iteration-time", "info", None, 0.2),
        ("expected", "approx", "lower", 1e-2),
    ],
)
def test_without_a_check_the_other_fields_decide(metric: str, mode: str, direction: str | None, rtol: float) -> None:
    rule = RuleBook().rule_for(metric)
    assert (rule.mode, direction_of(rule), relative_tolerance(rule)) == (mode, direction, rtol)


def test_a_tolerance_that_nothing_exceeds_is_no_check() -> None:
    assert Rule(drift_max=inf, break_max=inf).mode == "info"
    assert Rule(drift_max=inf, break_max=inf, rtol=0.1).mode == "approx"


def test_a_timing_with_a_tolerance_is_a_median() -> None:
    assert Rule(steady=True, rtol=0.1).mode == "median"


def test_margins_are_tolerances_of_single_values() -> None:
    expected, got = np.array([100.0, 100.0, 100.0]), np.array([109.0, 109.0, 109.0])
    margins = np.array([0.1, 0.05, nan])
    found = gate(expected, got, np.ones(3, dtype=bool), Rule(rtol=0.2), margins)
    assert found.worse.tolist() == [False, True, False]
    endless = gate(expected, got, np.ones(3, dtype=bool), Rule(rtol=0.01), np.full(3, inf))
    assert endless.worse.all()


STEPS = np.arange(1, 51, dtype=np.int64)
MEGATRON = Rule(check="median", rtol=0.05, window=(30, 45), short_steps=25, short_window=(5, 20), steady=True)


def medians(got: np.ndarray, expected: np.ndarray | None = None, rule: Rule = MEGATRON) -> Gate:
    wanted = np.ones(len(got)) if expected is None else expected
    return gate_median(STEPS[: len(got)], wanted, got, np.ones(len(got), dtype=bool), rule)


def test_the_window_of_a_short_run_is_another() -> None:
    assert window_of(STEPS, MEGATRON) == (30, 45)
    assert window_of(STEPS[:25], MEGATRON) == (5, 20)
    assert window_of(STEPS[:26], MEGATRON) == (30, 45)
    assert window_of(STEPS, Rule(warm_up=0.3)) == (16, 50)
    assert window_of(STEPS[:0], Rule()) == (0, 0)


def test_a_median_looks_at_its_window_only() -> None:
    got = np.ones(50)
    got[:29] = 7.0
    got[45:] = 7.0
    got[30:36] = 7.0  # six of sixteen
    assert medians(got).passes
    got[29:45] = 1.06
    assert medians(got).fails
    got[29:45] = 0.94
    assert medians(got).fails
    better = medians(got, rule=structs.replace(MEGATRON, better="lower"))
    assert better.passes
    assert better.improves


def test_a_sample_that_is_missing_before_the_window_is_not_missed() -> None:
    got = np.ones(50)
    got[0] = nan
    assert medians(got).passes
    got = np.ones(50)
    got[49] = nan  # behind the window: the run was cut off all the same
    assert not medians(got).passes


def test_a_sample_that_is_missing_in_the_window_counts_as_infinitely_bad() -> None:
    got = np.where(np.arange(50) % 2, 1.0, 1.04)
    got[29] = nan
    assert medians(got).passes
    got[29:36] = nan
    assert medians(got).fails is False  # seven of sixteen
    got[29:38] = nan
    found = medians(got)
    assert found.fails
    assert found.missing.any() or found.broken.any()
    rates = structs.replace(MEGATRON, better="higher")
    assert medians(got, rule=rates).improves is False


def test_a_window_without_a_sample_takes_the_next_four() -> None:
    expected = np.where(np.arange(50) < 46, nan, 1.0)
    found = medians(np.ones(50), expected)
    assert (found.medians and (found.medians.first, found.medians.last), found.passes) == ((47, 50), True)


def test_the_golden_decides_by_its_last_sample_which_window_it_is() -> None:
    expected = np.where(np.arange(50) < 25, 1.0, nan)
    assert medians(np.ones(50), expected).medians is not None
    found = medians(np.ones(50), expected).medians
    assert found is not None
    assert (found.first, found.last) == (5, 20)


def test_a_closed_golden_objects_to_a_value_where_it_has_none() -> None:
    expected = np.array([1.0, nan, 1.0, nan])
    for closed in (False, True):
        found = simple(list(expected), [1.0, 1.0, 1.0, nan], rtol=0.1, closed=closed)
        assert found.worse.tolist() == [False, closed, False, False]
        assert found.passes is not closed


def test_what_is_better_may_have_another_size() -> None:
    got = [120.0, 119.0, 89.0, 90.0]
    found = simple([100.0] * 4, got, rtol=0.1, better="higher", improved_from=0.2)
    assert found.better.tolist() == [True, False, False, False]
    assert found.worse.tolist() == [False, False, True, False]


def test_a_window_without_a_value_compares_nothing() -> None:
    found = medians(np.ones(28))
    assert (found.compared, found.passes) == (0, False)


def test_medians_beyond_the_range_of_floats_do_not_pass() -> None:
    huge = np.full(50, 1.7e308)
    assert not medians(huge, huge.copy()).passes


@given(FINITE, FINITE)
def test_a_relative_error_is_a_size_or_none(error: float, expected: float) -> None:
    size = relative_error(error, expected)
    assert size is None or 0 <= size < inf


def test_the_share_of_the_tolerance_that_was_used() -> None:
    assert share_used(np.array([0.5, nan, 2.0]), np.array([1.0, 1.0, 8.0])) == 0.5
    assert share_used(np.array([0.5]), np.array([0.0])) is None


@pytest.mark.slow
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.9, 1.1)), min_size=1, max_size=400))
def test_megatrons_gate_as_one_would_write_it_by_hand(steps: list[tuple[float, float]]) -> None:
    pairs = [(expected, expected * factor) for expected, factor in steps]
    off = sum(not abs(got - expected) <= 0.05 * abs(expected) for expected, got in pairs)
    rule = Rule(check="approx", rtol=0.05, outliers=1, outlier_share=0.01, outliers_max=50)
    found = judged([(expected, got, True) for expected, got in pairs], rule)
    allowed = 0 if len(pairs) == 1 else min(max(len(pairs) // 100, 1), 50)
    assert found.passes == (off <= allowed)


@given(PAIRS, st.floats(-10, 0), st.floats(0, 10))
def test_bounds_ask_for_what_is_there_and_not_for_the_goldens_values(
    pairs: list[tuple[float, float, bool]], low: float, high: float
) -> None:
    rule = Rule(check="range", min=low, max=high, rtol=9.0, atol=9.0, better="lower")
    found = judged(pairs, rule)
    for index, (expected, got, present) in enumerate(pairs):
        demanded = expected == expected  # noqa: PLR0124 - not NaN
        finite = abs(got) < inf and abs(expected) < inf
        assert found.missing[index] == (demanded and not present)
        assert found.broken[index] == (demanded and present and not finite)
        outside = demanded and present and finite and not low <= got <= high
        assert found.worse[index] == outside
    assert not found.better.any()


def test_a_value_outside_is_held_against_the_nearest_bound() -> None:
    found = simple([5.0, 5.0, 5.0], [-1.0, 3.0, 12.0], check="range", min=0.0, max=10.0)
    assert found.target.tolist() == [0.0, 3.0, 10.0]
    assert found.error.tolist() == [-1.0, 0.0, 2.0]
    assert found.fails
    assert simple([5.0] * 3, [-1.0, 3.0, 12.0], check="range", min=-1.0).passes
    assert simple([5.0] * 3, [-1.0, 3.0, 12.0], check="range", max=12.0).passes


def test_a_window_means_its_median() -> None:
    assert Rule(window=(1, 5)).mode == "median"
    assert Rule(short_window=(1, 5)).mode == "median"
    assert Rule(window=(1, 5), check="approx").mode == "approx"
    assert Rule(window=(1, 5), exact=True).mode == "exact"
