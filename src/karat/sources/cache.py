"""The cache: what arrived once and need not be fetched again, one shelf for each artifact.

It lies in the user's cache folder, readable by no one else. Every process that uses it holds a shared lock while it lives;
what is too much goes, the least recently used first, when the last of them leaves. So nothing that anyone is reading is
ever deleted. Nothing is believed without its checksum: what does not match is deleted, and fetched again. A cache that
cannot be used costs time, never the work: a temporary folder takes its place.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from karat.net.client import Answers
from karat.sources.source import Obtained, Wanted
from karat.system.archives import Archive, Member
from karat.system.files import write_bytes
from karat.system.foreign.limits import Limit
from karat.system.hashes import sha256_file, sha256_hex, sha256_text
from karat.system.locks import hold, lock

_RECORD = "record"
_LIMIT = Limit("KARAT_CACHE_MAX_MB", 2048, least=0, unit=1 << 20)
_LAYOUT = "v1"
_LOCK_POLL = 0.05
_LOCK_PATIENCE = 120.0

T = TypeVar("T")


class CachedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file on a shelf, and how to know that it is still whole."""

    file: str
    size: int
    sha256: str


class ShelfRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a shelf holds, and of which version of the artifact."""

    validator: str = ""  # What the server calls this version: a strong ETag, or a date of change.
    names: tuple[str, ...] | None = None  # Every file in the archive; None while its directory has not been read.
    members: dict[str, CachedFile] = msgspec.field(default_factory=dict)
    archive: CachedFile | None = None  # The whole archive, if it was fetched as a whole.


class Shelf:
    """The folder of one artifact; whoever has it holds its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.record = self._load()
        with suppress(OSError):
            os.utime(folder)

    def note(self, record: ShelfRecord) -> None:
        """Remembers, in one step."""
        body = msgspec.json.encode(record)
        data = sha256_hex(body).encode() + b"\n" + body
        write_bytes(self.folder / _RECORD, data, durable=False)
        self.record = record

    def forget(self) -> None:
        """Throws away everything, as the artifact is another now, or what is here is damaged."""
        for path in self.folder.iterdir():
            path.unlink()
        self.record = ShelfRecord()

    def belongs_to(self, validator: str) -> None:
        """Makes sure that all that lies here is of that version."""
        if self.record.validator != validator:
            self.forget()
            self.note(ShelfRecord(validator=validator))

    def part(self, start: int, end: int | None) -> Path:
        """Where a range of the archive grows; `end` None: as much as there is."""
        return self.folder / f"{start}-{'' if end is None else end}.part"

    def drop_parts(self) -> None:
        """Stretches whose members are unpacked are of no more use."""
        for path in self.folder.glob("*.part"):
            with suppress(OSError):
                path.unlink()

    def find(self, kept: CachedFile | None) -> Path | None:
        """A file that is there and whole, or None."""
        if kept is None:
            return None
        path = self.folder / kept.file
        try:
            whole = path.stat().st_size == kept.size and sha256_file(path) == kept.sha256
        except OSError:
            return None
        return path if whole else None

    def keep_archive(self, path: Path, sha256: str) -> Path:
        """The whole archive under the name it keeps."""
        kept = CachedFile(file="archive.zip", size=path.stat().st_size, sha256=sha256)
        final = self.folder / kept.file
        path.replace(final)
        self.note(msgspec.structs.replace(self.record, archive=kept))
        return final

    def keep_member(self, name: str, fill: Callable[[BinaryIO], object]) -> CachedFile:
        """One member, unpacked by `fill` into a file whose name owes nothing to the member's."""
        file = f"{sha256_text(name)[:40]}.member"
        draft = self.folder / f"{file}.tmp"
        with draft.open("wb") as target:
            writer = _Hashing(target)
            fill(writer)  # type: ignore[arg-type]  # it is only written to
        draft.replace(self.folder / file)
        return CachedFile(file=file, size=writer.size, sha256=writer.sha256.hexdigest())

    def here(self, names: Iterable[str]) -> dict[str, CachedFile]:
        """Those members that an earlier process has left, and that are whole."""
        kept = self.record.members
        return {name: kept[name] for name in names if self.find(kept.get(name)) is not None}

    def complete(self, wanted: Wanted) -> Obtained | None:
        """Names and wanted members, if all of them are here from an earlier process."""
        names = self.record.names
        if names is None:
            return None
        chosen = [name for name in names if wanted(name)]
        here = self.here(chosen)
        return (names, self.paths(here)) if len(here) == len(chosen) else None

    def unpack(
        self, archive: Archive, wanted: Wanted, bring: Callable[[list[Member]], bool] | None = None
    ) -> Obtained | None:
        """Names and wanted members, each unpacked once, also if the work is broken off.

        `bring` fetches the bytes of those that are missing; None if it would rather not.
        """
        chosen = archive.wanted(wanted)
        here = self.here([member.name for member in chosen])
        missing = [member for member in chosen if member.name not in here]
        if bring is not None and not bring(missing):
            return None
        fresh: dict[str, CachedFile] = {}
        try:
            for member in missing:
                fill = partial(archive.extract, member)
                fresh[member.name] = self.keep_member(member.name, fill)
        finally:
            self.learn(archive.names, fresh)
        return archive.names, self.paths(here | fresh)

    def learn(self, names: tuple[str, ...], fresh: Mapping[str, CachedFile]) -> None:
        """Remembers all names of the artifact, and more of its members."""
        members = {**self.record.members, **fresh}
        self.note(msgspec.structs.replace(self.record, names=names, members=members))

    def paths(self, kept: Mapping[str, CachedFile]) -> dict[str, Path]:
        """Where members lie, by their names."""
        return {name: self.folder / one.file for name, one in kept.items()}

    def _load(self) -> ShelfRecord:
        try:
            checksum, _, body = (self.folder / _RECORD).read_bytes().partition(b"\n")
            if checksum.decode("ascii", "replace") == sha256_hex(body):
                return msgspec.json.decode(body, type=ShelfRecord)
        except FileNotFoundError:
            return ShelfRecord()
        except (OSError, ValueError, RecursionError):
            pass
        self.record = ShelfRecord()
        self.forget()
        return self.record


