"""Reports in a terminal: lines of (text, style) pieces.

rich prints them on a terminal, where colour and NO_COLOR are its business; into a pipe they go plainly, and rich is
not even imported. On a terminal, text wraps at words, below where it began. Commands and rows of tables are left to the
terminal: a command that was wrapped here could not be copied.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import IO, TypeAlias

from karat.findings import Finding, Severity
from karat.report.words import line_of, log_line, printable, short_path
from karat.system.command import takes

Line: TypeAlias = tuple[tuple[str, str], ...]  # Pieces of text with a rich style each; no style is the empty text.

COMMAND = "cyan"  # The style of what is meant to be copied.
_WORD = re.compile(r"\S+|\s+")
_PART = re.compile(r"[^/]*/|[^/]+")
_OF_A_KIND = {Severity.FAIL: 20, Severity.WARN: 8, Severity.INFO: 0}
"""Findings of one kind that are listed without --all."""
STYLES = {Severity.FAIL: "bold red", Severity.WARN: "yellow", Severity.INFO: "dim"}


def room_of(stream: IO[str]) -> int | None:
    """The columns of a terminal; None for a pipe or a file, which takes any line."""
    return shutil.get_terminal_size().columns if _in_colour(stream) else None


def _in_colour(stream: IO[str]) -> bool:
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


def print_lines(report: Iterable[Line | str], stream: IO[str]) -> None:
    """Print lines of styled pieces: through rich on a terminal, plainly elsewhere; a plain text is never wrapped."""
    if not _in_colour(stream):
        for line in report:
            say(line if isinstance(line, str) else "".join(text for text, _ in line), stream)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    room = shutil.get_terminal_size().columns if stream.isatty() else None
    for line in (part for whole in report for part in ((whole,) if isinstance(whole, str) else wrapped(whole, room))):
        if isinstance(line, str):
            say(line, stream)
            continue
        pieces = [(printable(text), style) for text, style in line]
        if "".join(text for text, _ in pieces).lstrip().startswith("::"):
            pieces.insert(0, ("\\", ""))
        console.print(Text.assemble(*pieces), soft_wrap=True)


def wrapped(line: Line, room: int | None) -> Iterator[Line]:
    """The line as it is, or as several that fit; what follows the first begins where its text does."""
    whole = "".join(text for text, _ in line)
    if room is None or len(whole) <= room or any(style == COMMAND for _, style in line):
        yield line
        return
    blanks = len(whole) - len(whole.lstrip())
    # A word in front that says what kind of line it is, or the blanks in front; else a little.
    first = line[0][0]
    hang = len(first) if len(line) > 1 and first.endswith(" ") and len(first) <= room // 4 else blanks or 2
    pieces: list[tuple[str, str]] = []
    at = 0
    for text, style in line:
        words = _WORD.findall(text)
        # What is too long for any line, such as a path, breaks between its folders.
        parts = (_PART.findall(word) if len(word) > room - hang else (word,) for word in words)
        for word in chain.from_iterable(parts):
            if at + len(word) > room and at > hang:
                yield tuple(pieces[:-1] if pieces[-1][0].isspace() else pieces)
                pieces, at = [(" " * hang, "")], hang
                if word.isspace():
                    continue
            pieces.append((word, style))
            at += len(word)
    yield tuple(pieces)


def say(text: str, stream: IO[str] | None = None) -> None:
    """Print one line, on stdout unless told otherwise. All that karat prints comes by here, or by `print_lines`."""
    print(log_line(text), file=stream or sys.stdout)


def finding_lines(finding: Finding, root: str = "") -> Iterator[Line]:
    """A finding in full: severity, kind and place, the sentence, the next command."""
    where = short_path(finding.path, root)
    severity = finding.severity
    yield ()
    yield (f"{severity.value:<4} ", STYLES[severity]), (f"{finding.kind}  ", "bold"), (where, "")
    yield ((f"     {finding.message}", ""),)
    if finding.next:
        yield (f"     {'to take it' if takes(finding.next) else 'next'}: ", "dim"), (finding.next, COMMAND)


def by_kind(
    findings: Iterable[Finding],
    title: Callable[[str], str],
    advice: Mapping[str, str],
    *,
    everything: bool,
    root: str = "",
) -> Iterator[Line]:
    """Findings of each severity and kind below one another, in the order in which they come; the first few of them."""
    groups: dict[tuple[Severity, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, finding.kind), []).append(finding)
    for (severity, kind), found in groups.items():
        yield (f"{severity.value:<4} ", STYLES[severity]), (kind, "bold"), (f"  {len(found):,}: {title(kind)}", "")
        shown = found if everything else found[: _OF_A_KIND[severity]]
        paths = [short_path(f.path, root) for f in shown]
        places = [f"{path}:{line}" if (line := line_of(f)) else path for path, f in zip(paths, shown, strict=True)]
        width = min(max(map(len, places), default=0), 60)
        for place, finding in zip(places, shown, strict=True):
            yield (f"     {place:<{width}}  ", "cyan"), (finding.message, "")
        if len(found) > len(shown):
            more = f"… and {len(found) - len(shown):,} more (--all lists them)"
            yield ((f"     {more if shown else '--all lists them'}", "dim"),)
        if kind in advice and severity is not Severity.INFO:
            yield ((f"     → {advice[kind]}", "dim"),)
        yield ()


def lines_by_kind(findings: Iterable[Finding], root: str, most: int = 5) -> Iterator[Line]:
    """The first few findings of each kind in full; many of one kind are one thing to know, and the rest is counted."""
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    for kind, found in kinds.items():
        for finding in found[:most]:
            yield from finding_lines(finding, root)
        if len(found) > most:
            yield ()
            yield ((f"     … and {len(found) - most:,} more {kind} findings (--json - lists all)", "dim"),)


def widths(rows: Iterable[Sequence[str]]) -> list[int]:
    """How wide each column of a table has to be."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def aligned(row: Sequence[str], columns: Sequence[int], *, left: int = 2) -> str:
    """A row of a table: the first `left` columns are text, the others numbers."""
    cells = (
        value.ljust(width) if i < left else value.rjust(width)
        for i, (value, width) in enumerate(zip(row, columns, strict=True))
    )
    return "  ".join(cells)
