"""The one form of a zip that karat packs: every byte outside the members' data follows from few numbers.

Members lie one after the other in the order of the directory, without gaps, comments, data descriptors or
extra fields other than zip64's; times are 1980-01-01, modes 0644. So the writer can say what any header
is, and a verifier can make the headers again and hold them against the file: there is no byte in which a
flipped bit could hide.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import BinaryIO

import msgspec

from karat.tensors.tensor import Damaged

STORED, DEFLATE, ZSTD = 0, 8, 93
METHODS = {"stored": STORED, "deflate": DEFLATE, "zstd": ZSTD}
WHOLE = 0xFFFFFFFF  # Stands in a field of 32 bits for a number that does not fit; zip64 has it then.

LOCAL_HEADER, _CENTRAL = struct.Struct("<4s5H3L2H"), struct.Struct("<4s6H3L5H2L")
_END, _END64, _LOCATOR = (struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL"))
UTF8, _DATE = 0x800, 0x21
_UNIX, _MODE = 3 << 8, 0o100644 << 16
_LARGEST_DIRECTORY = 256 << 20


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


def central_header(member: ZipMember) -> bytes:
    """A member's entry in the directory."""
    name = member.name.encode()
    numbers = (member.size, member.packed, member.start)
    beyond = [number for number in numbers if number >= WHOLE]
    extra = struct.pack(f"<2H{len(beyond)}Q", 1, 8 * len(beyond), *beyond) if beyond else b""
    size, packed, start = (min(number, WHOLE) for number in numbers)
    needed = _needed(member, large=is_large(member.size) or bool(beyond))
    fields = (_UNIX | 63, needed, UTF8, member.method, 0, _DATE, member.crc, packed, size)
    rest = (len(name), len(extra), 0, 0, 0, _MODE, start)
    return _CENTRAL.pack(b"PK\x01\x02", *fields, *rest) + name + extra


def end_records(count: int, start: int, size: int) -> bytes:
    """The bytes after a directory of so many members that begins at `start`."""
    records = b""
    if count >= 0xFFFF or start >= WHOLE or size >= WHOLE:
        sizes = (count, count, size, start)
        records += _END64.pack(b"PK\x06\x06", _END64.size - 12, _UNIX | 63, 45, 0, 0, *sizes)
        records += _LOCATOR.pack(b"PK\x06\x07", 0, start + size, 1)
    few = min(count, 0xFFFF)
    return records + _END.pack(b"PK\x05\x06", 0, 0, few, few, min(size, WHOLE), min(start, WHOLE), 0)


def directory(members: Iterable[ZipMember], start: int) -> bytes:
    """Everything after the last member's data."""
    headers = [central_header(member) for member in members]
    whole = b"".join(headers)
    return whole + end_records(len(headers), start, len(whole))


def _needed(member: ZipMember, *, large: bool) -> int:
    return 63 if member.method == ZSTD else 45 if large else 20


def read_members(file: BinaryIO) -> tuple[ZipMember, ...]:
    """The members of a zip in karat's form; `Damaged` where a byte outside their data is another."""
    start, size = _find_directory(file)
    file.seek(start)
    tail = file.read()
    members = _parse(tail[:size])
    if directory(members, start) != tail:
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


def _find_directory(file: BinaryIO) -> tuple[int, int]:
    """Where the end records say that the directory begins, and its length."""
    length = file.seek(0, 2)
    most = _END.size + _LOCATOR.size + _END64.size
    file.seek(max(0, length - most))
    tail = file.read()
    if len(tail) < _END.size or tail[-_END.size :][:4] != b"PK\x05\x06":
        raise Damaged("expected a zip that ends with its end record, found other bytes")
    _, _, _, _, _, size, start, _ = _END.unpack(tail[-_END.size :])
    if len(tail) == most and tail[:4] == b"PK\x06\x06":
        *_, size, start = _END64.unpack(tail[: _END64.size])
    if size > _LARGEST_DIRECTORY or start + size > length:
        raise Damaged(f"expected a directory of {size:,} bytes at {start:,}, found none there")
    return start, size


def _parse(headers: bytes) -> tuple[ZipMember, ...]:
    members, at = [], 0
    try:
        while at < len(headers):
            fields = _CENTRAL.unpack_from(headers, at)
            method, crc, packed, size = fields[4], *fields[7:10]
            name_length, extra_length, start = fields[10], fields[11], fields[16]
            at += _CENTRAL.size
            name = headers[at : at + name_length].decode()
            at += name_length
            numbers = [size, packed, start]
            large = [index for index, number in enumerate(numbers) if number == WHOLE]
            for place, index in enumerate(large):
                (numbers[index],) = struct.unpack_from("<Q", headers, at + 4 + 8 * place)
            size, packed, start = numbers
            members.append(ZipMember(name=name, method=method, size=size, packed=packed, crc=crc, start=start))
            at += extra_length
    except (struct.error, UnicodeDecodeError) as error:
        raise Damaged(f"expected a whole directory, found one that breaks at byte {at:,}") from error
    return tuple(members)
