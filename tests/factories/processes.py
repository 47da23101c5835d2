"""Processes that tests start and look for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from karat.system.processes import process_of

_PATIENCE = 60.0


def started(file: Path, count: int) -> list[int]:
    """Process ids that were written to a file, one a line, once there are so many."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        if len(lines) >= count and all(line.endswith("\n") for line in lines):
            return [int(line) for line in lines]
        time.sleep(0.01)
    raise AssertionError(f"{file} never had {count} process ids")


def gone(pids: Sequence[int]) -> bool:
    """Whether they all have ended, now or soon."""
    until = time.monotonic() + _PATIENCE
    while any(process_of(pid) is not None for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
