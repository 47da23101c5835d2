from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from factories.noise import noise, series_of
from karat.changepoints.detector.detect import detect, level, steps
from karat.changepoints.series import RAREST, ChangeKind, DetectOptions, Observation, Outcome, Series
from karat.findings import UsageError

NUMBERS = st.floats(min_value=-1e300, max_value=1e300)


def two_levels(before: float, after: float, *, n: int = 40, at: int = 20, spread: float = 0.1) -> np.ndarray:
    values = np.random.default_rng(1).standard_normal(n) * spread
    values[:at] += before
    values[at:] += after
    return values


def test_a_step_is_told_with_its_levels_and_its_range() -> None:
    analysis = detect(series_of(two_levels(100, 93), better="higher"))
    (step,) = analysis.steps
    assert (step.last_good, step.first_bad) == (19, 20)
    assert step.earliest <= 19
    assert step.latest >= 20
    assert step.before.low < 100 < step.before.high
    assert step.after.low < 93 < step.after.high
    assert step.relative == pytest.approx(-0.07, abs=0.002)
    assert step.absolute == pytest.approx(-7, abs=0.2)
    assert step.p_value < 0.001
    assert step.confidence == 1 - step.p_value
    assert [level.count for level in analysis.levels] == [20, 20]
    (change,) = analysis.changes
    assert change.kind is ChangeKind.REGRESSION
    assert change.message.startswith("speed fell from ")


def test_five_points_tell_a_huge_step() -> None:
    (step,) = detect(series_of([100.02, 99.97, 110.01, 109.95, 110.04])).steps
    assert (step.last_good, step.first_bad) == (1, 2)
    assert 0 < step.p_value <= 0.01


@pytest.mark.parametrize(
    "values",
    [[1.0, 1.2, 1.5, 1.4, 1.6], [2.0, 2.0, 3.0, 3.0, 3.0], [1.0, 1.0, 1.0, 1.0, 9.0]],
    ids=["small against the noise", "whole numbers that differ by one", "one wild value"],
)
def test_five_points_tell_nothing_else(values: list[float]) -> None:
    assert detect(series_of(values)).steps == ()


def test_fewer_than_five_points_are_not_judged() -> None:
    analysis = detect(series_of([1.0, 1.0, 9.0, 9.0]))
    assert analysis.steps == ()
    assert analysis.notes == ("4 observations have a value; a change can be told from 5 on",)
    assert detect(Series(metric="m", observations=())).levels == ()


@pytest.mark.parametrize(
    "values",
    [
        [7.0] * 50,
        [0.0] * 50,
        [0.0, -0.0] * 25,
        [0.3, 0.1 + 0.2] * 25,
        [0.3] * 25 + [0.1 + 0.2] * 25,
        [1e300] * 20,
        [5e-324] * 20,
        [3.0, 4.0] * 30,
        [1.0] * 30 + [2.0] + [1.0] * 30,
    ],
    ids=["equal", "zero", "signed zero", "rounding", "rounding in order", "huge", "tiny", "to and fro", "one off"],
)
def test_series_that_stay_where_they_are_have_no_step(values: list[float]) -> None:
    assert detect(series_of(values)).steps == ()


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, -1.0, 1e9, 1e300])
def test_what_is_found_does_not_depend_on_the_unit(scale: float) -> None:
    values = two_levels(1.0, 1.1, spread=0.01)
    assert [cut.at for cut in steps(values * scale)] == [20]


def test_noise_free_values_that_move_have_a_step() -> None:
    assert [cut.at for cut in steps([100.0] * 12 + [107.0] * 9)] == [12]


def test_whole_numbers_that_flicker_have_the_one_step_they_have() -> None:
    generator = np.random.default_rng(7)
    extra = 0
    for _ in range(30):
        values = 5.0 + (generator.random(60) < 0.1)
        values[30:] += 7
        found = [cut.at for cut in steps(values)]
        assert 30 in found
        extra += len(found) - 1
    assert extra <= 2


