"""Nested Python values as JSON that names tensors, and back.

`None`, booleans, text and integers up to 2^53 stand as themselves. Everything else is an object whose first key says
what it is:

    {"tensor": NAME}  {"scalar": NAME}                     an array; a single numpy value
    {"int": HEX}  {"float": TEXT}  {"complex": [TEXT, TEXT]}  {"text": BASE64}  {"bytes": BASE64} …
    {"tuple": […]}  {"list": […]}  {"set": […]}  {"slice": [start, stop, step]}  {"range": …}
    {"dict": [[key, value], …]}  {"ordereddict": …}  {"defaultdict": …, "factory": "list"}
    {"dataclass": "module:Class", "fields": [[name, value], …]}  {"namedtuple": …}  {"structseq": …}
    {"enum": "module:Class", "member": NAME, "value": …}
    {"torch.dtype": "float32"}  {"torch.device": "cuda:0"}  {"torch.Size": [2, 3]}  {"numpy.dtype": …}

What has no form is `CannotStore`, with its place in the value. References to one object come back as copies; a value
that holds itself has no form.
"""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Any, NoReturn

import msgspec

from karat.bundles.manifest import Role
from karat.bundles.values import (
    DEEPEST,
    FACTORIES,
    NAMED,
    READERS,
    WRITERS,
    Flat,
    Record,
    Restored,
    Unset,
    check_named,
    class_name,
    dataclass_fields,
    find_class,
    find_member,
    is_namedtuple,
    is_structseq,
    make_named,
    make_object,
    named_thing,
)
from karat.findings import Finding, info
from karat.system.hashes import sha256_hex
from karat.tensors.tensor import CannotStore, Damaged, Tensor

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
            # Python refuses to write very long integers in decimal.
            huge = type(key) is int and key.bit_length() > 64
            component = shown = _component(hex(key) if huge else str(key))
        else:
            component, shown = f"@{index}", f"entry {index}"
        shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
        return _Path(f"{self.shown}[{shown}]", f"{self.name}/{component}")


def _component(text: str) -> str:
    """A part of a tensor's name: without `/` and what breaks a line or a table."""

    def escape(found: re.Match[str]) -> str:
        data = found.group().encode("utf-8", "surrogatepass")
        return "".join(f"%{byte:02X}" for byte in data)

    made = _ESCAPED.sub(escape, text)
    if len(made) <= _LONGEST:
        return made
    return f"{made[:60]}~{sha256_hex(made.encode())[:16]}"


def flatten(value: Any, role: Role) -> Flat:
    """The value taken apart; CannotStore says where in it something has no form."""
    flattener = _Flattener()
    structure = flattener.put(value, _Path("inputs" if role == "input" else role, role))
    return Flat(role=role, structure=structure, tensors=flattener.tensors)


class _Flattener:
    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._inside: list[int] = []
        self._unordered = 0

    def put(self, value: Any, path: _Path) -> Any:
        if type(value) in WRITERS:
            return WRITERS[type(value)](value)
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
            name = next((name for name, known in FACTORIES.items() if known is factory), None)
            if factory is not None and name is None:
                known = f"expected a defaultdict of {', '.join(FACTORIES)}, found one of {factory!r}"
                raise CannotStore(f"{path.shown}: {known}; hand over dict(…) of it")
            return {"defaultdict": self._entries(value, path), "factory": name}
        if kind is set or kind is frozenset:
            # Sorted by their JSON, because a set's own order differs in every process.
            self._unordered += 1
            made = self._items(value, path)
            self._unordered -= 1
            return {kind.__name__: sorted(made, key=msgspec.json.encode)}
        if kind is slice or kind is range:
            parts = (value.start, value.stop, value.step)
            return {kind.__name__: self._items(parts, path)}
        return self._object(value, path)

    def _object(self, value: Any, path: _Path) -> Any:
        if isinstance(value, Enum):
            inner = self.put(value.value, path.field("value"))
            return {"enum": class_name(value), "member": value.name, "value": inner}
        if isinstance(value, Record):
            # Back to what it was made from, so that a capture of what was restored loses nothing.
            if value.kind == "enum":
                inner = self.put(value.fields["value"], path.field("value"))
                return {"enum": value.name, "member": value.fields["name"], "value": inner}
            made = self._fields(value.kind, value.name, value.fields.items(), path)
            return made | ({"items": list(value.items)} if value.items is not None else {})
        if is_dataclass(value) and not isinstance(value, type):
            return self._dataclass(value, path)
        if is_namedtuple(type(value)) or is_structseq(type(value)):
            kind = "namedtuple" if is_namedtuple(type(value)) else "structseq"
            if extra := next(iter(getattr(value, "__dict__", ())), None):
                _refuse(path, value, f"it has the attribute {extra!r}, which is no field of the tuple")
            names = type(value)._fields if kind == "namedtuple" else map(str, range(len(value)))
            return self._fields(kind, class_name(value), zip(names, value, strict=True), path)
        try:
            named = named_thing(value)
        except CannotStore as error:
            raise CannotStore(f"{path.shown}: {error}") from None
        if named is not None:
            return named
        return self._tensor(value, path)

    def _items(self, values: Iterable[Any], path: _Path) -> list[Any]:
        return [self.put(value, path.item(index)) for index, value in enumerate(values)]

    def _entries(self, values: dict[Any, Any], path: _Path) -> list[Any]:
        return [
            [self.put(key, path.key(key, index)), self.put(value, path.key(key, index))]
            for index, (key, value) in enumerate(values.items())
        ]

    def _fields(self, kind: str, cls: str, pairs: Iterable[tuple[str, Any]], path: _Path) -> dict[str, Any]:
        unset = {"unset": True}
        fields = [[name, unset if value is Unset else self.put(value, path.field(name))] for name, value in pairs]
        return {kind: cls, "fields": fields}

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

    def _tensor(self, value: Any, path: _Path) -> Any:
        # Whoever only verifies needs no numpy.
        from karat.tensors.arrays import is_tensor, tensor_of

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


