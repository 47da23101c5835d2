"""Places by what a person types, and a snapshot as a place, whose files are listed and read without being pulled.

    golden/                            a folder of cases, a zip, or a folder with one
    store:models/nightly               a reference in the configured store
    s3://bucket/golden#models/nightly  a reference in that store; a folder's path works as well

Every object is verified before a byte of it is handed out. In a folder an object is hashed once and then read in
place; from a bucket it is fetched, and the latest few are kept in memory.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from karat.bundles.extents import check_range, open_plain
from karat.bundles.layout import is_of_zips
from karat.bundles.places import Place, open_pack, open_place
from karat.findings import KaratError, UsageError
from karat.store.backends import Backend, is_store_folder, open_store, store_url
from karat.store.objects import EXPIRING, KEPT, Part, fetch, key_of, name_of
from karat.system.command import Command
from karat.system.pool import in_parallel
from karat.tensors.tensor import Damaged, Extent, Reader

if TYPE_CHECKING:
    from karat.store.snapshot import Snapshot, SnapshotFile

SCHEME = "store:"
_ROOM = 192 << 20  # bytes of fetched objects that are kept in memory
_MAPPED = 1 << 18  # what a mapped file counts for: a process may have some ten thousands of them, not more
_AHEAD = 16
_SMALL = 8 << 20
_Bytes: TypeAlias = bytes | mmap.mmap


class SnapshotPlace(Place):
    kind: Literal["folder", "zip", "store"] = "store"

    def __init__(self, backend: Backend, digest: str, name: str, *, pinned: bool = False) -> None:
        from karat.store import snapshot as snapshots  # whoever names no store does without

        self.name, self.digest, self.backend = name, digest, backend
        self._area = KEPT if pinned else EXPIRING
        self.snapshot: Snapshot = snapshots.load(backend, digest, area=self._area)
        self._files = dict(sorted(self.snapshot.files()))
        self._sizes = {path: file.size for path, file in self._files.items()}
        self._objects: OrderedDict[str, tuple[_Bytes, int]] = OrderedDict()
        """Digest → bytes, and what it costs to hold them."""
        self._held = 0
        self._lock = threading.Lock()

    def files(self) -> Mapping[str, int]:
        return self._sizes

    def extent(self, path: str) -> Extent:
        file = self._files.get(path)
        if file is None:
            raise Damaged(f"{path}: expected it in sha256:{self.digest}, found no such file")
        return _SnapshotExtent(self, path, file)

    def digest_of(self, path: str) -> str:
        return self._files[path].digest

    def close(self) -> None:
        with self._lock:
            self._objects.clear()
            self._held = 0

    def object(self, part: Part, pack: int | None) -> _Bytes:
        """An object's bytes, verified."""
        with self._lock:
            found = self._objects.get(part.digest)
            if found is not None:
                self._objects.move_to_end(part.digest)
                return found[0]
        local = self._mapped(part)
        if local is not None:
            return self._remember(part, local)
        if pack is not None:
            # Manifests are read one after the other, so the packs that follow come along.
            following = self.snapshot.packs[pack : pack + _AHEAD]
            packs = [one for one in following if one.digest not in self._objects and one.size <= _SMALL]

            def attempt(one: Part) -> None:
                with suppress(Damaged, KaratError):  # raised again where it is needed
                    self._remember(one, self._fetched(one))

            list(in_parallel([partial(attempt, one) for one in packs], _AHEAD))
            with self._lock:
                found = self._objects.get(part.digest)
            if found is not None:
                return found[0]
        return self._remember(part, self._fetched(part))

    def _fetched(self, part: Part) -> bytes:
        try:
            return fetch(self.backend, part, area=self._area)
        except KaratError as error:
            if error.exit_code == 1:
                raise Damaged(str(error)) from error
            raise

    def _mapped(self, part: Part) -> _Bytes | None:
        """The object's file, once it has been hashed; None where it is no file of this machine."""
        for area in (self._area, EXPIRING, KEPT):
            path = self.backend.local(key_of(part.digest, area))
            if path is None:
                return None
            try:
                handle = open_plain(path, part.digest)
            except Damaged:
                continue
            try:
                size = os.fstat(handle).st_size
                data: _Bytes = os.read(handle, _MAPPED)
                if size > _MAPPED:
                    data = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
            finally:
                os.close(handle)
            if size == part.size and name_of(memoryview(data), part.digest) == part.digest:
                return data
        return None  # `fetch` looks again, and says what is wrong

    def _remember(self, part: Part, data: _Bytes) -> _Bytes:
        cost = len(data) if isinstance(data, bytes) else _MAPPED
        with self._lock:
            if part.digest in self._objects:
                return self._objects[part.digest][0]
            self._objects[part.digest] = (data, cost)
            self._held += cost
            while self._held > _ROOM and len(self._objects) > 1:
                self._held -= self._objects.popitem(last=False)[1][1]
        return data