class _Hashing:
    """A file being written, and the checksum of what was."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        self.size += len(data)
        return self._file.write(data)


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
    return _LIMIT.value(env)


class Cache:
    """One process's use of the cache; `close` it."""

    def __init__(self, env: Mapping[str, str], *, notice: Callable[[str], None] | None = None) -> None:
        self._limit = cache_limit(env)
        self._notice = notice or (lambda _: None)
        self._lock = threading.Lock()
        self._temporary: Path | None = None
        self._presence: int | None = None
        self.folder = self._prepare(cache_folder(env))
        # Random bytes of this cache, so that its file names betray neither URL nor token.
        path = self.folder / "salt"
        try:
            if not path.exists() or path.stat().st_size != 32:
                write_bytes(path, os.urandom(32), durable=False)
                path.chmod(0o600)
            salt = path.read_bytes()
        except OSError:
            salt = os.urandom(32)
        self.answers = Answers(self.folder / "answers", salt)

    @contextmanager
    def shelf(self, *key: str, called_off: Callable[[], object] = lambda: None) -> Iterator[Shelf]:
        """The place for one artifact, for one user of it at a time.

        `called_off` is asked while another process has it, and may raise.
        """
        name = sha256_text(*key)[:40]
        lock = self._locked(name, called_off)
        try:
            yield self._temporary_shelf() if lock is None else Shelf(self.folder / "shelves" / name)
        finally:
            if lock is not None:
                os.close(lock)

    def with_shelf(self, key: Sequence[str], work: Callable[[Shelf], T], *, called_off: Callable[[], object]) -> T:
        """What `work` makes on the artifact's shelf, or on a temporary one if the disk has trouble."""
        try:
            with self.shelf(*key, called_off=called_off) as shelf:
                return work(shelf)
        except OSError:
            pass
        # A full or broken cache must not cost the work; there may be room elsewhere.
        return work(self._temporary_shelf())

    def _temporary_shelf(self) -> Shelf:
        """A place that no other process knows, and that goes when the cache is closed."""
        return Shelf(self._make_temporary() / os.urandom(8).hex())

    def close(self) -> None:
        """Leaves; whoever is the last also tidies up."""
        if self._presence is not None:
            with suppress(OSError):
                if lock(self._presence):
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
            state = folder.stat(follow_symlinks=False)
            if state.st_uid != os.geteuid():
                raise PermissionError(0, "it belongs to someone else")
            if state.st_mode & 0o077:
                folder.chmod(0o700)
            self._presence = hold(folder / "presence", shared=True, wait=True)
            for part in ("answers", "shelves", "locks"):
                (folder / part).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            if self._presence is not None:
                os.close(self._presence)
                self._presence = None
            self._notice(
                f"the cache in {wanted} cannot be used ({error.strerror or error}); nothing is kept for the next time"
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
        for _ in range(int(_LOCK_PATIENCE / _LOCK_POLL)):
            try:
                (self.folder / "locks").mkdir(mode=0o700, exist_ok=True)
                handle = hold(self.folder / "locks" / name)
            except OSError:
                return None
            if handle is not None:
                return handle
            time.sleep(_LOCK_POLL)
            called_off()
        return None


def evict(folder: Path, limit: int) -> None:
    """Deletes what was used least recently, until the rest is small enough."""
    # Everything that is kept or goes as one: when it was used, how large it is, where it lies.
    units: list[tuple[float, int, Path]] = []
    for path in [*(folder / "answers").glob("*/*"), *(folder / "shelves").glob("*")]:
        with suppress(OSError):
            parts = [path, *path.iterdir()] if path.is_dir() else [path]
            states = [part.stat() for part in parts]
            units.append((max(s.st_mtime for s in states), sum(s.st_blocks * 512 for s in states), path))
    total = 0
    for _, size, path in sorted(units, reverse=True):
        total += size
        if total > limit:
            _remove(path)
    for path in (folder / "locks").glob("*"):
        if not (folder / "shelves" / path.name).exists():
            _remove(path)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
