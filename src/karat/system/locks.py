"""Locks: `flock`ed files and folders, which the kernel takes back from a process that dies.

Cores and GPUs are locked in a folder of the user, so that two hunts of one user that know nothing of each other never
measure on the same core or GPU. Users do not see each other's. Where a system has no such locks (Windows), whoever needs one is
told so; comparing, checking and linting need none.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from karat.findings import CannotVerify
from karat.system.command import Command
from karat.system.foreign.limits import CLOSED, NO_FOLLOW

try:
    import fcntl
except ImportError:
    _LOCKS = False
else:
    _LOCKS = True


def lock(handle: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file or folder; False if another process holds it and this one does not `wait`."""
    if not _LOCKS:
        said = f"expected a system with file locks (Linux, macOS), found {sys.platform}; on Windows use WSL for what writes goldens"
        raise CannotVerify(said, next_command="karat help platforms")
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def nobody_writes(file: IO[bytes]) -> bool:
    """Whether nobody has a file open for writing; where that cannot be asked, nobody is taken to."""
    if not _LOCKS or not hasattr(fcntl, "F_SETLEASE"):
        return True
    with suppress(OSError):  # a disk without leases, or a file of somebody else
        try:
            # Granted only while nobody can write. Who opens it then is held up, and we are told by a signal: one that does
            # nothing.
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            return False
    return True


def user_id() -> int:
    """The number of this user, as files say whose they are; Windows has none."""
    return os.getuid() if hasattr(os, "getuid") else 0


def hold(path: Path, *, shared: bool = False, wait: bool = False, mode: int = 0o600) -> int | None:
    """A descriptor that holds the lock of a file, which is made if need be, or of a folder.

    None if another process holds it. Closing the descriptor releases it. The file must stay: two processes could lock
    two files of one name.
    """
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | NO_FOLLOW
    handle = os.open(path, flags | CLOSED, mode)
    try:
        held = lock(handle, shared=shared, wait=wait)
    except OSError:
        os.close(handle)
        raise
    if not held:
        os.close(handle)
        return None
    return handle


@contextmanager
def holding(path: Path, *, mode: int = 0o644) -> Iterator[int]:
    """Wait for the lock of a file or folder, and hold it for a while."""
    handle = hold(path, wait=True, mode=mode)
    assert handle is not None, "waited for"  # noqa: S101
    try:
        yield handle
    finally:
        os.close(handle)


def take(path: Path) -> int | None:
    """`hold`, in a folder that is made if need be; CannotVerify where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return hold(path)
    except OSError as error:
        said = f"expected to write and lock {path}, found: {error.strerror or error}"
        raise CannotVerify(said, next_command=Command("ls", "-ld", str(path.parent))) from error


def users_folder() -> Path:
    """The folder for this user's locks on this machine."""
    # Where the variable is not set (cron, sudo), the folder it would name is meant, or two hunts would not see each other.
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user_id()}"
    if os.access(runtime, os.W_OK):
        return Path(runtime) / "karat"
    return own_temporary_folder()


def own_temporary_folder() -> Path:
    """A folder for temporary files that only this user can write to."""
    folder = Path(tempfile.gettempdir()) / f"karat-{user_id()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    # In a folder that everybody may write to, somebody else may have been first.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user_id():
        raise CannotVerify(
            f"{folder} belongs to another user, or is not a folder", next_command=Command("ls", "-ld", str(folder))
        )
    return folder
