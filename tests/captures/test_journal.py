from __future__ import annotations

from pathlib import Path

from karat.captures.pytest_session import tell
from karat.captures.records import Journal, merged, read_journals, still_there
from karat.findings import Finding, Severity

FINDING = Finding(
    kind="capture-failed", severity=Severity.FAIL, message="no room", where="t", next="df -h ."
)


def journal(folder: Path, worker: str = "gw0", run: str = "r") -> Journal:
    return Journal(folder / f"journal-{run}-{worker}.jsonl", worker)


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
    lost = Journal(tmp_path / "file" / "journal-r-gw1.jsonl", "gw1")
    lost.note("failed", path="s/f/t", node="t", finding=FINDING)
    assert tell(merged([], lost.entries)).failed == 1
    assert lost.entries[0].finding() == Finding(
        kind="capture-failed",
        severity=Severity.FAIL,
        message="no room",
        path="s/f/t",
        where="t",
        next="df -h .",
    )


def test_a_line_counts_once_however_it_came(tmp_path: Path) -> None:
    one, other = journal(tmp_path, "gw0"), journal(tmp_path, "gw1")
    for each in (one, other):
        number = each.note("staged", size=7)
        each.note("captured", case=number, size=7)
    told = tell(merged(read_journals(tmp_path, "r"), one.entries, other.entries))
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
    told = tell(list(still_there(one.entries, tmp_path)))
    assert (told.captured, told.failed) == (1, 1)
    assert "s/f/gone was captured into s/f/gone" in told.findings[0].message


def test_a_case_that_died_with_its_worker_is_dropped(tmp_path: Path) -> None:
    one = journal(tmp_path)
    one.note("staged", path="s/f/t", node="t")
    settled = one.note("staged", path="s/f/u", node="u")
    one.note("note", case=1, finding=FINDING)
    one.note("dropped", case=settled)
    told = tell(one.entries)
    assert (told.captured, told.dropped, told.failed) == (0, 2, 0)


def test_the_summary_says_what_went_wrong_and_what_to_run_next(tmp_path: Path) -> None:
    one = journal(tmp_path)
    one.note("captured", case=one.note("staged", size=2_000_000), size=2_000_000)
    one.note("failed", finding=FINDING)
    told = tell(one.entries)
    lines = list(told.lines(Path("/my captures"), strict=False))
    assert lines[0] == "1 case captured into /my captures (2.0 MB), 1 failed"
    assert lines[1:3] == ["fail capture-failed: no room", "     next: df -h ."]
    assert lines[-1] == "Next: karat pack '/my captures'"
    assert not told.is_failure(strict=False)
    assert told.is_failure(strict=True)


def test_a_session_that_fails_is_not_said_to_pass(tmp_path: Path) -> None:
    one = journal(tmp_path)
    one.note("failed", finding=FINDING)
    assert any("is not failed" in line for line in tell(one.entries).lines(tmp_path, strict=False))
    one.note("twice", finding=FINDING)
    told = tell(one.entries)
    assert (told.twice, told.is_failure(strict=False)) == (1, True)
    assert not any("is not failed" in line for line in told.lines(tmp_path, strict=False))
