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


def check(item: pytest.Item) -> None:
    """Raises pytest's usage error for a marker that would be ignored in silence."""
    for mark in item.iter_markers(NAME):
        if mark.args:
            _refuse(item, f"expected only named arguments, found {mark.args[0]!r}")
        for key, value in mark.kwargs.items():
            _check_one(item, key, value)


def _check_one(item: pytest.Item, key: str, value: Any) -> None:
    if key not in _TYPES:
        from karat.findings import suggest  # noqa: PLC0415 - only for mistakes

        close = suggest(key, list(_TYPES))
        _refuse(item, f"unknown argument {key!r}{close} (known: {', '.join(_TYPES)})")
    words, types = _TYPES[key]
    odd = isinstance(value, bool) and bool not in types
    if value is not None and (odd or not isinstance(value, types)):
        _refuse(item, f"{key} must be {words}, found {value!r}")


def _refuse(item: pytest.Item, message: str) -> None:
    raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.karat: {message}")
