"""JSON as text: read with everything there is to say about how it is written, and written back.

Reading takes the standard library's parser; only where it notices something odd does a slower scanner, which keeps the
place of every key and value, say where. Writing back splices a changed value into the text, and all else keeps its bytes: every scalar that is the same keeps its token, kept
keys keep their order, and what is added takes the style of its neighbours.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from karat.findings import Finding, Severity, fail, warn
from karat.goldens import text_file
from karat.goldens.shapes import same

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


def parse(data: bytes) -> Parsed:
    """The value of JSON bytes; never raises."""
    hazard = text_file.check(data)
    return Parsed(None, (hazard,), ok=False) if hazard is not None else parse_text(text_file.decode(data))


def parse_text(text: str) -> Parsed:
    """The value of a JSON text; never raises."""
    loader = _Loader()
    try:
        value = loader.load(text)
        deep = _too_deep(text, value)
    except json.JSONDecodeError as error:
        return Parsed(None, (_broken(text, error),), ok=False)
    except RecursionError:
        deep = True
    if deep:
        message = f"not JSON: expected at most {MAX_DEPTH} levels of nesting, found more"
        return Parsed(None, (fail("unreadable", message, where="$"),), ok=False)
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


def _broken(text: str, error: json.JSONDecodeError) -> Finding:
    said, rest = error.msg.lower(), text[error.pos :].rstrip()
    message = f"{said} on line {error.lineno}, column {error.colno}"
    if not rest or said.startswith("unterminated") or any(word.startswith(rest) for word in _WORDS):
        message = f"{said}, but the file ends on line {text.count(chr(10)) + 1}: it was cut short"
    numbers = {"line": error.lineno, "column": error.colno}
    return fail("unreadable", f"not JSON: {message}", where=f"line {error.lineno}", numbers=numbers)


def _oddities(text: str) -> tuple[Finding, ...]:
    found = text_file.LimitedFindings()
    for path, node in walk(scan(text)):
        held: dict[str, list[Key]] = {}
        for key in node.keys:
            held.setdefault(key.name, []).append(key)
        for name, keys in held.items():
            if len(keys) > 1:
                found.note("duplicate-key", Severity.FAIL, partial(_duplicate, text, (*path, name), keys))
        if isinstance(node.value, float) and not math.isfinite(node.value):
            found.note("non-finite-literal", Severity.WARN, partial(_non_finite, text, path, node))
    return found.findings()


def _place(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both counted from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _duplicate(text: str, path: Path, keys: list[Key]) -> Finding:
    first = [_place(text, key.start)[0] for key in keys[:_MOST_LINES]]
    last = _place(text, keys[-1].start)[0]
    where = path_text(path)
    lines = ", ".join(map(str, first)) + (f" … {last}" if len(keys) > _MOST_LINES else "")
    message = f"expected each key once, found {where} {len(keys)} times, on lines {lines}; the last one was read"
    return fail("duplicate-key", message, where=where, numbers={"count": len(keys), "line": last})


def _non_finite(text: str, path: Path, node: Node) -> Finding:
    line, column = _place(text, node.start)
    token = text[node.start : node.end]
    shown = token if len(token) <= 24 else f"{token[:20]}… ({len(token)} characters)"
    where = path_text(path)
    message = f"expected a finite number, found {shown} at {where} on line {line}"
    return warn("non-finite-literal", message, where=where, numbers={"line": line, "column": column})


MAX_DEPTH = 200  # Deeper nesting is no golden, and would exhaust the stack of whoever walks it.

_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[^\s,\]}]+')
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")

Path = Sequence[str | int]


@dataclass(slots=True)
class Key:
    """One key of an object and its span, quotes included."""

    name: str
    start: int
    end: int


@dataclass(slots=True)
class Node:
    """One value and its span in the text; `items` and `keys` run in the order of the file."""

    kind: Literal["object", "array", "scalar"]
    start: int
    end: int
    value: Any  # Of a scalar only.
    items: list[Node]
    keys: list[Key]


def scan(text: str) -> Node:
    """The tree of spans of a text that `parse_text` has read."""
    return _node(text, _behind_space(text, 0))


def _node(text: str, start: int) -> Node:
    if text[start] not in "{[":
        value, end = _scalar(text, start)
        return Node("scalar", start, end, value, [], [])
    node = Node("object" if text[start] == "{" else "array", start, start, None, [], [])
    at = _behind_space(text, start + 1)
    while text[at] not in "}]":
        if node.kind == "object":
            name, end = _scalar(text, at)
            node.keys.append(Key(name, at, end))
            at = _behind_space(text, _behind_space(text, end) + 1)
        node.items.append(_node(text, at))
        at = _behind_space(text, node.items[-1].end)
        if text[at] == ",":
            at = _behind_space(text, at + 1)
    node.end = at + 1
    return node


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _scalar(text: str, start: int) -> tuple[Any, int]:
    found = _SCALAR.match(text, start)
    token = found.group() if found else ""
    if token.startswith('"'):
        return printable(json.loads(token)) if "\\" in token else token[1:-1], start + len(token)
    try:
        return json.loads(token), start + len(token)
    except ValueError:  # of more digits than Python converts
        return integer(token), start + len(token)


def walk(node: Node, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Node]]:
    """Every value of a tree with its path, parents before children."""
    stack = [(path, node)]
    while stack:
        path, node = stack.pop()
        yield path, node
        names: Sequence[str | int] = [key.name for key in node.keys] if node.keys else range(len(node.items))
        stack.extend(((*path, name), item) for name, item in zip(reversed(names), reversed(node.items), strict=True))


def path_text(path: Path) -> str:
    """A JSON path as people write it: `$["lm loss"].values["3"]`."""
    text = "$"
    for part in path:
        plain = isinstance(part, str) and _IDENTIFIER.fullmatch(part)
        text += f".{part}" if plain else f"[{json.dumps(part, ensure_ascii=False)}]"
    return text


def printable(text: str) -> str:
    """The text, with half of a surrogate pair spelled as its escape, which a file can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def integer(token: str) -> int | float:
    """An integer token's value; infinite where it has more digits than Python converts."""
    try:
        return int(token)
    except ValueError:
        return float(token)


