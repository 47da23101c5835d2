"""Restoring: JSON that names tensors, and the tensors, become the nested value again."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from karat.bundles.classes import (
    FACTORIES,
    find_class,
    find_member,
    make_dataclass,
    make_namedtuple,
    make_structseq,
)
from karat.bundles.flat import DEEPEST, Record, Restored, Unset
from karat.bundles.named_things import NAMED, check_named, make_named
from karat.bundles.plain_values import READERS
from karat.findings import Finding, Severity
from karat.tensors.arrays import value_and_note
from karat.tensors.tensor import Damaged, Tensor


def restore(
    structure: Any,
    tensors: Mapping[str, Tensor],
    *,
    classes: Iterable[type] = (),
    framework: str | None = None,
    copy: bool = True,
) -> Restored:
    """The value that `flatten` took apart; `Damaged` if nobody can have written the structure.

    Tensors become what they were, or all of them values of `framework`; with `copy=False` in the very
    memory of `tensors`. No module is imported and no constructor run because data says so: see
    `karat.bundles.classes`.
    """
    restorer = _Restorer(tensors, tuple(classes), framework, copy=copy)
    value = restorer.get(structure, "$")
    return Restored(value=value, findings=tuple(restorer.findings.values()))


def check_structure(structure: Any) -> list[str]:
    """Every tensor that a structure names, as often as it does; `Damaged` if nobody can have written it.

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
        self,
        tensors: Mapping[str, Tensor],
        classes: tuple[type, ...],
        framework: str | None,
        *,
        copy: bool,
    ) -> None:
        self._tensors, self._classes, self._framework = tensors, classes, framework
        self._copy = copy
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
        self._depth += 1
        try:
            return self._compound(kind, node, where)
        finally:
            self._depth -= 1

    def _compound(self, kind: str, node: dict[str, Any], where: str) -> Any:
        make = _COMPOUNDS.get(kind)
        if make is None:
            raise _odd(where, node)
        method, keys = make
        if not node.keys() <= keys:
            raise _odd(where, node)
        try:
            return getattr(self, method)(node, where)
        except (TypeError, ValueError, KeyError, OverflowError):
            raise _odd(where, node) from None

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
        pairs = [(field, self._field(value, f"{where}.{field}")) for field, value in node["fields"]]
        values, items = dict(pairs), node.get("items")
        if (
            not isinstance(name, str)
            or len(values) != len(pairs)
            or not all(isinstance(field, str) for field in values)
        ):
            raise _odd(where, node)
        if items is not None and not all(values.get(key, Unset) is not Unset for key in items):
            raise _odd(where, node)
        made = self._made(kind, name, values, items)
        if made is not None:
            return made
        self._tell_class(name)
        kept = tuple(items) if items is not None else None
        return Record(name=name, kind=kind, fields=values, items=kept)

    def _field(self, node: Any, where: str) -> Any:
        return Unset if node == {"unset": True} else self.get(node, where)

    def _made(self, kind: str, name: str, values: dict[str, Any], items: Any) -> Any:
        if kind != "dataclass" and any(value is Unset for value in values.values()):
            raise ValueError
        cls = self._class(name)
        if cls is None:
            return None
        if kind == "dataclass":
            return make_dataclass(cls, values, items)
        return (make_namedtuple if kind == "namedtuple" else make_structseq)(cls, values)

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
        self.findings[about] = Finding(
            kind="unsafe-type", severity=Severity.INFO, message=message, where=about
        )


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
        """Not a word: nobody asked for the class yet."""


_SEQUENCES: Mapping[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_COMPOUNDS: Mapping[str, tuple[str, frozenset[str]]] = {
    **{
        kind: ("sequence", frozenset({kind}))
        for kind in ("list", "tuple", "set", "frozenset", "slice", "range")
    },
    **{kind: ("mapping", frozenset({kind})) for kind in ("dict", "ordereddict")},
    "defaultdict": ("mapping", frozenset({"defaultdict", "factory"})),
    **{kind: ("tensor", frozenset({kind})) for kind in ("tensor", "scalar")},
    **{kind: ("named", frozenset({kind})) for kind in NAMED},
    **{kind: ("fields", frozenset({kind, "fields"})) for kind in ("namedtuple", "structseq")},
    "dataclass": ("fields", frozenset({"dataclass", "fields", "items"})),
    "enum": ("enum", frozenset({"enum", "member", "value"})),
}
"""The telling key → the method that reads it, and all keys that there may be."""


def _odd(where: str, node: Any) -> Damaged:
    return Damaged(f"{where}: expected the structure of a value, found {node!r:.120}")
