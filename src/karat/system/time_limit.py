"""A watch: calls off a search that does not come to an end.

A pattern such as `(a+)+b` tries the same text over and over: on a line of fifty characters it would
take years. No reading of a pattern tells which ones do, so the searches are watched. Python's engine
looks for signals while it searches, and a timer of processor time sends one; time spent asleep, on a
busy machine or waiting for a disk does not count.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

PERIOD = 1.0  # Seconds of processor time; a search that is there at two ticks of the watch is called off.


class StuckError(Exception):
    """A search that was called off."""


class SearchTimer:
    """While it is open, a search that takes longer than one or two periods raises StuckError.

    Signals reach the main thread only; anywhere else, and without timers (Windows), nothing is watched.
    """

    def __init__(self) -> None:
        self.search = 0  # the number of the search that is going on; 0 between searches
        self._seen = 0
        self._watches = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")

    def __enter__(self) -> Self:
        if self._watches:
            self._before = signal.signal(signal.SIGVTALRM, self._tick)
            signal.setitimer(signal.ITIMER_VIRTUAL, PERIOD, PERIOD)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._watches:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            self.search = 0
            signal.signal(signal.SIGVTALRM, self._before)

    def _tick(self, _number: int, _frame: FrameType | None) -> None:
        if self.search and self.search == self._seen:
            raise StuckError
        self._seen = self.search
