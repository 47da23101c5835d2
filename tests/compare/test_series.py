from __future__ import annotations

import json

import numpy as np
import pytest
from msgspec import structs

from factories.curves import NAN, change_of, kinds, metric, series
from karat.compare.change import Verdict
from karat.compare.rules import PartialRule, RuleBook
from karat.findings import ExitCode, Severity, exit_code
from karat.goldens.formats import read
from karat.goldens.shapes import Series


def test_equal_curves_are_the_same() -> None:
    change = change_of(series(lm_loss=[1, 2, 3]), series(lm_loss=[1, 2, 3]))
    assert change.verdict is Verdict.SAME
    assert change.metrics[0].bit_equal == 3
    assert change.metrics[0].first_diff_step is None


def test_plus_and_minus_half_do_not_cancel() -> None:
    change = change_of(series(x=[1, 1]), series(x=[0.5, 1.5]))
    row = change.metrics[0]
    assert row.avg_rel_diff == 0
    assert row.mean_abs_rel_diff == row.max_abs_rel_diff == 0.5
    assert change.verdict is Verdict.BREAK
    assert "mean |rel| 0.5 ≥ break_mean 0.05" in row.because


def test_all_nan_on_both_sides_is_not_the_same() -> None:
    change = change_of(series(x=[NAN, NAN]), series(x=[NAN, NAN]))
    assert change.verdict is Verdict.INCOMPLETE
    assert "no-usable-steps" in kinds(change)
    assert exit_code(change.findings) is ExitCode.CANNOT_VERIFY, "compared nothing, so no pass"
    beside = change_of(series(x=[NAN, NAN], y=[1.0, 2.0]), series(x=[NAN, NAN], y=[1.0, 2.0]))
    assert "nothing-compared" not in kinds(beside)
    assert "no-usable-steps" in kinds(beside)


def test_both_sides_infinite_is_no_evidence() -> None:
    change = change_of(series(x=[np.inf, np.inf]), series(x=[np.inf, np.inf]))
    assert change.verdict is Verdict.INCOMPLETE
    assert change.metrics[0].bit_equal == 0


def test_a_run_that_died_is_truncated_and_its_clean_average_does_not_help() -> None:
    died = [10.0] * 13 + [NAN] * 37
    change = change_of(series(lm_loss=[10.0] * 50, num_zeros=[7.0] * 50), series(lm_loss=died, num_zeros=died))
    assert change.verdict is Verdict.INCOMPLETE
    first = change.findings[0]
    assert (first.kind, first.severity) == ("truncated", Severity.FAIL)
    assert "step 13 of 50" in first.message
    loss = change.metrics[0]
    assert (loss.n_steps, loss.avg_rel_diff, loss.nan_gained) == (13, 0.0, 37)
    assert loss.verdict is Verdict.INCOMPLETE
    assert "new-nan" not in kinds(change), "one cause, one finding"


def test_a_loss_that_diverged_while_the_run_went_on_is_new_nan() -> None:
    old = series(lm_loss=[10.0] * 20, num_zeros=[7.0] * 20)
    new = series(lm_loss=[10.0] * 12 + [NAN] * 8, num_zeros=[7.0] * 20)
    change = change_of(old, new)
    assert change.verdict is Verdict.INCOMPLETE
    assert kinds(change) == {"new-nan"}
    assert "first at step 13" in change.findings[0].message


def test_steps_missing_at_the_end_are_a_truncation_by_the_files_own_account() -> None:
    old = Series({"x": metric([1.0] * 50)})
    new = Series({"x": metric([1.0] * 13, end=50)})
    assert "truncated" in kinds(change_of(old, new))


def test_a_shorter_run_that_says_so_is_lost_steps() -> None:
    change = change_of(series(x=[1.0] * 50), series(x=[1.0] * 25))
    assert change.verdict is Verdict.INCOMPLETE
    assert kinds(change) == {"lost-steps", "structure-changed"}
    assert "25" in change.findings[0].message


def test_a_step_lost_in_the_middle_is_named() -> None:
    change = change_of(series(x={1: 1, 2: 1, 3: 1}), series(x={1: 1, 3: 1}))
    assert change.verdict is Verdict.INCOMPLETE
    assert change.metrics[0].steps_lost == 1
    assert change.findings[0].where == "step 2"


