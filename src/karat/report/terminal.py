"""Reports in a terminal: lines of (text, style) pieces.

rich prints them on a terminal, where colour and NO_COLOR are its business; into a pipe they go plainly, and rich is
not even imported.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, TypeAlias

from karat.findings import Finding, Severity
from karat.report.words import log_line, printable, short_path

Line: TypeAlias = tuple[tuple[str, str], ...]
"""Pieces of text with a rich style each; no style is the empty text."""

STYLES = {Severity.FAIL: "bold red", Severity.WARN: "yellow", Severity.INFO: "dim"}


def room_of(stream: IO[str]) -> int | None:
    """The columns of a terminal; None for a pipe or a file, which takes any line."""
    return shutil.get_terminal_size().columns if _in_colour(stream) else None


def _in_colour(stream: IO[str]) -> bool:
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


def print_lines(report: Iterable[Line], stream: IO[str]) -> None:
    """Print lines of styled pieces: through rich on a terminal, plainly elsewhere."""
    if not _in_colour(stream):
        for line in report:
            stream.write(log_line("".join(text for text, _ in line)) + "\n")
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    for line in report:
        pieces = [(printable(text), style) for text, style in line]
        if "".join(text for text, _ in pieces).lstrip().startswith("::"):
            pieces.insert(0, ("\\", ""))
        console.print(Text.assemble(*pieces), soft_wrap=True)


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
        yield ("     next: ", "dim"), (finding.next, "cyan")


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
