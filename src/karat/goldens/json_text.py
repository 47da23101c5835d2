"""Strict JSON for people: values with everything there is to say about how they are written.

Reading takes the standard library's parser; only where it stumbles, or notices something odd, does
the slower scanner of spans say where.
"""

from __future__ import annotations

import bisect
import json
import math
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from karat.findings import Finding, Severity
from karat.goldens import hazards, lines
from karat.goldens.json_break import LARGE, find_break, well_formed
from karat.goldens.json_rewrite import fresh, rewrite
from karat.goldens.json_scan import (
    MAX_DEPTH,
    BrokenJSONError,
    Key,
    Node,
    Path,
    TooDeepError,
    integer,
    path_text,
    printable,
    scan,
    walk,
)

__all__ = [
    "Parsed",
    "fresh",
    "look",
    "parse",
    "parse_text",
    "path_text",
    "place",
    "rewrite",
]

# Only with an exponent of three digits, or a run of two hundred, can a number overflow.
_LONG_EXPONENT = re.compile(r"[eE]\+?[0-9]{3}")
_LONG_RUN = re.compile(r"[0-9]{200}")
_MOST_LINES = 8
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What parsing gave: a value, unless `ok` is false, and the findings on the way."""

    value: Any
    findings: tuple[Finding, ...] = ()
    ok: bool = True


_handed_over: dict[int, tuple[bytes, Parsed]] = {}


def parse(data: bytes) -> Parsed:
    """The value of JSON bytes; never raises."""
    # A value that `look` parsed is handed over once: a caller may change what it gets.
    kept = _handed_over.pop(id(data), None)
    if kept is not None and kept[0] is data:
        return kept[1]
    hazard = hazards.check(data)
    if hazard is not None:
        return Parsed(None, (hazard,), ok=False)
    return parse_text(lines.decode(data))


def look(data: bytes) -> Parsed:
    """The same as `parse`, for a first look: the result is kept for the `parse` that follows."""
    parsed = parse(data)
    _handed_over.clear()
    _handed_over[id(data)] = (data, parsed)
    return parsed


def parse_text(text: str) -> Parsed:
    """The value of a JSON text; never raises."""
    if len(text) >= LARGE and not well_formed(text) and (error := find_break(text)):
        return Parsed(None, (_broken_finding(text, error),), ok=False)
    loader = _Loader()
    try:
        value = loader.load(text)
    except (RecursionError, ValueError):
        return _broken(text)
    if _too_deep(text, value):
        return _broken(text)
    if _SURROGATE.search(text):
        value = _printable(value)
    if not loader.odd and not _may_overflow(text):
        return Parsed(value)
    return Parsed(value, _oddities(text))


def _may_overflow(text: str) -> bool:
    if _LONG_EXPONENT.search(text):
        return True
    # Lines are mostly short, and to measure them is quicker than to search them.
    return max(map(len, text.split("\n"))) >= 200 and _LONG_RUN.search(text) is not None


class _Loader:
    """The standard library's parser, and whether it met anything odd."""

    def __init__(self) -> None:
        self.odd = False

    def load(self, text: str) -> Any:
        try:
            return json.loads(text, object_pairs_hook=self.pairs, parse_constant=self.constant)
        except json.JSONDecodeError:
            raise
        except ValueError:  # an integer of more digits than Python converts
            return json.loads(
                text,
                object_pairs_hook=self.pairs,
                parse_constant=self.constant,
                parse_int=integer,
            )

    def pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        self.odd |= len(found) != len(pairs)
        return found

    def constant(self, token: str) -> float:
        self.odd = True
        return float(token)


def _too_deep(text: str, value: Any) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for held in level for item in _children(held)]
    return any(isinstance(held, (dict, list)) for held in level)


def _children(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list) else value


def _broken(text: str) -> Parsed:
    """The finding for a text that is not JSON."""
    error = find_break(text)
    if error is not None:
        return Parsed(None, (_broken_finding(text, error),), ok=False)
    # The walk accepts what the parser accepts, so only the parser's limits are left.
    found = Finding(
        kind="unreadable",
        severity=Severity.FAIL,
        message="expected JSON, found a value beyond the parser's limits",
    )
    return Parsed(None, (found,), ok=False)


def _broken_finding(text: str, error: BrokenJSONError) -> Finding:
    inside = path_text(error.path)
    line, column = place(text, error.offset)
    if isinstance(error, TooDeepError):
        message = f"expected {error.expected}, found more on line {line}"
        inside = "$"
    elif error.offset >= len(text):
        message = (
            f"expected {error.expected}, but the file ends inside {inside} on line {line}:"
            " it was cut short"
        )
    else:
        found = json.dumps(text[error.offset], ensure_ascii=False)
        message = (
            f"expected {error.expected}, found {found} on line {line}, column {column},"
            f" inside {inside}"
        )
    return Finding(
        kind="unreadable",
        severity=Severity.FAIL,
        message=f"not JSON: {message}",
        where=f"line {line}",
        numbers={"line": line, "column": column, "json_path": inside},
    )


def place(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both counted from 1."""
    before = text.rfind("\n", 0, offset)
    return text.count("\n", 0, offset) + 1, offset - before


def _oddities(text: str) -> tuple[Finding, ...]:
    found = hazards.Few()
    places = _Places(text)
    for path, node in walk(scan(text)):
        for name, keys in _repeated(node.keys).items():
            make = partial(_duplicate, places, (*path, name), keys)
            found.note("duplicate-key", Severity.FAIL, make)
        if isinstance(node.value, float) and not math.isfinite(node.value):
            make = partial(_non_finite, text, places, path, node)
            found.note("non-finite-literal", Severity.WARN, make)
    return found.findings()


class _Places:
    """Where the lines of a text begin, worked out once and only if it is asked."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.ends: list[int] | None = None

    def __call__(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset, both counted from 1."""
        if self.ends is None:
            self.ends = [found.start() for found in re.finditer("\n", self.text)]
        line = bisect.bisect_left(self.ends, offset)
        return line + 1, offset - (self.ends[line - 1] if line else -1)


def _repeated(keys: list[Key]) -> dict[str, list[Key]]:
    """The keys that stand more than once in an object, by their names."""
    if len({key.name for key in keys}) == len(keys):
        return {}
    held: dict[str, list[Key]] = {}
    for key in keys:
        held.setdefault(key.name, []).append(key)
    return {name: same for name, same in held.items() if len(same) > 1}


def _duplicate(places: _Places, path: Path, keys: list[Key]) -> Finding:
    first = [places(key.start)[0] for key in keys[:_MOST_LINES]]
    last = places(keys[-1].start)[0]
    where = path_text(path)
    rest = f" … {last}" if len(keys) > _MOST_LINES else ""
    return Finding(
        kind="duplicate-key",
        severity=Severity.FAIL,
        message=f"expected each key once, found {where} {len(keys)} times, on lines"
        f" {', '.join(map(str, first))}{rest}; the last one was read",
        where=where,
        numbers={"count": len(keys), "line": last},
    )


def _non_finite(text: str, places: _Places, path: Path, node: Node) -> Finding:
    line, column = places(node.start)
    token = text[node.start : node.end]
    shown = token if len(token) <= 24 else f"{token[:20]}… ({len(token)} characters)"
    where = path_text(path)
    return Finding(
        kind="non-finite-literal",
        severity=Severity.WARN,
        message=f"expected a finite number, found {shown} at {where} on line {line}",
        where=where,
        numbers={"line": line, "column": column},
    )
