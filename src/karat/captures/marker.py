"""`@pytest.mark.karat(…)`: what a test wants of karat; pytest alone is imported here."""

from __future__ import annotations

from typing import Any

import pytest

NAME = "karat"
HELP = (
    "karat(capture=True, suite=None, flow=None, raw=None, strides=None, rtol=None, atol=None): "
    "whether and as what golden captures this test"
)
_TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    "capture": ("True or False", (bool,)),
    "suite": ("a text", (str,)),
    "flow": ("a text", (str,)),
    "raw": ("True or False", (bool,)),
    "strides": ("True or False", (bool,)),
    "rtol": ("a number", (int, float)),
    "atol": ("a number", (int, float)),
}


def wishes(item: pytest.Item) -> dict[str, Any]:
    """What all markers of a test say together; the closest one wins."""
    found: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers(NAME))):
        found |= mark.kwargs
    return {key: value for key, value in found.items() if value is not None}


def complaint(item: pytest.Item) -> str | None:
    """What is wrong with a marker that would else be ignored in silence."""
    for mark in item.iter_markers(NAME):
        said = [f"expected only named arguments, found {value!r}" for value in mark.args]
        said += filter(None, (_wrong(key, value) for key, value in mark.kwargs.items()))
        if said:
            return f"{item.nodeid}: @pytest.mark.karat: {said[0]}"
    return None


def _wrong(key: str, value: Any) -> str | None:
    if key not in _TYPES:
        from karat.findings import suggest  # noqa: PLC0415 - only for mistakes

        known = ", ".join(_TYPES)
        return f"unknown argument {key!r}{suggest(key, list(_TYPES))} (known: {known})"
    words, types = _TYPES[key]
    odd = isinstance(value, bool) and bool not in types
    if value is not None and (odd or not isinstance(value, types)):
        return f"{key} must be {words}, found {value!r}"
    return None
