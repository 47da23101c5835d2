from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, strategies as st

from factories.curves import NAN, metric, series
from karat.compare.gate.result import CheckOutcome, Judging, MetricResult
from karat.compare.gate.series import gate_series
from karat.compare.rules import PartialRule, RuleBook
from karat.findings import Finding
from karat.goldens.shapes import Series

LOSS = [10.0 - 0.1 * step for step in range(50)]


def judging(**sets: object) -> Judging:
    return Judging(book=RuleBook.of([PartialRule("*", sets)]))


def judged(
    golden: Series, actual: Series, rules: Judging | None = None
) -> tuple[dict[str, MetricResult], list[Finding]]:
    results, findings = gate_series(golden, actual, rules or judging(rtol=0.05))
    return {result.metric: result for result in results}, findings


def loss(got: list[float] | dict[int, float], rules: Judging | None = None) -> MetricResult:
    return judged(series(lm_loss=LOSS), series(lm_loss=got), rules)[0]["lm loss"]


def test_equal_curves_pass() -> None:
    result = loss(LOSS)
    assert (result.outcome, result.total, result.compared, result.failed) == (CheckOutcome.PASS, 50, 50, 0)
    assert result.first is None


def test_a_failure_names_the_first_and_the_worst_step_and_how_many() -> None:
    got = list(LOSS)
    got[20] *= 1.06
    got[30] *= 1.5
    result = loss(got)
    assert (result.outcome, result.kind, result.failed, result.total) == (CheckOutcome.FAIL, "out-of-tolerance", 2, 50)
    assert result.first is not None
    assert (result.first.place, result.first.expected, result.first.got) == (21, 8.0, 8.48)
    assert result.first.error == pytest.approx(0.48)
    assert result.first.relative == pytest.approx(0.06)
    assert result.first.tolerance == pytest.approx(0.4)
    assert result.worst is not None
    assert result.worst.place == 31


def test_outliers_are_allowed_but_never_missing_ones() -> None:
    rules = judging(rtol=0.05, outliers=1)
    assert loss([*LOSS[:-1], 99.0], rules).outcome is CheckOutcome.PASS
    assert loss([*LOSS[:-2], 99.0, 99.0], rules).outcome is CheckOutcome.FAIL
    assert loss([*LOSS[:-1], NAN], rules).outcome is CheckOutcome.FAIL
    assert loss([*LOSS[:-1], inf], rules).outcome is CheckOutcome.FAIL
    assert loss(LOSS[:-1], rules).outcome is CheckOutcome.FAIL


def test_as_many_samples_as_the_rule_says_may_be_missing() -> None:
    short = [*LOSS[:20], NAN, *LOSS[21:]]
    assert loss(short).outcome is CheckOutcome.FAIL
    assert loss(short, judging(missing=1)).outcome is CheckOutcome.PASS
    assert loss({n: v for n, v in enumerate(LOSS, 1) if n != 21}, judging(missing=1)).outcome is CheckOutcome.PASS
    assert loss([*short[:-1], NAN], judging(missing=1)).outcome is CheckOutcome.FAIL
    assert loss([*LOSS[:20], inf, *LOSS[21:]], judging(missing=1)).kind == "new-nan", "an infinity is a sample"


def test_a_run_that_was_cut_off_is_said_to_be_one() -> None:
    golden = series(lm_loss=LOSS, grad_norm=LOSS)
    results, findings = judged(golden, series(lm_loss=LOSS[:13], grad_norm=LOSS[:13]))
    assert [f.kind for f in findings] == ["truncated"]
    assert "stops at step 13 of 50" in findings[0].message
    assert all(r.outcome is CheckOutcome.FAIL and r.missing == 37 for r in results.values())
    died = [*LOSS[:13], *[NAN] * 37]
    results, findings = judged(golden, series(lm_loss=died, grad_norm=died))
    assert [f.kind for f in findings] == ["truncated"]
    assert {r.kind for r in results.values()} == {"new-nan"}


def test_one_metric_that_diverged_is_not_a_run_that_was_cut_off() -> None:
    golden = series(lm_loss=LOSS, grad_norm=LOSS)
    died = [*LOSS[:13], *[NAN] * 37]
    results, findings = judged(golden, series(lm_loss=died, grad_norm=LOSS))
    assert findings == []
    assert results["lm loss"].likely == ("not finite from step 14 on: the run diverged, or died and left NaN")
    assert results["grad norm"].outcome is CheckOutcome.PASS


