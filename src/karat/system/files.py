"""Atomic writes: a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Thread

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.system.command import Command
from karat.system.foreign.limits import CLOSED, Limit, read_plain
from karat.system.locks import nobody_writes

_AT_FDCWD, _NO_REPLACE, _EXCHANGE = -100, 1, 2
_PATIENCE = 2.0  # Seconds for whoever is saving a file to finish.
_QUICK = 1e-4  # Seconds that a sync takes where there is no disk to wait for.
_SYNCING = 8  # Threads that wait for the disk.
_waits: dict[int, bool] = {}  # Device → whether its disk is slower than that.


@contextlib.contextmanager
def expecting(what: str, look: str | Path) -> Iterator[None]:
    """An OSError as CannotVerify, in words: expected to do this, but; `look` is the place to look at, or its disk if that is full."""
    try:
        yield
    except OSError as error:
        said = f"expected to {what}, but: {error.strerror or error}"
        words = ("df", "-h") if error.errno in {errno.ENOSPC, errno.EDQUOT} else ("ls", "-ld")
        raise CannotVerify(said, next_command=Command(*words, str(look))) from error


def write_bytes(
    path: str | Path, data: bytes | Iterable[bytes], *, durable: bool = True, workshop: Path | None = None
) -> None:
    """Puts the bytes, whole or in pieces, in place of the file in one step; an OSError is the caller's to word.

    `durable` waits for the disk; a report that a power cut loses can simply be made again. In a
    `workshop` a killed process leaves its half-written file out of sight; if files cannot be moved
    from there (another disk, another mount of the same one), it is done without, and pieces are to be had again.
    """
    _put(Path(path), [data] if isinstance(data, bytes) else data, workshop, Path.replace, durable=durable)


class Displaced(msgspec.Struct, frozen=True):
    """What was saved into a file while it was being replaced."""

    file: Path  # Where it is now.
    data: bytes | None  # Its bytes; None while somebody is still writing to it.


def swap_bytes(path: str | Path, data: bytes, seen: bytes | None, *, workshop: Path | None = None) -> Displaced | None:
    """Puts the bytes in place of a file that still holds `seen` (None: that is not there), and loses no save.

    A file that holds anything else is left alone: CannotVerify. What is saved between that look and the
    exchange of names, or later by whoever had opened the file before, is given back; the caller keeps it.
    Without renameat2 (Linux has it on most disks) a save right between look and rename would be lost.
    """
    target = Path(path)

    def place(name: Path, target: Path) -> None:
        if bytes_of(target) == seen:
            # Gone again, or there now: the look was too early.
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                if not _renameat2(name, target, _NO_REPLACE if seen is None else _EXCHANGE):
                    name.replace(target)
                return
        said = f"expected {target} as it was when it was read, found it saved meanwhile; it was left alone"
        raise CannotVerify(said, next_command=Command("git", "diff", "--", str(target)))

    name = _put(target, [data], workshop, place, durable=True)
    if seen is None or not os.path.lexists(name):
        return None
    displaced = Displaced(name, settled(name))
    if displaced.data != seen:
        return displaced
    name.unlink()
    return None


def take_away(path: Path, workshop: Path) -> Displaced | None:
    """Moves a file out of the way, and gives what it held in the end; None where there is none."""
    name = workshop / f".{path.name[:40]}.{os.urandom(8).hex()}.tmp"
    try:
        try:
            path.rename(name)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            name = path.with_name(name.name)
            path.rename(name)
    except FileNotFoundError:
        return None
    return Displaced(name, settled(name))


def bytes_of(path: Path, limit: Limit | None = None) -> bytes | None:
    """What is in a plain file; None where there is nothing, a folder or a link."""
    try:
        return read_plain(path, limit, follow=False)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR}:
            return None
        raise


def settled(path: Path) -> bytes | None:
    """A file's bytes once nobody has it open for writing; None if somebody has for long, or it is no plain file."""
    if not stat.S_ISREG(path.lstat().st_mode):
        return None
    with path.open("rb") as file:
        end = time.monotonic() + _PATIENCE
        while not nobody_writes(file):
            if time.monotonic() > end:
                return None
            time.sleep(0.005)
        return file.read()


