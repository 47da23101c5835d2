"""What a nested value is made of, as JSON that no reader can round, and back.

Plain values: `None`, booleans, text and integers that every JSON reader keeps stand as themselves; the rest is an
object with one key that names it: `{"float": "0.1"}`, `{"int": "0x20000000000001"}`, `{"bytes": "AAE="}`.

Named things: dtypes, devices, layouts and sizes of a framework.

Classes: data never names a module to import and never runs a constructor. A class is used only if the caller gave it or
its module is loaded already, and if it has the fields it had; its objects are made without `__init__`.
"""

from __future__ import annotations

import importlib.util
import math
import struct
import sys
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum, Flag
from functools import cached_property
from typing import Any

import msgspec

from karat.bundles.manifest import Role
from karat.findings import Finding
from karat.tensors.dtypes import UnknownDtype
from karat.tensors.tensor import Damaged, Tensor, TensorExtent

DEEPEST = 64  # How deep values may be nested, so that every reader can follow.
_EXACT = 1 << 53  # JSON readers that only know doubles keep integers up to here.
_NAN = struct.pack(">d", math.nan)
NAMED = ("numpy.dtype", "torch.Size", "torch.device", "torch.dtype", "torch.layout", "torch.memory_format")
FACTORIES: Mapping[str, Any] = {kind.__name__: kind for kind in (bool, dict, float, int, list, set, str, tuple)}
"""What a defaultdict may make; anything else would be code that travels as data."""
# A dataclass that is one of these as well has content beside its fields.
_CONTENT = (bytes, bytearray, complex, float, frozenset, int, list, set, str, tuple)


