"""A guard against work that does not end: what takes hours on a stranger's input fails in a minute instead."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE = 60.0
"""Seconds of processor time. What ends takes a few at most, so that no busy machine comes near it."""


@contextmanager
def ends() -> Iterator[None]:
    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"still at it after {PATIENCE:.0f} s of processor time")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
