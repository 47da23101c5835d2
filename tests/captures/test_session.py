"""None"""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from factories.captured import COMPARATOR
from karat.bundles.manifest import Identity
from karat.captures.check import CaseToCapture
from karat.captures.session import FailedCase, Occupied, SameSession, Session, publish


def failed(session: Session, test: str) -> FailedCase:
    who = Identity(suite="s", flow="f", test=test)
    made = session.stage(CaseToCapture(identity=who, inputs=(object(),), expected=1, comparator=COMPARATOR))
    assert isinstance(made, FailedCase)
    return made


def test_the_next_command_holds_where_pytest_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suite" / "deep").mkdir(parents=True)
    (tmp_path / "suite" / "test_it.py").write_text("")
    monkeypatch.chdir(tmp_path / "suite" / "deep")
    session = Session(tmp_path / "captures", "s", run="r", root=tmp_path)
    monkeypatch.chdir(tmp_path)  # a test may go anywhere
    found = failed(session, "suite/test_it.py::test[a b]").finding
    assert found.next == (f"pytest '../test_it.py::test[a b]' --karat-capture={tmp_path / 'captures'} --karat-strict")


def test_a_failure_taken_back_leaves_no_claim(tmp_path: Path) -> None:
    session = Session(tmp_path, "s", run="r", root=tmp_path)
    made = failed(session, "test_a")
    assert made.claimed is not None
    assert made.claimed.exists()
    session.drop(made)
    assert not made.claimed.exists()


def test_a_failure_that_cannot_be_marked_leaves_no_claim_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    session = Session(tmp_path, "s", run="r", root=tmp_path)
    first = failed(session, "test_a").claimed
    assert first is not None
    first.unlink()
    monkeypatch.setattr("karat.captures.records.update_claim", full)  # of the mark alone
    assert failed(session, "test_a").claimed == first
    assert not first.exists()


def test_a_place_that_is_gone_is_told_by_what_is_still_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    session = Session(tmp_path / "file" / "captures", "s", run="r", root=tmp_path)
    assert failed(session, "test_a").finding.next == f"ls -ld {tmp_path / 'file'}"


def staged(root: Path, session: str, text: str = "new") -> Path:
    folder = root / ".karat" / "staging" / text
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(f'{{"session": "{session}", "more": 1}}')
    (folder / "data").write_text(text)
    return folder


def test_a_case_moves_into_place_whole(tmp_path: Path) -> None:
    folder = staged(tmp_path, "a")
    publish(folder, tmp_path / "s" / "f" / "c", "a")
    assert (tmp_path / "s" / "f" / "c" / "data").read_text() == "new"
    assert not folder.exists()


def test_an_earlier_sessions_case_makes_room(tmp_path: Path) -> None:
    target = tmp_path / "s" / "f" / "c"
    publish(staged(tmp_path, "a", "old"), target, "a")
    (target / "extra").write_text("only the old case had it")
    publish(staged(tmp_path, "b"), target, "b")
    assert sorted(p.name for p in target.iterdir()) == ["data", "manifest.json"]
    assert (target / "data").read_text() == "new"
    assert list((tmp_path / ".karat" / "staging").iterdir()) == []


def test_a_damaged_case_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "c"
    target.mkdir()
    (target / "manifest.json").write_text('{"session": "a')
    publish(staged(tmp_path, "a"), target, "a")
    assert (target / "data").read_text() == "new"


def test_the_same_sessions_case_stays(tmp_path: Path) -> None:
    target = tmp_path / "c"
    publish(staged(tmp_path, "a", "first"), target, "a")
    with pytest.raises(SameSession):
        publish(staged(tmp_path, "a", "second"), target, "a")
    assert (target / "data").read_text() == "first"


@pytest.mark.slow
def test_sessions_that_publish_one_case_at_the_same_time_all_succeed(tmp_path: Path) -> None:
    target = tmp_path / "s" / "f" / "c"

    def publish_often(name: str) -> None:
        for number in range(60):
            root = tmp_path / f"{name}{number}"
            root.mkdir()
            publish(staged(root, root.name), target, root.name)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(publish_often, "abcd"))
    assert sorted(path.name for path in target.iterdir()) == ["data", "manifest.json"]
    assert [path.name for path in target.parent.iterdir()] == ["c"]
    assert [path for path in tmp_path.glob("*/*") if "staged" in path.name] == []


def test_what_is_no_case_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    folder = staged(tmp_path, "a")
    for name in ("file", "folder", "link"):
        with pytest.raises(Occupied, match="expected a case or nothing at"):
            publish(folder, tmp_path / name, "a")
    assert (tmp_path / "file").read_text() == "mine"
    assert (tmp_path / "link").is_symlink()
    assert (folder / "data").is_file()
