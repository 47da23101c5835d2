"""Numbers in text: `587.92`, `1,234.5`, `1e5`, `12 ms`, as programs print them. Pure."""

from __future__ import annotations

import re
from math import inf, nan

_NUMBER = re.compile(
    r"([+-]?)(?:(\d{1,3}(?:,\d{3})+|\d[\d_]*)?((?:\.\d*)?(?:[eE][+-]?\d+)?))\s*(\S{0,20})\s*"
)
_WORDS = {"nan": nan, "inf": inf, "infinity": inf}
_SCALES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}  # fmt: skip


def number(text: str, unit: str = "") -> float | None:
    """The number that a text is, in `unit`; None if it is none, or is in another unit that cannot be converted."""
    stripped = text.strip()
    word = _WORDS.get(stripped.lstrip("+-").lower())
    if word is not None:
        return -word if stripped.startswith("-") else word
    found = _NUMBER.fullmatch(stripped)
    if found is None or not any(c.isdigit() for c in (found[2] or "") + found[3].partition("e")[0]):
        return None
    scale = _scale(found[4], unit)
    if scale is None:
        return None
    digits = (found[2] or "").replace(",", "").replace("_", "")
    return scale * float(f"{found[1]}{digits}{found[3]}")


def _scale(found: str, wanted: str) -> float | None:
    """What turns the unit that was found into the one that is wanted."""
    if not found or found == wanted:
        return 1.0
    if found in _SCALES and wanted in _SCALES:
        return _SCALES[found] / _SCALES[wanted]
    return None
