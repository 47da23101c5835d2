"""None"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import jsonschema
import msgspec
import pytest

from karat.bundles.manifest import Identity
from karat.captures.pytest_session import summarize
from karat.captures.records import (
    AlreadyClaimed,
    CaptureClaim,
    CaptureJournal,
    claim_path,
    host,
    mark_missing,
    merge,
    read_claim,
    read_journals,
    staging_name,
    sweep,
    take_claim,
    update_claim,
    withdraw_claim,
)
from karat.findings import Finding, Severity
from karat.schemas import schema


def claim(*, by: str = "first", pid: int | None = None, on: str | None = None) -> CaptureClaim:
    identity = Identity(suite="s", flow="f", test="t", subtest="")
    return CaptureClaim(identity=identity, path="s/f/t", by=by, host=on or host(), pid=pid or os.getpid())


def dead_pid() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def test_one_of_many_at_once_has_it(tmp_path: Path) -> None:
    path = claim_path(tmp_path / "claims", "s/f/t")
    won: list[int] = []
    start = threading.Barrier(8)

    def contend(number: int) -> None:
        start.wait()
        try:
            take_claim(path, claim(by=str(number)))
        except AlreadyClaimed:
            return
        won.append(number)

    crowd = [threading.Thread(target=contend, args=(n,)) for n in range(8)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert len(won) == 1
    standing = read_claim(path)
    assert standing is not None
    assert standing.by == str(won[0])


def test_who_has_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    take_claim(path, claim(by="first"))
    with pytest.raises(AlreadyClaimed) as caught:
        take_claim(path, claim(by="second"))
    assert caught.value.claim == claim(by="first")


def test_a_claim_fits_its_schema(tmp_path: Path) -> None:
    published = schema("karat.claim/1")
    take_claim(tmp_path / "c.json", claim())
    said = json.loads((tmp_path / "c.json").read_bytes())
    jsonschema.validate(said, published)
    assert said.keys() == published["properties"].keys()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(said | {"state": "gone"}, published)


def test_a_withdrawn_claim_is_free(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    take_claim(path, claim())
    withdraw_claim(path)
    withdraw_claim(path)
    take_claim(path, claim(by="second"))
    assert read_claim(path) == claim(by="second")


@pytest.mark.parametrize("state", ["staged", "failed"])
def test_a_dead_process_and_a_failed_capture_hold_nothing_for_long(tmp_path: Path, state: str) -> None:
    path = tmp_path / "c.json"
    pid = dead_pid() if state == "staged" else os.getpid()
    take_claim(path, claim(by="first", pid=pid))
    update_claim(path, msgspec.structs.replace(claim(by="first", pid=pid), state=state))
    take_claim(path, claim(by="second"))
    assert read_claim(path) == claim(by="second")
    assert [p.name for p in tmp_path.iterdir()] == ["c.json"]


def test_a_mark_makes_no_new_file(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    take_claim(path, claim())
    before = path.stat()
    for state in ("published", "failed", "published", "staged"):
        marked = msgspec.structs.replace(claim(), state=state)
        update_claim(path, marked)
        assert read_claim(path) == marked
    assert (path.stat().st_ino, path.stat().st_size) == (before.st_ino, before.st_size)
    withdraw_claim(path)
    with pytest.raises(FileNotFoundError):
        update_claim(path, claim())


@pytest.mark.parametrize("state", ["staged", "published"])
def test_another_machines_and_a_published_claim_stand(tmp_path: Path, state: str) -> None:
    path = tmp_path / "c.json"
    on = "elsewhere" if state == "staged" else None
    standing = msgspec.structs.replace(claim(pid=dead_pid(), on=on), state=state)
    take_claim(path, standing)
    with pytest.raises(AlreadyClaimed):
        take_claim(path, claim(by="second"))
    assert read_claim(path) == standing


def test_a_claim_that_is_being_written_is_taken(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(b'{"schema"')
    with pytest.raises(AlreadyClaimed) as caught:
        take_claim(tmp_path / "c.json", claim())
    assert caught.value.claim is None


def test_who_finds_a_claim_finds_it_whole(tmp_path: Path) -> None:
    """Eight at once, many times: those who come late always read who came first."""
    taken: list[CaptureClaim | None] = []

    def race(start: threading.Barrier, turn: int) -> None:
        start.wait()
        try:
            take_claim(tmp_path / f"{turn}.json", claim())
        except AlreadyClaimed as error:
            taken.append(error.claim)

    for turn in range(50):
        start = threading.Barrier(8)
        crowd = [threading.Thread(target=race, args=(start, turn)) for _ in range(8)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()
    assert len(taken) == 7 * 50
    assert None not in taken
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"] * 50


FINDING = Finding(kind="capture-failed", severity=Severity.FAIL, message="no room", where="t", next="df -h .")


def journal(folder: Path, worker: str = "gw0", run: str = "r") -> CaptureJournal:
    return CaptureJournal(folder / f"journal-{run}-{worker}.jsonl", worker)


def test_lines_are_there_at_once_and_a_cut_one_is_left_out(tmp_path: Path) -> None:
    one = journal(tmp_path)
    number = one.note("staged", path="s/f/t", node="t", size=5)
    one.note("captured", case=number, path="s/f/t", node="t", size=5)
    with one.path.open("ab") as file:
        file.write(b'{"worker":"gw0","num')
    assert read_journals(tmp_path, "r") == one.entries


def test_only_the_journals_of_one_run_are_read(tmp_path: Path) -> None:
    for run in ("r", "other"):
        journal(tmp_path, run=run).note("captured")
    assert len(read_journals(tmp_path, "r")) == 1


def test_what_the_disk_did_not_take_is_known_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    lost = CaptureJournal(tmp_path / "file" / "journal-r-gw1.jsonl", "gw1")
    lost.note("failed", path="s/f/t", node="t", finding=FINDING)
    assert summarize(merge([], lost.entries)).failed == 1
    assert lost.entries[0].finding == Finding(
        kind="capture-failed", severity=Severity.FAIL, message="no room", path="s/f/t", where="t", next="df -h ."
    )


def test_a_line_counts_once_however_it_came(tmp_path: Path) -> None:
    one, other = journal(tmp_path, "gw0"), journal(tmp_path, "gw1")
    for each in (one, other):
        number = each.note("staged", size=7)
        each.note("captured", case=number, size=7)
    told = summarize(merge(read_journals(tmp_path, "r"), one.entries, other.entries))
    assert (told.captured, told.size) == (2, 14)


def test_names_that_are_no_utf8_are_told_all_the_same(tmp_path: Path) -> None:
    one = journal(tmp_path)
    one.note("failed", node="test_\udcff.py::test", finding=FINDING)
    assert read_journals(tmp_path, "r") == one.entries
    assert one.entries[0].node == "test_\\udcff.py::test"


def test_a_case_that_is_gone_is_not_captured(tmp_path: Path) -> None:
    one = journal(tmp_path)
    for path in ("s/f/here", "s/f/gone"):
        one.note("captured", case=one.note("staged", path=path), path=path, node=path)
    (tmp_path / "s/f/here").mkdir(parents=True)
    (tmp_path / "s/f/here/manifest.json").write_text("{}")
    told = summarize(list(mark_missing(one.entries, tmp_path)))
    assert (told.captured, told.failed) == (1, 1)
    assert "s/f/gone was captured into s/f/gone" in told.findings[0].message


def test_a_case_that_died_with_its_worker_is_dropped(tmp_path: Path) -> None:
    one = journal(tmp_path)
    one.note("staged", path="s/f/t", node="t")
    settled = one.note("staged", path="s/f/u", node="u")
    one.note("note", case=1, finding=FINDING)
    one.note("dropped", case=settled)
    told = summarize(one.entries)
    assert (told.captured, told.dropped, told.failed) == (0, 2, 0)


def test_the_summary_says_what_went_wrong_and_what_to_run_next(tmp_path: Path) -> None:
    one = journal(tmp_path)
    one.note("captured", case=one.note("staged", size=2_000_000), size=2_000_000)
    one.note("failed", finding=FINDING)
    told = summarize(one.entries)
    lines = list(told.lines(Path("/my captures"), strict=False))
    assert lines[0] == "1 case captured into /my captures (2.0 MB), 1 failed"
    assert lines[1:3] == ["fail capture-failed: no room", "     next: df -h ."]
    assert lines[-1] == "Next: karat pack '/my captures'"
    assert not told.is_failure(strict=False)
    assert told.is_failure(strict=True)


def test_a_session_that_fails_is_not_said_to_pass(tmp_path: Path) -> None:
    one = journal(tmp_path)
    one.note("failed", finding=FINDING)
    assert any("does not fail the session" in line for line in summarize(one.entries).lines(tmp_path, strict=False))
    one.note("twice", finding=FINDING)
    told = summarize(one.entries)
    assert (told.twice, told.is_failure(strict=False)) == (1, True)
    assert not any("does not fail the session" in line for line in told.lines(tmp_path, strict=False))


def staged(root: Path, pid: int, *, on: str | None = None) -> Path:
    """A session with one staged case and its claim."""
    books = root / ".karat" / "session"
    name = staging_name("gw0", pid).replace(host(), on or host())
    (books / "staging" / name / "1").mkdir(parents=True)
    claim = CaptureClaim(
        identity=Identity(suite="s", flow="f", test="t"), path="s/f/t", by="t in gw0", host=on or host(), pid=pid
    )
    take_claim(claim_path(books / "claims", "s/f/t"), claim)
    return books


def left(books: Path) -> tuple[int, int]:
    return len(list(books.glob("staging/*"))), len(list(books.glob("claims/*")))


def test_what_a_dead_process_staged_and_claimed_is_gone(tmp_path: Path) -> None:
    books = staged(tmp_path, dead_pid())
    sweep(tmp_path)
    assert left(books) == (0, 0)


def test_a_living_process_keeps_everything(tmp_path: Path) -> None:
    books = staged(tmp_path, os.getpid())
    sweep(tmp_path)
    assert left(books) == (1, 1)


def test_another_machines_processes_cannot_be_judged(tmp_path: Path) -> None:
    books = staged(tmp_path, dead_pid(), on="elsewhere-00000000")
    sweep(tmp_path)
    assert left(books) == (1, 1)


@pytest.mark.parametrize(("days", "kept"), [(6, True), (8, False)])
def test_books_are_kept_for_a_week(tmp_path: Path, days: int, kept: bool) -> None:  # noqa: FBT001
    books = staged(tmp_path, dead_pid(), on="elsewhere-00000000")
    then = time.time() - days * 86400
    for path in (books, *books.rglob("*")):
        os.utime(path, (then, then))
    sweep(tmp_path)
    assert books.exists() is kept


def test_nothing_to_sweep(tmp_path: Path) -> None:
    sweep(tmp_path)
    (tmp_path / ".karat" / "empty").mkdir(parents=True)
    sweep(tmp_path)
    assert (tmp_path / ".karat" / "empty").is_dir()
