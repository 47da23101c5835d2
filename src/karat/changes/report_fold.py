"""Folding: lines that are longer than a terminal is wide, broken between words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from karat.report.terminal import Line

_HANG = 4
_DEEPEST = 16
_WORD = re.compile(r"\s*\S+|\s+")


def folded(line: Line, width: int | None) -> Iterator[Line]:
    """The line, and what does not fit below it; hanging under what follows the word that the line begins with."""
    if width is None or sum(len(text) for text, _ in line) <= width:
        yield line
        return
    hang = _hang(line)
    room = width
    row: list[tuple[str, str]] = []
    for text, style in line:
        # A piece that fits a line of its own is not torn.
        whole = len(text.strip()) <= width - hang
        for word in [text] if whole else _WORD.findall(text):
            if len(word.rstrip()) > room and row:
                yield tuple(row)
                row, room = [(" " * hang, "")], width - hang
                word = word.lstrip()  # noqa: PLW2901 - the break is its space
            row.append((word, style))
            room -= len(word)
    yield tuple(row)


def _hang(line: Line) -> int:
    first = line[0][0]
    return len(first) if first.endswith(" ") and len(first) <= _DEEPEST else _HANG
