"""Records: the frames of a TFRecord file, each with its length and two checksums.

    length (8 bytes) · masked CRC32C of it (4) · data · masked CRC32C of the data (4)

A file is read in blocks, so that its size does not matter. Nothing stops silently: a file that ends
inside a record, a length that is not what its writer wrote, and data with a wrong checksum are each
said, with the offset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np

from karat.findings import Finding, Severity
from karat.runs.crc32c import Places, crc32c, masked

_HEADER = 12
_FRAME = 16
_BLOCK = 1 << 24
_LENGTH = struct.Struct("<Q")


def looks_like_records(head: bytes) -> bool:
    """Whether bytes begin with a record: eight of length that match the four of their checksum."""
    return len(head) >= _HEADER and _good_length(head, 0)


def _good_length(buffer: bytes, at: int) -> bool:
    found = masked(crc32c(buffer, np.array([at]), np.array([8])))
    return int(found[0]) == int.from_bytes(buffer[at + 8 : at + _HEADER], "little")


def records(stream: BinaryIO, note: Callable[[Finding], None]) -> Iterator[list[bytes]]:
    """The data of whole and sound records, in batches; `note` hears of all others."""
    base, buffer = 0, b""
    while True:
        more = stream.read(_BLOCK)
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
                note(_cut(base, buffer))
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
    buffer: bytes,
    base: int,
    starts: Places,
    lengths: Places,
    note: Callable[[Finding], None],
) -> tuple[list[bytes], bool]:
    """The records whose checksums hold, and whether framing was lost, so that none may follow."""
    if not len(starts):
        return [], False
    headers = starts - _HEADER
    framed = _stored(buffer, headers + 8) == masked(
        crc32c(buffer, headers, np.full(len(starts), 8))
    )
    lost = not framed.all()
    if lost:
        # Behind a wrong length there is no telling where the next record begins.
        first = int(np.argmin(framed))
        starts, lengths = starts[:first], lengths[:first]
    good = _stored(buffer, starts + lengths) == masked(crc32c(buffer, starts, lengths))
    for at in np.flatnonzero(~good).tolist():
        note(_bad_data(base + int(starts[at]), int(lengths[at])))
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


def _cut(offset: int, rest: bytes) -> Finding:
    wanted = _FRAME + _LENGTH.unpack_from(rest)[0] if len(rest) >= _HEADER else _FRAME
    return Finding(
        kind="truncated",
        severity=Severity.WARN,
        message=f"expected a record of at least {wanted:,} bytes at byte {offset:,}, found {len(rest):,}:"
        " the file ends inside a record, so its writer died or is still writing",
        where=f"byte {offset}",
        numbers={"offset": offset, "expected": wanted, "found": len(rest)},
    )


def _bad_length(offset: int) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.FAIL,
        message=f"expected the length of a record at byte {offset:,}, found one that does not match its"
        " checksum; nothing behind it can be read",
        where=f"byte {offset}",
        numbers={"offset": offset},
    )


def _bad_data(offset: int, length: int) -> Finding:
    return Finding(
        kind="unreadable",
        severity=Severity.FAIL,
        message=f"expected a record of {length:,} bytes at byte {offset:,}, found bytes that do not match"
        " their checksum; it was left out",
        where=f"byte {offset}",
        numbers={"offset": offset, "length": length},
    )
