"""Bucket: artifacts in object storage, as loose objects or zip archives.

Of a large archive only the end is read first, where it says what it holds, and then the wanted
members' bytes alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote, urlsplit

import msgspec

from karat.findings import UsageError
from karat.sources.archive import Archive, Limits, shown
from karat.sources.bucket_store import BucketAddress, BucketStore, parse_address
from karat.sources.crew import crew_size, in_parallel
from karat.sources.folder import Folder
from karat.sources.layout import Entry, Group, grouped, is_archive
from karat.sources.listing import Artifact, Fetched, Listing, Progress
from karat.sources.ranges import Stretches, coalesced, weight
from karat.sources.scratch import Scratch
from karat.sources.unusable import Unusable

_SMALL = 1 << 18
"""An archive up to this size is read whole: two more requests would take longer."""
_TAIL = 0xFFFF + 22 + 20 + 56
"""Where an archive's end record is, however long its comment."""
_MOST = 0.6
"""If more of an archive than this is wanted, all of it is read."""
_FILES_AT_ONCE = 8

Wanted = Callable[[str], bool]


def open_bucket(url: str) -> Bucket | Folder:
    """The source behind `s3://`, `gs://`, `az://` or `file://`."""
    if not url.lower().startswith("file:"):
        return Bucket(url)
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path or parts.query:
        raise UsageError(
            f"expected file:///PATH, found {url!r}", next_command="karat refresh --help"
        )
    return Folder(unquote(parts.path))


class Bucket:
    """A source in object storage."""

    def __init__(self, url: str, *, limits: Limits | None = None) -> None:
        self._address = parse_address(url)
        self._limits = limits or Limits()
        self._workers = crew_size(os.environ)
        self._scratch = Scratch()
        self._stopped = threading.Event()
        self._store: BucketStore | None = None
        self._groups: dict[str, Group] = {}

    def listing(self) -> Listing:
        """Zip archives and folders of loose objects; nothing is read yet."""
        groups = self._find()
        self._groups = {group.id: group for group in groups}
        return Listing(
            source=self._address.scheme,
            origin=self._address.url,
            artifacts=tuple(group.artifact() for group in groups),
        )

    def fetch(
        self, artifacts: Sequence[Artifact], wanted: Wanted, progress: Progress | None = None
    ) -> Iterator[Fetched]:
        """The wanted files, several artifacts at a time."""
        if self._store is None:
            self.listing()

        def task(artifact: Artifact) -> Callable[[], Fetched]:
            return lambda: self._fetched(artifact, wanted, progress)

        return in_parallel(
            [task(artifact) for artifact in artifacts], self._workers, stop=self._stopped.set
        )

    def close(self) -> None:
        """Delete what was brought here."""
        self._stopped.set()
        self._scratch.close()

    def _find(self) -> tuple[Group, ...]:
        """What is there; a prefix may also be the name of one archive."""
        address = self._address
        if is_archive(address.prefix):
            folder, _, name = address.prefix.rpartition("/")
            above = BucketAddress(scheme=address.scheme, bucket=address.bucket, prefix=folder)
            self._store = BucketStore(above)
            entry = self._store.entry(name)
            if entry is not None:
                return grouped([entry])
        self._store = BucketStore(address)
        return grouped(self._store.entries())

    def _fetched(self, artifact: Artifact, wanted: Wanted, progress: Progress | None) -> Fetched:
        watch = _Watch(artifact, progress)
        watch.begin()
        try:
            names, members = self._obtained(artifact, wanted, watch)
        except Unusable as error:
            problem = error
        except OSError as error:
            problem = Unusable(
                "transfer-failed",
                f"expected room on this disk for what arrives, found {error.strerror or error}",
                next_command="df -h",
            )
        else:
            return Fetched(artifact=artifact, names=names, members=members, received=watch.received)
        finally:
            watch.end()
        finding = problem.finding(artifact.name)
        return Fetched(artifact=artifact, findings=(finding,), received=watch.received)

    def _obtained(
        self, artifact: Artifact, wanted: Wanted, watch: _Watch
    ) -> tuple[tuple[str, ...], dict[str, Path]]:
        group = self._groups.get(artifact.id)
        if group is None or self._store is None:
            where = self._address.url
            raise Unusable("artifact-missing", f"expected it in {where}, found no such objects")
        bring = _Bring(self._store, self._scratch, self._stopped, watch)
        if group.packed:
            return _unpacked(bring, group.entries[0], wanted, self._limits)
        return _loose(bring, group, wanted, self._limits)


