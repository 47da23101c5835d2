"""A lossless look at JSON: where every key and value stands in the text.

The standard library's parser is faster and gives the values; this one is for the moments when the
place matters: to say where a hazard is, and to change one number without touching its neighbours.
It accepts exactly what the standard library accepts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

MAX_DEPTH = 200
"""Deeper nesting is no golden, and would exhaust the stack of whoever walks it."""

_SPACE = re.compile(r"[ \t\n\r]*")
# Flat, because Python before 3.11.5 (Debian 12 has 3.11.2) leaves a possessive group inside of what did not match.
CHARS = r'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+'
_STRING = re.compile(f'"{CHARS}"')
_OPEN_STRING = re.compile(f'"{CHARS}')
_PARTIAL_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORD = re.compile(r"-?[A-Za-z]+")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORDS: dict[str, Any] = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
}

CLOSE: dict[str, tuple[Literal["object", "array"], str]] = {
    "{": ("object", "}"),
    "[": ("array", "]"),
}

Path = Sequence[str | int]


class BrokenJSONError(ValueError):
    """The text stops being JSON at `offset`, inside the value at `path`."""

    def __init__(self, offset: int, path: Path, expected: str) -> None:
        super().__init__(f"expected {expected}")
        self.offset = offset
        self.path = tuple(path)
        self.expected = expected


class TooDeepError(BrokenJSONError):
    """The text nests deeper than any golden."""


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
    value: Any
    """Of a scalar only."""
    items: list[Node]
    keys: list[Key]


def scan(text: str) -> Node:
    """The tree of spans of a JSON text; raises BrokenJSONError where the text stops being JSON."""
    return _Scanner(text).document()


def walk(
    node: Node, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Node]]:
    """Every value of a tree with its path, parents before children."""
    stack = [(path, node)]
    while stack:
        path, node = stack.pop()
        yield path, node
        names: Sequence[str | int] = (
            [key.name for key in node.keys] if node.keys else range(len(node.items))
        )
        stack.extend(
            ((*path, name), item)
            for name, item in zip(reversed(names), reversed(node.items), strict=True)
        )


def path_text(path: Path) -> str:
    """A JSON path as people write it: `$["lm loss"].values["3"]`."""
    return "$" + "".join(_part(part) for part in path)


def _part(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    if _IDENTIFIER.fullmatch(part):
        return f".{part}"
    return f"[{json.dumps(part, ensure_ascii=False)}]"


def printable(text: str) -> str:
    """The text, with half of a surrogate pair spelled as its escape, which a file can hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def integer(token: str) -> int | float:
    """An integer token's value; infinite where it has more digits than Python converts."""
    try:
        return int(token)
    except ValueError:
        return float(token)


class Tokens:
    """Keys and scalars of a text, with the path of keys and indices that leads to where it stands."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.path: list[str | int] = []

    def space(self, offset: int) -> int:
        found = _SPACE.match(self.text, offset)
        return found.end() if found else offset

    def broken(self, offset: int, expected: str) -> BrokenJSONError:
        return BrokenJSONError(offset, self.path, expected)

    def scalar(self, offset: int) -> Node:
        if not self.text.startswith('"', offset):
            return self.plain(offset)
        value, end = self.string(offset)
        return Node("scalar", offset, end, value, [], [])

    def key(self, at: int) -> tuple[str, int, int]:
        """The name of the key at an offset, where the key ends, and where its value begins."""
        if not self.text.startswith('"', at):
            raise self.broken(at, "a key in double quotes")
        name, end = self.string(at)
        colon = self.space(end)
        if not self.text.startswith(":", colon):
            raise self.broken(colon, '":" after a key')
        return name, end, self.space(colon + 1)

    def string(self, offset: int) -> tuple[str, int]:
        found = _STRING.match(self.text, offset)
        if found is None:
            raise self.broken_string(offset)
        token = found.group()
        if "\\" not in token:
            return token[1:-1], found.end()
        return printable(json.loads(token)), found.end()

    def broken_string(self, offset: int) -> BrokenJSONError:
        found = _OPEN_STRING.match(self.text, offset)
        at = found.end() if found else offset
        if _PARTIAL_ESCAPE.match(self.text, at):
            at = len(self.text)
        return self.broken(at, "the rest of a string")

    def plain(self, offset: int) -> Node:
        """A number, or one of the words that stand for a value."""
        number = _NUMBER.match(self.text, offset)
        if number:
            token = number.group()
            value = integer(token) if token.lstrip("-").isdigit() else float(token)
            return Node("scalar", offset, number.end(), value, [], [])
        word = _WORD.match(self.text, offset)
        if word and word.group() in _WORDS:
            return Node("scalar", offset, word.end(), _WORDS[word.group()], [], [])
        raise self.broken(self.cut_short(offset), "a value")

    def cut_short(self, offset: int) -> int:
        """The end of the text, if all that is wrong with a word or number is that it ends there."""
        rest = self.text[offset:]
        partial = any(word.startswith(rest) for word in _WORDS)
        return len(self.text) if partial else offset


class _Scanner(Tokens):
    """Recursive descent."""

    def document(self) -> Node:
        node = self.value(self.space(0))
        end = self.space(node.end)
        if end != len(self.text):
            raise self.broken(end, "the end of the file")
        return node

    def value(self, offset: int) -> Node:
        first = self.text[offset : offset + 1]
        return self.container(offset) if first in CLOSE else self.scalar(offset)

    def container(self, offset: int) -> Node:
        # It calls itself directly, so that each level of nesting costs one frame of the stack.
        if len(self.path) >= MAX_DEPTH:
            raise TooDeepError(offset, self.path, f"at most {MAX_DEPTH} levels of nesting")
        kind, close = CLOSE[self.text[offset]]
        node = Node(kind, offset, offset, None, [], [])
        at = self.space(offset + 1)
        if self.text.startswith(close, at):
            node.end = at + 1
            return node
        while True:
            if kind == "object":
                start = at
                name, end, at = self.key(start)
                node.keys.append(Key(name, start, end))
            self.path.append(node.keys[-1].name if node.keys else len(node.items))
            first = self.text[at : at + 1]
            node.items.append(self.container(at) if first in CLOSE else self.scalar(at))
            self.path.pop()
            at = self.space(node.items[-1].end)
            if self.text.startswith(close, at):
                node.end = at + 1
                return node
            if not self.text.startswith(",", at):
                raise self.broken(at, f'"," or "{close}"')
            at = self.space(at + 1)
