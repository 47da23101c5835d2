"""Reading safetensors: where in the file each tensor lies, and nothing else.

The library maps a file or takes all of its bytes; a range of a zip's member or of an object in a store is
neither. So the header, a length and JSON, is read here, and believed only as far as it is consistent: every
byte after it belongs to exactly one tensor.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from karat.tensors.tensor import Damaged, Extent, Reader

LARGEST = 64 << 20
"""Bytes of a header; a hundred for each tensor is usual."""
_LENGTH = 8


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor, as the header says."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a file that fits the file's size."""

    entries: dict[str, Entry]
    start: int
    """Where the bytes of the tensors begin; offsets count from here."""
    sha256: str
    """Over everything before them."""


def read_header(extent: Extent, name: str) -> Header:
    """The header of the file that the extent is; `Damaged` if it is none, or the file is not whole."""
    reader = extent.open()
    try:
        return _read(reader, extent.size, name)
    finally:
        reader.close()


def _read(reader: Reader, size: int, name: str) -> Header:
    if size < _LENGTH:
        raise Damaged(f"{name}: expected a safetensors file, found {size:,} bytes")
    prefix = bytearray(_LENGTH)
    reader.read_into(0, memoryview(prefix))
    length = int.from_bytes(prefix, "little")
    if length > min(size - _LENGTH, LARGEST):
        raise Damaged(
            f"{name}: expected a safetensors header, found one of {length:,} bytes in a file of {size:,}"
        )
    text = bytearray(length)
    reader.read_into(_LENGTH, memoryview(text))
    entries = _entries(bytes(text), name)
    _check_offsets(entries, size - _LENGTH - length, name)
    digest = sha256(prefix + text).hexdigest()
    return Header(entries=entries, start=_LENGTH + length, sha256=digest)


def _entries(text: bytes, name: str) -> dict[str, Entry]:
    try:
        # Python's own decoder, because it shows a key that is there twice.
        pairs = _unique(text, name)
        return msgspec.convert(pairs, dict[str, Entry])
    except (ValueError, RecursionError) as error:
        reason = str(error)[:200]
        raise Damaged(f"{name}: expected a header of tensors in JSON; {reason}") from None


def _unique(text: bytes, name: str) -> Any:
    import json  # noqa: PLC0415 - as rarely needed as this function

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Damaged(f"{name}: expected each key once in the header, found one twice")
        return found

    return json.loads(text.decode(), object_pairs_hook=once)


def _check_offsets(entries: dict[str, Entry], size: int, name: str) -> None:
    at = 0
    for tensor, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        start, end = entry.data_offsets
        if start != at or end < start:
            raise Damaged(
                f"{name}: expected {tensor[:100]!r} at byte {at:,} of the tensors, found {start:,} to {end:,}"
            )
        at = end
    if at != size:
        raise Damaged(f"{name}: expected {at:,} bytes of tensors, found {size:,}")
