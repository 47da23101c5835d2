"""Tensor: the one number in a TensorProto without dimensions."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from karat.runs.wire import BYTES, FIXED32, FIXED64, VARINT, Field, fields, signed, varints

_HALF, _BFLOAT = 19, 14

# Kind of element → how it stands in `tensor_content`, the bytes of a numpy array.
_CONTENT: Mapping[int, str] = {
    1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<?", 17: "<H", _HALF: "<e",
    22: "<I", 23: "<Q", _BFLOAT: "<H",
}  # fmt: skip

# Kind of element → the number of the field that lists its elements.
_LISTED: Mapping[int, int] = {
    1: 5, 2: 6, 3: 7, 4: 7, 5: 7, 6: 7, 9: 10, 10: 11, _BFLOAT: 13, 17: 7, _HALF: 13, 22: 16, 23: 17,
}  # fmt: skip


def scalar(data: bytes) -> float | None:
    """The number of a tensor that has one element; None for any other."""
    kind, count, content = 0, 1, b""
    listed: dict[int, list[Field]] = {}
    for field in fields(data):
        number, wire, value = field
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, bytes):
            count = _elements(value)
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif wire in {VARINT, FIXED32, FIXED64, BYTES}:
            listed.setdefault(number, []).append(field)
    if count != 1 or kind not in _CONTENT:
        return None
    if content:
        return _from_content(kind, content)
    found = [item for field in listed.get(_LISTED[kind], ()) for item in _numbers(kind, field)]
    return found[0] if len(found) == 1 else None


def _elements(shape: bytes) -> int:
    count = 1
    for number, _, value in fields(shape):
        if number == 2 and isinstance(value, bytes):
            sizes = [size for n, _, size in fields(value) if n == 1 and isinstance(size, int)]
            count *= signed(sizes[-1]) if sizes else 0
    return count


def _from_content(kind: int, content: bytes) -> float | None:
    form = _CONTENT[kind]
    if struct.calcsize(form) != len(content):
        return None
    (value,) = struct.unpack(form, content)
    return _bfloat(value) if kind == _BFLOAT else float(value)


def _numbers(kind: int, field: Field) -> list[float]:
    """The elements of a field, packed or not."""
    _, wire, value = field
    if isinstance(value, int):
        return [_from_varint(kind)(value)]
    if kind in {1, 2}:
        form = _CONTENT[kind]
        width = struct.calcsize(form)
        # A single element may stand unpacked; then the field is exactly its bytes.
        whole = wire == BYTES or len(value) == width
        return (
            [n for (n,) in struct.iter_unpack(form, value)]
            if whole and not len(value) % width
            else []
        )
    return [_from_varint(kind)(item) for item in varints(value)] if wire == BYTES else []


def _from_varint(kind: int) -> Callable[[int], float]:
    if kind == _BFLOAT:
        return lambda value: _bfloat(value & 0xFFFF)
    if kind == _HALF:
        return lambda value: float(struct.unpack("<e", struct.pack("<H", value & 0xFFFF))[0])
    return float if kind in {22, 23} else lambda value: float(signed(value))


def _bfloat(bits: int) -> float:
    """A bfloat16 is the upper half of a float."""
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
