"""Classes of captured values: what is recorded of them, and how they are found again without importing.

Data never names a module to import and never runs a constructor: a class is used only if the caller gave it
or its module is loaded already, if it is what it was, and its objects are made around `__init__`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum, Flag
from functools import cached_property
from typing import Any

from karat.bundles.flat import Unset

FACTORIES: Mapping[str, Callable[[], Any]] = {
    "bool": bool, "dict": dict, "float": float, "int": int, "list": list, "set": set, "str": str,
    "tuple": tuple,
}  # fmt: skip
"""What a defaultdict may make; anything else would be code that travels as data."""
# A dataclass that is one of these as well has content beside its fields.
_CONTENT = (bytes, bytearray, complex, float, frozenset, int, list, set, str, tuple)


def class_name(value: Any) -> str:
    """`module:Qualname` of its class."""
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
    kept = getattr(value, "__dict__", {})
    extra = [name for name in kept if name not in names and not _is_cache(type(value), name)]
    if extra:
        return f"it has the attribute {extra[0]!r}, which is no field of the dataclass"
    return {name: getattr(value, name, Unset) for name in names}


def _is_cache(cls: type, name: str) -> bool:
    return any(isinstance(vars(base).get(name), cached_property) for base in cls.__mro__)


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
    names: Mapping[str, Any] = (
        object.__getattribute__(found, "__dict__") if found is not None else {}
    )
    for part in qualified.split("."):
        found = names.get(part)
        names = vars(found) if isinstance(found, type) else {}
    if isinstance(found, type) and (found.__module__, found.__qualname__) == (module, qualified):
        return found
    return None


def make_namedtuple(cls: type, values: Mapping[str, Any]) -> Any:
    """An object of the class, or None if the class has other fields."""
    if not is_namedtuple(cls) or tuple(values) != cls._fields:  # type: ignore[attr-defined]
        return None
    return tuple.__new__(cls, values.values())


def make_structseq(cls: type, values: Mapping[str, Any]) -> Any:
    """An object of the class, or None if it takes another number of values."""
    if not is_structseq(cls) or len(values) != cls.n_sequence_fields:  # type: ignore[attr-defined]
        return None
    try:
        return cls(tuple(values.values()))
    except TypeError:
        return None


def make_dataclass(cls: type, values: Mapping[str, Any], items: Sequence[str] | None) -> Any:
    """An object of the class, made around `__init__`, or None if the class has other fields."""
    if not is_dataclass(cls) or [field.name for field in fields(cls)] != list(values):
        return None
    if issubclass(cls, _CONTENT) or issubclass(cls, dict) != (items is not None):
        return None
    try:
        made = (dict if items is not None else object).__new__(cls)
        for name, value in values.items():
            if value is not Unset:
                object.__setattr__(made, name, value)
        for key in items or ():
            _base_setitem(cls)(made, key, values[key])
    except (AttributeError, TypeError):
        return None
    return made


def _base_setitem(cls: type) -> Callable[[Any, Any, Any], None]:
    """The mapping's own way to set an item, without what the class puts in front of it."""
    from collections import OrderedDict  # noqa: PLC0415 - as rarely needed as this function

    return OrderedDict.__setitem__ if issubclass(cls, OrderedDict) else dict.__setitem__


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
