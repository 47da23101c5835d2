"""Words of a signature: what differs between two nights of one crash is taken out of its message. Pure.

Addresses, paths, hashes, dates and numbers are replaced; names, types and quoted identifiers stay. Every expression is
linear in the length of the line, which is bounded.
"""

from __future__ import annotations

import re

LONGEST = 4096
"""Characters of a line that are looked at."""
_ROOM = 200
_ANSI = re.compile(
    r"\x1b(?:\[[0-9;:?<=>]{0,64}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|[@-Z\\^_])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]+")
_ADDRESS = re.compile(r"\b0[xX][0-9a-fA-F]+\b")
_UUID = re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_TIME = re.compile(
    r"\b\d{4}-\d{2}-\d{2}(?:[T _]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
)
_PATH = re.compile(
    r"(?<![\w…/\\.~<-])(?:file://|~|[A-Za-z]:)?[/\\][^\s'\"`:,;()<>\[\]{}|=]*[^\s'\"`:,;()<>\[\]{}|=/\\.]"
)
_TEMPORARY = re.compile(r"\btmp[a-zA-Z0-9_]{5,12}\b")
_HASH = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b")
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_])(?<!Errno )(?<!exit code )(?<!exit status )[0-9]+(?:[.,:_][0-9]+)*(?:[eE][+-]?[0-9]+\b)?"
)
"""Not the codes of errors: those say what went wrong."""
_BYTES = re.compile(r"\bN (?:[KMGT]i?|k)?B\b")
_STAMP = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?(?:\s|$)"
)
_SPACES = re.compile(r"\s+")


def plain(line: str) -> str:
    """A line as a terminal would show it in the end: no colours, no control characters, bars overwritten."""
    shown = line[-LONGEST:].rstrip("\r\n")
    if "\x1b" in shown:
        shown = _ANSI.sub("", shown)
    shown = shown.rpartition("\r")[2]
    return _CONTROL.sub(" ", shown) if _CONTROL.search(shown) else shown


def unstamped(line: str) -> str:
    """A line without the moment before it, which CI and container engines put there, another on every line."""
    match = _STAMP.match(line) if line[:1].isdecimal() or line[:1] == "[" else None
    return line[match.end() :] if match else line


def normalised(message: str) -> str:
    """A message without what differs from night to night; doing it twice changes nothing more."""
    text = plain(message)[:LONGEST]
    text = _TIME.sub("TIME", _UUID.sub("UUID", _ADDRESS.sub("ADDRESS", text)))
    text = _PATH.sub(_last_name, text)
    text = _TEMPORARY.sub("TMP", _HASH.sub("HASH", text))
    # 900 MiB on one night are 1.2 GiB on the next.
    text = _BYTES.sub("N bytes", _NUMBER.sub("N", text))
    return _cut(_SPACES.sub(" ", text).strip())


def _last_name(match: re.Match[str]) -> str:
    """A path by its last name: folders differ from machine to machine."""
    return "…/" + re.split(r"[/\\]", match.group())[-1]


def _cut(text: str) -> str:
    return text if len(text) <= _ROOM else f"{text[: _ROOM - 1].rstrip()}…"
