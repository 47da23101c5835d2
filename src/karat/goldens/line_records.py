"""Records: the objects of a JSON Lines file, with the lines they stand on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from karat.findings import Finding, Severity
from karat.goldens import hazards, json_text, lines

STEP_KEYS = ("step", "iteration", "iter", "global_step", "_step", "epoch")
"""Fields that count steps, the most telling first; an epoch counts only if nothing else does."""

_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Record:
    """One object and the line it stands on."""

    value: dict[str, Any]
    line: int

    def fields(self, key: str) -> Iterator[tuple[str, Any]]:
        """Every field but the step, nested names joined with dots."""
        yield from flat({name: item for name, item in self.value.items() if name != key})


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested objects, by their dotted names."""
    for name, item in value.items():
        if isinstance(item, dict) and item:
            yield from flat(item, f"{prefix}{name}.")
        else:
            yield prefix + name, item


def parse_line(raw: str) -> dict[str, Any] | None:
    """The object on a line, or None."""
    parsed = json_text.parse_text(raw)
    return parsed.value if parsed.ok and isinstance(parsed.value, dict) else None


def records(text: str, odd: hazards.Few | None = None) -> list[Record]:
    """The records of a text; `odd` gathers a finding for every line that holds none."""
    found: list[Record] = []
    odd = odd or hazards.Few()
    raws = lines.split(text)
    for line, raw in enumerate(raws, start=1):
        if not raw.strip():
            continue
        parsed = json_text.parse_text(raw)
        for finding in parsed.findings if parsed.ok else ():
            odd.add(_on_line(finding, line))
        if parsed.ok and isinstance(parsed.value, dict):
            found.append(Record(parsed.value, line))
            continue
        last = line == len(raws) and not raw.endswith("\n")
        odd.add(_bad_line(parsed, line, last=last))
    return found


def _on_line(finding: Finding, line: int) -> Finding:
    return replace(
        finding,
        message=f"line {line} of the file: {finding.message}",
        where=f"line {line}",
        numbers={**finding.numbers, "line": line},
    )


def _bad_line(parsed: json_text.Parsed, line: int, *, last: bool) -> Finding:
    if last and not parsed.ok:
        kind, message = (
            "truncated",
            f"expected a whole record, but the file ends inside line {line}",
        )
    elif parsed.ok:
        kind = "unreadable"
        message = f"expected an object on line {line}, found a {type(parsed.value).__name__}"
    else:
        kind = "unreadable"
        message = f"expected an object on line {line}, found text that is not JSON"
    return Finding(
        kind=kind,
        severity=Severity.FAIL,
        message=message,
        where=f"line {line}",
        numbers={"line": line},
    )


def step_of(value: Any) -> int | None:
    """The step that a field holds, or None if it is no whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and not value.is_integer():
        return None
    return int(value) if -_INT64 <= value < _INT64 else None


def step_key(found: Sequence[Mapping[str, Any]], *, alone: bool = False) -> str | None:
    """The field that counts the steps: the first known one that half of the records have."""
    counts = Counter(
        key for value in found for key in STEP_KEYS if step_of(value.get(key)) is not None
    )
    keys = STEP_KEYS[:-1] if alone else STEP_KEYS
    return next((key for key in keys if counts[key] and 2 * counts[key] >= len(found)), None)
