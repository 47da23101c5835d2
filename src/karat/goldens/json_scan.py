"""A lossless look at JSON: where every key and value stands in the text, and where it stops being JSON.

The standard library's parser is faster and gives the values; this one is for the moments when the
place matters: to say where something is odd, and to change one number without touching its neighbours.
It accepts exactly what the standard library accepts.

A golden that was cut short may be large, and all there is to say of it is where it ends: `find_break`
keeps only the containers that are open there, and skips runs of plain values many at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec

MAX_DEPTH = 200  # Deeper nesting is no golden, and would exhaust the stack of whoever walks it.

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

CLOSE: dict[str, tuple[Literal["object", "array"], str]] = {"{": ("object", "}"), "[": ("array", "]")}

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
    value: Any  # Of a scalar only.
    items: list[Node]
    keys: list[Key]


def scan(text: str) -> Node:
    """The tree of spans of a JSON text; raises BrokenJSONError where the text stops being JSON."""
    return _Scanner(text).document()


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
        # The end of the text, if all that is wrong with a word is that it ends there.
        cut = any(word.startswith(self.text[offset:]) for word in _WORDS)
        raise self.broken(len(self.text) if cut else offset, "a value")


class _Scanner(Tokens):
    """Recursive descent."""

    def document(self) -> Node:
        at = self.space(0)
        node = self.container(at) if self.text[at : at + 1] in CLOSE else self.scalar(at)
        end = self.space(node.end)
        if end != len(self.text):
            raise self.broken(end, "the end of the file")
        return node

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


LARGE = 1 << 23  # From this size on, it pays to look whether a text is whole before values are made of it.

# A run is bounded, because the expression engine remembers every turn of a repetition.
_S = r"[ \t\n\r]*+"
_NUMBER_RUN = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?"
_STRING_RUN = f'"{CHARS}"'
_KEY = rf'"[^"\\\x00-\x1f]*+"{_S}:{_S}'
_PLAIN = rf'(?:{_NUMBER_RUN}|true|false|null|"[^"\\,\x00-\x1f]*+")'
_LIST = rf"\[{_S}(?:{_PLAIN}{_S}(?:,{_S}{_PLAIN}{_S}){{0,32}})?\]"
_MEMBER = rf"{_KEY}(?:{_PLAIN}|{_LIST}){_S}"
_RECORD = rf"\{{{_S}(?:{_MEMBER}(?:,{_S}{_MEMBER}){{0,32}})?\}}"
_ITEMS = rf"(?:{_PLAIN}{_S},{_S}){{1,500}}"
_MEMBERS = rf"(?:{_KEY}{_PLAIN}{_S},{_S}){{1,500}}"
_SMALL_ITEM = rf"(?:{_RECORD}|{_LIST}|{_STRING_RUN}){_S},{_S}"
_SMALL_MEMBER = rf"{_STRING_RUN}{_S}:{_S}(?:{_RECORD}|{_LIST}|{_STRING_RUN}){_S},{_S}"
_SMALL_DEPTH = 2


def find_break(text: str) -> BrokenJSONError | None:
    """Where and why the text is not JSON, or None if it is."""
    try:
        _BreakFinder(text).document()
    except BrokenJSONError as error:
        return error
    return None


def well_formed(text: str | bytes) -> bool:
    """True for strict JSON; false also where it holds NaN or nests deep.

    No value is made, so that it costs next to nothing; bytes inside strings are not looked at.
    """
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


@cache
def _compiled() -> tuple[re.Pattern[str], ...]:
    """The expressions of runs and of small values; to compile them takes longer than most reads."""
    return tuple(map(re.compile, (_ITEMS, _MEMBERS, _SMALL_ITEM, _SMALL_MEMBER)))


class _BreakFinder(Tokens):
    """From value to value, with nothing but a stack of what is open."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.closes: list[str] = []
        self.counts: list[int] = []
        self.items, self.members, self.small_item, self.small_member = _compiled()

    def document(self) -> None:
        at: int | None = self.space(0)
        end = 0
        while at is not None:
            end = self.enter(at) if self.text[at : at + 1] in CLOSE else self.leave(at)
            end, at = self.behind(end)
        end = self.space(end)
        if end != len(self.text):
            raise self.broken(end, "the end of the file")

    def enter(self, at: int) -> int:
        """Opens the container at an offset; the offset of what stands in it."""
        if len(self.closes) >= MAX_DEPTH:
            raise TooDeepError(at, self.path, f"at most {MAX_DEPTH} levels of nesting")
        self.closes.append(CLOSE[self.text[at]][1])
        self.counts.append(-1)
        return self.space(at + 1)

    def leave(self, at: int) -> int:
        """Passes the scalar at an offset; the offset behind it."""
        end = self.scalar(at).end
        if self.closes:
            self.path.pop()
        return self.space(end)

    def behind(self, at: int) -> tuple[int, int | None]:
        """Closes all that closes at an offset; where that ends, and where the next value begins."""
        while self.closes:
            close, first = self.closes[-1], self.counts[-1] < 0
            if self.text.startswith(close, at):
                self.closes.pop()
                self.counts.pop()
                at += 1
                if self.closes:
                    self.path.pop()
                    at = self.space(at)
                continue
            if first:
                self.counts[-1] = 0
                return at, self.next(at)
            if not self.text.startswith(",", at):
                raise self.broken(at, f'"," or "{close}"')
            return at, self.next(self.space(at + 1))
        return at, None

    def next(self, at: int) -> int:
        """The offset of the next value that cannot be skipped; its name joins the path."""
        small = len(self.closes) <= MAX_DEPTH - _SMALL_DEPTH
        if self.closes[-1] == "}":
            while (run := self.members.match(self.text, at)) or (
                small and (run := self.small_member.match(self.text, at))
            ):
                at = run.end()
            name, _, at = self.key(at)
            self.path.append(name)
            return at
        while True:
            if run := self.items.match(self.text, at):
                self.counts[-1] += self.text.count(",", at, run.end())
            elif small and (run := self.small_item.match(self.text, at)):
                self.counts[-1] += 1
            else:
                break
            at = run.end()
        self.path.append(self.counts[-1])
        self.counts[-1] += 1
        return at