def test_dropped_placeholders_are_info_and_not_drift() -> None:
    change = change_of(series(x={1: NAN, 2: 1, 3: 2}), series(x={2: 1, 3: 2}))
    assert change.verdict is Verdict.SAME
    found = {f.kind: f.severity for f in change.findings}
    assert found == {"dropped-placeholders": Severity.INFO, "format-only": Severity.INFO}
    assert change.metrics[0].steps_lost == 0


def test_a_vanished_metric_fails_and_a_new_one_is_told() -> None:
    change = change_of(series(a=[1, 2], b=[1, 2]), series(a=[1, 2], c=[1, 2]))
    assert change.verdict is Verdict.INCOMPLETE
    assert {f.kind: f.severity for f in change.findings} == {
        "lost-metric": Severity.FAIL,
        "gained-metric": Severity.INFO,
    }


def test_old_values_below_1e12_are_left_out_of_the_average() -> None:
    change = change_of(series(x=[0.0, 1e-13, 2.0]), series(x=[0.0, 5.0, 1.0]))
    row = change.metrics[0]
    assert (row.n_steps, row.avg_rel_diff) == (1, 0.5)


def test_leaving_zero_is_not_lost_with_the_division() -> None:
    change = change_of(series(x=[0.0, 0.0]), series(x=[0.0, 5.0]))
    assert change.verdict is Verdict.BREAK
    assert "no-usable-steps" in kinds(change)
    assert "left zero" in change.metrics[0].because


def test_zeros_on_both_sides_have_no_row_but_are_the_same() -> None:
    change = change_of(series(num_zeros=[0.0, 0.0]), series(num_zeros=[0.0, 0.0]))
    assert change.verdict is Verdict.SAME
    assert not change.metrics[0].in_csv
    assert kinds(change) == {"no-usable-steps", "format-only"}


def test_negative_zero_is_a_difference_of_bits_but_no_drift() -> None:
    change = change_of(series(x=[0.0, 1.0]), series(x=[-0.0, 1.0]))
    assert change.metrics[0].bit_equal == 1
    assert change.metrics[0].first_diff_step == 1
    assert change.verdict is Verdict.NOISE


@pytest.mark.parametrize(
    ("shift", "verdict", "severity"),
    [
        (1e-5, Verdict.NOISE, None),
        (5e-4, Verdict.DRIFT, Severity.INFO),
        (2e-3, Verdict.DRIFT, Severity.WARN),
        (0.2, Verdict.BREAK, Severity.FAIL),
    ],
)
def test_the_seeds_triage(shift: float, verdict: Verdict, severity: Severity | None) -> None:
    old = np.full(50, 10.0)
    change = change_of(series(lm_loss=old.tolist()), series(lm_loss=(old * (1 - shift)).tolist()))
    assert change.verdict is verdict
    drift = [f.severity for f in change.findings if f.kind == "value-drift"]
    assert drift == ([] if severity is None else [severity])


def test_one_wild_step_overrules_a_quiet_average() -> None:
    new = [10.0] * 100
    new[41] = 10.3
    change = change_of(series(lm_loss=[10.0] * 100), series(lm_loss=new))
    row = change.metrics[0]
    assert abs(row.avg_rel_diff or 0) < 1e-3
    assert row.verdict is Verdict.DRIFT
    assert row.max_step == 42
    assert "drift_max" in row.because


def test_jittery_iteration_times_are_noise_but_a_slower_median_is_not() -> None:
    rng = np.random.default_rng(3)
    old = 0.5 + 0.1 * rng.random(60)
    new = 0.5 + 0.1 * rng.random(60)
    new[2] = 9.0
    rules = RuleBook()
    jitter = change_of(
        Series({"iteration-time": metric(old.tolist())}), Series({"iteration-time": metric(new.tolist())}), rules
    )
    slower = change_of(
        Series({"iteration-time": metric(old.tolist())}),
        Series({"iteration-time": metric((1.5 * (old + 0.01 * rng.random(60))).tolist())}),
        rules,
    )
    assert jitter.verdict is Verdict.NOISE
    assert slower.verdict is Verdict.DRIFT
    assert {f.severity for f in slower.findings} == {Severity.WARN}, "never a correctness failure"
    assert slower.metrics[0].steady_rel_diff == pytest.approx(-0.5, abs=0.05)


def test_a_missing_first_sample_of_a_timing_is_no_failure() -> None:
    old = Series({"iteration-time": metric([0.5] * 20), "lm loss": metric([1.0] * 20)})
    new = Series({"iteration-time": metric([NAN] + [0.5] * 19), "lm loss": metric([1.0] * 20)})
    change = change_of(old, new)
    assert Severity.FAIL not in {f.severity for f in change.findings}


