"""Flattening: a nested Python value becomes JSON that names tensors, and the tensors."""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import is_dataclass
from enum import Enum
from hashlib import sha256
from typing import Any, NoReturn

import msgspec

from karat.bundles.classes import (
    FACTORIES,
    class_name,
    dataclass_fields,
    is_namedtuple,
    is_structseq,
)
from karat.bundles.flat import DEEPEST, Flat, Record, Unset, shown_role
from karat.bundles.manifest import Role
from karat.bundles.named_things import named_thing
from karat.bundles.plain_values import PLAIN, plain
from karat.tensors.arrays import is_tensor, tensor_of
from karat.tensors.tensor import CannotStore, Tensor

_LONGEST = 100
_ESCAPED = re.compile(r"[%/\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")


class _Path(msgspec.Struct, frozen=True):
    """Where in the value: as a person would write it, and as the name of a tensor."""

    shown: str
    name: str

    def item(self, index: int) -> _Path:
        return _Path(f"{self.shown}[{index}]", f"{self.name}/{index}")

    def field(self, field: str) -> _Path:
        return _Path(f"{self.shown}.{field}", f"{self.name}/{_component(field)}")

    def key(self, key: Any, index: int) -> _Path:
        if type(key) is str:
            component, shown = _component(key), repr(key)
        elif type(key) in {int, bool, type(None)}:
            component = shown = _component(hex(key) if _is_huge(key) else str(key))
        else:
            component, shown = f"@{index}", f"entry {index}"
        shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
        return _Path(f"{self.shown}[{shown}]", f"{self.name}/{component}")


def _is_huge(key: Any) -> bool:
    """Python refuses to write very long integers in decimal."""
    return type(key) is int and key.bit_length() > 64


def _component(text: str) -> str:
    """A part of a tensor's name: without `/` and what breaks a line or a table."""
    made = _ESCAPED.sub(_escape, text)
    if len(made) <= _LONGEST:
        return made
    return f"{made[:60]}~{sha256(made.encode()).hexdigest()[:16]}"


def _escape(found: re.Match[str]) -> str:
    data = found.group().encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)


def flatten(value: Any, role: Role) -> Flat:
    """The value taken apart; CannotStore says where in it something has no form."""
    flattener = _Flattener()
    structure = flattener.put(value, _Path(shown_role(role), role))
    return Flat(role=role, structure=structure, tensors=flattener.tensors)


