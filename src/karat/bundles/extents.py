"""Extents: bytes in a file, in a part of another extent, or in memory; and Git LFS pointers in place of a file."""

from __future__ import annotations

import io
import os
import re
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import msgspec

from karat.system.foreign.limits import CLOSED, NO_FOLLOW, NO_WAIT
from karat.tensors.digests import FileDigest, Hash, hash_of, require_digest
from karat.tensors.tensor import Damaged, Extent, Reader, read_blocks

LONGEST = 1024
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/[^\n]*\n(?:ext-[^\n]*\n)*oid sha256:([0-9a-f]{64})\nsize (\d{1,18})\n"
)
FETCH = "git lfs pull"


class FileExtent(msgspec.Struct, frozen=True, kw_only=True):
    """A range of a plain file; a file that is another size when it is opened is damage."""

    path: str | Path
    start: int
    size: int
    file_size: int
    name: str  # What messages call it.
    seekable: ClassVar[bool] = True

    def open(self) -> Reader:
        return _FileReader(self)


def whole_file(path: Path) -> FileExtent:
    """All of a file, as large as it is now."""
    size = path.stat().st_size
    return FileExtent(path=path, start=0, size=size, file_size=size, name=path.name)


class _FileReader:
    def __init__(self, extent: FileExtent) -> None:
        self._extent = extent
        # Unbuffered, with a place of its own: not every system can read at an offset into a buffer.
        self._file = io.FileIO(open_plain(extent.path, extent.name), "rb")
        found = os.fstat(self._file.fileno()).st_size
        if found != extent.file_size:
            self.close()
            changed = f"expected {extent.file_size:,} bytes, found {found:,}; it changed while it was read"
            raise Damaged(f"{extent.name}: {changed}")

    def read_into(self, start: int, buffer: memoryview) -> None:
        extent = self._extent
        check_range(extent, start, buffer, extent.name)
        done = 0
        try:
            self._file.seek(extent.start + start)
            while done < len(buffer):
                got = self._file.readinto(buffer[done:])
                if not got:
                    raise Damaged(f"{extent.name}: expected {len(buffer) - done:,} bytes more")
                done += got
        except OSError as error:
            raise Damaged(f"{extent.name}: expected bytes, found {error.strerror}") from error

    def close(self) -> None:
        self._file.close()


def open_plain(path: str | Path, name: str) -> int:
    """A handle of a plain file; links are not followed, and a pipe does not block."""
    flags = os.O_RDONLY | CLOSED | NO_FOLLOW | NO_WAIT
    try:
        handle = os.open(path, flags)
    except OSError as error:
        raise Damaged(f"{name}: expected a readable file, found: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Damaged(f"{name}: expected a plain file, found something else")
    return handle


class MemoryExtent(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes in memory; it is its own reader."""

    data: bytes
    name: str
    seekable: ClassVar[bool] = True

    @property
    def size(self) -> int:
        return len(self.data)

    def open(self) -> Reader:
        return self

    def read_into(self, start: int, buffer: memoryview) -> None:
        check_range(self, start, buffer, self.name)
        buffer[:] = memoryview(self.data)[start : start + len(buffer)]

    def close(self) -> None:
        pass


class PartExtent(msgspec.Struct, frozen=True, kw_only=True):
    whole: Extent
    start: int
    size: int
    name: str

    @property
    def seekable(self) -> bool:
        return self.whole.seekable

    def open(self) -> Reader:
        return PartReader(self, self.whole.open())


class PartReader:
    """Reads a part through a reader of the whole, which it closes."""

    def __init__(self, part: PartExtent, reader: Reader) -> None:
        self._part, self._reader = part, reader

    def read_into(self, start: int, buffer: memoryview) -> None:
        check_range(self._part, start, buffer, self._part.name)
        self._reader.read_into(self._part.start + start, buffer)

    def close(self) -> None:
        self._reader.close()


def check_range(extent: Extent, start: int, buffer: memoryview, name: str) -> None:
    """`Damaged` beyond the end of an extent: what follows belongs to something else."""
    if start < 0 or start + len(buffer) > extent.size:
        raise Damaged(f"{name}: expected bytes {start:,} to {start + len(buffer):,}, found {extent.size:,} in all")


def file_digest(extent: Extent, kind: Hash, watch: Callable[[memoryview], object] = lambda _: None) -> str:
    """The digest of an extent's bytes, `blake3:…` or `sha256:…`; `watch` is called with every block."""
    running = FileDigest(kind)
    for block in read_blocks(extent):
        running.update(block)
        watch(block)
    return running.text()


def require_file(
    extent: Extent, digest: str, name: str, watch: Callable[[memoryview], object] = lambda _: None
) -> None:
    """`Damaged` unless the bytes have the recorded digest."""
    require_digest(name, digest, file_digest(extent, hash_of(digest), watch))


def read_all(extent: Extent, limit: int | None = None, name: str = "file") -> bytes:
    """The bytes of an extent; `Damaged` if there are more than the limit."""
    if limit is not None and extent.size > limit:
        raise Damaged(f"{name}: expected at most {limit:,} bytes, found {extent.size:,}")
    data = bytearray(extent.size)
    with closing(extent.open()) as reader:
        reader.read_into(0, memoryview(data))
    return bytes(data)


def pointer(data: bytes) -> tuple[str, int] | None:
    """sha256 and size of the file that a pointer stands for; None if it is none."""
    match = _POINTER.fullmatch(data) if len(data) <= LONGEST else None
    return None if match is None else (match[1].decode(), int(match[2]))


def not_fetched(size: int) -> str:
    """The message about a pointer, after the name of the file."""
    return f"expected {size:,} bytes, found a Git LFS pointer that was not fetched"
