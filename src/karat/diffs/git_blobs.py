"""Bytes that git keeps: blobs as extents, and what a Git LFS pointer stands for.

Small blobs come through one `git cat-file --batch` for all of them. A large one is read from a process of its
own, forward and in blocks, so that memory does not grow with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

import msgspec

from karat.bundles.extents import LONGEST, FileExtent, MemoryExtent, check_range, not_fetched, pointer, read_all
from karat.findings import CannotVerify
from karat.system import git
from karat.tensors.tensor import Extent, Reader

_SMALL = 1 << 20
_BLOCK = 1 << 18


class Objects:
    """The objects of a repository, for any thread."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._blobs: git.Blobs | None = None

    def read(self, oid: str, name: str) -> bytes:
        """A blob whole."""
        with self._lock:
            if self._blobs is None:
                self._blobs = git.Blobs(self.root)
            (data,) = self._blobs.read([oid])
        if not isinstance(data, bytes):
            raise _missing(oid, name)
        return data

    def close(self) -> None:
        """End the process, if there was one."""
        if self._blobs is not None:
            self._blobs.close()


class BlobExtent(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A blob; reading a large one backwards begins again."""

    objects: Objects
    oid: str
    size: int
    name: str

    @property
    def seekable(self) -> bool:
        return self.size <= _SMALL

    def open(self) -> Reader:
        if self.size > _SMALL:
            return _BlobReader(self)
        data = self.objects.read(self.oid, self.name)
        return MemoryExtent(data=data, name=self.name).open()


class _BlobReader:
    def __init__(self, extent: BlobExtent) -> None:
        self._extent = extent
        self._start()

    def _start(self) -> None:
        self._process = git.start_git(self._extent.objects.root, "cat-file", "blob", self._extent.oid)
        self._pipe = cast("IO[bytes]", self._process.stdout)
        self._at = 0

    def read_into(self, start: int, buffer: memoryview) -> None:
        check_range(self._extent, start, buffer, self._extent.name)
        if start < self._at:
            self.close()
            self._start()
        while self._at < start:
            self._fill(memoryview(bytearray(min(_BLOCK, start - self._at))))
        self._fill(buffer)

    def _fill(self, buffer: memoryview) -> None:
        data = self._pipe.read(len(buffer))
        if len(data) < len(buffer):
            raise _missing(self._extent.oid, self._extent.name)
        buffer[:] = data
        self._at += len(data)

    def close(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._process.wait()


def _missing(oid: str, name: str) -> CannotVerify:
    return CannotVerify(f"{name}: {git.no_object(oid)}", next_command=git.REFETCH)


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is not here, only what points to it."""

    size: int
    why: CannotVerify

    @property
    def seekable(self) -> bool:
        return True

    def open(self) -> Reader:
        raise self.why


def absent_blob(oid: str, name: str) -> Elsewhere:
    """A blob that git names and does not have, so that not even its size is known."""
    return Elsewhere(size=0, why=_missing(oid, name))


def pointed_to(extent: Extent, name: str, fetched: Callable[[], Path | None]) -> Extent:
    """What a Git LFS pointer stands for, where `fetched` has it; anything else as it is."""
    found = pointer(read_all(extent, name=name)) if extent.size <= LONGEST else None
    if found is None:
        return extent
    oid, size = found
    folder = fetched()
    path = folder / oid[:2] / oid[2:4] / oid if folder else None
    if path is None or not path.is_file() or path.stat().st_size != size:
        message = f"{name}: {not_fetched(size)}"
        return Elsewhere(size=size, why=CannotVerify(message, next_command="git lfs fetch --all && git lfs checkout"))
    return FileExtent(path=path, start=0, size=size, file_size=size, name=name)


def fetched_objects(root: Path) -> Path:
    """Where Git LFS keeps what it has fetched for a repository, also if that is nothing."""
    return git.common_folder(root) / "lfs" / "objects"
