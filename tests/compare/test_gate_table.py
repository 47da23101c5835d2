from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, strategies as st

from karat.compare.gate.result import CheckOutcome, Judging, MetricResult
from karat.compare.gate.table import gate_table
from karat.compare.gate.values import gate_document
from karat.compare.rules import PartialRule, RuleBook
from karat.findings import Finding
from karat.goldens.shapes import Table

ROWS = {"a": ("pass", "3"), "b": ("pass", "5"), "c": ("fail_to_run", "0")}


def table(rows: Mapping[str, tuple[str, ...]], columns: tuple[str, ...] = ("accuracy", "graph_breaks")) -> Table:
    return Table(("name", *columns), ("name",), {(name,): (name, *cells) for name, cells in rows.items()})


def judged(golden: Table, actual: Table, rules: Judging | None = None) -> tuple[dict[str, MetricResult], list[Finding]]:
    results, findings = gate_table(golden, actual, rules or Judging())
    return {result.metric: result for result in results}, findings


def outcomes(golden: Table, actual: Table) -> dict[str, str]:
    return {name: result.outcome.value for name, result in judged(golden, actual)[0].items()}


def test_equal_tables_pass() -> None:
    assert outcomes(table(ROWS), table(ROWS)) == {"(rows)": "pass", "accuracy": "pass", "graph_breaks": "pass"}


def test_a_row_that_silently_disappeared_fails_by_name() -> None:
    results, _ = judged(table(ROWS), table({k: v for k, v in ROWS.items() if k != "b"}))
    rows = results["(rows)"]
    assert (rows.outcome, rows.kind, rows.missing) == (CheckOutcome.FAIL, "lost-rows", 1)
    assert [d.place for d in rows.deviations] == ["b"]


def test_a_row_without_a_golden_is_unknown() -> None:
    results, _ = judged(table(ROWS), table({**ROWS, "d": ("pass", "1")}))
    assert results["(unknown rows)"].outcome is CheckOutcome.MISSING_GOLDEN
    assert results["(rows)"].outcome is CheckOutcome.PASS


def test_counts_are_exact_and_lower_is_better() -> None:
    worse = outcomes(table(ROWS), table({**ROWS, "a": ("pass", "4")}))
    better = outcomes(table(ROWS), table({**ROWS, "a": ("pass", "2")}))
    both = outcomes(table(ROWS), table({**ROWS, "a": ("pass", "2"), "b": ("pass", "6")}))
    assert (worse["graph_breaks"], better["graph_breaks"], both["graph_breaks"]) == ("fail", "improved", "fail")


def test_outcomes_are_ordered() -> None:
    def accuracy(cell: str) -> MetricResult:
        return judged(table(ROWS), table({**ROWS, "b": (cell, "5")}))[0]["accuracy"]

    assert (accuracy("fail_accuracy").outcome, accuracy("fail_accuracy").kind) == (
        CheckOutcome.FAIL,
        "status-regressed",
    )
    assert accuracy("on_fire").kind == "status-changed"
    assert accuracy("0.93").kind == "status-changed"
    assert (accuracy("").outcome, accuracy("").kind) == (CheckOutcome.FAIL, "missing-actual")
    fixed = judged(table(ROWS), table({**ROWS, "c": ("pass", "0")}))[0]["accuracy"]
    assert fixed.outcome is CheckOutcome.IMPROVED


def test_the_order_of_outcomes_is_the_projects_own() -> None:
    golden, actual = table({"a": ("good", "1")}), table({"a": ("fair", "1")})
    for status, outcome in ((("good", "fair"), CheckOutcome.FAIL), (("fair", "good"), CheckOutcome.IMPROVED)):
        results, _ = judged(golden, actual, Judging(status=status))
        assert results["accuracy"].outcome is outcome


def test_a_number_that_is_text_or_gone_fails_whatever_the_direction() -> None:
    for cell in ("", "nan", "inf", "oops"):
        found = outcomes(table(ROWS), table({**ROWS, "a": ("pass", cell)}))
        assert found["graph_breaks"] == "fail", cell


