"""Bucket: artifacts in object storage, as loose objects or zip archives.

Of a large archive only the end is read first, where it says what it holds, and then the wanted members' bytes alone. A
shelf of the cache belongs to one version of an artifact, so that what an earlier process left is gone on from.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from karat.findings import CannotVerify, UsageError
from karat.net.buckets import is_anonymous, open_objects, parse_address, reason_of
from karat.sources.cache import SMALL, Cache, CachedFile, Shelf
from karat.sources.folder import Folder, Group, StoredFile, group_files
from karat.sources.source import Artifact, Fetched, Listing, Obtained, Progress, TransferProgress, Wanted, fetch_one
from karat.system.archives import Limits, Unusable
from karat.system.foreign.limits import TOTAL, UNPACKED
from karat.system.hashes import sha256_text
from karat.system.names import shown
from karat.system.pool import in_parallel, worker_count

_ATTEMPTS = 3
_CHUNK = 1 << 18
_FILES_AT_ONCE = 8
_NOTE_EVERY = 64
_KINDS = {
    **dict.fromkeys(("NotFoundError", "FileNotFoundError", "PreconditionError"), "artifact-missing"),
    **dict.fromkeys(("PermissionDeniedError", "UnauthenticatedError"), "artifact-forbidden"),
}
"""Obstore's name of an error → the kind of finding."""


def open_bucket(url: str, *, notice: Callable[[str], None] | None = None) -> Bucket | Folder:
    """The source behind `s3://`, `gs://`, `az://` or `file://`."""
    if not url.lower().startswith("file:"):
        return Bucket(url, notice=notice)
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path or parts.query:
        raise UsageError(f"expected file:///PATH, found {url!r}", next_command="karat refresh --help")
    return Folder(unquote(parts.path))


