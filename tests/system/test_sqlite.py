"""SQLite files of strangers: nothing in them runs, and no query of them is endless."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from karat.changepoints.readers.sheets import ReadOptions, Sheet
from karat.changepoints.readers.tables import read_database
from karat.findings import CannotVerify
from karat.system.foreign.sqlite import guard, rows

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS label, i AS value FROM n"


def database(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as made:
        for statement in statements:
            made.execute(statement)
        made.commit()
    return path


@pytest.mark.parametrize(
    ("view", "said"),
    [
        (ENDLESS, "more than 1,000 rows; KARAT_MAX_ROWS changes the limit"),
        (
            ENDLESS.replace("i AS label, i AS value", "count(*) AS value"),
            "longer than 1,000 rows should; KARAT_MAX_ROWS changes the limit",
        ),
        (f"{ENDLESS} ORDER BY value DESC", "KARAT_MAX_ROWS changes the limit"),
        ("SELECT hex(zeroblob(500000000)) AS value", "too big"),
        (ENDLESS.replace("i AS value", "hex(zeroblob(1000000)) AS value"), "KARAT_MAX_LOG_MB changes the limit"),
        ("SELECT " + ", ".join(["zeroblob(16000000)"] * 200), "of memory"),
        ("SELECT load_extension('x') AS value", "unsafe use of load_extension"),
    ],
)
def test_a_view_that_does_not_end_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view: str, said: str
) -> None:
    monkeypatch.setenv("KARAT_MAX_ROWS", "1000")
    monkeypatch.setenv("KARAT_MAX_LOG_MB", "5")
    path = database(tmp_path / "a.db", f"CREATE VIEW v AS {view}")
    with pytest.raises(CannotVerify, match=said):
        read_database(path, "a.db", ReadOptions())


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH DATABASE '/tmp/karat-attached' AS other",
        "PRAGMA writable_schema=ON",
        "INSERT INTO t VALUES (1)",
        "CREATE TABLE u (x)",
        "SELECT load_extension('x')",
    ],
)
def test_what_is_read_can_do_nothing_else(tmp_path: Path, statement: str) -> None:
    path = database(tmp_path / "a.db", "CREATE TABLE t (x)")
    with closing(sqlite3.connect(path)) as connection:
        guard(connection)
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            rows(connection, statement)
        assert rows(connection, "SELECT * FROM t") == []


def test_a_writer_attaches_nothing(tmp_path: Path) -> None:
    path = database(tmp_path / "a.db", "CREATE TABLE t (x)")
    with closing(sqlite3.connect(path)) as connection:
        guard(connection, writing=True)
        connection.execute("INSERT INTO t VALUES (1)")
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            connection.execute("ATTACH DATABASE 'x' AS other")


@pytest.mark.parametrize("value", ["x'00ff'", "NULL", "1e999", "'text'", "9223372036854775807"])
def test_cells_of_any_type_are_read(tmp_path: Path, value: str) -> None:
    columns = "stage, position, label, at, metric, value, outcome, signature"
    metrics = "CREATE TABLE metrics (name, better, unit)"
    made = (metrics, f"CREATE TABLE series ({columns})", f"INSERT INTO series SELECT {', '.join([value] * 8)}")
    (sheet,) = read_database(database(tmp_path / "a.db", *made), "a.db", ReadOptions())
    assert isinstance(sheet, Sheet)
    assert len(sheet.rows) == 1


def test_a_view_calls_no_function_of_this_program(tmp_path: Path) -> None:
    path = database(tmp_path / "a.db", "CREATE VIEW v AS SELECT ours(1) AS value")
    with closing(sqlite3.connect(path)) as connection:
        called: list[int] = []
        connection.create_function("ours", 1, called.append)
        guard(connection)
        with pytest.raises(sqlite3.OperationalError, match=r"unsafe use of ours\(\)"):
            rows(connection, "SELECT value FROM v")
        assert called == []