def test_an_empty_cell_is_what_fill_says() -> None:
    golden, actual = table(ROWS), table({**ROWS, "c": ("fail_to_run", "")})
    results, _ = gate_table(golden, actual, Judging(), {"graph_breaks": "0"})
    assert {r.outcome for r in results} == {CheckOutcome.PASS}


def test_a_column_that_vanished_is_missing() -> None:
    actual = table({k: v[:1] for k, v in ROWS.items()}, ("accuracy",))
    assert outcomes(table(ROWS), actual)["graph_breaks"] == "missing-actual"


def test_an_empty_column_expects_nothing_and_one_of_nan_compares_nothing() -> None:
    empty = table({"a": ("pass", ""), "b": ("pass", "")})
    assert outcomes(empty, empty)["graph_breaks"] == "info"
    nothing = table({"a": ("pass", "nan"), "b": ("pass", "nan")})
    assert outcomes(nothing, nothing)["graph_breaks"] == "nothing-compared"


MARGINS = ("expected", "noise_margin")


def test_rows_have_margins_of_their_own_and_a_result_cannot_widen_them() -> None:
    golden = table({"a": ("100", "0.1"), "b": ("100", "0.01")}, MARGINS)
    near = table({"a": ("109", "0.1"), "b": ("100", "0.01")}, MARGINS)
    assert outcomes(golden, near)["expected"] == "pass"
    far = table({"a": ("109", "0.1"), "b": ("109", "0.5")}, MARGINS)
    results, findings = judged(golden, far)
    assert [d.place for d in results["expected"].deviations] == ["b"]
    assert [f.kind for f in findings] == ["tolerance-widened"]
    less = table({"a": ("85", "0.1"), "b": ("100", "0.01")}, MARGINS)
    assert outcomes(golden, less)["expected"] == "improved"


def test_a_result_need_not_carry_the_tolerances() -> None:
    golden = table({"a": ("100", "0.1")}, MARGINS)
    assert outcomes(golden, table({"a": ("109",)}, ("expected",))) == {"(rows)": "pass", "expected": "pass"}


def test_tables_named_by_other_columns_cannot_be_compared() -> None:
    other = Table(("id", "x"), ("id",), {("a",): ("a", "1")})
    results, findings = gate_table(table(ROWS), other, Judging())
    assert results == []
    assert [f.kind for f in findings] == ["structure-changed"]


CELLS = st.sampled_from(["pass", "fail_to_run", "1", "2.5", "nan", "", "odd"])


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(CELLS, CELLS), min_size=2), st.randoms(use_true_random=False)
)
def test_a_missing_row_always_fails_and_order_never_matters(rows: Mapping[str, tuple[str, ...]], dice: Any) -> None:
    golden = table(rows)
    names = list(rows)
    dice.shuffle(names)
    assert outcomes(golden, table({name: rows[name] for name in names})) == outcomes(golden, golden)
    without = {name: rows[name] for name in names[1:]}
    assert outcomes(golden, table(without))["(rows)"] == "fail"


def document(golden: Any, actual: Any, **sets: object) -> dict[str, MetricResult]:
    rules = Judging(book=RuleBook.of([PartialRule("*", sets)]))
    return {result.metric: result for result in gate_document(golden, actual, rules)[0]}


def test_leaves_of_a_document_are_judged_by_their_generic_name() -> None:
    golden = {"0": {"logprobs": [1.0, 2.0], "text": "a"}, "1": {"logprobs": [3.0], "text": "b"}}
    same = document(golden, golden, rtol=0.1)
    assert {name: r.outcome.value for name, r in same.items()} == {"logprobs": "pass", "text": "pass"}
    moved = {"0": {"logprobs": [1.0, 2.5], "text": "a"}, "1": {"logprobs": [3.0], "text": "x"}}
    found = document(golden, moved, rtol=0.1)
    assert found["logprobs"].first is not None
    assert found["logprobs"].first.place == '$["0"].logprobs[1]'
    assert (found["text"].outcome, found["text"].kind) == (CheckOutcome.FAIL, "text-changed")


