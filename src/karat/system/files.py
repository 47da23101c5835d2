"""Atomic writes: a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from karat.findings import UsageError

_AT_FDCWD, _EXCHANGE = -100, 2


def write_bytes(path: str | Path, data: bytes, *, durable: bool = True, workshop: Path | None = None) -> None:
    """Puts the bytes in place of the file in one step; an OSError is the caller's to word.

    `durable` waits for the disk; a report that a power cut loses can simply be made again. In a
    `workshop` a killed process leaves its half-written file out of sight; if files cannot be moved
    from there (another disk, another mount of the same one), it is done without.
    """
    target = Path(path)
    if target.is_symlink():
        # Replacing the link would leave its target stale, following it could leave the tree.
        raise UsageError(f"expected a plain file at {target}, found a symbolic link; write to what it points at")
    if workshop is not None:
        try:
            _replace(target, data, workshop, durable=durable)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            return
    _replace(target, data, target.parent, durable=durable)


def _replace(target: Path, data: bytes, folder: Path, *, durable: bool) -> None:
    # As tempfile would, which takes ten times as long to import as this takes to run. Few enough
    # characters of the name that their bytes leave room for the rest.
    name = folder / f".{target.name[:40]}.{os.urandom(8).hex()}.tmp"
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            try:
                mode = stat.S_IMODE(target.stat().st_mode)
            except FileNotFoundError:  # what a plain `open` would give a new file
                umask = os.umask(0)
                os.umask(umask)
                mode = 0o666 & ~umask
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        name.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            name.unlink()
        raise
    if durable:
        sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Waits until the disk knows the names in a folder."""
    # Without it, a crash may forget the rename although the data is on disk.
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def exchange(one: Path, other: Path) -> None:
    """Two folders of one disk take each other's name. Where the system cannot do it in one step, in three."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        names = (os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE)
        if libc.renameat2(_AT_FDCWD, *names) == 0:
            return
        number = ctypes.get_errno()
        if number not in {errno.EINVAL, errno.ENOSYS}:
            raise OSError(number, os.strerror(number))
    aside = one.with_name(f"{one.name}-old{os.urandom(4).hex()}")
    other.rename(aside)
    try:
        one.rename(other)
    except OSError:
        with contextlib.suppress(OSError):  # another was quicker
            aside.rename(other)
        raise
    aside.rename(one)