def test_what_has_no_value_is_never_filled_in_and_widens_the_range() -> None:
    values = two_levels(50, 40)
    observations = list(series_of(values).observations)
    crash = Observation(label="crashed", outcome=Outcome.CRASH, signature="ImportError: x")
    missing = Observation(label="missing", outcome=Outcome.MISSING)
    observations[20:20] = [crash, missing]
    (step,) = detect(Series(metric="m", observations=tuple(observations))).steps
    assert (step.last_good, step.first_bad) == (19, 22)
    assert step.earliest <= 19
    assert step.latest >= 22
    assert (step.before.last, step.after.first) == (19, 22)


def test_several_samples_count_as_one_observation_and_say_how_noisy_it_is() -> None:
    generator = np.random.default_rng(3)
    means = [10.0, 10.01, 10.02, 10.0, 10.2, 10.21, 10.19, 10.2]
    calm = [tuple(mean + 0.001 * generator.standard_normal(6)) for mean in means]
    wild = [tuple(mean + sample for sample in (-2.0, -1.0, 0.0, 0.0, 1.0, 2.0)) for mean in means]

    def series(samples: list[tuple[float, ...]]) -> Series:
        items = tuple(Observation(label=str(i), values=values) for i, values in enumerate(samples))
        return Series(metric="m", observations=items)

    assert [step.first_bad for step in detect(series(calm)).steps] == [4]
    # The same means, and samples that say they could be anything.
    assert detect(series(wild)).steps == ()


def test_steps_smaller_than_asked_for_are_not_told() -> None:
    series = series_of(two_levels(100, 99, spread=0.05))
    assert len(detect(series).steps) == 1
    assert detect(series, DetectOptions(smallest=0.02)).steps == ()


def test_a_single_wild_value_is_an_outlier_and_no_change() -> None:
    values = np.random.default_rng(2).standard_normal(60)
    values[33] += 40
    analysis = detect(series_of(values))
    assert analysis.steps == ()
    assert analysis.outliers == (33,)


def test_a_wild_newest_value_takes_no_other_step_away() -> None:
    values = two_levels(100, 90)
    assert [cut.at for cut in steps([*values, 50.0])] == [20]


@pytest.mark.parametrize("n", [24, 40])
def test_modes_are_no_steps(n: int) -> None:
    generator = np.random.default_rng(n)
    values = generator.standard_normal(n) + 8 * (generator.random(n) < 0.5)
    assert detect(series_of(values)).steps == ()


def test_a_bimodal_series_that_truly_shifts_is_found() -> None:
    values = noise("bimodal", 100, np.random.default_rng(4))
    values[60:] += 12
    assert any(abs(cut.at - 60) <= 1 for cut in steps(values))


def test_long_series_show_short_and_small_steps_alike() -> None:
    values = np.random.default_rng(5).standard_normal(20_000)
    values[4000:4020] += 6
    values[12_000:] += 0.4
    found = [cut.at for cut in steps(values)]
    assert len(found) == 3
    assert abs(found[0] - 4000) <= 2
    assert abs(found[1] - 4020) <= 2
    assert abs(found[2] - 12_000) <= 200


def test_long_flat_series_have_none() -> None:
    assert steps(noise("t3", 20_000, np.random.default_rng(6))) == ()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, st.integers(0, 60), elements=NUMBERS))
def test_any_values_are_borne_and_cut_in_order(values: np.ndarray) -> None:
    analysis = detect(series_of(values))
    cuts = [step.first_bad for step in analysis.steps]
    assert cuts == sorted(set(cuts))
    assert sum(level.count for level in analysis.levels) == len(values)
    for step in analysis.steps:
        assert step.earliest <= step.last_good < step.first_bad <= step.latest
        assert 0 < step.p_value <= 0.01
    assert detect(series_of(values)) == analysis


