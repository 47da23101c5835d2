from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from karat.bundles.manifest import Identity
from karat.captures.records import Claim, claim_path, host, staging_name, sweep, take


def dead_pid() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def staged(root: Path, pid: int, *, on: str | None = None) -> Path:
    """A session with one staged case and its claim."""
    books = root / ".karat" / "session"
    name = staging_name("gw0", pid).replace(host(), on or host())
    (books / "staging" / name / "1").mkdir(parents=True)
    claim = Claim(
        identity=Identity(suite="s", flow="f", test="t"),
        path="s/f/t",
        by="t in gw0",
        host=on or host(),
        pid=pid,
    )
    take(claim_path(books / "claims", "s/f/t"), claim)
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