def test_precision_lost_by_rounding_and_by_declaration() -> None:
    rng = np.random.default_rng(0)
    fine = np.round(10 + rng.random(50), 5)
    rounded = change_of(series(x=fine.tolist()), series(x=np.round(fine + 0.1 * rng.random(50), 2).tolist()))
    declared = change_of(Series({"x": metric([1.5] * 9, precision=5)}), Series({"x": metric([1.5] * 9, precision=3)}))
    assert "precision-lost" in kinds(rounded)
    assert "from 5 to 2" in next(f.message for f in rounded.findings if f.kind == "precision-lost")
    assert "precision-lost" in kinds(declared)


def test_few_or_constant_values_do_not_look_rounded() -> None:
    assert "precision-lost" not in kinds(change_of(series(x=[1.25] * 20), series(x=[1.5] * 20)))
    assert "precision-lost" not in kinds(change_of(series(x=[1.25, 2.5]), series(x=[1.5, 2.0])))


def test_the_suites_own_tolerance_is_a_ratio() -> None:
    rules = RuleBook.of([PartialRule("x", {"rtol": 0.05})])
    change = change_of(series(x=[10.0, 10.0]), series(x=[10.0, 11.0]), rules)
    assert change.metrics[0].tolerance_ratio == pytest.approx(2.0)
    assert change_of(series(x=[1.0]), series(x=[2.0])).metrics[0].tolerance_ratio is None


def test_a_new_golden_is_judged_by_its_own_account() -> None:
    good = change_of(None, series(x=[1.0] * 5))
    cut = change_of(None, Series({"x": metric([1.0, 1.0, NAN, NAN])}))
    assert (good.verdict, kinds(good)) == (Verdict.NEW, {"new-golden"})
    assert not good.has_baseline
    assert cut.verdict is Verdict.INCOMPLETE
    assert "truncated" in kinds(cut)


def test_an_old_golden_that_was_cut_off_and_is_repaired() -> None:
    change = change_of(series(x=[1.0, NAN, NAN]), series(x=[1.0, 1.0, 1.0]))
    assert change.metrics[0].nan_lost == 2
    assert {f.severity for f in change.findings} == {Severity.INFO}


def test_both_sides_cut_off_is_still_said() -> None:
    change = change_of(series(x=[1.0, NAN, NAN]), series(x=[1.0, NAN, NAN]))
    assert [(f.kind, f.severity) for f in change.findings if f.kind == "truncated"] == [("truncated", Severity.WARN)]


def test_scalars_beside_curves_are_compared() -> None:
    old = Series({"x": metric([1.0])}, {"iteration_timing_avg": 0.30, "lr": 0.1, "gone": 1.0})
    new = Series({"x": metric([1.0])}, {"iteration_timing_avg": 0.31, "lr": 0.2})
    change = change_of(old, new)
    verdicts = {row.metric: row.verdict for row in change.metrics}
    assert verdicts["iteration_timing_avg"] is Verdict.NOISE
    assert verdicts["lr"] is Verdict.BREAK
    assert "lost-metric" in kinds(change)
    assert not any(row.in_csv for row in change.metrics if row.metric != "x")


def test_a_scalar_that_became_nan_fails() -> None:
    change = change_of(Series({}, {"lr": 0.1}), Series({}, {"lr": NAN}))
    assert change.verdict is Verdict.INCOMPLETE
    assert kinds(change) >= {"new-nan"}


def test_a_curve_that_became_a_number_changed_its_type() -> None:
    change = change_of(series(x=[1.0, 2.0]), Series({}, {"x": 1.0}))
    assert "type-changed" in kinds(change)
    assert change.verdict is not Verdict.SAME


def test_no_shared_step_is_never_a_match() -> None:
    change = change_of(series(x={1: 1.0}), series(x={2: 1.0}))
    assert change.verdict is Verdict.INCOMPLETE
    assert Severity.FAIL in {f.severity for f in change.findings}


def test_empty_against_empty_fails() -> None:
    change = change_of(Series({}), Series({}))
    assert change.verdict is Verdict.INCOMPLETE
    assert kinds(change) >= {"empty"}


def test_removed_golden_fails() -> None:
    change = change_of(series(x=[1.0]), None)
    assert change.verdict is Verdict.REMOVED
    assert change.findings[0].severity is Severity.FAIL


