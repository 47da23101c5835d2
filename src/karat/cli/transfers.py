"""Transfers on a terminal: a bar per artifact, and a line for what takes long."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from karat.sources.listing import Artifact, Progress

_BARS = 8
"""Bars at once; more would scroll away."""


@contextmanager
def watch(
    stream: IO[str], *, quiet: bool
) -> Iterator[tuple[Progress | None, Callable[[str], None] | None]]:
    """Someone who shows downloads, and a way to say something meanwhile; neither when quiet."""
    if quiet:
        yield None, None
        return
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield None, _say
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal is worth the wait
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress as Bars,
        TextColumn,
        TransferSpeedColumn,
    )

    console = Console(file=stream)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        yield _Bars(bars), lambda text: console.print(_clean(text), markup=False, highlight=False)


def _say(text: str) -> None:
    print(f"karat: {_clean(text)}", file=sys.stderr)


def _clean(text: str) -> str:
    from karat.report.words import printable  # noqa: PLC0415 - names are not to be trusted

    return printable(text)


class _Bars:
    """`sources.listing.Progress` on rich's bars."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._tasks: dict[str, Any] = {}
        self._all = bars.add_task("artifacts", total=None)

    def begin(self, artifact: Artifact, total: int | None) -> None:
        """Show a bar, as long as there is room for one."""
        if len(self._tasks) < _BARS:
            name = _clean(artifact.name)
            short = name if len(name) <= 48 else f"{name[:20]}…{name[-27:]}"
            self._tasks[artifact.id] = self._bars.add_task(short, total=total)

    def advance(self, artifact: Artifact, received: int) -> None:
        """More bytes came in."""
        self._bars.advance(self._all, received)
        task = self._tasks.get(artifact.id)
        if task is not None:
            self._bars.advance(task, received)

    def end(self, artifact: Artifact) -> None:
        """Take the bar away."""
        task = self._tasks.pop(artifact.id, None)
        if task is not None:
            self._bars.remove_task(task)
