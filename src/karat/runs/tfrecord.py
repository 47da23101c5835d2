"""The frames of a TFRecord file, each with its length and two checksums.

    length (8 bytes) · masked CRC32C of it (4) · data · masked CRC32C of the data (4)

A file is read in blocks, so that its size does not matter. Nothing stops silently: a file that ends
inside a record, a length that is not what its writer wrote, and data with a wrong checksum are each
reported, with the offset.

A CRC is linear: what a byte adds to it depends on the byte and its distance from the end, and the
parts are XORed. So one table by (distance, byte) and one XOR per piece give the sums of a million
records in a fraction of a second, where a loop over bytes in Python would take minutes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np

from karat.findings import Finding, fail, warn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    U32: TypeAlias = NDArray[np.uint32]
    U8: TypeAlias = NDArray[np.uint8]
    Places: TypeAlias = NDArray[np.int64]
else:
    U32 = U8 = Places = np.ndarray

_POLYNOMIAL = 0x82F63B78
_LANE = 256  # Longer pieces are cut into lanes of so many bytes, so that the table stays small.
_BLOCK = 1 << 20  # Bytes looked up at a time: large enough for numpy, small enough for a cache.
_ONES = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8


@cache
def _byte_table() -> U32:
    table, one = np.arange(256, dtype=np.uint32), np.uint32(1)
    for _ in range(8):
        table = (table >> one) ^ (table & one) * np.uint32(_POLYNOMIAL)
    return table


def _zero_byte(sums: U32) -> U32:
    """The sums after one more byte, a zero."""
    moved: U32 = (sums >> 8) ^ _byte_table()[sums & 0xFF]
    return moved


@cache
def _by_distance() -> U32:
    """What each byte adds at each distance from the end, flat: [distance * 256 + byte]."""
    rows = [_byte_table()]
    for _ in range(_LANE - 1):
        rows.append(_zero_byte(rows[-1]))
    return np.concatenate(rows)


@cache
def _opening() -> U32:
    """What the initial ones have become after n bytes, for n up to a lane."""
    rows = [np.array([_ONES], np.uint32)]
    for _ in range(_LANE):
        rows.append(_zero_byte(rows[-1]))
    return np.concatenate(rows)


@cache
def _past_a_lane() -> list[list[int]]:
    """Four tables of 256: what a sum becomes when a whole lane of zeros follows."""
    tables = []
    for byte in range(4):
        sums = np.arange(256, dtype=np.uint32) << np.uint32(8 * byte)
        for _ in range(_LANE):
            sums = _zero_byte(sums)
        tables.append(sums.tolist())
    return tables


def masked(sums: U32) -> U32:
    """The sums as TFRecord files store them: rotated, and moved by a constant."""
    rotated = (sums >> np.uint32(15)) | (sums << np.uint32(17))
    return rotated + np.uint32(_MASK_DELTA)


def crc32c(buffer: bytes, starts: Places, lengths: Places) -> U32:
    """The CRC32C of each piece of the buffer."""
    data = np.frombuffer(buffer, np.uint8)
    found = np.empty(len(starts), np.uint32)
    short = lengths <= _LANE
    if short.any():
        found[short] = _opening()[lengths[short]] ^ _plain(data, starts[short], lengths[short])
    for at in np.flatnonzero(~short).tolist():
        found[at] = _long(data, int(starts[at]), int(lengths[at]))
    return found ^ np.uint32(_ONES)


def _plain(data: U8, starts: Places, lengths: Places) -> U32:
    """Sums that began with zero instead of ones; no piece is longer than a lane."""
    sums = np.zeros(len(starts), np.uint32)
    filled = np.flatnonzero(lengths)  # reduceat has no word for an empty piece
    behind = np.cumsum(lengths[filled])
    first = 0
    while first < len(filled):
        before = int(behind[first - 1]) if first else 0
        last = max(int(np.searchsorted(behind, before + _BLOCK)), first + 1)
        chosen = filled[first:last]
        sums[chosen] = _block(data, starts[chosen], lengths[chosen])
        first = last
    return sums


def _block(data: U8, starts: Places, lengths: Places) -> U32:
    ends = np.cumsum(lengths)
    begins = ends - lengths
    index = np.arange(int(ends[-1]))
    places = index + np.repeat(starts - begins, lengths)
    distances = np.repeat(ends - 1, lengths) - index
    return np.bitwise_xor.reduceat(_by_distance()[distances * 256 + data[places]], begins)


def _long(data: U8, start: int, length: int) -> int:
    """One long piece: its lanes' sums, each moved past those behind it."""
    head = length % _LANE or _LANE
    starts = np.concatenate([[start], np.arange(start + head, start + length, _LANE)])
    lengths = np.full(len(starts), _LANE)
    lengths[0] = head
    lanes: list[int] = _plain(data, starts, lengths).tolist()
    a, b, c, d = _past_a_lane()
    total = int(_opening()[head]) ^ lanes[0]
    for lane in lanes[1:]:
        moved = a[total & 255] ^ b[total >> 8 & 255] ^ c[total >> 16 & 255] ^ d[total >> 24]
        total = moved ^ lane
    return total


