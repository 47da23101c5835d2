"""Text files: what makes one unfit to read as any golden, and its lines with their endings.

Every check is a search in bytes, so that asking costs little more than looking at the file once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, TypeVar

from msgspec.structs import replace

from karat.findings import Finding, Severity, fail

BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LFS = b"version https://git-lfs.github.com/spec/"
_MARKER = re.compile(rb"^(?:<{7}|>{7})(?:[ \t][^\r\n]*)?\r?$", re.MULTILINE)
_MOST_OF_A_KIND = 8
LONGEST_LINE = 8192
"""Characters of a log's line that are searched: an expression's time may grow with the square of its length."""


def check(data: bytes) -> Finding | None:
    """The first hazard that keeps the bytes from being read, or None."""
    if not data:
        return fail("empty", "expected a golden, found a file of 0 bytes")
    if data.startswith(_UTF16):
        return fail("unreadable", "expected UTF-8, found UTF-16 text", where="line 1")
    if data.startswith(_LFS):
        said = "expected a golden, found a Git LFS pointer to one that was not fetched"
        return fail("unreadable", said, where="line 1", next="git lfs pull")
    if b"\0" in data:
        return _odd_byte(data, data.find(b"\0"), "expected text, found a NUL byte")
    if not data.removeprefix(BOM).strip():
        return fail("empty", "expected a golden, found only white space", where="line 1")
    # The plain searches answer nearly always; the expression only confirms that a line begins so.
    if (b"<<<<<<<" in data or b">>>>>>>" in data) and (found := _MARKER.search(data)):
        line = line_of(data, found.start())
        marker, where = found.group().decode("utf-8", "replace").strip()[:40], f"line {line}"
        said = f'expected a golden, found the merge-conflict marker "{marker}" on {where}'
        return fail("conflict-markers", said, where=where, numbers={"line": line}, next="git mergetool")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return _odd_byte(data, error.start, f"expected UTF-8, found byte 0x{data[error.start]:02x}")
    return None


def _odd_byte(data: bytes, offset: int, what: str) -> Finding:
    line = line_of(data, offset)
    message, numbers = f"{what} at offset {offset} on line {line}", {"offset": offset, "line": line}
    return fail("unreadable", message, where=f"line {line}", numbers=numbers)


def line_of(data: bytes, offset: int) -> int:
    """The number of the line, counted from 1, that holds the byte at `offset`."""
    return data.count(b"\n", 0, offset) + 1


def log_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes, bool]]:
    """Number, bytes and whether they were cut, of each line of a log of any size.

    Progress bars, which only return the carriage, count as lines.
    """
    number = 0
    while raw := stream.readline(4 * LONGEST_LINE):
        number += 1
        cut = len(raw) == 4 * LONGEST_LINE and not raw.endswith(b"\n")
        for line in raw.rstrip(b"\r\n").split(b"\r") if b"\r" in raw else (raw,):
            yield number, line, cut
        while cut and (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
            pass


class LimitedFindings:
    """At most a handful of findings of each kind, then one that counts the rest; those are never made.

    A file with a thousand NaN literals has one problem, not a thousand.
    """

    def __init__(self) -> None:
        self._shown: list[Finding] = []
        self._seen: dict[tuple[str, Severity], int] = {}
        self._last: dict[tuple[str, Severity], Callable[[], Finding]] = {}

    def add(self, finding: Finding) -> None:
        """Takes a finding that is there already; one that counts others counts as so many."""
        self.note(finding.kind, finding.severity, lambda: finding, int(finding.numbers.get("more") or 1))

    def note(self, kind: str, severity: Severity, make: Callable[[], Finding], count: int = 1) -> None:
        """Takes a finding that is made only if it is shown: among the first, or as the last."""
        group = (kind, severity)
        self._seen[group] = self._seen.get(group, 0) + count
        if self._seen[group] <= _MOST_OF_A_KIND:
            self._shown.append(make())
        else:
            self._last[group] = make

    def on_line(
        self, kind: str, line: int, message: str, *, metric: str | None = None, severity: Severity = Severity.FAIL
    ) -> None:
        """Takes a finding about one line of a file."""
        found: dict[str, Any] = {"kind": kind, "severity": severity, "message": message, "metric": metric}
        self.note(kind, severity, partial(Finding, **found, where=f"line {line}", numbers={"line": line}))

    def findings(self) -> tuple[Finding, ...]:
        """The first of each kind in the order they came, and what counts the others."""
        rest = []
        for group, make in self._last.items():
            more, last = self._seen[group] - _MOST_OF_A_KIND, make()
            message = f"{more} more findings of this kind, the last one: {last.message}"
            rest.append(replace(last, message=message, numbers={**last.numbers, "more": more}))
        return (*self._shown, *rest)


def decode(data: bytes) -> str:
    """The text of UTF-8 bytes, without a byte-order mark."""
    return data.removeprefix(BOM).decode()


def encode(text: str, like: bytes) -> bytes:
    """The bytes of a text, with a byte-order mark if the old file has one."""
    return (BOM if like.startswith(BOM) else b"") + text.encode()


def split(text: str) -> list[str]:
    """The lines with their line feeds; only a line feed ends a line, as in git and editors."""
    *ended, rest = text.split("\n")
    lines = [line + "\n" for line in ended]
    return [*lines, rest] if rest else lines


def ending(line: str) -> str:
    """What ends a line: a line feed, with or without a carriage return, or nothing."""
    if line.endswith("\r\n"):
        return "\r\n"
    return "\n" if line.endswith("\n") else ""


def join(lines: list[str], like: str) -> str:
    """The lines put together, with a final line ending only if the old text has one."""
    text = "".join(lines)
    return text if like.endswith("\n") else text.removesuffix("\n").removesuffix("\r")


_Line = TypeVar("_Line")


def merge(kept: Sequence[_Line], keys: Sequence[Any | None], added: Mapping[Any, _Line]) -> list[_Line]:
    """The kept lines with new ones among them, by key.

    A new line comes behind the last one whose key is smaller, or before the first that has a key.
    Lines that have none (comments, blank lines) stay where they are.
    """
    held = sorted((key, index) for index, key in enumerate(keys) if key is not None)
    first = min((index for _, index in held), default=len(kept))
    merged: list[_Line] = []
    taken = passed = 0
    behind = -1
    for key in sorted(added):
        while passed < len(held) and held[passed][0] < key:
            behind = max(behind, held[passed][1])
            passed += 1
        at = behind + 1 if passed else first
        merged.extend(kept[taken:at])
        merged.append(added[key])
        taken = at
    return [*merged, *kept[taken:]]


def ended(raws: Sequence[str]) -> list[str]:
    """The lines, each but the last with a line ending."""
    return [raw if raw.endswith("\n") else raw + "\n" for raw in raws[:-1]] + list(raws[-1:])
