"""JSON as text: read with everything there is to say about how it is written, and written back.

Reading takes the standard library's parser; only where it stumbles, or notices something odd, does the
slower scanner of spans say where. Writing back splices a changed value into the text, and all else keeps
its bytes: every scalar that is the same keeps its token, kept keys keep their order, and what is added
takes the style of its neighbours.
"""

from __future__ import annotations

import bisect
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from karat.findings import Finding, Severity, fail, warn
from karat.goldens import text_file
from karat.goldens.json_scan import (
    LARGE,
    MAX_DEPTH,
    BrokenJSONError,
    Key,
    Node,
    Path,
    TooDeepError,
    find_break,
    integer,
    path_text,
    printable,
    scan,
    walk,
    well_formed,
)

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
    hazard = text_file.check(data)
    if hazard is not None:
        return Parsed(None, (hazard,), ok=False)
    return parse_text(text_file.decode(data))


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
        value, broken = None, True
    else:
        broken = _too_deep(text, value)
    if broken:
        error = find_break(text)
        # The walk accepts what the parser accepts, so else only the parser's limits are left.
        limits = fail("unreadable", "expected JSON, found a value beyond the parser's limits")
        return Parsed(None, (_broken_finding(text, error) if error else limits,), ok=False)
    if _SURROGATE.search(text):
        value = _printable(value)
    # Lines are mostly short, and to measure them is quicker than to search them.
    overflow = _LONG_EXPONENT.search(text) or (max(map(len, text.split("\n"))) >= 200 and _LONG_RUN.search(text))
    return Parsed(value, _oddities(text) if loader.odd or overflow else ())


class _Loader:
    """The standard library's parser, and whether it met anything odd."""

    def __init__(self) -> None:
        self.odd = False

    def load(self, text: str) -> Any:
        hooks: dict[str, Any] = {"object_pairs_hook": self.pairs, "parse_constant": self.constant}
        try:
            return json.loads(text, **hooks)
        except json.JSONDecodeError:
            raise
        except ValueError:  # an integer of more digits than Python converts
            return json.loads(text, **hooks, parse_int=integer)

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
        containers = [
            held.values() if isinstance(held, dict) else held for held in level if isinstance(held, (dict, list))
        ]
        level = [item for held in containers for item in held]
    return any(isinstance(held, (dict, list)) for held in level)


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list) else value


def _broken_finding(text: str, error: BrokenJSONError) -> Finding:
    inside = path_text(error.path)
    line, column = _Places(text)(error.offset)
    if isinstance(error, TooDeepError):
        message = f"expected {error.expected}, found more on line {line}"
        inside = "$"
    elif error.offset >= len(text):
        message = f"expected {error.expected}, but the file ends inside {inside} on line {line}: it was cut short"
    else:
        found = json.dumps(text[error.offset], ensure_ascii=False)
        message = f"expected {error.expected}, found {found} on line {line}, column {column}, inside {inside}"
    return fail(
        "unreadable",
        f"not JSON: {message}",
        where=f"line {line}",
        numbers={"line": line, "column": column, "json_path": inside},
    )


def _oddities(text: str) -> tuple[Finding, ...]:
    found = text_file.LimitedFindings()
    places = _Places(text)
    for path, node in walk(scan(text)):
        held: dict[str, list[Key]] = {}
        for key in node.keys:
            held.setdefault(key.name, []).append(key)
        for name, keys in held.items():
            if len(keys) > 1:
                found.note("duplicate-key", Severity.FAIL, partial(_duplicate, places, (*path, name), keys))
        if isinstance(node.value, float) and not math.isfinite(node.value):
            found.note("non-finite-literal", Severity.WARN, partial(_non_finite, text, places, path, node))
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


def _duplicate(places: _Places, path: Path, keys: list[Key]) -> Finding:
    first = [places(key.start)[0] for key in keys[:_MOST_LINES]]
    last = places(keys[-1].start)[0]
    where = path_text(path)
    lines = ", ".join(map(str, first)) + (f" … {last}" if len(keys) > _MOST_LINES else "")
    message = f"expected each key once, found {where} {len(keys)} times, on lines {lines}; the last one was read"
    return fail("duplicate-key", message, where=where, numbers={"count": len(keys), "line": last})


def _non_finite(text: str, places: _Places, path: Path, node: Node) -> Finding:
    line, column = places(node.start)
    token = text[node.start : node.end]
    shown = token if len(token) <= 24 else f"{token[:20]}… ({len(token)} characters)"
    where = path_text(path)
    message = f"expected a finite number, found {shown} at {where} on line {line}"
    return warn("non-finite-literal", message, where=where, numbers={"line": line, "column": column})


_INTEGER = re.compile(r"-?[0-9]{1,4000}")  # Python converts no more digits than 4,300
_BLANKS = re.compile(r"[ \t]*")