_HEADER = 12
_FRAME = 16
_READ_AT_ONCE = 1 << 24
_LENGTH = struct.Struct("<Q")


def looks_like_records(head: bytes) -> bool:
    """Whether bytes begin with a record: eight of length that match the four of their checksum."""
    # No record has a terabyte, and the text that most files begin with would be a larger number still.
    return len(head) >= _HEADER and not any(head[5:8]) and _good_length(head, 0)


def _good_length(buffer: bytes, at: int) -> bool:
    found = masked(crc32c(buffer, np.array([at]), np.array([8])))
    return int(found[0]) == int.from_bytes(buffer[at + 8 : at + _HEADER], "little")


def records(stream: BinaryIO, note: Callable[[Finding], None]) -> Iterator[list[bytes]]:
    """The data of whole and sound records, in batches; `note` hears of all others."""
    base, buffer = 0, b""
    while True:
        more = stream.read(_READ_AT_ONCE)
        buffer += more
        starts, lengths, behind = _frames(buffer)
        batch, stopped = _sound(buffer, base, starts, lengths, note)
        yield batch
        if stopped:
            return
        rest = buffer[behind:]
        if len(rest) >= _HEADER and not _good_length(rest, 0):
            note(_bad_length(base + behind))
            return
        base, buffer = base + behind, rest
        if not more:
            if buffer:
                wanted = _FRAME + _LENGTH.unpack_from(buffer)[0] if len(buffer) >= _HEADER else _FRAME
                said = (
                    f"expected a record of at least {wanted:,} bytes at byte {base:,}, found {len(buffer):,}:"
                    " the file ends inside a record, so its writer died or is still writing"
                )
                numbers = {"offset": base, "expected": wanted, "found": len(buffer)}
                note(warn("truncated", said, where=f"byte {base}", numbers=numbers))
            return


def _frames(buffer: bytes) -> tuple[Places, Places, int]:
    """Where the data of each whole frame starts, how long it is, and where the rest begins."""
    starts: list[int] = []
    lengths: list[int] = []
    unpack = _LENGTH.unpack_from
    at, size = 0, len(buffer)
    while at + _FRAME <= size:
        (length,) = unpack(buffer, at)
        end = at + _FRAME + length
        if end > size:
            break
        starts.append(at + _HEADER)
        lengths.append(length)
        at = end
    return np.array(starts, np.int64), np.array(lengths, np.int64), at


def _sound(
    buffer: bytes, base: int, starts: Places, lengths: Places, note: Callable[[Finding], None]
) -> tuple[list[bytes], bool]:
    """The records whose checksums hold, and whether framing was lost, so that none may follow."""
    if not len(starts):
        return [], False
    headers = starts - _HEADER
    framed = _stored(buffer, headers + 8) == masked(crc32c(buffer, headers, np.full(len(starts), 8)))
    lost = not framed.all()
    if lost:
        # Behind a wrong length there is no telling where the next record begins.
        first = int(np.argmin(framed))
        starts, lengths = starts[:first], lengths[:first]
    good = _stored(buffer, starts + lengths) == masked(crc32c(buffer, starts, lengths))
    for at in np.flatnonzero(~good).tolist():
        offset, length = base + int(starts[at]), int(lengths[at])
        said = f"expected a record of {length:,} bytes at byte {offset:,}, found bytes that do not match their checksum"
        numbers = {"offset": offset, "length": length}
        note(fail("unreadable", f"{said}; it was left out", where=f"byte {offset}", numbers=numbers))
    if lost:
        note(_bad_length(base + int(headers[first])))
    pairs = zip(starts[good].tolist(), (starts + lengths)[good].tolist(), strict=True)
    return [buffer[start:end] for start, end in pairs], lost


def _stored(buffer: bytes, places: Places) -> Places:
    """The checksums that stand at the places."""
    data = np.frombuffer(buffer, np.uint8)
    stored = np.zeros(len(places), np.int64)
    for byte in range(4):
        stored |= data[places + byte].astype(np.int64) << (8 * byte)
    return stored


def _bad_length(offset: int) -> Finding:
    said = (
        f"expected the length of a record at byte {offset:,}, found one that does not match its"
        " checksum; nothing behind it can be read"
    )
    return fail("unreadable", said, where=f"byte {offset}", numbers={"offset": offset})
