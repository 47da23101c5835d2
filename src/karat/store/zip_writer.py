"""Writing zips in karat's one form, as a stream: stored, deflate or zstd, and zip64 where it must be.

Python's `zipfile` writes no zstd before 3.14, has no way to take over members that are packed already, and
leaves bytes to chance that this form fixes (`karat.bundles.zip_form`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Literal, Protocol

import msgspec

from karat.bundles.zip_form import (
    DEFLATE,
    METHODS,
    STORED,
    WHOLE,
    Member,
    directory,
    is_large,
    local_header,
)
from karat.findings import UsageError
from karat.tensors.tensor import Damaged

Compression = Literal["stored", "deflate", "zstd"]
LEVELS = {"stored": (0, 0, 0), "deflate": (1, 6, 9), "zstd": (1, 3, 19)}
"""Compression → lowest, default and highest level."""


class Packer(Protocol):
    """A compressor of the standard library's kind."""

    def compress(self, data: bytes | memoryview, /) -> bytes: ...

    def flush(self) -> bytes: ...


class ZipWriter:
    """One zip, written front to back; only the header of the member just written is touched again.

    `start`: members of a zip of which another writer has what lies before, and the directory.
    """

    def __init__(
        self,
        file: BinaryIO,
        compression: Compression = "stored",
        level: int | None = None,
        start: int = 0,
    ) -> None:
        self.members: list[Member] = []
        self._file = file
        self._compression: Compression = compression
        self._level = checked_level(compression, level)
        self._at = start
        file.seek(start)

    def add(
        self, name: str, chunks: Iterable[bytes | memoryview], size: int, *, stored: bool = False
    ) -> Member:
        """Packs one file of exactly `size` bytes; `Damaged` if the chunks give more or fewer."""
        method = STORED if stored else METHODS[self._compression]
        blank = Member(name=name, method=method, size=size, packed=0, crc=0, start=self._at)
        self._file.write(local_header(blank))
        tally = _Tally()
        for packed in self._packed(tally.counted(chunks), method):
            tally.packed += self._file.write(packed)
        if tally.size != size:
            raise Damaged(
                f"expected {size:,} bytes of {name}, found {tally.size:,}: it changed meanwhile"
            )
        member = msgspec.structs.replace(blank, packed=tally.packed, crc=tally.crc)
        self._finish(member)
        return member

    def take(self, member: Member, chunks: Iterable[bytes | memoryview]) -> None:
        """Takes over a member that is packed already: header and data as they lie in another zip."""
        moved = msgspec.structs.replace(member, start=self._at)
        for chunk in chunks:
            self._at += self._file.write(chunk)
        if self._at != moved.end:
            raise Damaged(f"expected the packed bytes of {member.name}, found {self._at:,} of them")
        self.members.append(moved)

    def adopt(self, member: Member) -> None:
        """A member that another writer has put just where this one is."""
        if member.start != self._at:
            raise Damaged(f"expected {member.name} at {self._at:,}, found it at {member.start:,}")
        self._at = member.end
        self._file.seek(self._at)
        self.members.append(member)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._at

    def close(self) -> bytes:
        """Writes the directory, and returns its bytes; the file is the caller's to close."""
        tail = directory(self.members, self._at)
        self._file.write(tail)
        return tail

    def _packed(
        self, chunks: Iterator[bytes | memoryview], method: int
    ) -> Iterator[bytes | memoryview]:
        if method == STORED:
            yield from chunks
            return
        packer = _packer(method, self._level)
        for chunk in chunks:
            yield packer.compress(chunk)
        yield packer.flush()

    def _finish(self, member: Member) -> None:
        if not is_large(member.size) and member.packed >= WHOLE:
            raise Damaged(f"{member.name} packs to {member.packed:,} bytes, more than it has")
        self._file.seek(member.start)
        self._file.write(local_header(member))
        self._at = member.end
        self._file.seek(self._at)
        self.members.append(member)


def stored_size(name: str, size: int) -> int:
    """Bytes that a stored file takes in a zip, before its directory."""
    return Member(name=name, method=STORED, size=size, packed=size, crc=0, start=0).end


class _Tally:
    """What went by."""

    def __init__(self) -> None:
        self.size = self.crc = self.packed = 0

    def counted(self, chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
        for chunk in chunks:
            self.size += len(chunk)
            self.crc = zlib.crc32(chunk, self.crc)
            yield chunk


def checked_level(compression: Compression, level: int | None) -> int:
    """The level in force; no compression has another range than its own."""
    lowest, default, highest = LEVELS[compression]
    if level is None:
        return default
    if not lowest <= level <= highest:
        raise UsageError(
            f"--level: expected {lowest} to {highest} for {compression}, found {level}",
            next_command="karat pack --help",
        )
    return level


def _packer(method: int, level: int) -> Packer:
    if method == DEFLATE:
        return zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    try:
        import zstandard  # noqa: PLC0415 - an extra, and only for those who asked
    except ImportError as error:
        raise UsageError(
            "--compression zstd: expected the library zstandard, found none",
            next_command="pip install 'karat[zstd]'",
        ) from error
    # The frame's own checksum: readers that know no index still notice a flipped bit.
    packer: Packer = zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj()
    return packer