def _refuse(path: _Path, value: Any, why: str) -> NoReturn:
    kind = type(value)
    raise CannotStore(
        f"{path.shown}: expected tensors, plain values, and tuples, lists, dicts, dataclasses and enums of "
        f"them; found {kind.__module__}.{kind.__qualname__}: {why}"
    )


def restore(
    structure: Any,
    tensors: Mapping[str, Tensor],
    *,
    classes: Iterable[type] = (),
    framework: str | None = None,
    copy: bool = True,
) -> Restored:
    """The value that `flatten` took apart; `Damaged` if karat cannot have written the structure.

    Tensors become what they were, or all of them values of `framework`; with `copy=False` in the very
    memory of `tensors`. No module is imported and no constructor run because data says so: see
    `karat.bundles.values`.
    """
    restorer = _Restorer(tensors, tuple(classes), framework, copy=copy)
    return Restored(value=restorer.get(structure, "$"), findings=tuple(restorer.findings.values()))


def check_structure(structure: Any) -> list[str]:
    """Every tensor that a structure names, as often as it does; `Damaged` if karat cannot have written it.

    No class is looked up and no module imported for that.
    """
    checker = _Checker({}, (), None, copy=False)
    checker.get(structure, "$")
    return checker.names


def tensor_names(structure: Any) -> Iterator[str]:
    """Every tensor that a structure names, in its order, as often as it does."""
    pending = [structure]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(reversed(node))
        elif isinstance(node, dict):
            name = node.get("tensor", node.get("scalar"))
            if isinstance(name, str) and len(node) == 1:
                yield name
            else:
                pending.extend(reversed(node.values()))


