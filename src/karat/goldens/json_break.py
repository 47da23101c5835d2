"""Where a text stops being JSON, found without a tree of what stands before.

A golden that was cut short may be large, and all there is to say of it is where it ends: only the
containers that are open there are kept. Runs of plain values are skipped many at a time.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec

from karat.goldens.json_scan import CHARS, CLOSE, MAX_DEPTH, BrokenJSONError, Tokens, TooDeepError

LARGE = 1 << 23
"""From this size on, it pays to look whether a text is whole before values are made of it."""

# A run is bounded, because the expression engine remembers every turn of a repetition.
_S = r"[ \t\n\r]*+"
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?"
_STRING = f'"{CHARS}"'
_KEY = rf'"[^"\\\x00-\x1f]*+"{_S}:{_S}'
_PLAIN = rf'(?:{_NUMBER}|true|false|null|"[^"\\,\x00-\x1f]*+")'
_LIST = rf"\[{_S}(?:{_PLAIN}{_S}(?:,{_S}{_PLAIN}{_S}){{0,32}})?\]"
_MEMBER = rf"{_KEY}(?:{_PLAIN}|{_LIST}){_S}"
_RECORD = rf"\{{{_S}(?:{_MEMBER}(?:,{_S}{_MEMBER}){{0,32}})?\}}"
_ITEMS = rf"(?:{_PLAIN}{_S},{_S}){{1,500}}"
_MEMBERS = rf"(?:{_KEY}{_PLAIN}{_S},{_S}){{1,500}}"
_SMALL_ITEM = rf"(?:{_RECORD}|{_LIST}|{_STRING}){_S},{_S}"
_SMALL_MEMBER = rf"{_STRING}{_S}:{_S}(?:{_RECORD}|{_LIST}|{_STRING}){_S},{_S}"
_SMALL_DEPTH = 2


def find_break(text: str) -> BrokenJSONError | None:
    """Where and why the text is not JSON, or None if it is."""
    try:
        _Walk(text).document()
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


class _Walk(Tokens):
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
