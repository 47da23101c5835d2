"""Journals of strangers: whatever stands in their tables is one clear error, or is read; never a traceback."""

from __future__ import annotations

import shutil
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from karat.changepoints.series import Outcome
from karat.cli import cli
from karat.findings import CannotVerify, KaratError
from karat.hunts.journal import LOG_LIMIT, Journal
from karat.hunts.model import Attempt, ChangeRow, CommandRow, Decision, HuntRow, Metric, Point, Span, StageRow

HUNT = HuntRow(
    name="nightly",
    file="hunt.toml",
    root="/somewhere",
    hunt="ab12",
    settings="{}",
    command=("true",),
    metrics=(Metric(name="speed", better="higher"),),
)
SPAN = Span(
    metric="speed", good=0, bad=3, before=577.0, after=537.0, confidence=0.99, kind="regression", between=(1, 2)
)
HOSTILE = (None, -1, 1e308, b"\xff\x00", "\x00", "[" * 10_000, "{}", "null", '{"a": ' + "9" * 5000 + "}")
COMMANDS = (
    ("status",),
    ("report", "--json", "-", "-q"),
    ("report", "--markdown", "-"),
    ("show", "p1"),
    ("show", "p1", "--log"),
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal whose tables take anything."""
    path = tmp_path_factory.mktemp("journal") / "a.hunt"
    with Journal.create(path, HUNT) as journal:
        points = tuple(Point(id=f"p{n}", label=f"p{n}") for n in range(4))
        journal.begin_stage(StageRow(key="0", title="values", timeline="values"), points)
        for n, point in enumerate(points):
            attempt = Attempt(
                stage="0", point=point.id, number=1, outcome=Outcome.OK, samples={"speed": (577.0 if n < 2 else 537.0,)}
            )
            command = CommandRow(role="measure", argv=("true",))
            journal.add_attempt(attempt, log=b"speed: 1\n", commands=[command])
        journal.save_decision("0", Decision(asks=(), spans=(SPAN,)))
        journal.save_change("0", 1, ChangeRow())
        journal.run_started("0", "p3", 2, "again")
        journal.add_event("begun", "0")
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA writable_schema=ON")
        db.execute(
            "UPDATE sqlite_master SET sql = replace(replace(sql, ' STRICT', ''), ' NOT NULL', '') WHERE type = 'table'"
        )
        db.execute("UPDATE sqlite_master SET sql = replace(sql, '), WITHOUT', ') WITHOUT')")
        db.commit()
    return path


def columns(path: Path) -> Iterator[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            yield from ((table, column[1]) for column in db.execute(f"PRAGMA table_info({table})"))


def spoilt(sound: Path, folder: Path, values: Sequence[object] = HOSTILE) -> Iterator[Path]:
    """A journal for each cell and each hostile value, one after the other."""
    for table, column in columns(sound):
        for n, value in enumerate(values):
            path = folder / f"{table}-{column}-{n}.hunt"
            shutil.copy(sound, path)
            with closing(sqlite3.connect(path)) as db, suppress(sqlite3.IntegrityError):
                db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))  # noqa: S608 - our own names
                db.commit()
            yield path
            path.unlink()


def read(path: Path) -> None:
    """All that a journal is asked."""
    with Journal(path) as journal:
        journal.facts(), journal.metrics(), journal.every_point(), journal.attempts(), journal.runs()
        journal.running(), journal.events()
        for stage in journal.stages():
            journal.points(stage.key), journal.changes(stage.key)
            for one in journal.attempts(stage.key):
                journal.log(one.stage, one.point, one.number), journal.commands(one.stage, one.point, one.number)


@pytest.mark.slow
def test_every_cell_may_hold_anything(sound: Path, tmp_path: Path) -> None:
    refused = 0
    for path in spoilt(sound, tmp_path):
        with suppress(KaratError):
            read(path)
            continue
        refused += 1
    assert refused > 100


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_ends_with_a_clear_error(sound: Path, tmp_path: Path, command: tuple[str, ...]) -> None:
    for path in spoilt(sound, tmp_path, HOSTILE[1::2]):
        where = ["--journal", str(path)] if command[0] == "show" else [str(path)]
        error = CliRunner().invoke(cli, ["hunt", *command, *where], standalone_mode=False).exception
        assert error is None or (isinstance(error, KaratError) and error.next_command), (path.name, error)


def test_a_log_is_unpacked_up_to_its_limit(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.hunt"
    shutil.copy(sound, path)
    for log in (zlib.compress(bytes(3 * LOG_LIMIT)), zlib.compress(b"x" * 100)[:-5]):
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE logs SET data = ?", (log,))
            db.commit()
        with (
            Journal(path) as journal,
            pytest.raises(CannotVerify, match="a log unpacks to more than 8,388,608 bytes, or is cut"),
        ):
            journal.log("0", "p1", 1)
