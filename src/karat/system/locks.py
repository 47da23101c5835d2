"""Locks: what this process has for itself on this machine; a killed process has let go of it.

`flock`ed files: areas beside the area, cores and GPUs in a folder of the user, so that two hunts of one user that know
nothing of each other never measure on the same core or GPU. Users do not see each other's.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from pathlib import Path

from karat.findings import CannotVerify


def take(path: Path) -> int | None:
    """A descriptor that holds the lock, or None while somebody else does."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _cannot_lock(path, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError as error:
        os.close(handle)
        raise _cannot_lock(path, error) from error
    return handle


def _cannot_lock(path: Path, error: OSError) -> CannotVerify:
    return CannotVerify(
        f"expected to write and lock {path}, found: {error.strerror or error}",
        next_command=f"ls -ld {path.parent}",
    )


def users_folder() -> Path:
    """Where locks of this user on this machine are."""
    # Where the variable is not set (cron, sudo), the folder it would name is meant, or two hunts would not see each other.
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if os.access(runtime, os.W_OK):
        return Path(runtime) / "karat"
    return own_temporary_folder()


def own_temporary_folder() -> Path:
    """A folder of this user, and of nobody else, where temporary files are."""
    folder = Path(tempfile.gettempdir()) / f"karat-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    # In a folder that everybody may write to, somebody else may have been first.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise CannotVerify(
            f"expected {folder} to be a folder of this user, found one of somebody else",
            next_command=f"ls -ld {folder}",
        )
    return folder