def _put(
    target: Path,
    pieces: Iterable[bytes],
    workshop: Path | None,
    place: Callable[[Path, Path], object],
    *,
    durable: bool,
) -> Path:
    """Writes a temporary file and lets `place` move it; its name, which may now be that of the old file."""
    if target.is_symlink():
        # Replacing the link would leave its target stale, following it could leave the tree.
        raise UsageError(f"expected a plain file at {target}, found a symbolic link; write to what it points at")
    folder = workshop or target.parent
    # As tempfile would, which takes ten times as long to import as this takes to run. Few enough
    # characters of the name that their bytes leave room for the rest.
    name = folder / f".{target.name[:40]}.{os.urandom(8).hex()}.tmp"
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSED, 0o600)
    made = os.fstat(handle)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            try:
                mode = stat.S_IMODE(target.stat().st_mode)
            except FileNotFoundError:  # what a plain `open` would give a new file
                umask = os.umask(0)
                os.umask(umask)
                mode = 0o666 & ~umask
            if hasattr(os, "fchmod"):  # Windows has no modes
                os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        place(name, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            if os.path.samestat(made, name.lstat()):  # it may be the old file by now
                name.unlink()
        if isinstance(error, OSError) and error.errno == errno.EXDEV and workshop is not None:
            return _put(target, pieces, None, place, durable=durable)
        raise
    if durable:
        sync_folder(target.parent)
    return name


def sync_folder(folder: str | Path) -> None:
    """Waits until the disk knows the names in a folder, or has a file."""
    if os.name == "nt":  # opens no folders
        return
    # Without it, a crash may forget the rename although the data is on disk.
    handle = os.open(folder, os.O_RDONLY | CLOSED)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(paths: Sequence[str | Path]) -> None:
    """Waits for the disk for several files and folders at once, which it writes in one go.

    The threads end with it: those of a pool that is kept would be missing in a fork. Where nothing has to be waited
    for, as in memory, there are none.
    """
    left, errors = iter(paths), list[OSError]()

    def work() -> None:
        for path in left:  # a list's iterator gives each to one thread
            try:
                sync_folder(path)
            except OSError as error:
                errors.append(error)

    threads = []
    disk = os.stat(paths[0]).st_dev  # noqa: PTH116 - quicker
    if disk not in _waits:
        # The first of a disk is synced to see whether it makes whoever syncs wait.
        begin = time.perf_counter()
        sync_folder(paths[0])
        _waits[disk] = time.perf_counter() - begin > _QUICK
    if _waits[disk]:
        threads = [Thread(target=work) for _ in range(min(len(paths), _SYNCING) - 1)]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def copy_range(source: int, start: int, target: int, at: int, size: int) -> None:
    """Copies bytes from one open file to another; a disk that can share them does, and nothing is written."""
    end = start + size
    while start < end:
        try:
            count = os.copy_file_range(source, target, end - start, start, at)
        except (OSError, AttributeError) as error:  # between two disks, or on a system without it
            if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}:
                raise
            count = os.pwrite(target, os.pread(source, min(1 << 20, end - start), start), at)
        if not count:
            return  # it is shorter now
        start += count
        at += count


def exchange(one: Path, other: Path) -> None:
    """Two folders of one disk take each other's name. Where the system cannot do it in one step, in three."""
    if _renameat2(one, other, _EXCHANGE):
        return
    aside = one.with_name(f"{one.name}-old{os.urandom(4).hex()}")
    other.rename(aside)
    try:
        one.rename(other)
    except OSError:
        with contextlib.suppress(OSError):  # another was quicker
            aside.rename(other)
        raise
    aside.rename(one)


def _renameat2(one: Path, other: Path, flags: int) -> bool:
    """Rename with flags; False where the system or the disk cannot."""
    if os.name == "nt":
        return False
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number not in {errno.EINVAL, errno.ENOSYS}:
        raise OSError(number, os.strerror(number))
    return False