def test_a_shorter_list_a_lost_key_and_another_type_fail() -> None:
    golden = {"x": [1.0, 2.0], "y": True, "z": None}
    assert document(golden, {"x": [1.0], "y": True, "z": None})["x"].missing == 1
    assert document(golden, {"x": [1.0, 2.0], "z": None})["y"].outcome is CheckOutcome.FAIL
    assert document(golden, {"x": [1.0, 2.0], "y": False, "z": None})["y"].outcome is CheckOutcome.FAIL
    assert document(golden, {"x": [1.0, "2"], "y": True, "z": None})["x"].kind == "type-changed"
    more = document(golden, {**golden, "w": 1})
    assert more["(unknown metrics)"].deviations[0].place == "w"


def test_integers_beyond_floats_and_empty_lists_are_leaves() -> None:
    assert document({"n": 10**400}, {"n": 10**400})["n"].outcome is CheckOutcome.FAIL
    assert document({"n": []}, {"n": []})["n"].outcome is CheckOutcome.PASS
    assert document({"n": []}, {"n": [1]})["n"].outcome is CheckOutcome.FAIL


@pytest.mark.parametrize(
    ("golden", "actual"),
    [(True, "true"), (None, "null"), ({}, []), ([], "[]"), ({}, "{}"), (False, None), (1, "1"), (1, True)],
)
def test_another_type_is_never_the_same_value(golden: Any, actual: Any) -> None:
    for one, other in ((golden, actual), (actual, golden)):
        assert document({"x": one}, {"x": one})["x"].outcome is CheckOutcome.PASS
        assert document({"x": one}, {"x": other})["x"].outcome is CheckOutcome.FAIL


def test_no_key_hides_behind_the_path_of_two_others() -> None:
    golden = {'x y"]["z w': 1.0, "x y": {"z w": 2.0}}
    for key in golden:
        results = document(golden, {**golden, key: 7.0 if key != "x y" else {"z w": 7.0}})
        assert CheckOutcome.FAIL in {result.outcome for result in results.values()}


def test_bounds_judge_the_cells_of_a_column() -> None:
    golden, low = (
        Table(("name", "graph_breaks"), ("name",), {("a",): ("a", one), ("b",): ("b", other)})
        for one, other in (("3", "5"), ("4", "9"))
    )
    rules = Judging(book=RuleBook.of([PartialRule("graph_breaks", {"check": "range", "max": 8.0})]))
    results, _ = gate_table(golden, low, rules)
    breaks = next(r for r in results if r.metric == "graph_breaks")
    assert [(d.place, d.expected, d.got) for d in breaks.deviations] == [("b", 8.0, 9.0)]


def test_numbers_that_are_better_by_chance_are_no_improvement() -> None:
    rules = Judging(book=RuleBook.of([PartialRule("x", {"rtol": 0.05, "outliers": 1.0, "better": "lower"})]))
    golden = table(dict.fromkeys("abcde", ("10",)), ("x",))
    one = table({name: ("1" if name == "a" else "10",) for name in "abcde"}, ("x",))
    two = table({name: ("1" if name in "ab" else "10",) for name in "abcde"}, ("x",))
    assert judged(golden, one, rules)[0]["x"].outcome is CheckOutcome.PASS
    assert judged(golden, two, rules)[0]["x"].outcome is CheckOutcome.IMPROVED


def test_a_golden_without_rows_compares_nothing() -> None:
    results, _ = judged(table({}), table({}))
    assert results["(rows)"].outcome is CheckOutcome.NOTHING_COMPARED


def test_an_equal_tolerance_is_not_a_wider_one() -> None:
    rows = {"a": ("100", "0.1")}
    _, findings = judged(table(rows, ("expected", "noise_margin")), table(rows, ("expected", "noise_margin")))
    assert findings == []