def test_a_metric_that_vanished_is_missing_and_a_new_one_is_unknown() -> None:
    results, _ = judged(series(lm_loss=LOSS), series(other=LOSS))
    assert results["lm loss"].outcome is CheckOutcome.MISSING_ACTUAL
    assert results["(unknown metrics)"].outcome is CheckOutcome.MISSING_GOLDEN
    assert results["(unknown metrics)"].deviations[0].place == "other"


def test_single_values_beside_curves_are_judged_too() -> None:
    golden = Series({"lm loss": metric(LOSS)}, {"accuracy": 0.5}, {"note": "a"})
    actual = Series({"lm loss": metric(LOSS)}, {"accuracy": 0.9}, {})
    results, _ = judged(golden, actual)
    assert results["accuracy"].outcome is CheckOutcome.FAIL
    assert results["note"].outcome is CheckOutcome.FAIL
    assert results["lm loss"].outcome is CheckOutcome.PASS


def test_a_curve_that_became_a_single_value_is_missing() -> None:
    results, _ = judged(series(lm_loss=LOSS), Series({}, {"lm loss": 3.0}))
    assert results["lm loss"].outcome is CheckOutcome.MISSING_ACTUAL
    assert results["lm loss"].likely == "it is a single value there, not a curve"


def test_a_golden_that_expects_nothing_compares_nothing() -> None:
    results, _ = judged(series(lm_loss=[NAN, NAN]), series(lm_loss=[1.0, 2.0]))
    assert results["lm loss"].outcome is CheckOutcome.NOTHING_COMPARED


def test_a_golden_of_a_run_that_died_is_said_to_be_one() -> None:
    died = series(lm_loss=[*LOSS[:13], *[NAN] * 37], **{"iteration-time": [*[1.0] * 13, *[NAN] * 37]})
    results, findings = judged(died, died, Judging())
    assert [(f.kind, f.severity.value) for f in findings] == [("short-run", "warn")]
    assert "in the golden: stops at step 13" in findings[0].message
    assert results["iteration-time"].outcome is CheckOutcome.INFO
    assert results["lm loss"].outcome is CheckOutcome.PASS


def test_more_steps_than_the_golden_has_are_no_objection() -> None:
    assert loss([*LOSS, 1.0, 2.0]).outcome is CheckOutcome.PASS
    sparse = {step: LOSS[step - 1] for step in range(5, 51, 5)}
    results, findings = judged(series(lm_loss=sparse), series(lm_loss=LOSS))
    assert (results["lm loss"].outcome, results["lm loss"].total, findings) == (CheckOutcome.PASS, 10, [])


def test_info_is_shown_and_not_judged_but_must_be_there() -> None:
    rules = judging(check="info")
    assert loss([9.0 * value for value in LOSS], rules).outcome is CheckOutcome.INFO
    assert loss(LOSS[:10], rules).outcome is CheckOutcome.FAIL


def test_better_by_more_than_the_tolerance_is_improved_and_one_worse_step_is_not() -> None:
    rules = judging(rtol=0.05, better="lower")
    got = [0.9 * value for value in LOSS]
    assert loss(got, rules).outcome is CheckOutcome.IMPROVED
    assert loss([*got[:-1], 99.0], rules).outcome is CheckOutcome.FAIL
    assert loss([0.99 * value for value in LOSS], rules).outcome is CheckOutcome.PASS


def test_exact_for_once_tightens_what_is_approximate_only() -> None:
    close = [value * (1 + 1e-9) for value in LOSS]
    book = RuleBook.of([PartialRule("lm loss", {"rtol": 0.05, "outliers": 3})])
    golden = series(lm_loss=LOSS, **{"iteration-time": [1.0] * 50})
    actual = series(lm_loss=close, **{"iteration-time": [1.1] * 50})
    plain, _ = judged(golden, actual, Judging(book=book))
    strict, _ = judged(golden, actual, Judging(book=book, exact=("*",)))
    assert plain["lm loss"].outcome is CheckOutcome.PASS
    assert strict["lm loss"].outcome is CheckOutcome.FAIL
    assert strict["iteration-time"].outcome is CheckOutcome.INFO


