from __future__ import annotations

import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from karat.changepoints.series import Outcome
from karat.findings import CannotVerify, UsageError
from karat.hunts.journal import LOG_LIMIT, Journal, archive, cut_log, writing_process
from karat.hunts.model import (
    Attempt,
    ChangeRow,
    CommandRow,
    Decision,
    HuntRow,
    Metric,
    Point,
    Span,
    StageRow,
    Verdict,
    Window,
)

HUNT = HuntRow(
    name="nightly",
    file="hunt.toml",
    root="/somewhere",
    hunt="ab12",
    settings="{}",
    command=("python", "probe.py"),
    metrics=(Metric(name="speed", better="higher", unit="MLUPS"), Metric(name="loss", better="lower")),
)
POINTS = (
    Point(id="2023-08-24", label="08-24", when=datetime(2023, 8, 24, tzinfo=UTC)),
    Point(id="2023-08-25", label="08-25", parts={"image": "x:2023-08-25"}),
    Point(id="2023-08-26", label="08-26", missing="no such image"),
    Point(id="2023-08-27", label="08-27"),
)
SPAN = Span(
    metric="speed", good=0, bad=3, before=577.0, after=537.0, confidence=0.99, kind="regression", between=(1, 2)
)

HOLDS = """
import sys
from pathlib import Path
from karat.hunts.journal import Journal
journal = Journal.resume(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ein Ort 🜚 mit #, ? und %20" / "nightly.hunt"


def begun(path: Path) -> Journal:
    journal = Journal.create(path, HUNT)
    journal.begin_stage(StageRow(key="0", title="containers by day", timeline="containers"), POINTS)
    return journal


def attempt(point: str, number: int = 1, **more: object) -> Attempt:
    facts: dict[str, object] = {"outcome": Outcome.OK, "samples": {"speed": (577.0, 578.5)}, **more}
    return Attempt(stage="0", point=point, number=number, **facts)  # type: ignore[arg-type]


def test_what_was_written_is_read_by_others_meanwhile(path: Path) -> None:
    window = Window(old=POINTS[0], new=POINTS[3], old_identity={"commit.xla": "1a"})
    first = attempt("2023-08-24", identity={"image.digest": "sha256:1"}, identity_key="k1")
    crash = attempt("2023-08-25", outcome=Outcome.CRASH, samples={}, signature="ImportError: x", purpose="swap 0")
    command = CommandRow(role="measure", argv=("python", "probe.py"), exit_code=1, env=("TOKEN",))
    found = ChangeRow(verdict=Verdict(part="xla", confidence=0.99), zoom="0.0/1", swapped=True)
    with begun(path) as journal, Journal(path) as reader:
        journal.add_attempt(first)
        journal.add_attempt(crash, log=b"Traceback\n", commands=[command])
        journal.save_decision("0", Decision(asks=(), spans=(SPAN,), notes=("odd",)))
        journal.save_change("0", 0, found)
        row = StageRow(
            key="0.0/1",
            title="commits",
            timeline="commits",
            parent="0.0",
            window=window,
            levels={"speed": (577.0, 537.0)},
        )
        journal.begin_stage(row, POINTS[:1])
        journal.finish_stage("0.0/1", ["done well"])
        journal.add_event("it began", "0")
        assert reader.attempts() == (first, crash)
        assert reader.attempts("0", "2023-08-25") == (crash,)
        assert reader.log("0", "2023-08-25", 1) == b"Traceback\n"
        assert reader.commands("0", "2023-08-25", 1) == (command,)
        assert reader.points("0") == POINTS
        assert reader.point("0", "2023-08-26") == POINTS[2]
        zero, zoom = reader.stages()
        assert zero.decision is not None
        assert zero.decision.spans == (SPAN,)
        assert (zoom.window, zoom.levels, zoom.parent) == (window, row.levels, "0.0")
        assert (zoom.state, zoom.notes) == ("done", ("done well",))
        assert reader.changes("0") == {0: found}
        assert [(stage, said) for _, stage, said in reader.events()] == [("0", "it began")]
        assert reader.metrics() == HUNT.metrics
        assert reader.facts()["state"] == "running"
        assert reader.writer() is not None
    with Journal(path) as after:
        assert after.writer() is None
        assert after.runs() == 2


def test_the_view_has_a_row_per_sample_and_one_for_each_metric_without(path: Path) -> None:
    with begun(path) as journal:
        journal.add_attempt(attempt("2023-08-24"))
        journal.add_attempt(attempt("2023-08-25", outcome=Outcome.CRASH, samples={}, signature="E"))
        lost = attempt("2023-08-27", outcome=Outcome.BROKEN, samples={}, lost=True)
        journal.add_attempt(lost)
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT * FROM series WHERE metric = 'speed'").fetchall()
        others = db.execute("SELECT label, value FROM series WHERE metric = 'loss'").fetchall()
    db.close()
    at = "2023-08-24T00:00:00+00:00"
    assert rows == [
        ("0", 0, "08-24", at, "speed", 577.0, "ok", ""),
        ("0", 0, "08-24", at, "speed", 578.5, "ok", ""),
        ("0", 1, "08-25", None, "speed", None, "crash", "E"),
        ("0", 2, "08-26", None, "speed", None, "missing", ""),
    ]
    assert others == [("08-24", None), ("08-25", None), ("08-26", None)]


def test_a_mixed_point_has_no_place_on_the_timeline(path: Path) -> None:
    with begun(path) as journal:
        mixed = Point(id="xla@1 jax@2", label="old jax with new xla")
        journal.add_mixed_point("0", mixed)
        journal.add_mixed_point("0", mixed)
        journal.add_mixed_point("0", POINTS[0])
        assert journal.points("0") == POINTS
        assert journal.point("0", mixed.id) == mixed
        assert journal.every_point()[-1] == ("0", mixed)


def test_a_second_writer_is_refused_with_the_first_one_s_process(path: Path) -> None:
    begun(path).close()
    words = [sys.executable, "-c", HOLDS, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout is not None
        assert second.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=f"process {second.pid} writing it") as refused:
            Journal.resume(path)
        assert refused.value.next_command.startswith("karat hunt status ")
        with Journal(path) as reader:
            assert reader.writer() == second.pid
        second.kill()
        second.communicate()
    Journal.resume(path).close()


def test_a_journal_is_made_once(path: Path) -> None:
    begun(path).close()
    with pytest.raises(CannotVerify, match="found one") as refused:
        Journal.create(path, HUNT)
    assert "karat hunt resume" in refused.value.next_command


@pytest.mark.parametrize("writing", [False, True])
def test_what_is_no_journal_is_said(path: Path, *, writing: bool) -> None:
    def opened() -> Journal:
        return Journal(path, writing=writing)

    path.parent.mkdir()
    with pytest.raises(CannotVerify, match="found none"):
        opened()
    path.write_bytes(bytes(range(256)) * 64)
    with pytest.raises(CannotVerify, match="not a database"):
        opened()
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE goods (price REAL)")
    db.close()
    with pytest.raises(CannotVerify, match="another SQLite file"):
        opened()
    path.unlink()
    begun(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(CannotVerify, match="version 99: a newer karat"):
        opened()


def test_what_was_killed_before_it_began_is_no_hunt_to_resume(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with pytest.raises(CannotVerify, match="found none") as caught:
        Journal.resume(path)
    assert caught.value.next_command == "karat hunt run"
    assert writing_process(path) is None, "and nobody holds it"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_journal_that_is_removed_while_it_is_written_is_not_written_on(path: Path, *, replaced: bool) -> None:
    with begun(path) as journal:
        path.unlink()
        if replaced:
            path.write_bytes(b"another")
        with pytest.raises(CannotVerify, match="removed or replaced"):
            journal.add_attempt(attempt(POINTS[0].id))


def test_a_damaged_file_is_begun_anew(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(CannotVerify) as caught:
        Journal(path)
    assert caught.value.next_command == f"karat hunt run --fresh --journal '{path}'"


def test_a_damaged_row_is_said_not_guessed(path: Path) -> None:
    with begun(path) as journal:
        journal.add_attempt(attempt("2023-08-24"), log=b"text")
    with sqlite3.connect(path) as db:
        db.execute("UPDATE attempts SET document = '{\"stage\": 3}'")
        db.execute("UPDATE logs SET data = x'00ff'")
    db.close()
    with Journal(path) as reader:
        with pytest.raises(CannotVerify, match="to be whole"):
            reader.attempts()
        with pytest.raises(CannotVerify, match="to be whole"):
            reader.log("0", "2023-08-24", 1)


def test_a_full_disk_is_said_and_leaves_whole_attempts(path: Path) -> None:
    with begun(path) as journal:
        journal.add_attempt(attempt("2023-08-24"))
        (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
        journal._db.execute(f"PRAGMA max_page_count = {pages}")
        big = attempt("2023-08-27", note="x" * 100_000)
        with pytest.raises(CannotVerify, match="full") as refused:
            journal.add_attempt(big)
        assert refused.value.next_command == "df -h"
    with Journal(path) as reader:
        assert [e.point for e in reader.attempts()] == ["2023-08-24"]


def test_without_a_place_for_its_index_a_journal_is_still_read(path: Path) -> None:
    begun(path).close()
    # A folder where SQLite can make no file beside it: even root cannot, once a folder has the name.
    path.with_name(f"{path.name}-shm").mkdir()
    with Journal(path) as reader:
        assert reader.points("0") == POINTS


@pytest.mark.slow
def test_what_was_committed_survives_a_kill(path: Path) -> None:
    begun(path).close()
    code = (
        "import sys, os; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from test_journal import Journal, attempt\n"
        "journal = Journal.resume(Path(sys.argv[1]))\n"
        "for number in range(1, 6): journal.add_attempt(attempt('2023-08-24', number))\n"
        "os.kill(os.getpid(), 9)"
    )
    words = [sys.executable, "-c", code, str(path), str(Path(__file__).parent)]
    assert subprocess.run(words, check=False).returncode == -9
    with Journal(path) as reader:
        assert [e.number for e in reader.attempts()] == [1, 2, 3, 4, 5]
        assert reader.writer() is None


@given(st.binary(max_size=400), st.integers(8, 64))
def test_a_capped_log_keeps_its_beginning_and_its_end(log: bytes, limit: int) -> None:
    short = cut_log(log, limit)
    if len(log) <= limit:
        assert short == log
    else:
        assert short.startswith(log[: limit // 4])
        assert short.endswith(log[-(limit - limit // 4) :])
        assert f"{len(log) - limit} bytes left out".encode() in short


def test_a_log_is_compressed_and_bounded(path: Path) -> None:
    with begun(path) as journal:
        journal.add_attempt(attempt("2023-08-24"), log=b"all work " * (LOG_LIMIT // 4))
        kept = journal.log("0", "2023-08-24", 1)
        assert LOG_LIMIT <= len(kept) < LOG_LIMIT + 100
    assert path.stat().st_size < LOG_LIMIT // 8


@pytest.mark.parametrize("kind", ["text", "database"])
def test_a_file_that_is_no_journal_is_never_moved_nor_is_that_advised(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "my notes.db"
    if kind == "text":
        path.write_text("mine")
    else:
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE mine (x)")
        db.close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="which was not touched") as raised:
        archive(path)
    assert raised.value.next_command == "karat hunt run --journal 'my notes.hunt'"
    assert path.read_bytes() == before
    with pytest.raises(CannotVerify) as unread:
        Journal(path)
    assert "--fresh" not in unread.value.next_command


def test_a_damaged_journal_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "slow.hunt"
    path.write_text("no database any more")
    assert archive(path) == tmp_path / "slow.hunt.1"
    assert archive(tmp_path / "slow.hunt.1") == tmp_path / "slow.hunt.1.1"
    assert not path.exists()
