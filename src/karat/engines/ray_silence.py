"""Ray's own words, kept off stdout, where data goes.

A thread of Ray's prints there when a node is lost, whatever `log_to_driver` says. What became of a job is told by its result.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

_OF_RAY = "ray_"


class _WithoutRay:
    """A stream that does not hear Ray's threads."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if threading.current_thread().name.startswith(_OF_RAY):
            return len(text)
        written: int = self._stream.write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Silence:
    """Keeps Ray's threads off stdout until it is over."""

    def __init__(self) -> None:
        self._before = sys.stdout
        self._instead: Any = _WithoutRay(sys.stdout)
        sys.stdout = self._instead

    def end(self) -> None:
        """As it was, unless somebody else has changed it since."""
        if sys.stdout is self._instead:
            sys.stdout = self._before
