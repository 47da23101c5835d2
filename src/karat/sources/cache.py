"""The cache: what arrived once and need not be fetched again, one shelf for each artifact.

It lies in the user's cache folder, readable by no one else. Every process that uses it holds a shared lock while it lives;
what is too much goes, the least recently used first, when the last of them leaves. So nothing that anyone is reading is
ever deleted. Nothing is believed without its checksum: what does not match is deleted, and fetched again. A folder that
cannot be used costs time, never the work: a temporary one takes its place.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from karat.net.client import Answers
from karat.sources.source import Obtained, TransferProgress, Wanted
from karat.system.archives import DAMAGE, Archive, Limits, Member, Unusable
from karat.system.files import write_bytes
from karat.system.foreign.limits import Limit
from karat.system.hashes import sealed, sha256_file, sha256_text, unsealed
from karat.system.locks import hold, holding, lock, user_id

_RECORD = "record"
LIMIT = Limit("KARAT_CACHE_MAX_MB", 2048, least=0, unit=1 << 20)
_LAYOUT = "v1"
TAIL = 1 << 13
SMALL = 1 << 19  # An archive of up to this many bytes is fetched whole: another round trip would take longer.
_MOST = 0.7  # If more than this part of an archive is wanted, it may as well come whole.
# A neighbour this close costs less to fetch along than another request would.
_GAP = 1 << 16
_MOST_SPANS = 8

Span = tuple[int, int]  # A range of bytes: its start, and the first place after it.


class Changed(Unusable):
    """The artifact is not the one whose first bytes are here."""

    def __init__(self) -> None:
        super().__init__("transfer-failed", "expected one version of it, found another at every request")


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


class Shelf:
    """The folder of one artifact; whoever has it holds its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.record = ShelfRecord()
        try:
            with suppress(FileNotFoundError):
                self.record = msgspec.json.decode(unsealed((folder / _RECORD).read_bytes()), type=ShelfRecord)
        except (OSError, ValueError, RecursionError):
            self.forget()
        with suppress(OSError):
            os.utime(folder)

    def note(self, record: ShelfRecord) -> None:
        """Remembers, in one step."""
        write_bytes(self.folder / _RECORD, sealed(msgspec.json.encode(record)), durable=False)
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

    def keep_member(self, name: str, fill: Callable[[BinaryIO], object]) -> CachedFile:
        """One member, unpacked by `fill` into a file whose name owes nothing to the member's."""
        path = self.folder / f"{sha256_text(name)[:40]}.member"
        draft = path.with_suffix(".tmp")
        with draft.open("wb") as target:
            fill(target)
        draft.replace(path)
        return CachedFile(file=path.name, size=path.stat().st_size, sha256=sha256_file(path))

    def is_whole(self, kept: CachedFile) -> bool:
        path = self.folder / kept.file
        try:
            return path.stat().st_size == kept.size and sha256_file(path) == kept.sha256
        except OSError:
            return False

    def here(self, names: Iterable[str]) -> dict[str, CachedFile]:
        """Those members that an earlier process has left, and that are whole."""
        kept = self.record.members
        return {name: kept[name] for name in names if name in kept and self.is_whole(kept[name])}

    def complete(self, wanted: Wanted) -> Obtained | None:
        """The wanted members, if all of them are here from an earlier process."""
        if self.record.names is None:
            return None
        chosen = [name for name in self.record.names if wanted(name)]
        here = self.here(chosen)
        return self.paths(here) if len(here) == len(chosen) else None

    def unpack(
        self, archive: Archive, wanted: Wanted, bring: Callable[[list[Member]], bool] | None = None
    ) -> Obtained | None:
        """The wanted members, each unpacked once, also if the work is broken off.

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
                fresh[member.name] = self.keep_member(member.name, partial(archive.extract, member))
        finally:
            self.learn(archive.names, fresh)
        return self.paths(here | fresh)

    def unpack_file(self, path: Path, limits: Limits, wanted: Wanted) -> Obtained:
        """The wanted members of an archive that has come whole."""
        with path.open("rb") as file:
            found = self.unpack(Archive(file, limits), wanted)
        assert found is not None, "nothing was to be brought"  # noqa: S101
        self.drop_parts()
        return found

    def unpack_ranges(
        self, size: int, byte_range: Callable[[int, int], Path], limits: Limits, wanted: Wanted, watch: TransferProgress
    ) -> Obtained | None:
        """The wanted members of an archive elsewhere, by their own bytes; None if they are most of it.

        Its end comes first: there stands what it holds.
        """
        with closing(RangeFile(size, byte_range)) as remote:
            tail = max(0, size - TAIL)
            remote.add(tail, size)

            def bring(missing: list[Member]) -> bool:
                before = [member for member in missing if member.start < tail]
                spans = merge_spans((member.start, min(member.end, tail)) for member in before)
                if span_bytes(spans) > _MOST * size:
                    return False
                watch.begin(watch.received + span_bytes(spans))
                for span in spans:
                    remote.add(*span)
                return True

            found = self.unpack(Archive(cast("BinaryIO", remote), limits), wanted, bring)
        if found is not None:
            self.drop_parts()
        return found

    def filled_by(self, fetch: Callable[[], Obtained]) -> Obtained:
        """What `fetch` brings; once more from nothing where what lay here, or what came, is damaged or another version's."""
        try:
            return fetch()
        except Unusable as error:
            damaged = error.kind in DAMAGE or isinstance(error, Changed)
            if damaged or error.kind == "archive-refused":
                self.forget()  # of other trouble, what came stays for the next time
            if not damaged:
                raise
        return fetch()

    def learn(self, names: tuple[str, ...], fresh: Mapping[str, CachedFile]) -> None:
        """Remembers all names of the artifact, and more of its members."""
        members = {**self.record.members, **fresh}
        self.note(msgspec.structs.replace(self.record, names=names, members=members))

    def paths(self, kept: Mapping[str, CachedFile]) -> dict[str, Path]:
        return {name: self.folder / one.file for name, one in kept.items()}


