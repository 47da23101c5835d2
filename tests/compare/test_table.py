from __future__ import annotations

from hypothesis import given, strategies as st

from factories.curves import change_of, kinds
from karat.compare.change import Verdict
from karat.findings import Severity
from karat.goldens.formats import read
from karat.goldens.shapes import Table

ACCURACY = ("name", "accuracy", "graph_breaks")


def table(*rows: tuple[str, ...], columns: tuple[str, ...] = ACCURACY, keys: int = 1) -> Table:
    return Table(columns, columns[:keys], {row[:keys]: row for row in rows})


def counts(*rows: tuple[str, ...]) -> Table:
    return table(*rows, columns=("benchmark", "metric", "expected", "noise_margin"), keys=2)


def test_equal_tables_are_the_same() -> None:
    change = change_of(table(("a", "pass", "0")), table(("a", "pass", "0")))
    assert change.verdict is Verdict.SAME
    assert kinds(change) == {"format-only"}


def test_a_vanished_model_fails_by_name() -> None:
    change = change_of(table(("a", "pass", "0"), ("b", "pass", "0")), table(("a", "pass", "0")))
    assert change.verdict is Verdict.INCOMPLETE
    assert change.findings[0].kind == "lost-rows"
    assert "1 of 2 rows is gone: b" in change.findings[0].message


def test_new_rows_are_told() -> None:
    change = change_of(table(("a", "pass", "0")), table(("a", "pass", "0"), ("b", "pass", "0")))
    assert change.verdict is Verdict.DRIFT
    assert {f.kind: f.severity for f in change.findings} == {"gained-rows": Severity.INFO}


def test_a_worse_outcome_breaks_and_a_better_one_is_not_nothing() -> None:
    worse = change_of(table(("a", "pass", "0")), table(("a", "fail_accuracy", "0")))
    better = change_of(table(("a", "fail_to_run", "0")), table(("a", "pass", "0")))
    assert worse.verdict is Verdict.BREAK
    assert "a pass → fail_accuracy" in worse.findings[0].message
    assert better.verdict is Verdict.DRIFT
    assert {f.kind: f.severity for f in better.findings} == {"status-improved": Severity.INFO}


def test_an_outcome_of_unknown_order_is_a_warning() -> None:
    change = change_of(table(("a", "pass", "0")), table(("a", "flaky", "0")))
    assert {f.kind: f.severity for f in change.findings} == {"status-changed": Severity.WARN}


def test_more_graph_breaks_warn_and_fewer_inform() -> None:
    more = change_of(table(("moco", "pass", "11")), table(("moco", "pass", "13")))
    fewer = change_of(table(("moco", "pass", "11")), table(("moco", "pass", "9")))
    assert more.verdict is fewer.verdict is Verdict.DRIFT
    assert [f.severity for f in more.findings] == [Severity.WARN]
    assert [f.severity for f in fewer.findings] == [Severity.INFO]
    assert "moco 11 → 13" in more.findings[0].message


def test_the_margin_column_gives_the_tolerance_ratio() -> None:
    change = change_of(counts(("a", "count", "1000", "0.1")), counts(("a", "count", "1050", "0.1")))
    expected = next(row for row in change.metrics if row.metric == "expected")
    assert expected.tolerance_ratio is not None
    assert abs(expected.tolerance_ratio - 0.5) < 1e-12
    assert expected.max_step == "a / count"


def test_a_widened_margin_is_a_finding() -> None:
    change = change_of(counts(("a", "count", "1000", "0.1")), counts(("a", "count", "1000", "0.3")))
    assert "tolerance-widened" in kinds(change)
    narrowed = change_of(counts(("a", "count", "1000", "0.3")), counts(("a", "count", "1000", "0.1")))
    assert "tolerance-widened" not in kinds(narrowed)


def test_a_number_that_became_empty_or_text_is_lost() -> None:
    empty = change_of(table(("a", "pass", "3"), ("b", "pass", "1")), table(("a", "pass", ""), ("b", "pass", "1")))
    text = change_of(table(("a", "pass", "3"), ("b", "pass", "1")), table(("a", "pass", "many"), ("b", "pass", "1")))
    assert (empty.verdict, kinds(empty) & {"new-nan"}) == (Verdict.INCOMPLETE, {"new-nan"})
    assert "type-changed" in kinds(text)


def test_nan_in_a_cell_never_passes() -> None:
    change = change_of(table(("a", "pass", "3"), ("b", "pass", "1")), table(("a", "pass", "nan"), ("b", "pass", "1")))
    assert change.verdict is Verdict.INCOMPLETE


def test_lost_and_gained_columns() -> None:
    change = change_of(table(("a", "pass", "0")), table(("a", "pass"), columns=("name", "accuracy")))
    assert "lost-metric" in kinds(change)
    assert change.verdict is Verdict.INCOMPLETE


