"""Bucket: artifacts in object storage, as loose objects or zip archives.

Of a large archive only the end is read first, where it says what it holds, and then the wanted members' bytes alone. A
shelf of the cache belongs to one version of an artifact, so that what an earlier process left is gone on from.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import unquote, urlsplit

from karat.findings import UsageError
from karat.net.buckets import BucketAddress, BucketStore, StoredFile, parse_address
from karat.sources.cache import Cache, CachedFile, Shelf
from karat.sources.download import RangeFile, merge_spans, span_bytes
from karat.sources.folder import Folder, Group, group_files, is_archive
from karat.sources.source import Artifact, Fetched, Listing, Obtained, Progress, TransferProgress, Wanted, fetch_one
from karat.system.archives import DAMAGE, Archive, Limits, Member, Unusable
from karat.system.foreign.limits import TOTAL, UNPACKED
from karat.system.hashes import sha256_text
from karat.system.names import shown
from karat.system.pool import in_parallel, worker_count

_SMALL = 1 << 18  # an archive up to this size is read whole: two more requests would take longer
_TAIL = 0xFFFF + 22 + 20 + 56  # where an archive's end record is, however long its comment
_MOST = 0.6  # if more of an archive than this is wanted, all of it is read
_FILES_AT_ONCE = 8
_NOTE_EVERY = 64


def version(group: Group) -> str:
    """What tells this content of a group from any other."""
    return sha256_text(*(f"{e.name}\0{e.size}\0{e.tag or e.modified}" for e in group.entries))


class BucketFetch:
    """Brings one artifact to a shelf."""

    def __init__(
        self,
        store: BucketStore,
        shelf: Shelf,
        limits: Limits,
        watch: TransferProgress,
        check_stopped: Callable[[], None],
    ) -> None:
        self._store, self._shelf = store, shelf
        self._limits, self._watch, self._check_stopped = limits, watch, check_stopped

    def obtain(self, group: Group, wanted: Wanted) -> Obtained:
        """Names and wanted files; what an earlier process left is doubted before the server is."""
        if not group.packed:
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
            here = self._shelf.here(list(chosen))
            tasks = [partial(self._file, name, entry) for name, entry in chosen.items() if name not in here]
            self._watch.begin(sum(e.size for name, e in chosen.items() if name not in here))
            fresh: dict[str, CachedFile] = {}
            try:
                for name, kept in in_parallel(tasks, _FILES_AT_ONCE, stop=lambda: None):
                    fresh[name] = kept
                    if len(fresh) % _NOTE_EVERY == 0:
                        self._shelf.learn(tuple(names), fresh)
            finally:
                self._shelf.learn(tuple(names), fresh)
            return tuple(names), self._shelf.paths(here | fresh)
        leftovers = any(self._shelf.folder.iterdir())
        try:
            return self._packed(group.entries[0], wanted)
        except Unusable as error:
            if error.kind in DAMAGE:
                self._shelf.forget()
            if not leftovers or error.kind not in DAMAGE:
                raise
        return self._packed(group.entries[0], wanted)

    def _packed(self, entry: StoredFile, wanted: Wanted) -> Obtained:
        """An archive's wanted members, by their own bytes where that is less."""
        if (found := self._shelf.complete(wanted)) is not None:
            return found
        tail = 0 if entry.size <= _SMALL else entry.size - _TAIL
        with closing(RangeFile(entry.size, partial(self._byte_range, entry))) as remote:
            remote.add(tail, entry.size)

            def bring(missing: list[Member]) -> bool:
                before = [member for member in missing if member.start < tail]
                spans = merge_spans((member.start, min(member.end, tail)) for member in before)
                if span_bytes(spans) > _MOST * tail:
                    spans = [(0, tail)]
                self._watch.begin(self._watch.received + span_bytes(spans))
                for span in spans:
                    remote.add(*span)
                return True

            archive = Archive(cast("BinaryIO", remote), self._limits)
            found = self._shelf.unpack(archive, wanted, bring)
        self._shelf.drop_parts()
        assert found is not None, "all that was missing was brought"  # noqa: S101
        return found

    def _byte_range(self, entry: StoredFile, start: int, end: int) -> Path:
        """Bytes of an object; what is here of them already is not asked for again."""
        path = self._shelf.part(start, end)
        with path.open("ab", buffering=0) as file:
            self._copy(entry, start + file.tell(), end, file)
        return path

    def _file(self, name: str, entry: StoredFile) -> tuple[str, CachedFile]:
        return name, self._shelf.keep_member(name, partial(self._copy, entry, 0, entry.size))

    def _copy(self, entry: StoredFile, start: int, end: int, file: RawIOBase | BinaryIO) -> None:
        for chunk in self._store.read(entry, start, end):
            self._check_stopped()
            file.write(chunk)
            self._watch.advance(len(chunk))


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
        self._store: BucketStore | None = None
        self._groups: dict[str, Group] = {}
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
        if self._store is None:
            self.listing()
        tasks = [partial(self._fetched, artifact, wanted, progress) for artifact in artifacts]
        return in_parallel(tasks, self._workers, stop=self._stopped.set)

    def close(self) -> None:
        """Let go of what is not worth keeping."""
        self._stopped.set()
        self._cache.close()

    def _find(self) -> tuple[Group, ...]:
        """What is there; a prefix may also be the name of one archive."""
        address = self._address
        if is_archive(address.prefix):
            folder, _, name = address.prefix.rpartition("/")
            above = BucketAddress(scheme=address.scheme, bucket=address.bucket, prefix=folder)
            self._store = BucketStore(above)
            entry = self._store.entry(name)
            if entry is not None:
                return group_files([entry])
        self._store = BucketStore(address)
        return group_files(self._store.entries())

    def _fetched(self, artifact: Artifact, wanted: Wanted, progress: Progress | None) -> Fetched:
        group, store = self._groups.get(artifact.id), self._store

        def obtain(watch: TransferProgress) -> Obtained:
            if group is None or store is None:
                raise Unusable("artifact-missing", f"expected it in {self._address.url}, found no such objects")
            return self._cache.with_shelf(
                ("bucket", self._address.url, group.id, version(group)),
                lambda shelf: BucketFetch(store, shelf, self._limits, watch, self._check_stopped).obtain(group, wanted),
                called_off=self._check_stopped,
            )

        return fetch_one(artifact, progress, obtain, lambda problem: problem.next_command or self._address.look)

    def _check_stopped(self) -> None:
        if self._stopped.is_set():
            raise Unusable("transfer-failed", "expected to be let finish, found a stop")