class _Watch:
    """Counts what comes, and tells whoever watches; several threads may bring one artifact."""

    def __init__(self, artifact: Artifact, progress: Progress | None) -> None:
        self._artifact = artifact
        self._progress = progress
        self._lock = threading.Lock()
        self.received = 0

    def begin(self) -> None:
        if self._progress is not None:
            self._progress.begin(self._artifact, None)

    def advance(self, count: int) -> None:
        with self._lock:
            self.received += count
        if self._progress is not None:
            self._progress.advance(self._artifact, count)

    def end(self) -> None:
        if self._progress is not None:
            self._progress.end(self._artifact)


class _Bring(msgspec.Struct, frozen=True):
    """Brings stretches of objects to this disk."""

    store: BucketStore
    scratch: Scratch
    stopped: threading.Event
    watch: _Watch

    def __call__(self, entry: Entry, start: int, end: int) -> Path:
        path = self.scratch.new()
        with path.open("xb") as file:
            for chunk in self.store.read(entry, start, end):
                if self.stopped.is_set():
                    raise Unusable("transfer-failed", "expected to be let finish, found a stop")
                file.write(chunk)
                self.watch.advance(len(chunk))
        return path


def _unpacked(
    bring: _Bring, entry: Entry, wanted: Wanted, limits: Limits
) -> tuple[tuple[str, ...], dict[str, Path]]:
    """Names and wanted members of an archive, by their own bytes where that is less."""
    parts: list[Path] = []

    def stretch(start: int, end: int) -> Path:
        parts.append(bring(entry, start, end))
        return parts[-1]

    tail = 0 if entry.size <= _SMALL else entry.size - _TAIL
    try:
        with closing(Stretches(entry.size, stretch)) as remote:
            remote.add(tail, entry.size)
            archive = Archive(cast("BinaryIO", remote), limits)
            for span in _spans(archive, wanted, tail):
                remote.add(*span)
            return archive.names, bring.scratch.unpack(archive, wanted)
    finally:
        for part in parts:
            part.unlink()


def _spans(archive: Archive, wanted: Wanted, tail: int) -> list[tuple[int, int]]:
    """What of an archive is still to be brought, if everything from `tail` on is here."""
    missing = [member for member in archive.wanted(wanted) if member.start < tail]
    spans = coalesced((member.start, min(member.end, tail)) for member in missing)
    return [(0, tail)] if weight(spans) > _MOST * tail else spans


def _loose(
    bring: _Bring, group: Group, wanted: Wanted, limits: Limits
) -> tuple[tuple[str, ...], dict[str, Path]]:
    """Names and wanted objects of a folder."""
    names = {group.member(entry): entry for entry in group.entries}
    chosen = {name: entry for name, entry in names.items() if wanted(name)}
    _check_sizes(chosen, limits)

    def task(name: str, entry: Entry) -> Callable[[], tuple[str, Path]]:
        return lambda: (name, bring(entry, 0, entry.size))

    tasks = [task(name, entry) for name, entry in chosen.items()]
    return tuple(names), dict(in_parallel(tasks, _FILES_AT_ONCE, stop=lambda: None))


def _check_sizes(chosen: Mapping[str, Entry], limits: Limits) -> None:
    for name, entry in chosen.items():
        if entry.size > limits.member:
            raise Unusable(
                "archive-refused",
                f"{shown(name)} has {entry.size:,} bytes, at most {limits.member:,} are allowed",
            )
    total = sum(entry.size for entry in chosen.values())
    if total > limits.total:
        raise Unusable(
            "archive-refused",
            f"its wanted files have {total:,} bytes, at most {limits.total:,} are allowed",
        )
