"""Evidence: what a test hands over once its comparison passed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from karat.bundles.manifest import Comparator, Identity
from karat.findings import Finding
from karat.tensors.tensor import CannotStore

Program = str | os.PathLike[str] | bytes | bytearray | memoryview | None
"""A path, or the bytes themselves."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One case to be."""

    identity: Identity
    inputs: Any
    expected: Any
    """A nested value, or what `flatten` made of it."""
    comparator: Comparator
    seen: tuple[Any, ...] = ()
    """All values that took part, for the sake of their devices."""
    program: Any = None
    """A `Program`; what else it is, is said when it is written."""
    program_name: str | None = None
    seeds: Mapping[str, int | str] | None = None
    raw: bool = False
    strides: bool = False
    findings: tuple[Finding, ...] = ()


def program_of(value: Any) -> Path | bytes | None:
    """The program as a path or as bytes; what is neither has no form."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | os.PathLike):
        return Path(os.fsdecode(value))
    raise CannotStore(f"program: expected a path or bytes, found {type(value).__name__}")
