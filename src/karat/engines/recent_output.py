"""The output of a command: its beginning and its end, however long it is."""

from __future__ import annotations

from collections import deque

FIRST = 1 << 20
LAST = 4 << 20
_PIECE = 1 << 16
"""A program that prints letter by letter must not cost an object for each."""


class RecentOutput:
    """The first MiB and the last four of what was printed; memory does not grow beyond."""

    def __init__(self, first: int = FIRST, last: int = LAST) -> None:
        self._first, self._last = first, last
        self._head = bytearray()
        self._tail: deque[bytearray] = deque()
        self._held = 0
        self._left_out = 0

    def add(self, came: bytes) -> None:
        """More of it."""
        room = self._first - len(self._head)
        self._head += came[:room]
        rest = came[room:]
        if not rest:
            return
        if not self._tail or len(self._tail[-1]) >= _PIECE:
            self._tail.append(bytearray())
        self._tail[-1] += rest
        self._held += len(rest)
        while self._held - len(self._tail[0]) >= self._last:
            gone = len(self._tail.popleft())
            self._held -= gone
            self._left_out += gone

    def text(self) -> bytes:
        """What is kept, with a line that says how much was left out between the two parts."""
        tail = b"".join(self._tail)
        left_out = self._left_out + max(0, len(tail) - self._last)
        if not left_out:
            return bytes(self._head) + tail
        said = f"\n[karat left out {left_out:,} bytes here]\n".encode()
        return bytes(self._head) + said + tail[-self._last :]