@pytest.mark.parametrize("value", ["nan", None, "crashed"])
def test_a_number_beside_the_curves_that_is_none_any_more_fails(value: object) -> None:
    old = Series({"x": metric([1.0, 2.0])}, {"s": 5.0})
    new = Series({"x": metric([1.0, 2.0])}, {}, {"s": value})
    change = change_of(old, new)
    assert Severity.FAIL in {f.severity for f in change.findings}
    back = change_of(new, old)
    expected = {"nan": Severity.WARN, None: Severity.WARN, "crashed": Severity.FAIL}[value]  # type: ignore[index]
    assert back.severity is expected


def test_a_capped_metric_still_may_not_lose_samples() -> None:
    change = change_of(series(num_tokens=[1.0] * 20, b=[1.0] * 20), series(num_tokens=[NAN] * 20, b=[1.0] * 20))
    assert change.severity is Severity.FAIL


def test_leaving_zero_by_much_warns_and_by_little_informs() -> None:
    ones = [1.0] * 10
    much = change_of(series(x=[0.0] * 10 + ones), series(x=[1e9] * 10 + ones))
    some = change_of(series(x=[0.0] * 10 + ones), series(x=[0.02] * 10 + ones))
    little = change_of(series(x=[0.0] * 10 + ones), series(x=[1e-6] * 10 + ones))
    assert [f.severity for f in much.findings] == [Severity.FAIL]
    assert [f.severity for f in some.findings] == [Severity.WARN]
    assert [f.severity for f in little.findings] == [Severity.INFO]


def test_nan_that_became_infinite_is_not_noise() -> None:
    change = change_of(series(x=[1.0, NAN, 1.0]), series(x=[1.0, np.inf, 1.0]))
    assert change.verdict is Verdict.DRIFT
    assert Severity.WARN in {f.severity for f in change.findings}


def test_zeros_that_wobble_are_noise() -> None:
    change = change_of(series(x=[0.0, 0.0]), series(x=[-0.0, 1e-13]))
    assert change.verdict is Verdict.NOISE
    assert {f.severity for f in change.findings} == {Severity.INFO}


def test_what_a_block_declares_and_carries_is_compared() -> None:
    old = Series({"x": metric([1.0, 2.0], end=2), "y": metric([1.0, 2.0])})
    longer = change_of(old, Series({"x": metric([1.0, 2.0], end=5000), "y": metric([1.0, 2.0])}))
    assert "format-only" not in kinds(longer)
    assert "end_step 2 → 5000" in longer.findings[0].message
    one, two = (structs.replace(metric([1.0]), extra={"foo": foo}) for foo in (1.0, 1.00005))
    extra = change_of(Series({"x": one}), Series({"x": two}))
    assert "format-only" not in kinds(extra)
    assert any(row.metric == "x.foo" and row.verdict is Verdict.NOISE for row in extra.metrics)


def test_a_dropped_infinity_is_a_lost_step() -> None:
    change = change_of(series(x={1: 1.0, 2: np.inf, 3: 1.0}), series(x={1: 1.0, 3: 1.0}))
    assert kinds(change) == {"lost-steps"}


def test_direction_is_right_for_negative_values_and_timings() -> None:
    lower = change_of(series(logprobs=[-1.0, -2.0]), series(logprobs=[-1.2, -2.4]))
    assert lower.metrics[0].direction == "down"
    assert "new is smaller" in lower.findings[0].message
    worse = RuleBook.of([PartialRule("reward", {"better": "higher"})])
    reward = change_of(series(reward=[-1.0, -2.0]), series(reward=[-1.2, -2.4]), worse)
    assert reward.severity is Severity.FAIL
    slow_start = {"iteration-time": metric([10.0] * 15 + [1.0] * 35)}
    slower = {"iteration-time": metric([1.0] * 15 + [1.3] * 35)}
    change = change_of(Series(slow_start), Series(slower))
    assert change.metrics[0].direction == "up"
    assert "median after warm-up +3.00e-01 (new is larger)" in change.findings[0].message


def test_better_does_not_let_moves_cancel() -> None:
    rules = RuleBook.of([PartialRule("x", {"better": "lower"})])
    change = change_of(series(x=[1.0] * 6), series(x=[3.0] + [0.1] * 5), rules)
    assert change.severity is Severity.FAIL


def test_an_empty_block_instead_of_placeholders_is_no_failure() -> None:
    change = change_of(series(x=[NAN, NAN], y=[1.0, 2.0]), series(x={}, y=[1.0, 2.0]))
    assert Severity.FAIL not in {f.severity for f in change.findings}


