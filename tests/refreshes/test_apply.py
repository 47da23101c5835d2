"""Tables from shards: all of them, each row once, or none."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from karat.goldens.shapes import Reading, Table
from karat.goldens.table_csv import read_table
from karat.refreshes.apply import Shard, assemble, missing_shards
from karat.settings import TableSettings

SETTINGS = TableSettings(
    key=("name",), columns=("name", "accuracy", "graph_breaks"), fill={"graph_breaks": "0"}, integers=("graph_breaks",)
)
HEADER = "dev,name,batch_size,accuracy,graph_breaks\n"


def shard(number: int, of: int, *rows: str) -> Shard:
    text = HEADER + "".join(f"cuda,{row}\n" for row in rows)
    return Shard(number=number, of=of, reading=read_table(text.encode(), ("name",)), where=f"shard-{number}")


def table(reading: Reading) -> Table:
    assert isinstance(reading.golden, Table)
    return reading.golden


def test_columns_are_chosen_and_empty_counts_are_zero() -> None:
    whole = assemble([shard(2, 2, "b,8,pass,3.0"), shard(1, 2, "a,4,pass,")], SETTINGS, "t.csv")
    assert list(table(whole).rows.values()) == [("a", "pass", "0"), ("b", "pass", "3")]
    assert not whole.findings


@pytest.mark.parametrize(("cell", "kept"), [("3.5", "3.5"), ("nan", "0"), ("12", "12"), (".0", ".0")])
def test_only_whole_numbers_lose_their_point(cell: str, kept: str) -> None:
    whole = assemble([shard(1, 1, f"a,4,pass,{cell}")], SETTINGS, "t.csv")
    assert table(whole).rows[("a",)][2] == kept


def test_a_missing_shard_is_named() -> None:
    (found,) = missing_shards([shard(1, 3, "a,1,pass,0"), shard(3, 3, "c,1,pass,0")], "t.csv")
    assert found.kind == "missing-shard"
    assert "1 of 3 shards" in found.message
    assert "(2)" in found.message


def test_shards_that_disagree_on_their_number_are_not_put_together() -> None:
    (found,) = missing_shards([shard(1, 2, "a,1,pass,0"), shard(2, 3, "b,1,pass,0")], "t.csv")
    assert "2, 3" in found.message


def test_a_row_in_two_shards_is_named() -> None:
    whole = assemble([shard(1, 2, "a,1,pass,0"), shard(2, 2, "a,1,fail_to_run,0")], SETTINGS, "t.csv")
    (found,) = whole.findings
    assert found.kind == "duplicate-row"
    assert "differently" in found.message


def test_a_shard_without_a_wanted_column_spoils_the_table() -> None:
    bad = Shard(number=1, of=1, reading=read_table(b"name,accuracy\na,pass\n", ("name",)), where="s")
    whole = assemble([bad], SETTINGS, "t.csv")
    assert whole.golden is None
    assert whole.findings[0].kind == "lost-metric"


def test_an_unreadable_shard_spoils_the_table() -> None:
    bad = Shard(number=1, of=1, reading=read_table(b"\x00\x01"), where="s")
    assert assemble([bad], SETTINGS, "t.csv").golden is None


@given(st.permutations(range(1, 6)), st.sets(st.integers(1, 5), min_size=1, max_size=5))
def test_rows_are_the_union_whatever_the_order(order: list[int], there: set[int]) -> None:
    shards = [shard(n, 5, f"m{n},1,pass,0") for n in order if n in there]
    whole = assemble(shards, SETTINGS, "t.csv")
    assert [key for (key,) in table(whole).rows] == [f"m{n}" for n in sorted(there)]
    assert bool(missing_shards(shards, "t.csv")) == (there != {1, 2, 3, 4, 5})


def test_a_shard_beyond_the_last_is_no_shard() -> None:
    found = missing_shards([shard(1, 1, "a,4,pass,"), shard(7, 1, "b,4,pass,")], "t.csv")
    assert [f.kind for f in found] == ["missing-shard"]
    assert "shard 7 of 1" in found[0].message


def test_a_total_that_cannot_be_is_counted_and_not_listed() -> None:
    (found,) = missing_shards([shard(1, 999_999_999, "a,4,pass,")], "t.csv")
    assert "999,999,998 of 999,999,999" in found.message
    assert "(2, 3, 4, 5, 6 …)" in found.message
