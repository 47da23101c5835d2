"""What is left of a nested value when it is taken apart, and what it is put together to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from karat.bundles.manifest import Role
from karat.findings import Finding
from karat.tensors.tensor import Tensor, TensorExtent

DEEPEST = 64
"""How deep values may be nested; nobody's outputs are, and every reader must be able to follow."""


class Flat(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A nested value as JSON that names tensors, and the tensors."""

    role: Role
    structure: Any
    tensors: Mapping[str, Tensor | TensorExtent]


class Record(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Fields of a class that is not known here: a dataclass, a namedtuple, a member of an Enum."""

    name: str
    """`module:Qualname`, as where it was captured."""
    kind: str
    """`dataclass`, `namedtuple`, `structseq` or `enum`."""
    fields: Mapping[str, Any]
    items: tuple[str, ...] | None = None
    """For a dataclass that is a mapping as well: its keys, each of them a field."""

    def __getitem__(self, field: str) -> Any:
        return self.fields[field]


class Restored(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A nested value as it was, or as near as this process knows its classes."""

    value: Any
    findings: tuple[Finding, ...] = ()


class Unset:
    """The value of a field that a dataclass has and its object had not set."""


def shown_role(role: Role) -> str:
    """What a person calls the whole: `inputs` or `expected`."""
    return "inputs" if role == "input" else role
