from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from karat.findings import CannotVerify, UsageError
from karat.hunts.journal.journal import Journal, archive


@pytest.mark.parametrize("kind", ["text", "database"])
def test_a_file_that_is_no_journal_is_never_moved_nor_is_that_advised(
    tmp_path: Path, kind: str
) -> None:
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
