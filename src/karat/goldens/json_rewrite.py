"""Writing JSON back: a changed value is spliced into the text, and all else keeps its bytes.

Every scalar that is the same keeps its token, kept keys keep their order, and what is added takes
the style of its neighbours.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from karat.goldens import lines
from karat.goldens.json_scan import Node, scan, walk

_INTEGER = re.compile(r"-?[0-9]{1,4000}")  # Python converts no more digits than 4,300
_BLANKS = re.compile(r"[ \t]*")
_INDENT = 4


def rewrite(old: bytes, new_value: Any) -> bytes:
    """The old JSON bytes with the new value in them; the same bytes if the value is the same."""
    return lines.encode(rewrite_text(lines.decode(old), new_value), old)


def rewrite_text(text: str, new_value: Any) -> str:
    """The old JSON text with the new value in it."""
    root = scan(text)
    return text[: root.start] + _Rewriter(text, root).render(root, new_value) + text[root.end :]


def fresh(value: Any) -> bytes:
    """JSON bytes for a value that no file holds yet: indented, unescaped, with a final newline."""
    style = _Style(" " * _INDENT, "\n", ", ", ": ", ascii=False)
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
        if not isinstance(value, (Mapping, list, tuple)):
            return _token(value, self.style)
        return self.new(value, self.indent_at(node.start), multi=self.style.indent is not None)

    def new(self, value: Any, indent: str, *, multi: bool) -> str:
        return _lay_out(value, self.style, indent, multi=multi)

    def indent_at(self, offset: int) -> str:
        blanks = _BLANKS.match(self.text, self.text.rfind("\n", 0, offset) + 1, offset)
        return blanks.group() if blanks else ""

    def object(self, node: Node, value: Mapping[str, Any]) -> str:
        if not node.items:
            return self.raw(node) if not value else self.filled(node, value)
        last = {key.name: index for index, key in enumerate(node.keys)}
        texts = {
            name: self.render(node.items[i], value[name])
            for name, i in last.items()
            if name in value
        }
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
            (
                name,
                _Entry(None, _quote(name, self.style) + self.colon(node) + self.beside(node, item)),
            )
            for name, item in value.items()
            if name not in old
        ]
        if added and all(map(_INTEGER.fullmatch, value)):
            entries = _at_their_places(entries, added)
        else:
            entries = entries + added
        return [entry for _, entry in entries]

    def array(self, node: Node, value: list[Any] | tuple[Any, ...]) -> str:
        if not node.items:
            return self.raw(node) if not value else self.filled(node, value)
        old, new = len(node.items), len(value)
        shorter = min(old, new)
        head = 0
        while old != new and head < shorter and self.unchanged(node.items[head], value[head]):
            head += 1
        tail = 0
        while (
            old != new
            and tail < shorter - head
            and self.unchanged(node.items[-1 - tail], value[-1 - tail])
        ):
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
        """A container that was empty: laid out as the whole text is."""
        return self.new(value, self.indent_at(node.start), multi=self.style.indent is not None)

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
        return self.new(value, gap.rpartition("\n")[2], multi=multi)

    def spreads(self, node: Node, kind: str, gap: str) -> bool:
        """True if the last item of the kind in a container takes several lines."""
        asked = (node.start, kind)
        if asked not in self.spread:
            alike = [item for item in node.items if item.kind == kind and item.items]
            self.spread[asked] = "\n" in (self.raw(alike[-1]) if alike else gap)
        return self.spread[asked]


def _at_their_places(
    entries: list[tuple[str, _Entry]], added: list[tuple[str, _Entry]]
) -> list[tuple[str, _Entry]]:
    """The entries of steps with new ones among them, each behind those that are not above it."""
    places = [int(name) for name, _ in entries]
    if places == sorted(places):
        return sorted([*entries, *added], key=lambda held: int(held[0]))
    mixed = list(entries)
    for name, entry in added:
        at = bisect.bisect_right(places, int(name))
        places.insert(at, int(name))
        mixed.insert(at, (name, entry))
    return mixed


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
            indent = _deeper(text, node.start, starts[0])
        if node.keys and colon is None:
            colon = text[node.keys[0].end : node.items[0].start]
        if len(starts) > 1 and comma is None and "\n" not in text[node.items[0].end : starts[1]]:
            comma = text[node.items[0].end : starts[1]]
        if comma and colon and indent is not None:
            break
    colon = colon or ": "
    comma = comma or (", " if colon.endswith(" ") else ",")
    return _Style(indent, newline, comma, colon, ascii=text.isascii() and "\\u" in text)


def _deeper(text: str, container: int, item: int) -> str:
    """By how much an item is indented deeper than the line its container opens on."""
    line = text[text.rfind("\n", 0, container) + 1 : container]
    outer = line[: len(line) - len(line.lstrip(" \t"))]
    inner = text[text.rfind("\n", 0, item) + 1 : item]
    return inner.removeprefix(outer)


def _lay_out(value: Any, style: _Style, indent: str, *, multi: bool) -> str:
    """A new value as text."""
    if isinstance(value, Mapping):
        items = [
            _quote(name, style)
            + style.colon
            + _lay_out(item, style, indent + (style.indent or ""), multi=multi)
            for name, item in value.items()
        ]
        return _enclose("{", items, "}", style, indent, multi=multi)
    if isinstance(value, (list, tuple)):
        items = [
            _lay_out(item, style, indent + (style.indent or ""), multi=multi) for item in value
        ]
        return _enclose("[", items, "]", style, indent, multi=multi)
    return _token(value, style)


def _enclose(
    opening: str, items: list[str], closing: str, style: _Style, indent: str, *, multi: bool
) -> str:
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