class RangeFile(io.RawIOBase):
    """A file of `size` bytes; what is missing is brought when it is read."""

    def __init__(self, size: int, bring: Callable[[int, int], Path]) -> None:
        self._size, self._bring = size, bring
        self._position = 0
        self._here: list[tuple[int, int, BinaryIO]] = []

    def add(self, start: int, end: int) -> None:
        """Brings one range now."""
        if end > start:
            self._here.append((start, end, self._bring(start, end).open("rb")))

    def close(self) -> None:
        for _, _, file in self._here:
            file.close()
        self._here.clear()
        super().close()

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("a place before the start of the file")
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """As many bytes as the file has: readers of archives count on whole reads."""
        end = self._size if size < 0 else min(self._position + size, self._size)
        pieces = []
        while self._position < end:
            pieces.append(self._read_some(self._position, end))
            self._position += len(pieces[-1])
        return b"".join(pieces)

    def _read_some(self, start: int, end: int) -> bytes:
        for first, last, file in self._here:
            if first <= start < last:
                file.seek(start - first)
                piece = file.read(min(end, last) - start)
                if not piece:
                    raise EOFError("a range is shorter than it was")
                return piece
        following = min((first for first, _, _ in self._here if first > start), default=end)
        self.add(start, min(end, following))
        return self._read_some(start, end)


def merge_spans(spans: Iterable[Span], *, gap: int = _GAP, most: int = _MOST_SPANS) -> list[Span]:
    """Stretches that cover all spans: near neighbours become one, and there are at most `most`."""
    joined: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined if len(joined) <= most else merge_spans(joined, gap=max(1, gap * 2), most=most)


def span_bytes(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)


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
        return Path(tempfile.gettempdir()) / f"karat-{user_id()}"


class Cache:
    """One process's use of the cache; `close` it."""

    def __init__(self, env: Mapping[str, str], *, notice: Callable[[str], None] | None = None) -> None:
        self._limit = LIMIT.value(env)
        self._presence: int | None = None
        self._is_temporary = False
        wanted = cache_folder(env)
        try:
            self.folder = self._own(wanted.absolute() / _LAYOUT)
        except OSError as error:
            if notice is not None:
                why = error.strerror or error
                notice(f"the cache in {wanted} cannot be used ({why}); nothing is kept for the next time")
            self.folder, self._is_temporary = Path(tempfile.mkdtemp(prefix="karat-")), True
        for part in ("answers", "shelves", "locks"):
            (self.folder / part).mkdir(mode=0o700, exist_ok=True)
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
    def shelf(self, *key: str) -> Iterator[Shelf]:
        """The place for one artifact, for one user of it at a time."""
        name = sha256_text(*key)[:40]
        with holding(self.folder / "locks" / name, mode=0o600):
            yield Shelf(self.folder / "shelves" / name)

    def close(self) -> None:
        """Leaves; whoever is the last also tidies up."""
        if self._presence is not None:
            with suppress(OSError):
                if lock(self._presence):
                    evict(self.folder, self._limit)
            os.close(self._presence)
            self._presence = None
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _own(self, folder: Path) -> Path:
        """The folder, for this user alone; an OSError if it cannot be had."""
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.stat(follow_symlinks=False)
        if state.st_uid != user_id():
            raise PermissionError(0, "it belongs to someone else")
        if state.st_mode & 0o077:
            folder.chmod(0o700)
        self._presence = hold(folder / "presence", shared=True, wait=True)
        return folder


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
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):  # it was a file, or is gone
                path.unlink()
    for path in (folder / "locks").glob("*"):
        if not (folder / "shelves" / path.name).exists():
            with suppress(OSError):
                path.unlink()