class Flat(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A nested value as JSON that names tensors, and the tensors."""

    role: Role
    structure: Any
    tensors: Mapping[str, Tensor | TensorExtent]


class Record(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Fields of a class that is not known here: a dataclass, a namedtuple, a member of an Enum."""

    name: str  # `module:Qualname`, as where it was captured.
    kind: str  # `dataclass`, `namedtuple`, `structseq` or `enum`.
    fields: Mapping[str, Any]
    items: tuple[str, ...] | None = None  # For a dataclass that is a mapping as well: its keys, each of them a field.

    def __getitem__(self, field: str) -> Any:
        return self.fields[field]


class Restored(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A nested value as it was, or as near as this process knows its classes."""

    value: Any
    findings: tuple[Finding, ...] = ()


class Unset:
    """The value of a field that a dataclass has and its object had not set."""


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


WRITERS: Mapping[type, Callable[[Any], Any]] = {
    type(None): lambda value: value,
    bool: lambda value: value,
    int: lambda value: value if -_EXACT <= value <= _EXACT else {"int": hex(value)},
    float: lambda value: {"float": float_text(value)},
    complex: lambda value: {"complex": [float_text(value.real), float_text(value.imag)]},
    str: _text,
    bytes: lambda value: {"bytes": _base64(value)},
    bytearray: lambda value: {"bytearray": _base64(value)},
    type(Ellipsis): lambda _: {"ellipsis": True},
}
"""The type of a plain value → what makes JSON of it."""


def float_of(text: Any) -> float:
    """The double that `float_text` wrote; ValueError for anything else."""
    if not isinstance(text, str):
        raise ValueError("a float is written as text")  # noqa: TRY004 - one error for bad JSON
    if text.startswith("nan:"):
        data = bytes.fromhex(text[4:])
        if len(data) != 8:
            raise ValueError("a double has 16 digits")
        (value,) = struct.unpack(">d", data)
    else:
        value = float(text)
    if float_text(value) != text:
        raise ValueError(f"{text[:40]!r} is not how a float is written")
    return float(value)


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


READERS: Mapping[str, Callable[[Any], Any]] = {
    "int": _int_of,
    "float": float_of,
    "complex": _complex_of,
    "text": lambda text: _bytes_of(text).decode("utf-8", "surrogatepass"),
    "bytes": _bytes_of,
    "bytearray": lambda text: bytearray(_bytes_of(text)),
    "ellipsis": lambda _: ...,
}
"""The key that names it → what reads its value; ValueError or TypeError for what `WRITERS` did not write."""


def named_thing(value: Any) -> Any:
    """The JSON of a dtype, device, layout, memory format or Size; None for what is none of them.

    CannotStore for a dtype of numpy that has no name in karat.
    """
    kind = type(value)
    if kind.__module__ == "torch" and f"torch.{kind.__name__}" in NAMED:
        if kind.__name__ == "Size":
            return {"torch.Size": [int(length) for length in value]}
        return {f"torch.{kind.__name__}": str(value).removeprefix("torch.")}
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.dtype):
        return None
    from karat.tensors.numpy_arrays import name_of

    swapped = value.names is None and value.newbyteorder("<") != value
    return {"numpy.dtype": [name_of(value), "big" if swapped else "little"]}


def make_named(kind: str, name: Any) -> tuple[Any] | None:
    """The thing, in a tuple; None where its framework is not installed. ValueError if there is none."""
    check_named(kind, name)
    if kind == "numpy.dtype":
        from karat.tensors.numpy_arrays import numpy_dtype

        of, order = name
        if order not in {"big", "little"}:
            raise ValueError("a dtype is big-endian or little-endian")
        try:
            dtype = numpy_dtype(of)
        except UnknownDtype:
            raise ValueError("no dtype has that name") from None
        if dtype is None:
            raise Damaged(f"expected a numpy with {of} (pip install ml_dtypes), found none")
        return (dtype.newbyteorder(">") if order == "big" else dtype,)
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    if kind == "torch.Size":
        return (torch.Size(name),)
    if kind == "torch.device":
        try:
            return (torch.device(name),)
        except RuntimeError:
            raise ValueError("no device has that name") from None
    found = vars(torch).get(name)
    if f"{type(found).__module__}.{type(found).__name__}" != kind:
        raise ValueError("torch has none of that name")
    return (found,)


def check_named(kind: str, name: Any) -> None:
    """ValueError unless the name has the form that such a thing's has."""
    if kind == "torch.Size":
        if not isinstance(name, list) or not all(type(n) is int and n >= 0 for n in name):
            raise ValueError("a Size is a list of lengths")
    elif kind == "numpy.dtype":
        if not isinstance(name, list) or [type(part) for part in name] != [str, str]:
            raise ValueError("a dtype is a name and an order")
    elif not isinstance(name, str):
        raise ValueError("it goes by a name")


def class_name(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def is_namedtuple(cls: type) -> bool:
    """Whether its objects are tuples whose every element is a named field, and nothing else."""
    names = getattr(cls, "_fields", None)
    return (
        issubclass(cls, tuple)
        and isinstance(names, tuple)
        and all(isinstance(name, str) for name in names)
        and tuple in cls.__mro__[1:3]
    )


def is_structseq(cls: type) -> bool:
    """Whether it is a named tuple made in C, as torch's functions return."""
    return issubclass(cls, tuple) and type(getattr(cls, "n_sequence_fields", None)) is int


def dataclass_fields(value: Any) -> dict[str, Any] | str:
    """Field → value, `Unset` where there is none; or why the object is more than its fields."""
    names = [field.name for field in fields(value)]
    if isinstance(value, _CONTENT):
        return "it is a dataclass with content beside its fields"
    for name in getattr(value, "__dict__", {}):
        is_cache = any(isinstance(vars(base).get(name), cached_property) for base in type(value).__mro__)
        if name not in names and not is_cache:
            return f"it has the attribute {name!r}, which is no field of the dataclass"
    return {name: getattr(value, name, Unset) for name in names}


def find_class(name: str, classes: Iterable[type]) -> type | None:
    """The class of that name among those given, else in a module that is loaded."""
    given = tuple(classes)
    for cls in given:
        if f"{cls.__module__}:{cls.__qualname__}" == name:
            return cls
    module, _, qualified = name.partition(":")
    for cls in given:
        # The same class may live in another module where it is replayed: given is given.
        if cls.__qualname__ == qualified:
            return cls
    # Not getattr: __getattr__ of a module would be code that data calls, and a lazily loaded one would be loaded.
    found: Any = sys.modules.get(module)
    names: Mapping[str, Any] = object.__getattribute__(found, "__dict__") if found is not None else {}
    for part in qualified.split("."):
        found = names.get(part)
        names = vars(found) if isinstance(found, type) else {}
    if isinstance(found, type) and (found.__module__, found.__qualname__) == (module, qualified):
        return found
    return None


def make_object(kind: str, cls: type, values: Mapping[str, Any], items: Sequence[str] | None) -> Any:
    """A dataclass, namedtuple or structseq made without `__init__`, or None if the class has other fields."""
    try:
        if kind == "namedtuple":
            fits = is_namedtuple(cls) and tuple(values) == cls._fields  # type: ignore[attr-defined]
            return tuple.__new__(cls, values.values()) if fits else None
        if kind == "structseq":
            fits = is_structseq(cls) and len(values) == cls.n_sequence_fields  # type: ignore[attr-defined]
            return cls(tuple(values.values())) if fits else None
        if not is_dataclass(cls) or [field.name for field in fields(cls)] != list(values):
            return None
        if issubclass(cls, _CONTENT) or issubclass(cls, dict) != (items is not None):
            return None
        made = (dict if items is not None else object).__new__(cls)
        for name, value in values.items():
            if value is not Unset:
                object.__setattr__(made, name, value)
        # The mapping's own way to set an item, without what the class puts in front of it.
        base: Any = OrderedDict if issubclass(cls, OrderedDict) else dict
        for key in items or ():
            base.__setitem__(made, key, values[key])
    except (AttributeError, TypeError):
        return None
    return made


def find_member(cls: type, name: str | None, value: Any) -> Enum | None:
    """The member of an Enum by its name, if it still has that value; of a Flag by its value."""
    if not issubclass(cls, Enum):
        return None
    if issubclass(cls, Flag) and type(value) is int:
        try:
            return cls(value)
        except ValueError:
            return None
    member = cls.__members__.get(name or "")
    if member is None or type(member.value) is not type(value):
        return None
    comparable = isinstance(value, bool | int | float | str | bytes | tuple | None)
    return member if not comparable or member.value == value else None
