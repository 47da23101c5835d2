"""Durations: `90 s`, `10 min`, `1 h 30 min`, `1 day`, or a number of seconds."""

from __future__ import annotations

import re

from karat.findings import UsageError
from karat.hunt.settings import Duration

_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600,
          "d": 86400, "day": 86400, "w": 604800, "week": 604800}  # fmt: skip
_LONGEST = 100 * 366 * 86400
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def seconds(value: Duration) -> float:
    """How many seconds that is."""
    found = _sum(value) if isinstance(value, str) else value
    # What is beyond a lifetime is a mistake, and clocks cannot count it. NaN is not within either.
    if found is None or not 0 <= found <= _LONGEST:
        raise UsageError(
            f"expected a duration such as '90 s', '10 min', '1 h' or '1 day', found {value!r}",
            next_command="edit hunt.toml",
        )
    return float(found)


def step(text: str) -> float | None:
    """The step that stands behind `by`: `day`, `2 hours`, `30 min`; None where it is none."""
    found = _sum(text if text[:1].isdigit() else f"1 {text}")
    return found or None


def _sum(text: str) -> float | None:
    """The parts of a text, added up; None unless all of it is understood."""
    total, place = 0.0, 0
    stripped = text.strip()
    while place < len(stripped):
        part = _PART.match(stripped, place)
        size = _UNITS.get(_singular(part[2].lower())) if part else None
        if part is None or size is None:
            return None
        total += float(part[1]) * size
        place = part.end()
    return total if stripped else None


def _singular(unit: str) -> str:
    return unit.removesuffix("s") if len(unit) > 2 and unit.endswith("s") else unit