class _Flattener:
    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._inside: list[int] = []
        self._unordered = 0

    def put(self, value: Any, path: _Path) -> Any:
        if type(value) in PLAIN:
            return plain(value)
        if id(value) in self._inside:
            _refuse(path, value, "it holds itself, and what comes back could not")
        if len(self._inside) >= DEEPEST:
            _refuse(path, value, f"it lies more than {DEEPEST} levels deep")
        self._inside.append(id(value))
        made = self._compound(value, path)
        self._inside.pop()
        return made

    def _compound(self, value: Any, path: _Path) -> Any:
        kind = type(value)
        if kind is list or kind is tuple:
            return {kind.__name__: self._items(value, path)}
        if kind is dict or kind is OrderedDict:
            return {kind.__name__.lower(): self._entries(value, path)}
        if kind is defaultdict:
            factory = value.default_factory
            return {"defaultdict": self._entries(value, path), "factory": _factory(factory, path)}
        if kind is set or kind is frozenset:
            return {kind.__name__: self._unordered_items(value, path)}
        if kind is slice or kind is range:
            parts = (value.start, value.stop, value.step)
            return {kind.__name__: self._items(parts, path)}
        return self._object(value, path)

    def _object(self, value: Any, path: _Path) -> Any:
        if isinstance(value, Enum):
            return self._enum(value, path)
        if isinstance(value, Record):
            return self._record(value, path)
        if is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value, path)
        if is_namedtuple(type(value)) or is_structseq(type(value)):
            return self._tuple_of_fields(value, path)
        if (named := _named(value, path)) is not None:
            return named
        return self._tensor(value, path)

    def _tuple_of_fields(self, value: Any, path: _Path) -> Any:
        kind = "namedtuple" if is_namedtuple(type(value)) else "structseq"
        if extra := next(iter(getattr(value, "__dict__", ())), None):
            _refuse(path, value, f"it has the attribute {extra!r}, which is no field of the tuple")
        names = type(value)._fields if kind == "namedtuple" else map(str, range(len(value)))
        return self._fields(kind, class_name(value), zip(names, value, strict=True), path)

    def _items(self, values: Iterable[Any], path: _Path) -> list[Any]:
        return [self.put(value, path.item(index)) for index, value in enumerate(values)]

    def _entries(self, values: dict[Any, Any], path: _Path) -> list[Any]:
        return [
            [self.put(key, path.key(key, index)), self.put(value, path.key(key, index))]
            for index, (key, value) in enumerate(values.items())
        ]

    def _unordered_items(self, values: Iterable[Any], path: _Path) -> list[Any]:
        """Sorted by their JSON, because a set's own order is another in every process."""
        self._unordered += 1
        made = self._items(values, path)
        self._unordered -= 1
        return sorted(made, key=msgspec.json.encode)

    def _fields(
        self, kind: str, name: str, pairs: Iterable[tuple[str, Any]], path: _Path
    ) -> dict[str, Any]:
        fields = [[field, self._field(value, path.field(field))] for field, value in pairs]
        return {kind: name, "fields": fields}

    def _field(self, value: Any, path: _Path) -> Any:
        return {"unset": True} if value is Unset else self.put(value, path)

    def _dataclass(self, value: Any, path: _Path) -> Any:
        fields = dataclass_fields(value)
        if isinstance(fields, str):
            _refuse(path, value, fields)
        made = self._fields("dataclass", class_name(value), fields.items(), path)
        if isinstance(value, dict):
            # The outputs of model libraries: a dataclass and a mapping of those fields that are set.
            odd = [key for key in value if fields.get(key, Unset) is not value[key]]
            if odd:
                _refuse(path, value, f"it is a mapping whose key {odd[0]!r} is no field of it")
            made["items"] = list(value)
        return made

    def _enum(self, value: Enum, path: _Path) -> Any:
        inner = self.put(value.value, path.field("value"))
        return {"enum": class_name(value), "member": value.name, "value": inner}

    def _record(self, value: Record, path: _Path) -> Any:
        """Back to what it was made from, so that a capture of what was restored loses nothing."""
        if value.kind == "enum":
            inner = self.put(value.fields["value"], path.field("value"))
            return {"enum": value.name, "member": value.fields["name"], "value": inner}
        made = self._fields(value.kind, value.name, value.fields.items(), path)
        return made | ({"items": list(value.items)} if value.items is not None else {})

    def _tensor(self, value: Any, path: _Path) -> Any:
        if not is_tensor(value):
            _refuse(path, value, "it has no form in a bundle")
        if self._unordered:
            _refuse(path, value, "it is a tensor in a set, and a set has no order")
        try:
            tensor = tensor_of(value)
        except CannotStore as error:
            raise CannotStore(f"{path.shown}: {error}") from None
        name, count = path.name, 1
        while name in self.tensors:
            count += 1
            name = f"{path.name}~{count}"
        self.tensors[name] = tensor
        return {"scalar" if tensor.framework == "numpy-scalar" else "tensor": name}


def _named(value: Any, path: _Path) -> Any:
    try:
        return named_thing(value)
    except CannotStore as error:
        raise CannotStore(f"{path.shown}: {error}") from None


def _factory(factory: Any, path: _Path) -> str | None:
    """The name of what makes missing values."""
    if factory is None:
        return None
    for name, known in FACTORIES.items():
        if factory is known:
            return name
    raise CannotStore(
        f"{path.shown}: expected a defaultdict of {', '.join(FACTORIES)}, found one of {factory!r}; "
        "hand over dict(…) of it"
    )


def _refuse(path: _Path, value: Any, why: str) -> NoReturn:
    kind = type(value)
    raise CannotStore(
        f"{path.shown}: expected tensors, plain values, and tuples, lists, dicts, dataclasses and enums of "
        f"them; found {kind.__module__}.{kind.__qualname__}: {why}"
    )
