"""Putting a journal aside: a hunt that begins anew deletes nothing."""

from __future__ import annotations

import shlex
from pathlib import Path

from karat.findings import CannotVerify, UsageError
from karat.hunt.journal import Journal
from karat.hunt.journal_lock import WriterLock
from karat.hunt.journal_opening import is_named_so


def discard(path: Path) -> None:
    """Remove the journal of a hunt that never ran anything."""
    for tail in ("-wal", "-shm", ""):
        path.with_name(f"{path.name}{tail}").unlink(missing_ok=True)


def put_aside(path: Path) -> Path:
    """Rename a journal to `NAME.hunt.1`, `.2`, …; nobody may be at work on it."""
    lock = WriterLock(path)
    lock.release()
    _close(path)
    target = next(
        free
        for number in range(1, 1_000_000)
        if not (free := path.with_name(f"{path.name}.{number}")).exists()
    )
    try:
        for tail in ("-wal", "-shm", ""):
            beside = path.with_name(f"{path.name}{tail}")
            if beside.exists():
                beside.rename(target.with_name(f"{target.name}{tail}"))
    except OSError as error:
        raise CannotVerify(
            f"expected to put {path} aside as {target.name}, but: {error.strerror}",
            next_command=f"ls -ld {shlex.quote(str(path.parent))}",
        ) from error
    return target


def _close(path: Path) -> None:
    """Closing it as its writer leaves one whole file. One that cannot be read is all the more reason to begin anew."""
    try:
        Journal.resume(path).close()
    except CannotVerify as error:
        if is_named_so(path) or path.stat().st_size == 0:
            return
        words = shlex.quote(f"{path.stem}.hunt")
        raise UsageError(
            f"expected the journal of a hunt in {path}, found another file, which was not touched",
            next_command=f"karat hunt run --journal {words}",
        ) from error
