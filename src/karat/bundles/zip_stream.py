"""Packed members of a zip, unpacked while they are read: forward, in bounded memory, checked at the end."""

from __future__ import annotations

import zlib
from typing import IO, Literal, Protocol, cast

import msgspec

from karat.bundles.extents import FileExtent, check_range
from karat.tensors.tensor import Damaged, Reader

_BLOCK = 1 << 18
_LARGEST_WINDOW = 1 << 27
"""What a zstd stream may ask for in memory; level 19 needs 8 MiB, --ultra --long 128."""


class StreamExtent(msgspec.Struct, frozen=True, kw_only=True):
    """A deflated or zstd member; reading backwards begins again."""

    packed: FileExtent
    size: int
    crc: int
    method: Literal["deflate", "zstd"]
    name: str

    @property
    def seekable(self) -> bool:
        return False

    def open(self) -> Reader:
        return _StreamReader(self)


class _StreamReader:
    def __init__(self, extent: StreamExtent) -> None:
        self._extent = extent
        self._source = extent.packed.open()
        self._rewind()

    def read_into(self, start: int, buffer: memoryview) -> None:
        check_range(self._extent, start, buffer, self._extent.name)
        if start < self._at:
            self._rewind()
        scratch = memoryview(bytearray(min(_BLOCK, start - self._at)))
        while self._at < start:
            self._fill(scratch[: min(len(scratch), start - self._at)])
        self._fill(buffer)

    def close(self) -> None:
        self._source.close()

    def _rewind(self) -> None:
        self._at = self._crc = 0
        packed = _Packed(self._source, self._extent.packed.size)
        self._stream = _zstd(packed) if self._extent.method == "zstd" else _Deflate(packed)

    def _fill(self, buffer: memoryview) -> None:
        done = 0
        while done < len(buffer):
            made = self._read(len(buffer) - done)
            if not made:
                raise self._wrong(f"found the end after {self._at + done:,}")
            buffer[done : done + len(made)] = made
            done += len(made)
        self._at += done
        self._crc = zlib.crc32(buffer, self._crc)
        if self._at == self._extent.size:
            self._check_end()

    def _read(self, most: int) -> bytes:
        try:
            return self._stream.read(min(most, _BLOCK))
        except Damaged:
            raise
        except Exception as error:  # noqa: BLE001 - zlib's and zstandard's own, for bytes that are not theirs
            raise self._wrong(f"found bytes that do not unpack ({error})") from None

    def _check_end(self) -> None:
        if self._crc != self._extent.crc:
            raise self._wrong("found other bytes than its checksum says")
        if self._read(1) or (isinstance(self._stream, _Deflate) and self._stream.has_rest()):
            raise self._wrong("found more")

    def _wrong(self, found: str) -> Damaged:
        extent = self._extent
        return Damaged(f"{extent.name}: expected {extent.size:,} bytes to unpack; {found}")


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end."""


class _Packed:
    """The bytes of a member as they lie in the zip, read in order."""

    def __init__(self, source: Reader, size: int) -> None:
        self._source, self._size, self._at = source, size, 0

    def read(self, size: int, /) -> bytes:
        block = bytearray(min(size, self._size - self._at))
        self._source.read_into(self._at, memoryview(block))
        self._at += len(block)
        return bytes(block)


class _Deflate:
    def __init__(self, packed: _Packed) -> None:
        self._packed = packed
        self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS)

    def read(self, size: int, /) -> bytes:
        while not self._unpacker.eof:
            data = self._unpacker.unconsumed_tail or self._packed.read(_BLOCK)
            made = self._unpacker.decompress(data, size)
            if made or not data:
                return made
        return b""

    def has_rest(self) -> bool:
        """Whether packed bytes follow the end of what they unpack to."""
        return not self._unpacker.eof or bool(self._unpacker.unused_data or self._packed.read(1))


def _zstd(packed: _Packed) -> _Stream:
    import zstandard  # noqa: PLC0415 - an extra; opening the place has asked for it

    unpacker = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    return unpacker.stream_reader(cast("IO[bytes]", packed), read_size=_BLOCK)
