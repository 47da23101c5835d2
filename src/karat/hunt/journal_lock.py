"""One writer per hunt: a lock that the kernel takes back from whoever dies."""

from __future__ import annotations

import fcntl
import os
import shlex
from pathlib import Path

from karat.findings import CannotVerify, UsageError


class WriterLock:
    """Held while a process writes a journal. It lies beside it: SQLite has locks of its own in the file itself."""

    def __init__(self, journal: Path) -> None:
        path = journal.with_name(f"{journal.name}.lock")
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise CannotVerify(
                f"expected to write {path}, but: {error.strerror}",
                next_command=f"ls -ld {shlex.quote(str(path.parent))}",
            ) from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._handle, 64, 0).decode("ascii", "replace").strip()
            os.close(self._handle)
            raise UsageError(
                f"expected to be the only one who hunts into {journal}, found process "
                f"{holder or '(unknown)'} at work on it",
                next_command=f"karat hunt status {shlex.quote(str(journal))}",
            ) from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others write. The file stays: removing it would let two processes lock two files of one name."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def writer_of(journal: Path) -> int | None:
    """The process that writes a journal now; None: nobody does."""
    try:
        handle = os.open(journal.with_name(f"{journal.name}.lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        text = os.pread(handle, 64, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdecimal() else 0
    finally:
        os.close(handle)
    return None
