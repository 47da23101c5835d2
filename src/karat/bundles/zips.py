"""Zips: the one form that karat packs, and any zip of cases as a place.

Of what karat packs, every byte outside the members' data follows from few numbers. Members lie one after the other in
the order of the directory, without gaps, comments, data descriptors or extra fields other than zip64's; times are
1980-01-01, modes 0644. So the writer can say what any header is, and a verifier can make the headers again and hold
them against the file: there is no byte in which a flipped bit could hide.

Any zip is read in place: stored members as ranges of the file, packed ones as streams, which are unpacked while they are
read: forward, in bounded memory, checked at the end.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, BinaryIO, ClassVar, Literal, cast

import msgspec

from karat.bundles.extents import FileExtent, MemoryExtent, check_range, read_all
from karat.bundles.places import BadPlace, Place
from karat.findings import UsageError
from karat.system.archives import Archive, Limits, Member, Unusable
from karat.system.command import Command
from karat.system.foreign.limits import DENSE, MEMBERS
from karat.tensors.tensor import Damaged, Extent, Reader

STORED, DEFLATE, ZSTD = 0, 8, 93
METHODS = {"stored": STORED, "deflate": DEFLATE, "zstd": ZSTD}
WHOLE = 0xFFFFFFFF  # Stands in a field of 32 bits for a number that does not fit; zip64 has it then.

LOCAL_HEADER, _CENTRAL = struct.Struct("<4s5H3L2H"), struct.Struct("<4s6H3L5H2L")
_END, _END64, _LOCATOR = (struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL"))
UTF8, _DATE = 0x800, 0x21
_UNIX, _MODE = 3 << 8, 0o100644 << 16
_STREAMED = 0x8
_SMALL = 16 << 20  # A packed member up to here is unpacked once and then read in any order.
_KEPT = 4  # The latest few of them.
_BLOCK = 1 << 18
_LARGEST_WINDOW = 1 << 27  # What a zstd stream may ask for in memory; level 19 needs 8 MiB, --ultra --long 128.


class ZipMember(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    method: int
    size: int
    packed: int
    crc: int
    start: int

    @property
    def data(self) -> int:
        return self.start + len(local_header(self))

    @property
    def end(self) -> int:
        return self.data + self.packed


def is_large(size: int) -> bool:
    """Whether the local header needs zip64: known before packing, which may make it a little larger."""
    return size + (size >> 7) + 1024 > WHOLE


def local_header(member: ZipMember) -> bytes:
    """The bytes before a member's data."""
    name = member.name.encode()
    large = is_large(member.size)
    extra = struct.pack("<2H2Q", 1, 16, member.size, member.packed) if large else b""
    sizes = (WHOLE, WHOLE) if large else (member.packed, member.size)
    needed = _needed(member, large=large)
    fields = (needed, UTF8, member.method, 0, _DATE, member.crc, *sizes, len(name), len(extra))
    return LOCAL_HEADER.pack(b"PK\x03\x04", *fields) + name + extra


def directory(members: Sequence[ZipMember], start: int) -> bytes:
    """Everything after the last member's data: its entries, and the records that end it."""
    headers, count = [], len(members)
    for member in members:
        name = member.name.encode()
        numbers = (member.size, member.packed, member.start)
        beyond = [number for number in numbers if number >= WHOLE]
        extra = struct.pack(f"<2H{len(beyond)}Q", 1, 8 * len(beyond), *beyond) if beyond else b""
        needed = _needed(member, large=is_large(member.size) or bool(beyond))
        size, packed, begin = (min(number, WHOLE) for number in numbers)
        fields = (_UNIX | 63, needed, UTF8, member.method, 0, _DATE, member.crc, packed, size)
        rest = (len(name), len(extra), 0, 0, 0, _MODE, begin)
        headers.append(_CENTRAL.pack(b"PK\x01\x02", *fields, *rest) + name + extra)
    whole, records = b"".join(headers), b""
    size = len(whole)
    if count >= 0xFFFF or start >= WHOLE or size >= WHOLE:
        sizes = (count, count, size, start)
        records += _END64.pack(b"PK\x06\x06", _END64.size - 12, _UNIX | 63, 45, 0, 0, *sizes)
        records += _LOCATOR.pack(b"PK\x06\x07", 0, start + size, 1)
    few = min(count, 0xFFFF)
    return whole + records + _END.pack(b"PK\x05\x06", 0, 0, few, few, min(size, WHOLE), min(start, WHOLE), 0)