class _Restorer:
    def __init__(
        self, tensors: Mapping[str, Tensor], classes: tuple[type, ...], framework: str | None, *, copy: bool
    ) -> None:
        self._tensors, self._classes, self._framework, self._copy = tensors, classes, framework, copy
        self._depth = 0
        self.findings: dict[str, Finding] = {}

    def get(self, node: Any, where: str) -> Any:
        if node is None or type(node) in {bool, int, str}:
            return node
        if not isinstance(node, dict) or not node:
            raise _odd(where, node)
        kind = next(iter(node))
        if kind in READERS and len(node) == 1:
            try:
                return READERS[kind](node[kind])
            except (TypeError, ValueError, OverflowError):
                raise _odd(where, node) from None
        if self._depth > DEEPEST:
            raise Damaged(f"{where}: expected at most {DEEPEST} levels, found more")
        method, keys = _COMPOUNDS.get(kind, ("", frozenset()))
        if not node.keys() <= keys:
            raise _odd(where, node)
        self._depth += 1
        try:
            return getattr(self, method)(node, where)
        except (TypeError, ValueError, KeyError, OverflowError):
            raise _odd(where, node) from None
        finally:
            self._depth -= 1

    def _items(self, node: Any, where: str) -> list[Any]:
        if not isinstance(node, list):
            raise _odd(where, node)
        return [self.get(item, f"{where}[{index}]") for index, item in enumerate(node)]

    def _entries(self, node: Any, where: str) -> list[tuple[Any, Any]]:
        if not isinstance(node, list):
            raise _odd(where, node)
        pairs = [self._items(pair, f"{where}[{index}]") for index, pair in enumerate(node)]
        if any(len(pair) != 2 for pair in pairs):
            raise _odd(where, node)
        return [(key, value) for key, value in pairs]

    def sequence(self, node: dict[str, Any], where: str) -> Any:
        ((kind, items),) = node.items()
        made = self._items(items, where)
        if kind in {"slice", "range"}:
            start, stop, step = made
            return slice(start, stop, step) if kind == "slice" else range(start, stop, step)
        found = _SEQUENCES[kind](made)
        if len(found) != len(made):
            raise Damaged(f"{where}: expected a set, found an element twice")
        return found

    def mapping(self, node: dict[str, Any], where: str) -> Any:
        kind = next(iter(node))
        entries = self._entries(node[kind], where)
        if kind == "defaultdict":
            factory = node["factory"]
            made: dict[Any, Any] = defaultdict(None if factory is None else FACTORIES[factory])
            made.update(entries)
        else:
            made = OrderedDict(entries) if kind == "ordereddict" else dict(entries)
        if len(made) != len(entries):
            raise Damaged(f"{where}: expected each key once, found one twice")
        return made

    def tensor(self, node: dict[str, Any], where: str) -> Any:
        ((kind, name),) = node.items()
        tensor = self._tensors.get(name) if isinstance(name, str) else None
        if tensor is None:
            raise Damaged(f"{where}: expected a tensor of the case, found the name {name!r:.100}")
        wanted = "numpy-scalar" if kind == "scalar" else self._framework
        from karat.tensors.arrays import value_and_note

        value, note = value_and_note(tensor, wanted, copy=self._copy)
        if note is not None:
            self._tell(name, note)
        return value

    def named(self, node: dict[str, Any], where: str) -> Any:
        ((kind, name),) = node.items()
        made = make_named(kind, name)
        if made is None:
            self._tell(where, f"expected torch for a {kind}, found none; its name came back")
            return tuple(name) if kind == "torch.Size" else name
        return made[0]

    def fields(self, node: dict[str, Any], where: str) -> Any:
        kind, name = next(iter(node.items()))
        pairs = [
            (field, Unset if value == {"unset": True} else self.get(value, f"{where}.{field}"))
            for field, value in node["fields"]
        ]
        values, items = dict(pairs), node.get("items")
        named = isinstance(name, str) and all(isinstance(field, str) for field in values)
        if not named or len(values) != len(pairs):
            raise _odd(where, node)
        if items is not None and not all(values.get(key, Unset) is not Unset for key in items):
            raise _odd(where, node)
        if kind != "dataclass" and any(value is Unset for value in values.values()):
            raise _odd(where, node)
        cls = self._class(name)
        made = make_object(kind, cls, values, items) if cls is not None else None
        if made is not None:
            return made
        self._tell_class(name)
        return Record(name=name, kind=kind, fields=values, items=tuple(items) if items is not None else None)

    def enum(self, node: dict[str, Any], where: str) -> Any:
        name, member = node["enum"], node["member"]
        value = self.get(node["value"], f"{where}.value")
        if not isinstance(name, str) or not isinstance(member, str | None):
            raise _odd(where, node)
        cls = self._class(name)
        found = find_member(cls, member, value) if cls is not None else None
        if found is not None:
            return found
        self._tell_class(name)
        return Record(name=name, kind="enum", fields={"name": member, "value": value})

    def _class(self, name: str) -> type | None:
        return find_class(name, self._classes)

    def _tell_class(self, name: str) -> None:
        self._tell(
            name,
            f"expected the class {name[:200]}, found none of that name and these fields among the "
            "classes given and the modules loaded; its fields came back as a Record",
        )

    def _tell(self, about: str, message: str) -> None:
        self.findings[about] = info("unsafe-type", message, where=about)


class _Checker(_Restorer):
    """Goes through a structure as if it were to be restored; what needs a tensor or a class has a stand-in."""

    def __init__(self, *given: Any, copy: bool) -> None:
        super().__init__(*given, copy=copy)
        self.names: list[str] = []

    def tensor(self, node: dict[str, Any], where: str) -> Any:
        ((_, name),) = node.items()
        if not isinstance(name, str):
            raise _odd(where, node)
        self.names.append(name)
        return object()

    def named(self, node: dict[str, Any], where: str) -> Any:  # noqa: ARG002 - as the method it overrides
        ((kind, name),) = node.items()
        check_named(kind, name)
        return kind, msgspec.json.encode(name)

    def _class(self, name: str) -> type | None:  # noqa: ARG002 - as the method it overrides
        return None

    def _tell_class(self, name: str) -> None:
        """Nobody has asked for the class yet."""


_SEQUENCES: Mapping[str, Callable[[list[Any]], Any]] = {kind.__name__: kind for kind in (list, tuple, set, frozenset)}
_COMPOUNDS: Mapping[str, tuple[str, frozenset[str]]] = {
    **{kind: ("sequence", frozenset({kind})) for kind in ("list", "tuple", "set", "frozenset", "slice", "range")},
    **{kind: ("mapping", frozenset({kind})) for kind in ("dict", "ordereddict")},
    "defaultdict": ("mapping", frozenset({"defaultdict", "factory"})),
    **{kind: ("tensor", frozenset({kind})) for kind in ("tensor", "scalar")},
    **{kind: ("named", frozenset({kind})) for kind in NAMED},
    **{kind: ("fields", frozenset({kind, "fields"})) for kind in ("namedtuple", "structseq")},
    "dataclass": ("fields", frozenset({"dataclass", "fields", "items"})),
    "enum": ("enum", frozenset({"enum", "member", "value"})),
}
"""The first key → the method that reads it, and all keys that may be there."""


def _odd(where: str, node: Any) -> Damaged:
    return Damaged(f"{where}: expected the structure of a value, found {node!r:.120}")