class _SnapshotExtent(msgspec.Struct, frozen=True):
    place: SnapshotPlace
    path: str
    file: SnapshotFile

    @property
    def size(self) -> int:
        return self.file.size

    @property
    def seekable(self) -> bool:
        """In a folder any part is as cheap as the next; from a bucket whole objects come."""
        return self.place.backend.local("") is not None

    def open(self) -> Reader:
        return _SnapshotReader(self)


class _SnapshotReader:
    """Holds the object that it read last."""

    def __init__(self, extent: _SnapshotExtent) -> None:
        from karat.store.snapshot import pieces

        self._extent, file, snapshot = extent, extent.file, extent.place.snapshot
        self._parts = pieces(file) if file.pack is None else (snapshot.packs[file.pack],)
        self._tail = snapshot.tail_of(file)
        self._current: tuple[int, _Bytes] | None = None

    def read_into(self, start: int, buffer: memoryview) -> None:
        check_range(self._extent, start, buffer, self._extent.path)
        at = 0
        begins = -self._extent.file.offset
        for number, part in enumerate(self._parts):
            ends = min(begins + part.size, self._extent.file.stored)
            if at < len(buffer) and start + at < ends:
                if self._current is None or self._current[0] != number:
                    self._current = number, self._extent.place.object(part, self._extent.file.pack)
                count = min(len(buffer) - at, ends - start - at)
                offset = start + at - begins
                buffer[at : at + count] = self._current[1][offset : offset + count]
                at += count
            begins = ends
        if at < len(buffer):
            begin = start + at - self._extent.file.stored
            buffer[at:] = self._tail[begin : begin + len(buffer) - at]

    def close(self) -> None:
        self._current = None


def open_word(word: str | Path, *, store: str | None = None) -> Place:
    """The place that is meant; `store` is the one that `store:` stands for, if not KARAT_STORE's."""
    split = split_word(str(word), store) if isinstance(word, str) else None
    if split is None:
        return open_pack(Path(word), str(word)) if is_of_zips(Path(word)) else open_place(word)
    url, reference = split
    return open_snapshot(open_store(url), reference, str(word))


def open_snapshot(backend: Backend, reference: str, name: str) -> SnapshotPlace:
    from karat.store import pins, references

    found = references.resolve(backend, reference)
    references.check_signed(backend, found)
    pinned = pins.read(backend, found.digest) is not None
    return SnapshotPlace(backend, found.digest, name, pinned=pinned)


def split_word(word: str, store: str | None = None) -> tuple[str, str] | None:
    """A store and a reference in it; None for a path."""
    if word.startswith(SCHEME) and not Path(word).exists():
        return store_url(store, None, os.environ), word.removeprefix(SCHEME)
    url, mark, reference = word.rpartition("#")
    if mark and ("://" in url or (not Path(word).exists() and is_store_folder(Path(url)))):
        return url, reference
    if "://" in word:
        said = f"expected URL#REFERENCE, such as {word.rstrip('/')}#models/nightly, found {word}"
        raise UsageError(said, next_command=Command("karat", "ls", "--store", word))
    return None
