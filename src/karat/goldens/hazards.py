"""Hazards: what makes a file unfit to read as any golden, noticed in its bytes before any parser.

Every check is a search in bytes, so that asking costs little more than looking at the file once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from karat.findings import Finding, Severity

BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LFS = b"version https://git-lfs.github.com/spec/"
_MARKER = re.compile(rb"^(?:<{7}|>{7})(?:[ \t][^\r\n]*)?\r?$", re.MULTILINE)
_MOST_OF_A_KIND = 8


def check(data: bytes) -> Finding | None:
    """The first hazard that keeps the bytes from being read, or None."""
    if not data:
        return _finding("empty", "expected a golden, found a file of 0 bytes")
    if data.startswith(_UTF16):
        return _finding("unreadable", "expected UTF-8, found UTF-16 text", where="line 1")
    if data.startswith(_LFS):
        return _finding(
            "unreadable",
            "expected a golden, found a Git LFS pointer to one that was not fetched",
            where="line 1",
            next_command="git lfs pull",
        )
    if b"\0" in data:
        return _binary(data)
    if not data.removeprefix(BOM).strip():
        return _finding("empty", "expected a golden, found only white space", where="line 1")
    return _conflict(data) or _bad_utf8(data)


def line_of(data: bytes, offset: int) -> int:
    """The number of the line, counted from 1, that holds the byte at `offset`."""
    return data.count(b"\n", 0, offset) + 1


def few(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """At most a handful of each kind, and then one finding that counts the rest.

    A file with a thousand NaN literals has one problem, not a thousand.
    """
    return tuple(_few(tuple(findings)))


def _few(findings: tuple[Finding, ...]) -> Iterator[Finding]:
    seen: Counter[tuple[str, Severity]] = Counter()
    last: dict[tuple[str, Severity], Finding] = {}
    for finding in findings:
        group = (finding.kind, finding.severity)
        seen[group] += 1
        if seen[group] <= _MOST_OF_A_KIND:
            yield finding
        last[group] = finding
    for group, count in seen.items():
        more = count - _MOST_OF_A_KIND
        if more > 0:
            yield replace(
                last[group],
                message=f"{more} more findings of this kind, the last one: {last[group].message}",
                numbers={**last[group].numbers, "more": more},
            )


def _binary(data: bytes) -> Finding:
    offset = data.find(b"\0")
    line = line_of(data, offset)
    return _finding(
        "unreadable",
        f"expected text, found a NUL byte at offset {offset} on line {line}",
        where=f"line {line}",
        numbers={"offset": offset, "line": line},
    )


def _conflict(data: bytes) -> Finding | None:
    # The plain searches answer nearly always; the expression only confirms that a line begins so.
    if b"<<<<<<<" not in data and b">>>>>>>" not in data:
        return None
    found = _MARKER.search(data)
    if found is None:
        return None
    line = line_of(data, found.start())
    marker = found.group().decode("utf-8", "replace").strip()[:40]
    return _finding(
        "conflict-markers",
        f'expected a golden, found the merge-conflict marker "{marker}" on line {line}',
        where=f"line {line}",
        numbers={"line": line},
        next_command="git mergetool",
    )


def _bad_utf8(data: bytes) -> Finding | None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = line_of(data, error.start)
        return _finding(
            "unreadable",
            f"expected UTF-8, found byte 0x{data[error.start]:02x} at offset {error.start}"
            f" on line {line}",
            where=f"line {line}",
            numbers={"offset": error.start, "line": line},
        )
    return None


def _finding(
    kind: str,
    message: str,
    *,
    where: str | None = None,
    numbers: dict[str, float | int | str | None] | None = None,
    next_command: str | None = None,
) -> Finding:
    return Finding(
        kind=kind,
        severity=Severity.FAIL,
        message=message,
        where=where,
        numbers=numbers or {},
        next=next_command,
    )
