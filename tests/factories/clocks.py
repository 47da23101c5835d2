"""A clock that only moves when someone sleeps."""

from __future__ import annotations

from typing import Any

from karat.net.client import Retry


class Clock:
    """Time as a test has it; `waits` is how long anyone slept."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def retry(self, **more: Any) -> Retry:
        """Retry by this clock."""
        return Retry(sleep=self.sleep, clock=lambda: self.now, **more)
