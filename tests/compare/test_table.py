from __future__ import annotations

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
    assert "1 of 2 rows are gone: b" in change.findings[0].message


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
    narrowed = change_of(
        counts(("a", "count", "1000", "0.3")), counts(("a", "count", "1000", "0.1"))
    )
    assert "tolerance-widened" not in kinds(narrowed)


def test_a_number_that_became_empty_or_text_is_lost() -> None:
    empty = change_of(
        table(("a", "pass", "3"), ("b", "pass", "1")), table(("a", "pass", ""), ("b", "pass", "1"))
    )
    text = change_of(
        table(("a", "pass", "3"), ("b", "pass", "1")),
        table(("a", "pass", "many"), ("b", "pass", "1")),
    )
    assert (empty.verdict, kinds(empty) & {"new-nan"}) == (Verdict.INCOMPLETE, {"new-nan"})
    assert "type-changed" in kinds(text)


def test_nan_in_a_cell_never_passes() -> None:
    change = change_of(
        table(("a", "pass", "3"), ("b", "pass", "1")),
        table(("a", "pass", "nan"), ("b", "pass", "1")),
    )
    assert change.verdict is Verdict.INCOMPLETE


def test_lost_and_gained_columns() -> None:
    change = change_of(
        table(("a", "pass", "0")), table(("a", "pass"), columns=("name", "accuracy"))
    )
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
