from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from karat.changepoints.readers.read import read
from karat.changepoints.readers.sheets import ReadOptions
from karat.changepoints.series import Outcome
from karat.findings import CannotVerify, UsageError
from karat.hunts.journal import Journal
from karat.hunts.model import Attempt, HuntRow, Metric, Point, StageRow

HUNT = HuntRow(
    name="nightly",
    file="hunt.toml",
    root="/somewhere",
    hunt="ab12",
    settings="{}",
    command=("python",),
    metrics=(Metric(name="speed", better="higher", unit="MLUPS"), Metric(name="loss")),
)
POINTS = (
    Point(id="p1", label="08-24", when=datetime(2023, 8, 24, tzinfo=UTC)),
    Point(id="p2", label="08-25"),
    Point(id="p3", label="08-26", missing="no such image"),
    Point(id="p4", label="08-27"),
    Point(id="p5", label="not tried"),
)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A hunt's journal, left open by nobody, its write-ahead log still beside it."""
    path = tmp_path / "a #hunt?" / "nightly.hunt"
    with Journal.create(path, HUNT) as journal:
        for key in ("0", "0.0/1"):
            journal.begin_stage(StageRow(key=key, title="x", timeline="containers"), POINTS)
        for number, samples in ((1, (577.0, 578.0)), (2, (576.0,))):
            tried = Attempt(stage="0", point="p1", number=number, outcome=Outcome.OK, samples={"speed": samples})
            journal.add_attempt(tried)
        for point, outcome in (("p2", Outcome.CRASH), ("p4", Outcome.HANG)):
            failed = Attempt(stage="0", point=point, number=1, outcome=outcome, signature="ImportError: x")
            journal.add_attempt(failed)
        fine = Attempt(stage="0.0/1", point="p1", number=1, outcome=Outcome.OK, samples={"loss": (3.0,)})
        journal.add_attempt(fine)
    return path


def test_a_hunt_s_journal_is_a_series_per_stage_and_metric(journal: Path) -> None:
    found = read([str(journal)], ReadOptions(stage="0")).series
    speed, loss = found
    assert (speed.metric, speed.better, speed.unit) == ("speed", "higher", "MLUPS")
    assert (loss.better, loss.unit) == (None, "")
    assert [(p.label, p.outcome, p.values) for p in speed.observations] == [
        ("08-24", Outcome.OK, (577.0, 578.0, 576.0)),
        ("08-25", Outcome.CRASH, ()),
        ("08-26", Outcome.MISSING, ()),
        ("08-27", Outcome.HANG, ()),
    ]
    assert speed.observations[0].when == datetime(2023, 8, 24, tzinfo=UTC)
    assert speed.observations[1].signature == "ImportError: x"
    assert speed.observations[1].log == f"karat hunt show 08-25 --stage 0 --journal '{journal}'"


def test_stages_have_names_and_wrong_ones_are_refused(journal: Path) -> None:
    found = read([str(journal)]).series
    assert {series.source.partition(" stage ")[2] for series in found} == {"0", "0.0/1"}
    with pytest.raises(UsageError, match=r"there are 0, 0\.0/1"):
        read([str(journal)], ReadOptions(stage="1"))
    with pytest.raises(UsageError, match="did you mean 'speed'"):
        read([str(journal)], ReadOptions(metrics=("sped",)))


def test_a_journal_is_read_while_somebody_writes_and_is_not_changed(journal: Path) -> None:
    with Journal.resume(journal) as writer:
        more = Attempt(stage="0", point="p1", number=3, outcome=Outcome.OK, samples={"speed": (579.0,)})
        writer.add_attempt(more)
        (speed, _) = read([str(journal)], ReadOptions(stage="0")).series
        assert speed.observations[0].values == (577.0, 578.0, 576.0, 579.0)
    before = journal.read_bytes()
    read([str(journal)])
    assert journal.read_bytes() == before


def table(path: Path, *names: str) -> str:
    connection = sqlite3.connect(path)
    for name in names:
        quoted = '"' + name.replace('"', '""') + '"'
        connection.execute(f'CREATE TABLE {quoted} (day TEXT, "m s" REAL)')
        rows = [("2023-01-02", 2.5), ("2023-01-01", None)]
        connection.executemany(f"INSERT INTO {quoted} VALUES (?, ?)", rows)  # noqa: S608 - quoted above
    connection.commit()
    connection.close()
    return str(path)


def test_any_table(tmp_path: Path) -> None:
    source = table(tmp_path / "a.db", 'odd "name"; --')
    (series,) = read([source]).series
    assert series.metric == "m s"
    assert [(p.label, p.values) for p in series.observations] == [("2023-01-01", ()), ("2023-01-02", (2.5,))]


def test_which_table_must_be_said_if_there_are_several(tmp_path: Path) -> None:
    source = table(tmp_path / "a.db", "one", "two")
    with pytest.raises(UsageError, match="expected --table to say which table"):
        read([source])
    assert len(read([source], ReadOptions(table="two")).series) == 1
    with pytest.raises(UsageError, match="did you mean 'two'"):
        read([source], ReadOptions(table="twoo"))


def test_a_damaged_database_cannot_be_verified(tmp_path: Path) -> None:
    source = Path(table(tmp_path / "a.db", "one"))
    source.write_bytes(source.read_bytes()[:100] + b"\xff" * 4000)
    with pytest.raises(CannotVerify, match="expected to read the SQLite database"):
        read([str(source)])


def test_a_table_has_no_stages(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("CREATE TABLE t (build, ms)")
        connection.commit()
    with pytest.raises(UsageError, match="expected the journal of a hunt for --stage"):
        read(["t.db"], ReadOptions(root=tmp_path, stage="0"))