def rewrite(old: bytes, new_value: Any) -> bytes:
    """The old JSON bytes with the new value in them; the same bytes if the value is the same."""
    return text_file.encode(rewrite_text(text_file.decode(old), new_value), old)


def rewrite_text(text: str, new_value: Any) -> str:
    """The old JSON text with the new value in it."""
    root = scan(text)
    return text[: root.start] + _Rewriter(text, root).render(root, new_value) + text[root.end :]


def fresh(value: Any) -> bytes:
    """JSON bytes for a value that no file holds yet: indented, unescaped, with a final newline."""
    style = _Style(" " * 4, "\n", ", ", ": ", ascii=False)
    return (_lay_out(value, style, "", multi=True) + "\n").encode()


@dataclass(frozen=True, slots=True)
class _Style:
    """How a text is laid out, for values that are new in it."""

    indent: str | None
    newline: str
    comma: str
    colon: str
    ascii: bool


@dataclass(frozen=True, slots=True)
class _Entry:
    """One item of a container to be written: its place in the old one, if it was there."""

    index: int | None
    text: str


class _Rewriter:
    """One text, its style, and the rendering of old spans with new values."""

    def __init__(self, text: str, root: Node) -> None:
        self.text = text
        self.style = _style(text, root)
        self.spread: dict[tuple[int, str], bool] = {}

    def raw(self, node: Node) -> str:
        return self.text[node.start : node.end]

    def render(self, node: Node, value: Any) -> str:
        """The text of a value that stands where `node` stood."""
        if node.kind == "object" and isinstance(value, Mapping):
            return self.object(node, value)
        if node.kind == "array" and isinstance(value, (list, tuple)):
            return self.array(node, value)
        if node.kind == "scalar" and same(node.value, value):
            return self.raw(node)
        return self.filled(node, value)

    def object(self, node: Node, value: Mapping[str, Any]) -> str:
        if not node.items:
            return self.filled(node, value) if value else self.raw(node)
        last = {key.name: index for index, key in enumerate(node.keys)}
        texts = {name: self.render(node.items[i], value[name]) for name, i in last.items() if name in value}
        entries: list[tuple[str, _Entry]] = []
        for index, (key, item) in enumerate(zip(node.keys, node.items, strict=True)):
            text = texts.get(key.name)
            if text is None:
                continue
            if index != last[key.name]:
                # A duplicate stays while its key is untouched; beside a new value it would mislead.
                if text != self.raw(node.items[last[key.name]]):
                    continue
                text = self.raw(item)
            entries.append((key.name, _Entry(index, self.text[key.start : item.start] + text)))
        return self.join(node, self.with_added(node, value, entries, set(last)))

    def with_added(
        self, node: Node, value: Mapping[str, Any], entries: list[tuple[str, _Entry]], old: set[str]
    ) -> list[_Entry]:
        """The kept entries and the new ones: steps at their sorted place, other keys at the end."""
        added = [
            (name, _Entry(None, _quote(name, self.style) + self.colon(node) + self.beside(node, item)))
            for name, item in value.items()
            if name not in old
        ]
        if not added or not all(map(_INTEGER.fullmatch, value)):
            return [entry for _, entry in [*entries, *added]]
        # Each step behind those that are not above it.
        places = [int(name) for name, _ in entries]
        if places == sorted(places):
            return [entry for _, entry in sorted([*entries, *added], key=lambda held: int(held[0]))]
        mixed = [entry for _, entry in entries]
        for name, entry in added:
            at = bisect.bisect_right(places, int(name))
            places.insert(at, int(name))
            mixed.insert(at, entry)
        return mixed

    def array(self, node: Node, value: list[Any] | tuple[Any, ...]) -> str:
        if not node.items:
            return self.filled(node, value) if value else self.raw(node)
        old, new = len(node.items), len(value)
        shorter = min(old, new)
        head = 0
        while old != new and head < shorter and self.unchanged(node.items[head], value[head]):
            head += 1
        tail = 0
        while old != new and tail < shorter - head and self.unchanged(node.items[-1 - tail], value[-1 - tail]):
            tail += 1
        entries = []
        for index, item in enumerate(value):
            origin = index if index < new - tail else index - new + old
            if index < new - tail and index >= old - tail:
                entries.append(_Entry(None, self.beside(node, item)))
            else:
                entries.append(_Entry(origin, self.render(node.items[origin], item)))
        return self.join(node, entries)

    def unchanged(self, node: Node, value: Any) -> bool:
        return self.render(node, value) == self.raw(node)

    def filled(self, node: Node, value: Any) -> str:
        """A value where another stood: laid out as the whole text is."""
        blanks = _BLANKS.match(self.text, self.text.rfind("\n", 0, node.start) + 1, node.start)
        indent = blanks.group() if blanks else ""
        return _lay_out(value, self.style, indent, multi=self.style.indent is not None)

    def join(self, node: Node, entries: list[_Entry]) -> str:
        opening, closing = self.text[node.start], self.text[node.end - 1]
        if not entries:
            return opening + closing
        parts = [opening, self.lead(node)]
        for position, entry in enumerate(entries):
            if position:
                parts.append(self.gap(node, entries[position - 1].index, entry.index))
            parts.append(entry.text)
        return "".join([*parts, self.text[node.items[-1].end : node.end - 1], closing])

    def begin(self, node: Node, index: int) -> int:
        return node.keys[index].start if node.keys else node.items[index].start

    def lead(self, node: Node) -> str:
        return self.text[node.start + 1 : self.begin(node, 0)]

    def gap(self, node: Node, before: int | None = None, after: int | None = None) -> str:
        """What stands between two items: the comma and the space around it."""
        if before is None or after != before + 1:
            before = 0
        if len(node.items) > 1:
            return self.text[node.items[before].end : self.begin(node, before + 1)]
        lead = self.lead(node)
        return "," + lead if "\n" in lead else self.style.comma

    def colon(self, node: Node) -> str:
        return self.text[node.keys[0].end : node.items[0].start]

    def beside(self, node: Node, value: Any) -> str:
        """A new value in a container, laid out like the last of its own kind there."""
        if not isinstance(value, (Mapping, list, tuple)):
            return _token(value, self.style)
        gap = self.gap(node)
        kind = "object" if isinstance(value, Mapping) else "array"
        multi = self.style.indent is not None and self.spreads(node, kind, gap)
        return _lay_out(value, self.style, gap.rpartition("\n")[2], multi=multi)

    def spreads(self, node: Node, kind: str, gap: str) -> bool:
        """True if the last item of the kind in a container takes several lines."""
        asked = (node.start, kind)
        if asked not in self.spread:
            alike = [item for item in node.items if item.kind == kind and item.items]
            self.spread[asked] = "\n" in (self.raw(alike[-1]) if alike else gap)
        return self.spread[asked]


