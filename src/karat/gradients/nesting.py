"""Nested arguments and results: tensors in tuples, lists and dicts, taken out and put back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec


class Place(msgspec.Struct, frozen=True):
    """Where a tensor was."""

    index: int


class Leaf(msgspec.Struct, frozen=True):
    """A tensor that was found, under the name of the way to it: `xs.0`."""

    name: str
    value: Any


def taken(value: Any, is_leaf: Callable[[object], bool], name: str, found: list[Leaf]) -> Any:
    """The same structure with a `Place` for every leaf; the leaves go to `found`."""
    if is_leaf(value):
        found.append(Leaf(name, value))
        return Place(len(found) - 1)
    if isinstance(value, dict):
        return {
            key: taken(one, is_leaf, _under(name, str(key)), found) for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return _like(
            value,
            [taken(one, is_leaf, _under(name, str(n)), found) for n, one in enumerate(value)],
        )
    return value


def filled(form: Any, leaves: Sequence[Any]) -> Any:
    """The structure again, with these leaves in their places."""
    if isinstance(form, Place):
        return leaves[form.index]
    if isinstance(form, dict):
        return {key: filled(one, leaves) for key, one in form.items()}
    if isinstance(form, list | tuple):
        return _like(form, [filled(one, leaves) for one in form])
    return form


def _under(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _like(value: Any, parts: list[Any]) -> Any:
    if isinstance(value, list):
        return parts
    if hasattr(value, "_fields"):  # a named tuple, which takes its fields one by one
        return type(value)(*parts)
    # One written in C, as torch.max returns, takes them together.
    return type(value)(parts) if hasattr(value, "n_sequence_fields") else tuple(parts)