@pytest.mark.parametrize(
    ("got", "likely"),
    [
        ([value * 1.07 for value in LOSS], "scaled by 1.07 at every step"),
        ([value + 3.0 for value in LOSS], "offset by +3 at every step"),
        ([7.0] * 50, "the same value (7) at every step"),
        ([*LOSS[:20], 99.0, *LOSS[21:]], "a single step (21) is off, the others are not"),
        ([*LOSS[:20], 99.0, *LOSS[21:30], 99.0, *LOSS[31:]], "spikes at 2 of 50 steps"),
        (
            [*LOSS[:30], *(v * (1.1 + 0.05 * i) for i, v in enumerate(LOSS[30:]))],
            "equal up to step 30, then apart by +57.50% at the median",
        ),
        ([v * (1.2 if i % 2 else 0.85) for i, v in enumerate(LOSS)], "only noise grew, around the same level"),
        ([v * (1.2 + 0.01 * i) for i, v in enumerate(LOSS)], "higher all along"),
        (LOSS[:20], "ends at step 20 of 50: the run was cut off"),
        ([*LOSS[:20], NAN, *LOSS[21:]], "1 step without a value, the run goes on behind them"),
        ([NAN] * 50, "no values: it was never recorded, or never finite"),
    ],
)
def test_the_likely_kind_is_what_a_person_would_say(got: list[float], likely: str) -> None:
    result = loss(got)
    assert result.outcome is CheckOutcome.FAIL
    assert result.likely is not None
    assert likely in result.likely


def test_a_timing_that_slowed_down_is_called_slower() -> None:
    rules = judging(check="median", rtol=0.05, steady=True, window=(30, 45))
    golden = series(**{"iteration-time": [1.0] * 50})
    results, _ = judged(golden, series(**{"iteration-time": [1.2] * 50}), rules)
    result = results["iteration-time"]
    assert (result.outcome, result.likely) == (CheckOutcome.FAIL, "20.0% slower over the whole window, by the median")
    assert result.first is not None
    assert result.first.place == "median of steps 30–45"


@given(
    st.lists(st.floats(), min_size=1, max_size=30),
    st.lists(st.floats(), min_size=0, max_size=30),
    st.sampled_from(["exact", "approx", "median", "at-most", "info"]),
)
def test_any_two_curves_get_an_outcome_and_what_fails_has_a_place(
    expected: list[float], got: list[float], check: str
) -> None:
    results, _ = judged(series(m=expected), series(m=got), judging(check=check, rtol=0.1))
    result = results["m"]
    assert (result.outcome is CheckOutcome.FAIL) <= (result.first is not None)
    wanted = [value for value in expected if not np.isnan(value)]
    if check != "median" and len(got) < len(expected) and not np.isnan(expected[-1]):
        assert result.outcome is CheckOutcome.FAIL
    if not wanted and check != "info":  # a rule that only informs has nothing to compare
        assert result.outcome is CheckOutcome.NOTHING_COMPARED


def test_steps_behind_the_goldens_last_are_said_to_be_unknown() -> None:
    longer = [*LOSS, *[NAN] * 7]
    results, _ = judged(series(lm_loss=LOSS), series(lm_loss=longer))
    assert results["lm loss"].outcome is CheckOutcome.PASS
    more = results["(unknown steps)"]
    assert (more.outcome, more.total) == (CheckOutcome.MISSING_GOLDEN, 7)
    first = metric(LOSS).steps[-1] + 1
    assert [d.place for d in more.deviations] == [f"lm loss {first}–{first + 6}"]
    assert "(unknown steps)" not in judged(series(lm_loss=longer), series(lm_loss=LOSS))[0]


def test_a_run_that_diverged_at_its_end_was_not_cut_off() -> None:
    results, findings = judged(series(lm_loss=LOSS), series(lm_loss=[*LOSS[:49], inf]))
    assert results["lm loss"].kind == "new-nan"
    assert findings == []


def test_bounds_judge_a_curve_without_the_goldens_values() -> None:
    rules = judging(check="range", min=0.0, max=10.5, better="lower")
    assert loss([7.0] * 50, rules).outcome is CheckOutcome.PASS
    result = loss([7.0] * 48 + [-1.0, 12.5], rules)
    assert (result.outcome, result.kind, result.failed) == (CheckOutcome.FAIL, "out-of-tolerance", 2)
    assert result.first is not None
    assert (result.first.expected, result.first.got, result.first.error) == (0.0, -1.0, -1.0)
    assert (result.likely, result.tolerance) == (None, "range, at least 0, at most 10.5")
    assert loss([7.0] * 49, rules).kind == "lost-steps"
    assert loss([7.0] * 49 + [NAN], rules).kind == "new-nan"