def test_a_sample_lost_during_warm_up_does_not_make_a_timing_incomplete() -> None:
    old = {"iteration-time": metric([0.5] * 20), "lm loss": metric([1.0] * 20)}
    new = {**old, "iteration-time": metric([NAN] + [0.5] * 19)}
    change = change_of(Series(old), Series(new))
    assert (change.verdict, change.severity) == (Verdict.NOISE, Severity.INFO)


def test_a_declared_end_that_vanishes_is_told() -> None:
    old = metric([1.0, 2.0], end=2)
    change = change_of(Series({"x": old}), Series({"x": structs.replace(old, end=None)}))
    assert "end_step 2 → None" in change.findings[0].message


def test_placeholders_that_come_and_go_leave_the_golden_the_same() -> None:
    """Also where the declared steps and whole curves of placeholders go with them."""
    sparse = Series({"loss": structs.replace(metric({2: 9.0, 4: 8.0}), start=2, end=4, interval=2)})
    dense = Series({"loss": metric([NAN, 9.0, NAN, 8.0]), "never": metric([NAN] * 4)})
    for old, new in ((sparse, dense), (dense, sparse)):
        change = change_of(old, new)
        assert (change.verdict, change.severity) == (Verdict.SAME, Severity.INFO), change.findings
    longer = change_of(sparse, Series({"loss": structs.replace(sparse.metrics["loss"], end=50)}))
    assert longer.verdict is Verdict.DRIFT, "without a placeholder, another end is another run"
    nothing = change_of(Series({"never": metric([NAN])}), Series({"other": metric([NAN])}))
    assert "nothing-compared" in kinds(nothing), "placeholders are no evidence"


def test_how_many_samples_may_be_missing_is_a_rule() -> None:
    curve = [0.5] * 40
    holes = [0.5] * 30 + [NAN] + [0.5] * 9
    old = Series({"iteration-time": metric(curve), "lm loss": metric(curve)})
    timing = change_of(old, Series({"iteration-time": metric(holes), "lm loss": metric(curve)}))
    assert (timing.verdict, timing.severity) == (Verdict.NOISE, Severity.INFO)
    assert [(f.kind, f.where) for f in timing.findings] == [("new-nan", "step 31")], "it is still told"
    absent = {step: 0.5 for step in range(1, 41) if step != 31}
    lost = change_of(old, Series({"iteration-time": metric(absent), "lm loss": metric(curve)}))
    assert (lost.severity, kinds(lost)) == (Severity.INFO, {"lost-steps"})
    two = change_of(old, Series({"iteration-time": metric([*holes[:-1], NAN]), "lm loss": metric(curve)}))
    assert two.verdict is Verdict.INCOMPLETE, "one after a resume, not two"
    loss = change_of(old, Series({"iteration-time": metric(curve), "lm loss": metric(holes)}))
    assert loss.verdict is Verdict.INCOMPLETE
    allowed = RuleBook.of([PartialRule("lm loss", {"missing": 1})])
    assert change_of(old, Series({**old.metrics, "lm loss": metric(holes)}), allowed).severity is Severity.INFO


@pytest.mark.parametrize(
    ("end", "interval", "values", "short"),
    [(50, 5, 10, False), (34, 5, 7, False), (50, 5, 9, True), (50, 1, 50, False)],
)
def test_the_end_of_a_list_is_the_first_step_that_is_not_in_it(
    end: int, interval: int, values: int, *, short: bool
) -> None:
    block = {"start_step": 0, "end_step": end, "step_interval": interval, "values": [9.5 + n for n in range(values)]}
    golden = read(json.dumps({"lm loss": block}).encode()).golden
    assert golden is not None
    assert ("truncated" in kinds(change_of(None, golden))) is short


def test_what_rises_has_a_positive_change_whatever_its_sign() -> None:
    for old, new, change in (
        ([2.0, 4.0], [3.0, 6.0], 0.5),
        ([-2.0, -4.0], [-1.0, -2.0], 0.5),
        ([-2.0, 2.0], [-3.0, 3.0], 0.0),
    ):
        (row,) = change_of(series(x=old), series(x=new)).metrics
        assert row.change == change, (old, new)
    (row,) = change_of(series(lm_loss=[10.0] * 20), series(lm_loss=[10.1] * 20)).metrics
    assert row.direction == "up"
    assert row.avg_rel_diff == pytest.approx(-0.01), "the seed's formula"
    assert row.threshold_ratio == pytest.approx(10), "0.01 of the 0.001 that drift_mean allows"
