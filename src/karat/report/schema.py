"""JSON schemas of what karat writes, generated from the structs that are written.

A field's docstring is its description. A struct that leaves out defaults requires only what has none; any other is
written whole, so all of it is required.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

import msgspec

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class PublishedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """What the structs of a document do not say of it."""

    name: str
    title: str = ""  # By default the command that the name says: `karat policy gate` of `karat.policy-gate/1`.
    description: str
    limits: Mapping[str, Mapping[str, Any]] = {}
    """What holds for a field, as `field` or `Struct.field`, that its type does not say."""
    signed: Sequence[str] = ()  # Fields whose whole numbers count nothing and may be below zero; `*` for all.
    optional: Sequence[str] = ()  # `Struct.field`s that documents of earlier versions do not have.
    never_null: Sequence[str] = ()  # `Struct.field`s that are left out where they are None.
    also: Mapping[str, Mapping[str, Any]] = {}  # Keys that stand beside the fields of the outermost struct.
    open: Sequence[str] = ()  # Structs that may have further keys; `*` for all.


def schema_of(kind: Any, about: PublishedSchema) -> dict[str, Any]:
    """The schema of documents that are one `kind`, or one of several where it is a union."""
    (top,), components = msgspec.json.schema_components([kind])
    for struct in _structs(kind):
        if struct.__name__ in components:
            _complete(components[struct.__name__], struct, about)
    title = about.title or about.name.partition("/")[0].replace(".", " ").replace("-", " ")
    whole = {"$schema": DIALECT, "$id": about.name, "title": title, "description": about.description}
    if isinstance(kind, type) and kind.__name__ in components:
        inner = components.pop(kind.__name__)
        also = {"schema": {"const": about.name}, **about.also}
        inner["properties"] = {**also, **inner["properties"], **also}
        inner["required"] = list(dict.fromkeys([*also, *inner["required"]]))
        whole |= {key: value for key, value in inner.items() if key not in {"title", "description"}}
    else:
        whole |= {"oneOf": top.get("anyOf", [top])}
    return whole | ({"$defs": components} if components else {})


def _complete(schema: dict[str, Any], struct: type, about: PublishedSchema) -> None:
    """What msgspec does not say: constants, docstrings, limits, and that nothing is left out or added."""
    fields = schema["properties"]
    config = getattr(struct, "__struct_config__", None)
    sparse = config is not None and config.omit_defaults
    for field, text in _docstrings(struct).items():
        if field in fields:
            fields[field].setdefault("description", text)
    for name, field in fields.items():
        if f"{struct.__name__}.{name}" in about.never_null:
            rest = [one for one in field.pop("anyOf", ()) if one != {"type": "null"}]
            field.update(rest[0] if len(rest) == 1 else {"anyOf": rest})
        field.pop("default", None)
        kinds = [field.get("type"), *(one.get("type") for one in field.get("anyOf", ()))]
        if "integer" in kinds and not {"*", name} & set(about.signed):
            _merge(field, {"minimum": 0})
        for key in (name, f"{struct.__name__}.{name}"):
            _merge(field, about.limits.get(key, {}))
    if sparse:
        written = set(schema.get("required", ()))
    else:
        written = {name for name in fields if f"{struct.__name__}.{name}" not in about.optional}
    schema["required"] = [name for name in fields if name in written]
    if not {"*", struct.__name__} & set(about.open):
        schema["additionalProperties"] = False


def _merge(schema: dict[str, Any], limit: Mapping[str, Any]) -> None:
    """Adds a limit; of a field that may be null, to what else it may be."""
    target = schema
    if "anyOf" in schema:
        target = next(one for one in schema["anyOf"] if one != {"type": "null"})
    target.update(limit)
    if "enum" in limit:
        target.pop("type", None)


def _structs(kind: Any) -> Iterable[type]:
    """Every struct and dataclass that a type holds, itself included."""
    seen: dict[type, None] = {}
    left = [msgspec.inspect.type_info(kind)]
    while left:
        info = left.pop()
        if isinstance(info, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
            if info.cls in seen:
                continue
            seen[info.cls] = None
            left += [field.type for field in info.fields]
        for part in ("types", "item_types"):
            left += getattr(info, part, ())
        for part in ("item_type", "key_type", "value_type"):
            if (inner := getattr(info, part, None)) is not None:
                left.append(inner)
    return seen


@cache
def _docstrings(struct: type) -> Mapping[str, str]:
    """Field → the text that stands behind or below it in the source."""
    found: dict[str, str] = {}
    for cls in reversed(struct.__mro__):
        if cls.__module__.partition(".")[0] != "karat":
            continue
        try:
            source = inspect.getsource(cls)
        except OSError:
            continue  # made while running, or installed without its source: no descriptions
        (definition,) = ast.parse(textwrap.dedent(source)).body
        lines, written = definition.body if isinstance(definition, ast.ClassDef) else [], source.splitlines()
        for field, below in zip_longest(lines, lines[1:]):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                beside = written[field.lineno - 1].partition("  # ")[2].partition("noqa")[0].strip()
                if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    beside = str(below.value.value)
                if beside:
                    found[field.target.id] = " ".join(beside.split())
    return found
