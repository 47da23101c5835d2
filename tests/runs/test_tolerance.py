from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.compare.gate.result import gate, gate_median
from karat.compare.rules import Rule
from karat.config import load
from karat.goldens.shapes import Metric, Series, Values
from karat.runs.tolerance import Recommendation, Tolerances, quantile, recommend, runs_needed, snippet, upper_tail

STEPS = np.arange(1, 21)
CURVE = 10 / np.sqrt(STEPS)
Noise = Callable[[np.random.Generator, int], Values]


def gaussian(rng: np.random.Generator, runs: int) -> Values:
    return CURVE * (1 + 1e-3 * rng.normal(size=(runs, 20)))


def heavy_tails(rng: np.random.Generator, runs: int) -> Values:
    return CURVE * (1 + 1e-4 * rng.standard_t(2, size=(runs, 20)))


def drifting_apart(rng: np.random.Generator, runs: int) -> Values:
    """Steps that move together, as those of a run that took another turn do."""
    return CURVE * (1 + 1e-3 * np.cumsum(rng.normal(size=(runs, 20)), axis=1))


def now_and_then(rng: np.random.Generator, runs: int) -> Values:
    """Most runs agree, one in ten is far off: the case in which few repeats deceive."""
    sizes = np.where(rng.random((runs, 1)) < 0.1, 1e-2, 1e-5)
    return np.asarray(CURVE * (1 + sizes * rng.normal(size=(runs, 20))))


NOISES = (gaussian, heavy_tails, drifting_apart, now_and_then)


def run_of(values: Values, name: str = "loss") -> Series:
    return Series({name: Metric(STEPS[: len(values)], values)})


def advised(values: Iterable[Values]) -> Recommendation:
    runs = [run_of(one) for one in values]
    (found,) = recommend(runs, runs[0], rate=0.01)
    return found


