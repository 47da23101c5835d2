from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, strategies as st

from karat.changepoints.readers.read import add_missing_points, assemble, learned_direction, regular_step
from karat.changepoints.readers.sheets import BROKEN, MISSING, NoSample, ReadOptions, Sheet, SheetRow
from karat.changepoints.readers.tables import SourceTable, read_table
from karat.changepoints.series import Outcome, Series

PLAIN = ReadOptions()
DAYS = st.lists(st.tuples(st.integers(0, 400), st.one_of(st.none(), st.floats(-1e6, 1e6))), min_size=1, max_size=40)


def series_of(rows: list[tuple[int, float | None]]) -> Series:
    start = datetime(2023, 1, 1, tzinfo=UTC)
    cells = [((start + timedelta(days=day)).strftime("%Y-%m-%d"), value) for day, value in rows]
    table = SourceTable(source="t", names=("date", "m"), rows=cells)
    (made,), _ = assemble(read_table(table, ReadOptions(metrics=("m",))), PLAIN)
    return made


@given(DAYS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rows: list[tuple[int, float | None]], random: Random) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    one, other = series_of(rows), series_of(shuffled)
    assert [point.label for point in one.observations] == [point.label for point in other.observations]
    for a, b in zip(one.observations, other.observations, strict=True):
        assert sorted(a.values) == sorted(b.values)
        assert a.outcome == b.outcome


@given(DAYS)
def test_no_value_is_lost_or_made_up(rows: list[tuple[int, float | None]]) -> None:
    made = series_of(rows)
    found = sorted(value for point in made.observations for value in point.values)
    assert found == sorted(value for _, value in rows if value is not None)
    for point in made.observations:
        assert (point.outcome is Outcome.OK) == bool(point.values)
    labels = [point.label for point in made.observations]
    assert labels == sorted(set(labels)), "each label once, oldest first"


def test_of_repeats_values_count_and_else_the_gravest_reason() -> None:
    crash = NoSample(Outcome.CRASH, "E: x")
    cells: tuple[tuple[float, ...] | NoSample, ...] = (MISSING, BROKEN, crash, MISSING, (1.0,), crash)
    rows = tuple(SheetRow(label="ab"[n > 3], cells={"m": cell}) for n, cell in enumerate(cells))
    (made,), notes = assemble(Sheet(source="t", metrics=("m",), rows=rows), PLAIN)
    assert [(p.label, p.outcome, p.values) for p in made.observations] == [
        ("a", Outcome.CRASH, ()),
        ("b", Outcome.OK, (1.0,)),
    ]
    assert made.observations[0].signature == "E: x"
    assert notes == ("2 labels occur more than once; the values are repeats of one point",)


START = datetime(2023, 7, 3, tzinfo=UTC)
"""A Monday."""


def rows(days: Iterable[float], form: str = "%Y-%m-%d") -> list[SheetRow]:
    at = [START + timedelta(days=day) for day in days]
    return [SheetRow(label=when.strftime(form), cells={"m": (1.0,)}, at=when, when=when) for when in at]


def added(given_rows: list[SheetRow]) -> list[str]:
    known = {row.label for row in given_rows}
    return [row.label for row in add_missing_points(given_rows) if row.label not in known]


def test_missing_days_are_named_as_the_others_are() -> None:
    assert added(rows([0, 1, 2, 4, 5, 8])) == ["2023-07-06", "2023-07-09", "2023-07-10"]
    assert added(rows([0, 1, 2, 4, 5], "%m-%d")) == ["07-06"]


def test_hours_are_a_step_as_well() -> None:
    assert added(rows([n / 24 for n in (0, 1, 2, 3, 5)], "%m-%d-%H")) == ["07-03-04"]


def test_week_ends_that_never_have_a_point_are_not_missing() -> None:
    working = [week * 7 + day for week in range(4) for day in range(5)]
    assert added(rows(working)) == []
    assert added(rows([day for day in working if day != 8])) == ["2023-07-11"]


def test_a_series_without_a_regular_step_lacks_nothing() -> None:
    assert added(rows([0, 0.3, 1.7, 2.1, 9.4], "%Y-%m-%dT%H:%M:%SZ")) == []
    assert regular_step([START, START]) is None


def test_labels_that_are_no_dates_are_not_invented() -> None:
    named = [SheetRow(label=f"c{n}", cells={}, at=row.at) for n, row in enumerate(rows([0, 1, 2, 3, 9]))]
    assert add_missing_points(named) == tuple(named)


def test_one_date_far_off_does_not_invent_a_thousand_nights() -> None:
    assert added(rows([0, 1, 2, 3, 4, 2000])) == []


def test_a_night_that_begins_an_hour_late_is_that_night() -> None:
    late = rows([0, 1 + 1 / 24, 2 + 1 / 24, 3, 5], "%m-%d")
    assert added(late) == ["07-07"]


def test_the_hour_of_a_missing_night_is_not_made_up() -> None:
    assert added(rows([0.13, 1.13, 2.13, 3.13, 5.13], "%Y-%m-%dT%H:%M:%SZ")) == ["2023-07-07"]


def test_rows_without_moments_stay_as_they_are() -> None:
    plain = [SheetRow(label=str(n), cells={}) for n in range(9)]
    assert add_missing_points(plain) == tuple(plain)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=60, unique=True).map(sorted))
def test_points_are_never_lost_and_order_is_kept(days: list[int]) -> None:
    before = rows(days)
    after = add_missing_points(before)
    assert [row for row in after if row.cells] == before
    moments = [row.at for row in after if isinstance(row.at, datetime)]
    assert moments == sorted(set(moments))


@pytest.mark.parametrize(
    ("metric", "unit", "wanted"),
    [
        ("load_accepted", "tx/s", "higher"),
        ("tokens_per_s", "", "higher"),
        ("batch_p50", "ms", "lower"),
        ("lm loss", "", "lower"),
        ("trainAccuracy", "", "higher"),
        ("MLUPS", "", "higher"),
        ("wallTime", "", "lower"),
        ("graph_breaks", "", None),
        ("score error", "", None),
    ],
)
def test_names_and_units_say_which_direction_is_better(metric: str, unit: str, wanted: str | None) -> None:
    assert learned_direction(metric, unit) == wanted
