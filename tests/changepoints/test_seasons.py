from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from factories.noise import noise, series_of
from karat.changepoints.detector.detect import detect
from karat.changepoints.detector.trends import find_season
from karat.changepoints.series import ChangeKind, Observation, Series


def dated(values: np.ndarray, each: timedelta) -> Series:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    points = tuple(
        Observation(label=str(n), values=(float(value),), when=start + n * each) for n, value in enumerate(values)
    )
    return Series(metric="speed", observations=points)


def test_a_week_is_named_and_is_no_staircase() -> None:
    generator = np.random.default_rng(1)
    weekend = 4.0 * (np.arange(140) % 7 >= 5)
    analysis = detect(dated(100 + weekend + generator.standard_normal(140), timedelta(days=1)))
    assert (analysis.steps, analysis.noise) == ((), "differs by the day of the week")


def test_nights_are_named_and_a_step_is_seen_through_them() -> None:
    generator = np.random.default_rng(2)
    values = 100 + 3.0 * (np.arange(240) % 24 < 8) + generator.standard_normal(240)
    values[150:] -= 3
    analysis = detect(dated(values, timedelta(hours=1)))
    assert "differs by the hour of the day" in analysis.noise
    (step,) = analysis.steps
    assert abs(step.first_bad - 150) <= 2
    assert step.absolute == pytest.approx(-3, abs=0.5)


def test_a_period_without_dates_is_the_shortest_that_explains_it() -> None:
    values = np.tile([0.0, 0, 0, 0, 3, 3], 30) + np.random.default_rng(3).standard_normal(180)
    assert "comes again every 6 points" in detect(series_of(values)).noise


def test_a_season_of_a_long_row_is_seen_to_its_end() -> None:
    values = np.tile([0.0, 0, 0, 0, 3, 3], 2000) + np.random.default_rng(6).standard_normal(12_000)
    season = find_season(values)
    assert season is not None
    assert season.words == "comes again every 6 points"
    assert (values - season.offsets)[-600:].std() < 1.1


@pytest.mark.parametrize("kind", ["gauss", "t3", "lognormal", "autocorrelated", "bimodal", "sticky modes"])
def test_noise_has_no_season(kind: str) -> None:
    generator = np.random.default_rng(4)
    assert sum(find_season(noise(kind, 120, generator)) is not None for _ in range(25)) <= 1


def test_steps_here_and_there_are_no_season() -> None:
    generator = np.random.default_rng(2026)
    found = 0
    for _ in range(60):
        values = generator.standard_normal(256)
        for at in sorted(generator.choice(np.arange(10, 250, 10), 6, replace=False)):
            values[at:] += generator.choice([-1, 1]) * generator.uniform(3, 8)
        found += find_season(values) is not None
    assert found <= 1


def test_stairs_of_one_length_are_no_season() -> None:
    values = np.repeat(4.0 * np.arange(10), 10) + np.random.default_rng(5).standard_normal(100)
    assert find_season(values) is None


def test_noise_that_changes_is_named() -> None:
    values = 100 + np.random.default_rng(1).standard_normal(200) * np.repeat([1.0, 5.0], 100)
    analysis = detect(series_of(values))
    assert analysis.steps == ()
    (change,) = analysis.changes
    assert change.kind is ChangeKind.NOISE
    assert abs(change.first - 100) <= 8
    assert change.before == pytest.approx(1, rel=0.3)
    assert change.after == pytest.approx(5, rel=0.3)
    assert "became noisier" in change.message


def test_a_trend_is_named_with_its_ends_and_a_step_out_of_it_is_a_step() -> None:
    generator = np.random.default_rng(7)
    values = np.concatenate([np.linspace(100, 120, 100), np.full(60, 95.0)]) + generator.standard_normal(160)
    analysis = detect(series_of(values, better="higher"))
    trend, drop = analysis.changes
    assert (trend.kind, drop.kind) == (ChangeKind.TREND, ChangeKind.REGRESSION)
    assert trend.before == pytest.approx(100, abs=2)
    assert trend.after == pytest.approx(120, abs=2)
    assert analysis.steps[0].first_bad == 100
    assert analysis.steps[0].absolute == pytest.approx(-25, abs=2)
