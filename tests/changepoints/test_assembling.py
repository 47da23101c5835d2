from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given, strategies as st

from karat.changepoints.readers.columns import Table, read_table
from karat.changepoints.readers.read import assemble
from karat.changepoints.readers.sheets import BROKEN, MISSING, NoValue, ReadOptions, Sheet, SheetRow
from karat.changepoints.series import Outcome, Series

PLAIN = ReadOptions()
DAYS = st.lists(
    st.tuples(st.integers(0, 400), st.one_of(st.none(), st.floats(-1e6, 1e6))),
    min_size=1,
    max_size=40,
)


def series_of(rows: list[tuple[int, float | None]]) -> Series:
    start = datetime(2023, 1, 1, tzinfo=UTC)
    cells = [((start + timedelta(days=day)).strftime("%Y-%m-%d"), value) for day, value in rows]
    table = Table(source="t", names=("date", "m"), rows=cells)
    (made,), _ = assemble(read_table(table, ReadOptions(metrics=("m",))), PLAIN)
    return made


@given(DAYS, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(
    rows: list[tuple[int, float | None]], random: Random
) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    one, other = series_of(rows), series_of(shuffled)
    assert [point.label for point in one.observations] == [
        point.label for point in other.observations
    ]
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
    crash = NoValue(Outcome.CRASH, "E: x")
    cells: tuple[tuple[float, ...] | NoValue, ...] = (
        MISSING,
        BROKEN,
        crash,
        MISSING,
        (1.0,),
        crash,
    )
    rows = tuple(SheetRow(label="ab"[n > 3], cells={"m": cell}) for n, cell in enumerate(cells))
    (made,), notes = assemble(Sheet(source="t", metrics=("m",), rows=rows), PLAIN)
    assert [(p.label, p.outcome, p.values) for p in made.observations] == [
        ("a", Outcome.CRASH, ()),
        ("b", Outcome.OK, (1.0,)),
    ]
    assert made.observations[0].signature == "E: x"
    assert notes == ("2 labels occur more than once; the values are repeats of one point",)