@settings(max_examples=30, deadline=None)
@given(st.integers(5, 80), st.floats(0, 6), st.floats(-1e4, 1e4), st.floats(1e-3, 1e3), st.integers(0))
def test_adding_a_constant_or_another_unit_or_sign_moves_no_step(
    n: int, size: float, offset: float, unit: float, seed: int
) -> None:
    values = np.random.default_rng(seed).standard_normal(n)
    values[n // 3 :] += size
    cuts = [cut.at for cut in steps(values)]
    assert [cut.at for cut in steps(-values)] == cuts
    assert [cut.at for cut in steps(unit * (values + offset))] == cuts


@pytest.mark.slow
def test_a_clear_step_is_where_it_is_read_from_either_end() -> None:
    generator = np.random.default_rng(11)
    for at in range(3, 58):
        values = generator.standard_normal(60)
        values[at:] += 12
        assert [cut.at for cut in steps(values)] == [at]
        assert [cut.at for cut in steps(values[::-1])] == [60 - at]


def test_levels_a_million_times_apart_do_not_hide_each_other() -> None:
    generator = np.random.default_rng(12)
    levels = np.repeat([1e-8, 0.5, 3.0], [40, 12, 12])
    assert [cut.at for cut in steps(levels * generator.normal(1, 0.1, 64))] == [40, 52]


def test_samples_whose_squares_overflow_are_borne() -> None:
    means = two_levels(100, 90)
    items = tuple(Observation(label=str(i), values=(mean * 1e200, mean * 1.001e200)) for i, mean in enumerate(means))
    assert [step.first_bad for step in detect(Series(metric="m", observations=items)).steps] == [20]


@pytest.mark.slow
def test_a_side_that_is_only_noisier_is_seldom_a_step_and_one_that_moved_is() -> None:
    generator = np.random.default_rng(13)
    louder = np.where(np.arange(100) < 80, 1, 10)
    flat = [bool(steps(100 + generator.standard_normal(100) * louder)) for _ in range(60)]
    # Without a look at the noise on both sides it was every second one.
    assert sum(flat) <= 24
    moved = 100 + generator.standard_normal(100) * louder + 15 * (louder > 1)
    assert any(abs(cut.at - 80) <= 2 for cut in steps(moved))


@pytest.mark.parametrize(
    "wrong",
    [
        {"false_alarms": 0.0},
        {"false_alarms": 1e-9},
        {"false_alarms": float("nan")},
        {"false_alarms": 0.7},
        {"smallest": -1.0},
        {"min_points": 1},
        {"location": 1.0},
    ],
)
def test_options_that_cannot_be_meant_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        DetectOptions(**wrong)  # type: ignore[arg-type]


def test_a_step_of_negative_values_has_the_sign_of_its_move() -> None:
    (step,) = detect(series_of(two_levels(-100, -90))).steps
    assert step.relative == pytest.approx(0.1, abs=0.01)


def test_an_unclear_place_is_a_range_of_observations() -> None:
    values = np.random.default_rng(3).standard_normal(80)
    values[40:] += 1.8
    (cut,) = steps(values)
    (step,) = detect(series_of(values)).steps
    assert cut.low < cut.at or cut.high > cut.at
    assert (step.earliest, step.latest) == (cut.low - 1, cut.high)


def test_bounds_of_a_level_are_wider_where_neighbours_are_alike_and_values_few() -> None:
    values = np.random.default_rng(4).standard_normal(40)
    plain = level(values, 0, 39, noise=1.0, rho=0.0, sure=0.99)
    alike = level(values, 0, 39, noise=1.0, rho=0.5, sure=0.99)
    assert alike.high - alike.low > 1.5 * (plain.high - plain.low)
    few = level(np.array([5.0, 5.0, 5.0]), 0, 2, noise=1.0, rho=0.0, sure=0.99)
    assert few.low < 5 < few.high


def test_p_values_that_nobody_can_vouch_for_are_not_told() -> None:
    (cut,) = steps(two_levels(100, 50))
    assert cut.p_value == RAREST