def same(old: Any, new: Any) -> bool:
    """True for one type and value; NaN is the same as NaN, and 1 is neither 1.0 nor true."""
    if isinstance(old, float) and isinstance(new, float):
        return float.__repr__(old) == float.__repr__(new)
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    for kind in (int, str):
        if isinstance(old, kind):
            return isinstance(new, kind) and old == new
    return old is None and new is None


def _style(text: str, root: Node) -> _Style:
    newline = "\r\n" if "\r\n" in text else "\n"
    indent: str | None = None
    comma = colon = None
    for _, node in walk(root):
        starts = [key.start for key in node.keys] or [item.start for item in node.items]
        if starts and indent is None and "\n" in text[node.start : starts[0]]:
            # By how much an item is indented deeper than the line its container opens on.
            line = text[text.rfind("\n", 0, node.start) + 1 : node.start]
            outer = line[: len(line) - len(line.lstrip(" \t"))]
            indent = text[text.rfind("\n", 0, starts[0]) + 1 : starts[0]].removeprefix(outer)
        if node.keys and colon is None:
            colon = text[node.keys[0].end : node.items[0].start]
        if len(starts) > 1 and comma is None and "\n" not in text[node.items[0].end : starts[1]]:
            comma = text[node.items[0].end : starts[1]]
        if comma and colon and indent is not None:
            break
    colon = colon or ": "
    comma = comma or (", " if colon.endswith(" ") else ",")
    return _Style(indent, newline, comma, colon, ascii=text.isascii() and "\\u" in text)


def _lay_out(value: Any, style: _Style, indent: str, *, multi: bool) -> str:
    if isinstance(value, Mapping):
        items = [
            _quote(name, style) + style.colon + _lay_out(item, style, indent + (style.indent or ""), multi=multi)
            for name, item in value.items()
        ]
        return _enclose("{", items, "}", style, indent, multi=multi)
    if isinstance(value, (list, tuple)):
        items = [_lay_out(item, style, indent + (style.indent or ""), multi=multi) for item in value]
        return _enclose("[", items, "]", style, indent, multi=multi)
    return _token(value, style)


def _enclose(opening: str, items: list[str], closing: str, style: _Style, indent: str, *, multi: bool) -> str:
    if not items:
        return opening + closing
    if not multi:
        return opening + style.comma.join(items) + closing
    outer = style.newline + indent
    inner = outer + (style.indent or "")
    return opening + inner + ("," + inner).join(items) + outer + closing


def _token(value: Any, style: _Style) -> str:
    if isinstance(value, str):
        return _quote(value, style)
    if isinstance(value, float):
        # numpy's floats are floats with another repr; 1.0 must not become np.float64(1.0).
        return json.dumps(float(value))
    return json.dumps(value)


def _quote(text: str, style: _Style) -> str:
    escape = style.ascii or any("\ud800" <= char <= "\udfff" for char in text)
    return json.dumps(text, ensure_ascii=escape)
