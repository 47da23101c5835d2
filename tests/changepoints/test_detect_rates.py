"""How often the detector is wrong, and right: a small version of benchmarks/detector.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from factories.noise import KINDS, noise, series_of
from karat.changepoints.detector.detect import detect, steps
from karat.changepoints.series import ChangeKind


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_flat_series_have_few_false_steps_whatever_their_noise(kind: str) -> None:
    generator = np.random.default_rng(4)
    found = [len(steps(noise(kind, 100, generator))) for _ in range(200)]
    # 0.05 is promised; of 200 series, chance gives a detector that keeps it 0.085 once in a hundred times.
    assert sum(found) / 200 <= 0.085


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gauss", "t3", "lognormal", "outliers"])
@pytest.mark.parametrize("n", [5, 8, 13, 24, 40, 300])
def test_flat_series_of_other_lengths_have_few_false_steps(kind: str, n: int) -> None:
    generator = np.random.default_rng(5)
    found = [len(steps(noise(kind, n, generator))) for _ in range(80)]
    assert sum(found) / 80 <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("size", "wanted"), [(2.0, 0.88), (3.0, 0.97), (5.0, 0.99)])
def test_one_step_is_hit(size: float, wanted: float) -> None:
    generator = np.random.default_rng(6)
    hits = 0
    for _ in range(100):
        values, at = generator.standard_normal(100), int(generator.integers(10, 91))
        values[at:] += size
        hits += any(abs(cut.at - at) <= 2 for cut in steps(values))
    assert hits / 100 >= wanted - 0.06


@pytest.mark.slow
def test_three_points_after_a_step_are_enough() -> None:
    generator = np.random.default_rng(7)
    hits = 0
    for _ in range(100):
        values = generator.standard_normal(100)
        values[97:] += 5
        hits += any(abs(cut.at - 97) <= 2 for cut in steps(values))
    assert hits >= 95


@pytest.mark.slow
def test_many_steps_hide_none_of_them() -> None:
    generator = np.random.default_rng(8)
    hits = false = 0
    for _ in range(20):
        values, truth = generator.standard_normal(256), [40, 80, 120, 160, 200, 206]
        for at in truth[:4]:
            values[at:] += generator.choice([-1, 1]) * generator.uniform(3, 8)
        values[200:206] -= 6
        found = [cut.at for cut in steps(values)]
        hits += sum(any(abs(cut - at) <= 2 for cut in found) for at in truth)
        false += sum(all(abs(cut - at) > 2 for at in truth) for cut in found)
    assert hits >= 0.97 * 20 * 6
    assert false <= 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t3", "lognormal", "outliers", "autocorrelated", "bimodal"])
def test_a_real_step_is_found_in_any_noise_and_brings_no_others(kind: str) -> None:
    generator = np.random.default_rng(9)
    hits = extra = 0
    for _ in range(50):
        values, at = noise(kind, 100, generator), int(generator.integers(20, 81))
        values[at:] += 10
        near = [abs(cut.at - at) <= 2 for cut in steps(values)]
        hits += any(near)
        extra += len(near) - any(near)
    assert hits >= 47
    assert extra <= 5


@pytest.mark.slow
def test_the_range_holds_the_step() -> None:
    generator = np.random.default_rng(10)
    inside = total = 0
    for _ in range(150):
        values, at = generator.standard_normal(60), int(generator.integers(15, 46))
        values[at:] += 2
        for cut in steps(values):
            total += 1
            inside += cut.low <= at <= cut.high
    assert total >= 130  # the others are told as trends
    assert inside / total >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize(
    ("levels", "each", "wanted"),
    [(range(10), 10, 0.95), ((0, 1, 0, 1, 0), 6, 0.7), ((0, 1, 0, 1, 0), 10, 0.95), ((0, 1, 0, 1, 0), 20, 0.88)],
    ids=["nine up, of ten points", "four up and down, of six", "of ten", "of twenty"],
)
def test_short_levels_are_not_taken_for_noise(levels: list[int], each: int, wanted: float) -> None:
    generator = np.random.default_rng(14)
    hits = false = 0
    truth = [each * number for number in range(1, len(levels))]
    for _ in range(60):
        found = [
            cut.at
            for cut in steps(np.repeat(4.0 * np.array(levels), each) + generator.standard_normal(each * len(levels)))
        ]
        hits += sum(any(abs(cut - at) <= 2 for cut in found) for at in truth)
        false += sum(all(abs(cut - at) > 2 for at in truth) for cut in found)
    assert hits >= wanted * 60 * len(truth)
    assert false <= 3


@pytest.mark.slow
def test_six_short_steps_up_are_stairs_or_a_trend_but_never_nothing() -> None:
    generator = np.random.default_rng(15)
    hits = told = 0
    for _ in range(60):
        analysis = detect(series_of(np.repeat(4.0 * np.arange(7), 6) + generator.standard_normal(42)))
        hits += len(analysis.steps)
        told += bool(analysis.steps) or any(change.kind is ChangeKind.TREND for change in analysis.changes)
    assert hits >= 0.65 * 60 * 6
    assert told >= 55


@pytest.mark.slow
@pytest.mark.parametrize(
    "louder", [lambda at: at >= 50, lambda at: at >= 80, lambda at: at < 20], ids=["half", "last fifth", "first fifth"]
)
@pytest.mark.parametrize("times", [4, 10])
def test_noise_that_grows_is_no_step(louder: Callable[[np.ndarray], np.ndarray], times: float) -> None:
    generator = np.random.default_rng(16)
    scales = np.where(louder(np.arange(100)), times, 1)
    found = [len(steps(generator.standard_normal(100) * scales)) for _ in range(150)]
    assert sum(found) / 150 <= 0.06


@pytest.mark.slow
@pytest.mark.parametrize("rise", [5, 10, 30])
def test_a_slow_rise_is_a_trend_and_no_stairs(rise: float) -> None:
    generator = np.random.default_rng(17)
    false = trends = 0
    for _ in range(100):
        analysis = detect(series_of(generator.standard_normal(100) + rise * np.arange(100) / 100, better="higher"))
        false += len(analysis.steps)
        trends += [change.kind for change in analysis.changes] == [ChangeKind.TREND]
    assert false <= 9
    assert trends >= (90 if rise < 30 else 60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["modes that last five points", "a rise by two", "a rise by six that takes up half"])
def test_what_looks_like_steps_seldom_is_told_as_one(kind: str) -> None:
    generator = np.random.default_rng(18)
    rises = {"a rise by two": np.linspace(0, 2, 100), "a rise by six that takes up half": np.linspace(-2.4, 9.6, 100)}
    found = 0
    for _ in range(300):
        values = generator.standard_normal(100)
        modes = 5 * (np.cumsum(generator.random(100) < 0.2) % 2)
        found += len(steps(values + np.clip(rises.get(kind, modes), 0, 6)))
    assert found <= 0.1 * 300


@pytest.mark.slow
def test_two_wild_values_side_by_side_count_once() -> None:
    generator = np.random.default_rng(2026)
    found = []
    for _ in range(500):
        values = generator.standard_normal(100) + 10 * (generator.random(100) < 0.03) * generator.choice([-1, 1], 100)
        found.append(len(steps(values)))
    assert sum(found) <= 0.02 * 500
