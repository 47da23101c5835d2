"""The cache: what arrived once and need not be fetched again.

It lies in the user's cache folder, readable by no one else. Every process that uses it holds a
shared lock while it lives; what is too much goes, the least recently used first, when the last of
them leaves. So nothing that anyone is reading is ever deleted. A cache that cannot be used costs
time, never the work: a temporary folder takes its place.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from karat.findings import UsageError
from karat.sources.answers import Answers
from karat.sources.shelf import Shelf

_DEFAULT_MB = 2048
_LAYOUT = "v1"
_LOCK_POLL = 0.05
_LOCK_PATIENCE = 120.0

T = TypeVar("T")


def cache_folder(env: Mapping[str, str]) -> Path:
    """Where the cache lies: KARAT_CACHE_DIR, else karat's part of the user's cache folder."""
    if own := env.get("KARAT_CACHE_DIR"):
        return Path(own)
    base = env.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():  # the standard wants a relative one to be ignored
        return Path(base) / "karat"
    try:
        return Path(env.get("HOME") or "~").expanduser() / ".cache" / "karat"
    except RuntimeError:  # nobody's home, as in some containers
        return Path(tempfile.gettempdir()) / f"karat-{os.geteuid()}"


def cache_limit(env: Mapping[str, str]) -> int:
    """How many bytes may stay in the cache."""
    text = env.get("KARAT_CACHE_MAX_MB") or str(_DEFAULT_MB)
    if not re.fullmatch("[0-9]{1,12}", text):
        raise UsageError(
            f"expected a number of megabytes in KARAT_CACHE_MAX_MB, found {text[:40]!r}",
            next_command="unset KARAT_CACHE_MAX_MB",
        )
    return int(text) << 20


class Cache:
    """One process's use of the cache; `close` it."""

    def __init__(
        self, env: Mapping[str, str], *, notice: Callable[[str], None] | None = None
    ) -> None:
        self._limit = cache_limit(env)
        self._notice = notice or (lambda _: None)
        self._lock = threading.Lock()
        self._temporary: Path | None = None
        self._presence: int | None = None
        self.folder = self._prepare(cache_folder(env))
        self.answers = Answers(self.folder / "answers", _salt(self.folder))

    @contextmanager
    def shelf(self, *key: str, called_off: Callable[[], object] = lambda: None) -> Iterator[Shelf]:
        """The place for one artifact, for one user of it at a time.

        `called_off` is asked while another process has it, and may raise.
        """
        name = _digest(*key)
        lock = self._locked(name, called_off)
        try:
            if lock is None:
                with self.temporary_shelf() as shelf:
                    yield shelf
            else:
                yield Shelf(self.folder / "shelves" / name)
        finally:
            if lock is not None:
                os.close(lock)

    def with_shelf(
        self, key: Sequence[str], work: Callable[[Shelf], T], *, called_off: Callable[[], object]
    ) -> T:
        """What `work` makes on the artifact's shelf, or on a temporary one if the disk has trouble."""
        try:
            with self.shelf(*key, called_off=called_off) as shelf:
                return work(shelf)
        except OSError:
            pass
        # A full or broken cache must not cost the work; there may be room elsewhere.
        with self.temporary_shelf() as shelf:
            return work(shelf)

    @contextmanager
    def temporary_shelf(self) -> Iterator[Shelf]:
        """A place that no other process knows, and that goes when the cache is closed."""
        yield Shelf(self._make_temporary() / os.urandom(8).hex())

    def close(self) -> None:
        """Leaves; whoever is the last also tidies up."""
        if self._presence is not None:
            with suppress(OSError):
                fcntl.flock(self._presence, fcntl.LOCK_UN)
                fcntl.flock(self._presence, fcntl.LOCK_EX | fcntl.LOCK_NB)
                evict(self.folder, self._limit)
            os.close(self._presence)
            self._presence = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _prepare(self, wanted: Path) -> Path:
        try:
            folder = wanted.absolute() / _LAYOUT
            wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            _check_private(folder)
            self._presence = _open_lock(folder / "presence")
            fcntl.flock(self._presence, fcntl.LOCK_SH)
            for part in ("answers", "shelves", "locks"):
                (folder / part).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            if self._presence is not None:
                os.close(self._presence)
                self._presence = None
            self._notice(
                f"the cache in {wanted} cannot be used ({error.strerror or error}); nothing is kept "
                "for the next time"
            )
            return self._make_temporary()
        return folder

    def _make_temporary(self) -> Path:
        with self._lock:
            if self._temporary is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="karat-"))
            return self._temporary

    def _locked(self, name: str, called_off: Callable[[], object]) -> int | None:
        """The lock of a shelf; None if it cannot be had."""
        try:
            (self.folder / "locks").mkdir(mode=0o700, exist_ok=True)
            handle = _open_lock(self.folder / "locks" / name)
        except OSError:
            return None
        for _ in range(int(_LOCK_PATIENCE / _LOCK_POLL)):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOCK_POLL)
            except OSError:
                break
            else:
                return handle
            try:
                called_off()
            except BaseException:
                os.close(handle)
                raise
        os.close(handle)
        return None


def evict(folder: Path, limit: int) -> None:
    """Deletes what was used least recently, until the rest is small enough."""
    units = sorted(_units(folder), reverse=True)
    total = 0
    for _, size, path in units:
        total += size
        if total > limit:
            _remove(path)
    for lock in (folder / "locks").glob("*"):
        if not (folder / "shelves" / lock.name).exists():
            _remove(lock)


def _units(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Everything that is kept or goes as one: when it was used, how large it is, where it lies."""
    for path in [*(folder / "answers").glob("*/*"), *(folder / "shelves").glob("*")]:
        with suppress(OSError):
            parts = [path, *path.iterdir()] if path.is_dir() else [path]
            states = [part.stat() for part in parts]
            yield max(s.st_mtime for s in states), sum(s.st_blocks * 512 for s in states), path


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _check_private(folder: Path) -> None:
    """Raises if someone else could have put things there."""
    state = folder.stat(follow_symlinks=False)
    if state.st_uid != os.geteuid():
        raise PermissionError(0, "it belongs to someone else")
    if state.st_mode & 0o077:
        folder.chmod(0o700)


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _salt(folder: Path) -> bytes:
    """Random bytes of this cache, so that its file names betray neither URL nor token."""
    path = folder / "salt"
    draft = folder / f".{os.urandom(8).hex()}.tmp"
    try:
        if not path.exists() or path.stat().st_size != 32:
            draft.write_bytes(os.urandom(32))
            draft.chmod(0o600)
            draft.replace(path)
        return path.read_bytes()
    except OSError:
        return os.urandom(32)


def _digest(*key: str) -> str:
    return hashlib.sha256("\0".join(key).encode("utf-8", "surrogatepass")).hexdigest()[:40]