def alarms(found: Recommendation, golden: Values, fresh: Values) -> Values:
    """Whether the check would object to each fresh run, as its own arithmetic has it."""
    error = np.abs(fresh - golden)
    out = error > found.atol + found.rtol * np.abs(golden)
    return np.asarray(out.any(axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("runs", [2, 3, 5, 10])
def test_false_alarms_are_no_more_frequent_than_stated(noise: Noise, runs: int) -> None:
    rng = np.random.default_rng([runs, 0, NOISES.index(noise)])
    trials, fresh_runs = 200, 200
    rates, beyond = [], 0
    for _ in range(trials):
        repeats = noise(rng, runs)
        found = advised(repeats)
        fresh = noise(rng, fresh_runs)
        rates.append(float(alarms(found, repeats[0], fresh).mean()))
        beyond += rates[-1] > found.rate_bound
    assert np.mean(rates) <= found.rate_expected == pytest.approx(1 / runs)
    assert beyond / trials <= 1 - found.confidence


@pytest.mark.parametrize("noise", NOISES)
def test_the_smallest_shift_is_caught_from_every_run(noise: Noise) -> None:
    rng = np.random.default_rng(7)
    repeats = noise(rng, 6)
    found = advised(repeats)
    others = repeats[1:]
    for sign in (1, -1):
        shifted = others * (1 + sign * found.smallest_shift * 1.001)
        assert alarms(found, repeats[0], shifted).all()
    less = others * (1 + 0.9 * found.smallest_shift), others * (1 - 0.9 * found.smallest_shift)
    assert not all(alarms(found, repeats[0], one).all() for one in less)


def test_bits_that_never_differ_are_checked_as_bits() -> None:
    found = advised([CURVE] * 4)
    assert (found.check, found.rtol, found.atol, found.smallest_shift) == ("exact", 0, 0, 0)
    assert found.rate_bound == pytest.approx(1 - 0.05 ** (1 / 3))


def test_values_around_zero_have_an_absolute_tolerance() -> None:
    rng = np.random.default_rng(3)
    found = advised([rng.normal(size=20) for _ in range(5)])
    assert (found.rtol, found.check) == (0, "approx")
    assert found.atol >= found.observed > 0


def test_a_tolerance_is_never_less_than_what_any_two_runs_show() -> None:
    """A golden in the middle: the others are twice as far from each other as from it."""
    repeats = [CURVE, *(CURVE * (1 + sign * 0.1) for sign in [1, -1] * 10)]
    runs = [run_of(one) for one in repeats]
    (found,) = recommend(runs, runs[0], rate=0.5)
    assert found.rtol >= found.observed == pytest.approx(0.2 / 0.9)


def test_values_on_both_sides_of_zero_have_an_absolute_tolerance() -> None:
    signs = np.where(STEPS % 2, 5.0, -5.0)
    found = advised([signs, signs * 1.001])
    assert (found.rtol, found.atol > 0) == (0, True)


def test_timings_are_judged_by_their_medians() -> None:
    rng = np.random.default_rng(3)
    repeats = [0.5 * (1 + 0.2 * np.abs(rng.normal(size=20))) for _ in range(5)]
    runs = [run_of(one, "iteration-time") for one in repeats]
    (found,) = recommend(runs, runs[0], rate=0.01, windows=lambda _name, _steps: (7, 20))
    assert found.check == "median"
    medians = [float(np.median(one[6:])) for one in repeats]
    assert found.observed == pytest.approx(max(medians) / min(medians) - 1)
    rule = Rule(check="median", rtol=found.rtol, window=(7, 20))
    for one in repeats:
        assert gate_median(STEPS, repeats[0], one, np.ones(20, bool), rule).passes


def test_a_golden_that_is_none_of_the_runs_makes_all_of_them_fresh() -> None:
    rng = np.random.default_rng(3)
    runs = [run_of(one) for one in gaussian(rng, 3)]
    (found,) = recommend(runs, run_of(CURVE), rate=0.01)
    assert (found.runs, found.rate_expected) == (3, 1 / 4)


def test_steps_that_not_all_have_do_not_count() -> None:
    short = run_of(CURVE[:5])
    (found,) = recommend([run_of(CURVE), short], short, rate=0.01)
    assert (found.steps, found.check) == (5, "exact")
    assert recommend([run_of(CURVE), run_of(CURVE, "x")], run_of(CURVE), rate=0.01) == []


@pytest.mark.parametrize(("rate", "runs"), [(0.5, 6), (0.05, 60), (0.01, 300)])
def test_how_many_runs_show_a_rate(rate: float, runs: int) -> None:
    assert runs_needed(rate) == runs
    assert 1 - 0.05 ** (1 / (runs - 1)) <= rate < 1 - 0.05 ** (1 / (runs - 2))


@pytest.mark.slow
@given(st.lists(st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4), min_size=2, max_size=5))
def test_no_repeat_is_out_of_its_own_tolerance(values: list[list[float]]) -> None:
    repeats = [np.array(one) for one in values]
    found = advised(repeats)
    book_rule = {"check": found.check, "rtol": found.rtol, "atol": found.atol}
    rule = Rule(**book_rule)  # type: ignore[arg-type]
    for golden in repeats:
        for one in repeats:
            assert gate(golden, one, np.ones(4, bool), rule).passes


@pytest.mark.parametrize(
    ("freedom", "tail", "t"),
    [
        (1, 0.05, 6.3138),
        (2, 0.05, 2.9200),
        (3, 0.01, 4.5407),
        (4, 0.025, 2.7764),
        (9, 0.01, 2.8214),
        (30, 0.01, 2.4573),
    ],
)
def test_students_t_as_in_the_tables(freedom: int, tail: float, t: float) -> None:
    assert quantile(tail, freedom) == pytest.approx(t, abs=1e-3)


@given(st.floats(-50, 50), st.integers(1, 60))
def test_the_tails_of_t_add_up(t: float, freedom: int) -> None:
    assert upper_tail(t, freedom) + upper_tail(-t, freedom) == pytest.approx(1)
    assert 0 <= upper_tail(t, freedom) <= 1


NAMES = ("lm loss", "a[0]", "what?*", 'say "hi"\\', "größe\x7f\n", "mem-max")


def rule_text(*found: Recommendation) -> str:
    return snippet(Tolerances(runs=("a", "b"), golden=None, golden_is_run=True, rate=0.1, metrics=found))


def test_the_snippet_is_valid_and_means_what_it_says(tmp_path: Path) -> None:
    found = [
        Recommendation(
            metric=name, check=check, runs=3, steps=9, rtol=rtol, atol=atol, rate_bound=0.5, rate_expected=0.5
        )
        for name, (check, rtol, atol) in zip(
            NAMES,
            [
                ("exact", 0, 0),
                ("approx", 1.3e-7, 0),
                ("approx", 0, 5e-9),
                ("median", 0.06, 0),
                ("approx", 1e-05, 0),
                ("approx", 0.25, 0),
            ],
            strict=True,
        )
    ]
    (tmp_path / "karat.toml").write_text(rule_text(*found), encoding="utf-8")
    book = load(tmp_path).rule_book()
    for one in found:
        rule = book.rule_for(one.metric)
        assert rule.mode == one.check
        if one.check != "exact":
            assert (rule.rtol, rule.atol, rule.outliers) == (one.rtol, one.atol, 0)
    assert book.rule_for("a0").check is None


def test_rules_behind_it_add_nothing_to_the_snippet(tmp_path: Path) -> None:
    """What the report promises is what `karat check` does, whatever else stands in karat.toml."""
    rng = np.random.default_rng(4)
    found = advised(gaussian(rng, 5))
    other = "\n[[rules]]\nmetric = '*'\natol = 7.0\noutliers = 3\noutlier_share = 0.4\n"
    (tmp_path / "karat.toml").write_text(rule_text(found) + other)
    rule = load(tmp_path).rule_book().rule_for("loss")
    one_step_off = CURVE.copy()
    one_step_off[7] *= 1 + 2 * found.rtol
    assert not gate(CURVE, one_step_off, np.ones(20, bool), rule).passes
    assert gate(CURVE, CURVE * (1 + 0.9 * found.rtol), np.ones(20, bool), rule).passes


@pytest.mark.slow
@given(st.text(max_size=20))
def test_any_name_makes_a_rule_for_itself_alone(name: str) -> None:
    from fnmatch import fnmatchcase
    from glob import escape

    assert fnmatchcase(name, escape(name))
    assert not fnmatchcase(name + "x", escape(name))
    one = Recommendation(metric=name, check="approx", runs=2, steps=1, rtol=0.5, rate_bound=1, rate_expected=1)
    (rule,) = tomllib.loads(rule_text(one))["rules"]
    assert rule == {
        "metric": escape(name),
        "check": "approx",
        "rtol": 0.5,
        "atol": 0.0,
        "outliers": 0,
        "outliers_max": 0,
    }


def test_tolerances_are_rounded_up_never_down() -> None:
    rng = np.random.default_rng(9)
    for _ in range(200):
        size = 10 ** rng.uniform(-9, 2)
        found = advised([np.array([1.0]), np.array([1.0 + size])])
        assert found.rtol >= found.observed
        assert math.isclose(found.rtol, float(f"{found.rtol:.2g}"))