def _needed(member: ZipMember, *, large: bool) -> int:
    return 63 if member.method == ZSTD else 45 if large else 20


def read_members(file: BinaryIO) -> tuple[ZipMember, ...]:
    """The members of a zip in karat's form; `Damaged` where a byte outside their data is another."""
    try:
        with zipfile.ZipFile(file) as zipped:
            start, found = zipped.start_dir, zipped.infolist()
        members = tuple(
            ZipMember(
                name=info.orig_filename,
                method=info.compress_type,
                size=info.file_size,
                packed=info.compress_size,
                crc=info.CRC,
                start=info.header_offset,
            )
            for info in found
        )
    except Exception as error:  # noqa: BLE001 - zipfile's own, for bytes that are not a zip's
        raise Damaged(f"expected a zip with a whole directory, found none ({error})") from None
    file.seek(start)
    tail = file.read()
    # A directory that lies about where it begins moves its members before the file.
    if any(member.start < 0 for member in members) or directory(members, start) != tail:
        raise Damaged("expected the directory that karat writes, found other bytes in it")
    at = 0
    for member in members:
        header = local_header(member)
        file.seek(at)
        if member.start != at or file.read(len(header)) != header:
            raise Damaged(f"expected the header of {member.name!r} at byte {at:,}, found other bytes")
        at = member.end
    if at != start:
        raise Damaged(f"expected the directory at byte {at:,}, after the last member; it is at {start:,}")
    return members


def bundle_limits() -> Limits:
    """What a zip of captured cases may hold.

    A nightly of 50,000 cases has 200,000 files; tensors are as large as they are, and a cache of zeros as
    dense as zstd can make it. Streams are read in bounded memory, so that only time is left to lose, and
    `DENSE` says how much of it.
    """
    return Limits(members=50 * MEMBERS.value(), header=512, member=1 << 62, total=1 << 62, ratio_floor=1 << 62)


