"""Ranges: a remote archive as a file of which only some stretches are here."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

Span = tuple[int, int]
"""A stretch of bytes: its start, and the first place after it."""

# A neighbour this close costs less to fetch along than another request would.
_GAP = 1 << 16
_MOST_SPANS = 8


class Stretches(io.RawIOBase):
    """A file of `size` bytes; what is missing is brought when it is read."""

    def __init__(self, size: int, bring: Callable[[int, int], Path]) -> None:
        self._size = size
        self._bring = bring
        self._position = 0
        self._here: list[tuple[int, int, BinaryIO]] = []

    def add(self, start: int, end: int) -> None:
        """Brings one stretch now."""
        if end > start:
            self._here.append((start, end, self._bring(start, end).open("rb")))

    def close(self) -> None:
        for _, _, file in self._here:
            file.close()
        self._here.clear()
        super().close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("a place before the start of the file")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fills the buffer as far as the file goes: readers of archives count on whole reads."""
        end = min(self._position + len(buffer), self._size)
        wanted = max(0, end - self._position)
        filled = 0
        while filled < wanted:
            piece = self._read_some(self._position, end)
            buffer[filled : filled + len(piece)] = piece
            filled += len(piece)
            self._position += len(piece)
        return filled

    def _read_some(self, start: int, end: int) -> bytes:
        for first, last, file in self._here:
            if first <= start < last:
                file.seek(start - first)
                piece = file.read(min(end, last) - start)
                if not piece:
                    raise EOFError("a stretch is shorter than it was")
                return piece
        following = min((first for first, _, _ in self._here if first > start), default=end)
        self.add(start, min(end, following))
        return self._read_some(start, end)


def coalesced(spans: Iterable[Span], *, gap: int = _GAP, most: int = _MOST_SPANS) -> list[Span]:
    """Stretches that cover all spans: near neighbours become one, and there are at most `most`."""
    ordered = sorted(span for span in spans if span[1] > span[0])
    joined = _joined(ordered, gap)
    while len(joined) > most:
        gap = max(1, gap * 2)
        joined = _joined(ordered, gap)
    return joined


def _joined(ordered: Iterable[Span], gap: int) -> list[Span]:
    joined: list[Span] = []
    for start, end in ordered:
        if joined and start - joined[-1][1] <= gap:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def weight(spans: Iterable[Span]) -> int:
    """How many bytes the stretches hold."""
    return sum(end - start for start, end in spans)