def test_other_key_columns_cannot_be_matched() -> None:
    change = change_of(table(("a", "pass", "0")), table(("a", "pass", "0"), keys=2))
    assert change.verdict is Verdict.BREAK
    assert kinds(change) == {"structure-changed"}


def test_tables_as_read_from_padded_files() -> None:
    old = read(b"name,accuracy,graph_breaks\n\n\n\na,pass,0\n\n\n\nb,pass,1\n").golden
    new = read(b"name,accuracy,graph_breaks\n\n\n\nb,pass,1\n").golden
    assert "lost-rows" in kinds(change_of(old, new))


def test_outcomes_in_a_column_with_numbers_are_compared() -> None:
    def mixed(first: str, second: str = "0.95") -> Table:
        return table(("a", first, "1"), ("b", second, "1"), ("c", "pass", "2"))

    cases = {
        ("pass", "fail_to_run"): (Verdict.BREAK, "status-regressed", Severity.FAIL),
        ("pass", "nan"): (Verdict.INCOMPLETE, "new-nan", Severity.FAIL),
        ("pass", ""): (Verdict.BREAK, "status-regressed", Severity.FAIL),
        ("pass", "0.0"): (Verdict.DRIFT, "type-changed", Severity.WARN),
        ("0.5", "OOM"): (Verdict.BREAK, "type-changed", Severity.FAIL),
        ("0.5", ""): (Verdict.INCOMPLETE, "new-nan", Severity.FAIL),
        ("OOM", "0.7"): (Verdict.DRIFT, "type-changed", Severity.WARN),
        ("OOM", "timeout"): (Verdict.BREAK, "status-regressed", Severity.FAIL),
        ("", "OOM"): (Verdict.DRIFT, "status-changed", Severity.WARN),
        ("", "0.5"): (Verdict.DRIFT, "gained-steps", Severity.INFO),
    }
    for (before, after), (verdict, kind, severity) in cases.items():
        change = change_of(mixed(before), mixed(after))
        assert change.verdict is verdict, (before, after)
        assert [(f.kind, f.severity) for f in change.findings] == [(kind, severity)], (before, after)


def test_the_order_of_rows_is_no_warm_up() -> None:
    columns = ("name", "speedup")
    old = table(*((f"m{i}", "1.5") for i in range(10)), columns=columns)
    for slow in range(10):
        new = table(*((f"m{i}", "0.01" if i == slow else "1.5") for i in range(10)), columns=columns)
        assert change_of(old, new).verdict is Verdict.DRIFT, slow


def test_a_tightened_margin_is_told_and_nothing_more() -> None:
    change = change_of(counts(("a", "count", "1000", "0.1")), counts(("a", "count", "1000", "0.01")))
    assert {f.kind: f.severity for f in change.findings} == {"tolerance-tightened": Severity.INFO}
    assert change.verdict is Verdict.DRIFT


def test_a_table_of_keys_alone_can_be_the_same() -> None:
    keys = table(("a", "fp32"), columns=("name", "dtype"), keys=2)
    assert kinds(change_of(keys, keys)) == {"format-only"}


cells = st.sampled_from(["pass", "OOM", "odd", "", "nan", "inf", "0", "1", "1.0", "1e9", "-2"])
rows = st.dictionaries(st.sampled_from("abcd"), st.tuples(cells, cells), max_size=4)


@given(rows, rows)
def test_verdicts_and_findings_agree(old: dict[str, tuple[str, str]], new: dict[str, tuple[str, str]]) -> None:
    before, after = (table(*((k, *v) for k, v in side.items())) for side in (old, new))
    change = change_of(before, after)
    severities = {f.severity for f in change.findings if f.kind != "no-usable-steps"}
    if change.verdict in {Verdict.INCOMPLETE, Verdict.BREAK}:
        assert Severity.FAIL in severities or "no-usable-steps" in kinds(change)
    if change.verdict in {Verdict.SAME, Verdict.NOISE}:
        assert severities <= {Severity.INFO}
    if change.verdict is Verdict.SAME:
        assert old.keys() == new.keys()
        for key, pair in old.items():
            for a, b in zip(pair, new[key], strict=True):
                assert a == b or {a, b} <= {"1", "1.0"}


def test_cells_that_are_not_finite_are_evidence_of_nothing() -> None:
    columns = ("name", "acc")
    same = table(("a", "nan"), ("b", "nan"), columns=columns)
    assert "no-usable-steps" in kinds(change_of(same, same))
    before, after = (table(("a", cell), ("b", "1.0"), columns=columns) for cell in ("nan", "inf"))
    change = change_of(before, after)
    assert change.verdict is Verdict.DRIFT
    assert Severity.WARN in {f.severity for f in change.findings}


def test_better_needs_every_value_to_move_the_good_way() -> None:
    mixed = change_of(table(("a", "pass", "0"), ("b", "pass", "5")), table(("a", "pass", "100"), ("b", "pass", "4")))
    assert [f.severity for f in mixed.findings] == [Severity.WARN]