class ZipPlace(Place):
    """A zip whose names and sizes have all been checked; only what is asked for is unpacked."""

    kind: Literal["folder", "zip", "store"] = "zip"

    def __init__(self, path: Path, name: str, limits: Limits | None = None) -> None:
        self.name, self._path = name, path
        # Of small packed members, by path.
        self._unpacked = lru_cache(_KEPT)(
            lambda path: MemoryExtent(data=read_all(self._stream(self._members[path]), None, path), name=path)
        )
        most = limits or bundle_limits()
        with path.open("rb") as file:
            self._size = os.fstat(file.fileno()).st_size
            try:
                archive = Archive(file, most, methods=(STORED, DEFLATE, ZSTD))
                members = archive.wanted(lambda _: True)
                dense = [member.size for member in members if member.size > most.ratio * member.packed]
                if sum(dense) > DENSE.value():
                    much = f"{sum(dense):,} in {len(dense):,} members: a bomb; {DENSE.setting}"
                    said = f"expected at most {DENSE.value():,} bytes packed more than {most.ratio}-fold, found {much}"
                    raise Unusable("archive-refused", said)  # noqa: TRY301 - told like any other defect
            except Unusable as error:
                other = error.kind == "artifact-not-zip" or "no bytes at all" in str(error)
                kind = "not-a-bundle" if other else "bundle-damaged"
                look = Command("file", name)
                raise BadPlace(kind, f"{name}: {error}", name=name, next_command=look) from None
        self._members = {member.name: member for member in members}
        if any(member.info.compress_type == ZSTD for member in members):
            from importlib.util import find_spec

            if find_spec("zstandard") is None:
                said = f"{name}: reading it needs zstandard, which is not installed"
                raise UsageError(said, next_command="pip install 'karat[zstd]'")
        self._files = {found: self._members[found].size for found in sorted(self._members)}

    def files(self) -> Mapping[str, int]:
        return self._files

    def extent(self, path: str) -> Extent:
        member = self._members.get(path)
        if member is None:
            raise Damaged(f"{path}: expected in {self.name}, found nothing")
        if member.info.compress_type == STORED:
            return self._packed(member)
        return self._unpacked(path) if member.size <= _SMALL else self._stream(member)

    def close(self) -> None:
        self._unpacked.cache_clear()

    def _stream(self, member: Member) -> StreamExtent:
        method: Literal["zstd", "deflate"] = "zstd" if member.info.compress_type == ZSTD else "deflate"
        packed, crc = self._packed(member), member.info.CRC
        return StreamExtent(packed=packed, size=member.size, crc=crc, method=method, name=member.name)

    def _packed(self, member: Member) -> FileExtent:
        """The bytes of the member as they lie in the file, after a local header that must say what the directory says."""
        whole = FileExtent(path=self._path, start=0, size=self._size, file_size=self._size, name=member.name)
        fixed = bytearray(LOCAL_HEADER.size)
        with closing(whole.open()) as reader:
            reader.read_into(member.start, memoryview(fixed))
            magic, _, flags, method, _, _, crc, packed, size, name_length, extra = LOCAL_HEADER.unpack(fixed)
            name = bytearray(name_length)
            reader.read_into(member.start + LOCAL_HEADER.size, memoryview(name))
        info, streamed = member.info, flags & _STREAMED
        coding = "utf-8" if flags & UTF8 else "cp437"
        agreed = (
            magic == b"PK\x03\x04"
            and (flags, method) == (info.flag_bits, info.compress_type)
            and name.decode(coding, "replace") == info.orig_filename
            and (streamed or crc == info.CRC)
            # Sizes stand elsewhere for zip64 and for what was packed as a stream.
            and (streamed or {packed, size} & {WHOLE} or (packed, size) == (info.compress_size, info.file_size))
        )
        start = member.start + LOCAL_HEADER.size + int(name_length) + int(extra)
        if not agreed or start + member.packed > member.end:
            raise Damaged(f"{member.name}: expected a header that fits the zip's directory, found another")
        return msgspec.structs.replace(whole, start=start, size=member.packed)


class StreamExtent(msgspec.Struct, frozen=True, kw_only=True):
    """A deflated or zstd member; reading backwards begins again."""

    packed: FileExtent
    size: int
    crc: int
    method: Literal["deflate", "zstd"]
    name: str
    seekable: ClassVar[bool] = False

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
        self._stream: Any = _Deflate(packed)
        if self._extent.method == "zstd":
            import zstandard

            unpacker = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
            self._stream = unpacker.stream_reader(cast("IO[bytes]", packed), read_size=_BLOCK)

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
            if self._crc != self._extent.crc:
                raise self._wrong("found other bytes than its checksum says")
            if self._read(1) or (isinstance(self._stream, _Deflate) and self._stream.has_rest()):
                raise self._wrong("found more")

    def _read(self, most: int) -> bytes:
        try:
            return bytes(self._stream.read(min(most, _BLOCK)))  # none at the end
        except Damaged:
            raise
        except Exception as error:  # noqa: BLE001 - zlib's and zstandard's own, for bytes that are not theirs
            raise self._wrong(f"found bytes that do not unpack ({error})") from None

    def _wrong(self, found: str) -> Damaged:
        extent = self._extent
        return Damaged(f"{extent.name}: expected {extent.size:,} bytes to unpack; {found}")


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
