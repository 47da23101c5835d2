from __future__ import annotations

import os
from pathlib import Path

import pytest

from factories.captured import COMPARATOR
from karat.bundles.manifest import Identity
from karat.captures.check import Evidence
from karat.captures.session import Failed, Session


def failed(session: Session, test: str) -> Failed:
    who = Identity(suite="s", flow="f", test=test)
    made = session.stage(
        Evidence(identity=who, inputs=(object(),), expected=1, comparator=COMPARATOR)
    )
    assert isinstance(made, Failed)
    return made


def test_the_next_command_holds_where_pytest_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suite" / "deep").mkdir(parents=True)
    (tmp_path / "suite" / "test_it.py").write_text("")
    monkeypatch.chdir(tmp_path / "suite" / "deep")
    session = Session(tmp_path / "captures", "s", run="r", root=tmp_path)
    monkeypatch.chdir(tmp_path)  # a test may go anywhere
    found = failed(session, "suite/test_it.py::test[a b]").finding
    assert found.next == (
        f"pytest '../test_it.py::test[a b]' --karat-capture={tmp_path / 'captures'} --karat-strict"
    )


def test_a_failure_taken_back_leaves_no_claim(tmp_path: Path) -> None:
    session = Session(tmp_path, "s", run="r", root=tmp_path)
    made = failed(session, "test_a")
    assert made.claimed is not None
    assert made.claimed.exists()
    session.drop(made)
    assert not made.claimed.exists()


def test_a_failure_that_cannot_be_marked_leaves_no_claim_either(tmp_path: Path) -> None:
    session = Session(tmp_path, "s", run="r", root=tmp_path)
    first = failed(session, "test_a").claimed
    assert first is not None
    first.unlink()
    first.with_suffix(f".{os.getpid()}.tmp").mkdir()  # where the mark is written first
    assert failed(session, "test_a").claimed == first
    assert not first.exists()


def test_a_place_that_is_gone_is_told_by_what_is_still_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    session = Session(tmp_path / "file" / "captures", "s", run="r", root=tmp_path)
    assert failed(session, "test_a").finding.next == f"ls -ld {tmp_path / 'file'}"