_INTEGER = re.compile(r"-?[0-9]{1,4000}")  # Python converts no more digits than 4,300
_BLANKS = re.compile(r"[ \t]*")


def rewrite(old: bytes, new_value: Any) -> bytes:
    """The old JSON bytes with the new value in them; the same bytes if the value is the same."""
    return text_file.encode(rewrite_text(text_file.decode(old), new_value), old)


def rewrite_text(text: str, new_value: Any) -> str:
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


_Entry = tuple[int | None, str]
"""One item of a container to be written, behind its place in the old one, if it was there."""


class _Rewriter:
    """One text, its style, and the rendering of old spans with new values."""

    def __init__(self, text: str, root: Node) -> None:
        self.text = text
        self.style = _style(text, root)

    def raw(self, node: Node) -> str:
        return self.text[node.start : node.end]

    def render(self, node: Node, value: Any) -> str:
        """The text of a value that stands where `node` stood."""
        if node.kind == "scalar":
            unchanged = same(node.value, value)
        else:
            alike = isinstance(value, Mapping if node.kind == "object" else (list, tuple))
            if alike and node.items:
                return self.object(node, value) if node.kind == "object" else self.array(node, value)
            unchanged = alike and not value
        if unchanged:
            return self.raw(node)
        # Where another kind of value stood: laid out as the whole text is.
        blanks = _BLANKS.match(self.text, self.text.rfind("\n", 0, node.start) + 1, node.start)
        indent = blanks.group() if blanks else ""
        return _lay_out(value, self.style, indent, multi=self.style.indent is not None)

    def object(self, node: Node, value: Mapping[str, Any]) -> str:
        last = {key.name: index for index, key in enumerate(node.keys)}  # of equal keys, the last one was read
        texts = {name: self.render(node.items[i], value[name]) for name, i in last.items() if name in value}
        if len(texts) == len(last) == len(value) and all(texts[n] == self.raw(node.items[i]) for n, i in last.items()):
            return self.raw(node)
        heads = {name: self.text[node.keys[i].start : node.items[i].start] for name, i in last.items()}
        entries: list[tuple[str, _Entry]] = [(n, (last[n], heads[n] + text)) for n, text in texts.items()]
        colon = self.text[node.keys[0].end : node.items[0].start]
        added: list[tuple[str, _Entry]] = [
            (name, (None, _lay_out(name, self.style, "", multi=False) + colon + self.beside(node, item)))
            for name, item in value.items()
            if name not in last
        ]
        entries += added
        if added and all(map(_INTEGER.fullmatch, value)):  # steps
            entries.sort(key=lambda held: int(held[0]))
        return self.join(node, [entry for _, entry in entries])

    def array(self, node: Node, value: Sequence[Any]) -> str:
        kept: list[_Entry] = [
            (i, self.render(old, new)) for i, (old, new) in enumerate(zip(node.items, value, strict=False))
        ]
        return self.join(node, [*kept, *((None, self.beside(node, item)) for item in value[len(kept) :])])

    def join(self, node: Node, entries: list[_Entry]) -> str:
        opening, closing = self.text[node.start], self.text[node.end - 1]
        if not entries:
            return opening + closing
        parts = [opening, self.lead(node)]
        for position, (index, text) in enumerate(entries):
            if position:
                parts.append(self.gap(node, entries[position - 1][0], index))
            parts.append(text)
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

    def beside(self, node: Node, value: Any) -> str:
        """A new value in a container, on several lines if the last one there is, or the container itself."""
        gap, last = self.gap(node), node.items[-1]
        multi = "\n" in (self.raw(last) if last.items else gap)
        return _lay_out(value, self.style, gap.rpartition("\n")[2], multi=multi)


def _style(text: str, root: Node) -> _Style:
    # By how much the items of the first container on several lines are indented deeper than its own line.
    spread = re.search(r"^([ \t]*).*[{\[][ \t]*\r?\n([ \t]*)", text, re.MULTILINE)
    indent = spread[2].removeprefix(spread[1]) if spread else None
    several = [node for _, node in walk(root) if node.items]
    colon = next((text[node.keys[0].end : node.items[0].start] for node in several if node.keys), ": ")
    gaps = (text[n.items[0].end : (n.keys or n.items)[1].start] for n in several if len(n.items) > 1)
    comma = next((gap for gap in gaps if "\n" not in gap), ", " if colon.endswith(" ") else ",")
    newline = "\r\n" if "\r\n" in text else "\n"
    return _Style(indent, newline, comma, colon, ascii=text.isascii() and "\\u" in text)


def _lay_out(value: Any, style: _Style, indent: str, *, multi: bool) -> str:
    """A value as the text is laid out, on several lines or on one."""
    form: dict[str, Any] = {"separators": (style.comma, style.colon)}
    if multi:
        form = {"separators": (",", style.colon), "indent": style.indent or ""}
    text = json.dumps(value, ensure_ascii=style.ascii, **form)
    if any("\ud800" <= char <= "\udfff" for char in text):  # half of a pair, which only an escape can hold
        text = json.dumps(value, **form)
    return text.replace("\n", style.newline + indent)
