"""Numbers in text: `587.92`, `1,234.5`, `1e5`, `12 ms`, as programs print them. Pure."""

from __future__ import annotations

import re

_NUMBER = re.compile(
    r"([+-]?)(?:(\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)(\.\d*)?|(\.\d+))([eE][+-]?\d+)?\s*(\S{0,20})"
)
_WORD = re.compile(r"([+-]?)(nan|inf|infinity)", re.IGNORECASE)
_SCALES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}  # fmt: skip


def number(text: str, unit: str = "") -> float | None:
    """The number that a text is, in `unit`; None if it is none, or is in another unit that cannot be converted."""
    # Typesetters' minus is a minus.
    stripped = text.strip().replace("\N{MINUS SIGN}", "-")
    if _WORD.fullmatch(stripped):
        return float(stripped)
    found = _NUMBER.fullmatch(stripped)
    scale = _scale(found[6], unit) if found else None
    if found is None or scale is None:
        return None
    sign, whole, rest, fraction, power, _ = (part or "" for part in found.groups())
    digits = whole.replace(",", "").replace("_", "")
    return scale * float(f"{sign}{digits}{rest}{fraction}{power}")


def _scale(found: str, wanted: str) -> float | None:
    """What turns the unit that was found into the one that is wanted."""
    if not found or found == wanted:
        return 1.0
    if found in _SCALES and wanted in _SCALES:
        return _SCALES[found] / _SCALES[wanted]
    return None