class Bucket:
    """A source in object storage."""

    def __init__(self, url: str, *, limits: Limits | None = None, notice: Callable[[str], None] | None = None) -> None:
        self._address = parse_address(url)
        self._limits = limits or Limits()
        self._workers = worker_count(os.environ)
        self._stopped = threading.Event()
        anonymous = is_anonymous(self._address.scheme, os.environ)
        self._how = " without credentials" if anonymous else ""
        self._store = open_objects(self._address, anonymous=anonymous)
        self._groups: dict[str, Group] = {}  # As the listing found them.
        self._cache = Cache(os.environ, notice=notice)

    def listing(self) -> Listing:
        """Zip archives and folders of loose objects; nothing is read yet."""
        # In a thread: obstore, waiting for a server that is silent, hears no Ctrl-C.
        (groups,) = in_parallel([self._find], 1, stop=self._stopped.set)
        self._groups = {group.id: group for group in groups}
        return Listing(
            source=self._address.scheme, origin=self._address.url, artifacts=tuple(group.artifact() for group in groups)
        )

    def fetch(
        self, artifacts: Sequence[Artifact], wanted: Wanted, progress: Progress | None = None
    ) -> Iterator[Fetched]:
        """The wanted files, several artifacts at a time."""
        tasks = [partial(self._fetched, artifact, wanted, progress) for artifact in artifacts]
        return in_parallel(tasks, self._workers, stop=self._stopped.set)

    def close(self) -> None:
        """Let go of what is not worth keeping."""
        self._stopped.set()
        self._cache.close()

    def _find(self) -> tuple[Group, ...]:
        import obstore

        try:
            found = [
                StoredFile(
                    name=one["path"], size=one["size"], modified=one["last_modified"].timestamp(), tag=one["e_tag"]
                )
                for page in obstore.list(self._store, chunk_size=1000)
                for one in page
            ]
        except Exception as error:  # noqa: BLE001 - obstore's errors share no base with FileNotFoundError
            odd = type(error).__name__ == "InvalidPathError"
            reason = "an object whose name is no plain path" if odd else reason_of(error)
            said = f"expected to list {self._address.url}{self._how}, found {reason}"
            raise CannotVerify(said, next_command=self._address.look) from None
        # A folder may have an empty object of its own.
        folders = {entry.name[:at] for entry in found for at, letter in enumerate(entry.name) if letter == "/"}
        return group_files(one for one in found if one.name and (one.size or one.name not in folders))

    def _fetched(self, artifact: Artifact, wanted: Wanted, progress: Progress | None) -> Fetched:
        group = self._groups.get(artifact.id)

        def obtain(watch: TransferProgress) -> Obtained:
            if group is None:
                raise Unusable("artifact-missing", f"expected it in {self._address.url}, found no such objects")
            # What tells this content of the group from any other.
            version = sha256_text(*(f"{e.name}\0{e.size}\0{e.tag or e.modified}" for e in group.entries))
            with self._cache.shelf("bucket", self._address.url, group.id, version) as shelf:
                if not group.packed:
                    return self._loose(group, wanted, shelf, watch)
                here = shelf.complete(wanted)
                packed = partial(self._packed, group.entries[0], wanted, shelf, watch)
                return shelf.filled_by(packed) if here is None else here

        return fetch_one(artifact, progress, obtain, lambda problem: problem.next_command or self._address.look)

    def _loose(self, group: Group, wanted: Wanted, shelf: Shelf, watch: TransferProgress) -> Obtained:
        """The wanted files, each an object of its own."""
        names = {group.member(entry): entry for entry in group.entries}
        chosen = {name: entry for name, entry in names.items() if wanted(name)}
        for name, entry in chosen.items():
            if entry.size > self._limits.member:
                said = f"{shown(name)} has {entry.size:,} bytes, at most {self._limits.member:,} are allowed; {UNPACKED.setting}"
                raise Unusable("archive-refused", said)
        total = sum(entry.size for entry in chosen.values())
        if total > self._limits.total:
            said = f"its wanted files have {total:,} bytes, at most {self._limits.total:,} are allowed; {TOTAL.setting}"
            raise Unusable("archive-refused", said)
        here = shelf.here(list(chosen))

        def bring(name: str, entry: StoredFile) -> tuple[str, CachedFile]:
            return name, shelf.keep_member(name, partial(self._copy, entry, 0, entry.size, watch))

        tasks = [partial(bring, name, entry) for name, entry in chosen.items() if name not in here]
        watch.begin(sum(entry.size for name, entry in chosen.items() if name not in here))
        fresh: dict[str, CachedFile] = {}
        try:
            for name, kept in in_parallel(tasks, _FILES_AT_ONCE, stop=lambda: None):
                fresh[name] = kept
                if len(fresh) % _NOTE_EVERY == 0:
                    shelf.learn(tuple(names), fresh)
        finally:
            shelf.learn(tuple(names), fresh)
        return shelf.paths(here | fresh)

    def _packed(self, entry: StoredFile, wanted: Wanted, shelf: Shelf, watch: TransferProgress) -> Obtained:
        """An archive's wanted members, by their own bytes where that is less."""

        def byte_range(start: int, end: int) -> Path:
            path = shelf.part(start, end)
            with path.open("ab", buffering=0) as file:  # what is here of them already is not asked for again
                self._copy(entry, start + file.tell(), end, watch, file)
            return path

        found = None
        if entry.size > SMALL:
            found = shelf.unpack_ranges(entry.size, byte_range, self._limits, wanted, watch)
        if found is None:
            watch.begin(entry.size)
            found = shelf.unpack_file(byte_range(0, entry.size), self._limits, wanted)
        return found

    def _copy(
        self, entry: StoredFile, start: int, end: int, watch: TransferProgress, file: RawIOBase | BinaryIO
    ) -> None:
        for chunk in self._read(entry, start, end):
            if self._stopped.is_set():
                raise Unusable("transfer-failed", "expected to be let finish, found a stop")
            file.write(chunk)
            watch.advance(len(chunk))

    def _read(self, entry: StoredFile, start: int, end: int) -> Iterator[bytes]:
        """The bytes from `start` up to `end`; after a cut, the rest is asked for."""
        import obstore

        failures = 0
        while start < end:
            before, problem = start, None
            options: dict[str, Any] = {"range": (start, end)} | ({"if_match": entry.tag} if entry.tag else {})
            try:
                response = obstore.get(self._store, entry.name, options=options)  # type: ignore[arg-type]
                if response.range != (start, end):
                    problem = Unusable("transfer-failed", "expected the range that was asked for, found another")
                for chunk in () if problem else response.stream(min_chunk_size=_CHUNK):
                    start += len(chunk)
                    yield bytes(chunk)
            except Exception as error:  # noqa: BLE001 - as above
                changed = type(error).__name__ == "PreconditionError"
                said = "what was listed, found that it has changed"
                said = said if changed else f"to read it{self._how}, found {reason_of(error)}"
                problem = Unusable(_KINDS.get(type(error).__name__, "transfer-failed"), f"expected {said}")
            failures = int(problem is not None) if start > before else failures + 1
            if problem is not None and problem.kind != "transfer-failed":
                raise problem
            if failures >= _ATTEMPTS:
                raise problem or Unusable("transfer-failed", f"expected {end:,} bytes, found {start:,}")
