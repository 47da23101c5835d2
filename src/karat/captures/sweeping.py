"""Sweeping: what killed sessions left in a capture directory is taken away, and what ended long ago."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path

from karat.captures import claims
from karat.captures.directory import BOOKS

_KEPT_DAYS = 7


def sweep(directory: Path) -> None:
    """Takes away what dead processes had staged, their claims, and books that nobody wrote in for a week."""
    for books in (directory / BOOKS).glob("*/"):
        # Another session may tidy up at the same time.
        with contextlib.suppress(OSError):
            for staging in (books / "staging").glob("*/"):
                _bury(books, staging)
            if _days_since(books) > _KEPT_DAYS:
                shutil.rmtree(books, ignore_errors=True)


def staging_name(worker: str, pid: int) -> str:
    """The folder in which a process stages; it tells whose it is."""
    return f"{claims.host()}.{pid}.{worker}"


def _bury(books: Path, staging: Path) -> None:
    host, _, rest = staging.name.partition(".")
    pid = rest.partition(".")[0]
    if host != claims.host() or not pid.isdigit() or claims.is_alive(int(pid)):
        return
    # Its tests never ended, so none of them passed: the identities are free again.
    for path in (books / "claims").glob("*.json"):
        claim = claims.read(path)
        if claim and (claim.host, claim.pid, claim.state) == (host, int(pid), "staged"):
            claims.withdraw(path)
    shutil.rmtree(staging, ignore_errors=True)


def _days_since(books: Path) -> float:
    """Since anything in it changed."""
    newest = max(path.stat().st_mtime for path in (books, *books.glob("*"), *books.glob("*/*")))
    return (time.time() - newest) / 86400
