"""Wire: the fields of a protobuf message, without knowing its schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIDTH = {FIXED64: 8, FIXED32: 4}

Field: TypeAlias = tuple[int, int, "int | bytes"]
"""Number, wire type, and the value: an int for a varint, bytes for all others."""


class MalformedError(ValueError):
    """Bytes that are no protobuf message."""


def fields(data: bytes) -> Iterator[Field]:
    """The fields in the order they stand."""
    at, size = 0, len(data)
    while at < size:
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            length, at = varint(data, at)
        elif kind in _WIDTH:
            length = _WIDTH[kind]
        else:
            raise MalformedError(f"wire type {kind}")
        if at + length > size:
            raise MalformedError("a field longer than its message")
        yield number, kind, data[at : at + length]
        at += length


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = shift = 0
    for behind in range(at, min(at + 10, len(data))):
        byte = data[behind]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, behind + 1
        shift += 7
    raise MalformedError("a number without an end")


def varints(data: bytes) -> Iterator[int]:
    """Numbers one behind the other, as a packed field has them."""
    at = 0
    while at < len(data):
        value, at = varint(data, at)
        yield value


def signed(value: int) -> int:
    """The 64-bit number with a sign that a varint stands for."""
    return value - (1 << 64) if value >> 63 else value
