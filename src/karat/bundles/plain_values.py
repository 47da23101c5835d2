"""Plain Python values as JSON that no reader can round: text where JSON's own forms lose something.

`None`, booleans, text and integers that every JSON reader keeps stand as themselves. The rest is an object
with one telling key: `{"float": "0.1"}`, `{"int": "0x20000000000001"}`, `{"bytes": "AAE="}`.
"""

from __future__ import annotations

import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

_EXACT = 1 << 53
"""JSON readers that only know doubles keep integers up to here."""
_NAN = struct.pack(">d", math.nan)


def plain(value: Any) -> Any:
    """The JSON of a value whose type is one of `PLAIN`."""
    return _WRITERS[type(value)](value)


def _int(value: int) -> Any:
    return value if -_EXACT <= value <= _EXACT else {"int": hex(value)}


def float_text(value: float) -> str:
    """The shortest text that is this very double; a NaN of other bits than usual shows them."""
    bits = struct.pack(">d", value)
    if math.isnan(value) and bits != _NAN:
        return f"nan:{bits.hex()}"
    return repr(value)


def _text(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"text": _base64(value.encode("utf-8", "surrogatepass"))}
    return value


def _base64(data: bytes | bytearray) -> str:
    return b64encode(data).decode("ascii")


_WRITERS: Mapping[type, Callable[[Any], Any]] = {
    type(None): lambda value: value,
    bool: lambda value: value,
    int: _int,
    float: lambda value: {"float": float_text(value)},
    complex: lambda value: {"complex": [float_text(value.real), float_text(value.imag)]},
    str: _text,
    bytes: lambda value: {"bytes": _base64(value)},
    bytearray: lambda value: {"bytearray": _base64(value)},
    type(Ellipsis): lambda _: {"ellipsis": True},
}
PLAIN = frozenset(_WRITERS)


def float_of(text: Any) -> float:
    """The double that `float_text` wrote; ValueError for anything else."""
    if not isinstance(text, str):
        raise ValueError("a float is written as text")  # noqa: TRY004 - one error for bad JSON
    if text.startswith("nan:"):
        (value,) = struct.unpack(">d", _sixteen(text[4:]))
    else:
        value = float(text)
    if float_text(value) != text:
        raise ValueError(f"{text[:40]!r} is not how a float is written")
    return float(value)


def _sixteen(digits: str) -> bytes:
    data = bytes.fromhex(digits)
    if len(data) != 8:
        raise ValueError("a double has 16 digits")
    return data


def _int_of(text: Any) -> int:
    value = int(text, 16)
    if hex(value) != text:
        raise ValueError("an integer beyond 2^53 is written in hexadecimal")
    return value


def _complex_of(parts: Any) -> complex:
    real, imag = parts
    return complex(float_of(real), float_of(imag))


def _bytes_of(text: Any) -> bytes:
    return b64decode(text, validate=True)


def _ellipsis_of(_: Any) -> Any:
    return ...


READERS: Mapping[str, Callable[[Any], Any]] = {
    "int": _int_of,
    "float": float_of,
    "complex": _complex_of,
    "text": lambda text: _bytes_of(text).decode("utf-8", "surrogatepass"),
    "bytes": _bytes_of,
    "bytearray": lambda text: bytearray(_bytes_of(text)),
    "ellipsis": _ellipsis_of,
}
"""The telling key → what reads its value; ValueError or TypeError for what nobody wrote."""
