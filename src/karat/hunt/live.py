"""Watching a hunt: a view that is drawn anew on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING

from karat.hunt.attempt import Attempt
from karat.hunt.listening import Listener
from karat.hunt.point import Point
from karat.hunt.progress import Progress
from karat.hunt.report_sentences import duration
from karat.hunt.searching import Decision
from karat.hunt.settings import HuntSettings
from karat.report.words import count, printable

if TYPE_CHECKING:
    from rich.live import Live


def listener_for(stream: IO[str], environ: Mapping[str, str], settings: HuntSettings) -> Listener:
    """Someone who shows on the stream what a hunt does."""
    units = {metric.name: metric.unit for metric in settings.probe.metrics}
    progress = Progress(units)
    if stream.isatty() and environ.get("TERM") != "dumb":
        return View(stream, progress)
    return Lines(stream, progress)


class Lines:
    """One line per attempt, for logs."""

    def __init__(self, stream: IO[str], progress: Progress) -> None:
        self._stream, self._progress = stream, progress

    def opened(self, stage: str, title: str, points: Sequence[Point]) -> None:
        """Says which points there are."""
        self._progress.open(stage, title, points)
        missing = sum(bool(point.missing) for point in points)
        lacking = f", {missing:,} of them cannot be had" if missing else ""
        ends = f" ({points[0].label} … {points[-1].label})" if points else ""
        where = f"stage {stage}, {title}" if stage != "0" else title
        self._write(f"{where}: {count(len(points), 'point')}{ends}{lacking}")

    def known(self, attempt: Attempt) -> None:
        """Counted in silence."""
        self._progress.finish(attempt)

    def room(self, slots: int) -> None:
        """For the time left."""
        self._progress.slots = max(1, slots)

    def started(self, stage: str, point: Point, why: str) -> None:  # noqa: ARG002 - a listener's signature
        """Noted in silence."""
        self._progress.start(point, why, time.monotonic())

    def finished(self, attempt: Attempt) -> None:
        """One line."""
        progress = self._progress
        progress.finish(attempt)
        left = progress.left
        total = f"/≈{progress.runs + left}" if left is not None else ""
        took = (
            f"as {printable(attempt.shared_with)}"
            if attempt.shared_with
            else duration(attempt.seconds)
        )
        self._write(
            f"[{progress.runs}{total}] {progress.label(attempt.point)} {progress.result(attempt)} ({took}) {attempt.why}"
        )

    def decided(self, stage: str, decision: Decision) -> None:  # noqa: ARG002 - a listener's signature
        """Noted in silence."""
        self._progress.decide(decision)

    def said(self, message: str) -> None:
        """One line."""
        self._write(message)

    def waiting(self) -> None:
        """A log has no clock to redraw."""

    def closed(self) -> None:
        """Nothing to take down."""

    def _write(self, text: str) -> None:
        self._stream.write(f"{printable(text).rstrip()}\n")
        self._stream.flush()


class View:
    """A view of the stage at work that is drawn anew as things happen."""

    def __init__(self, stream: IO[str], progress: Progress) -> None:
        self._stream, self._progress = stream, progress
        self._live: Live | None = None

    def opened(self, stage: str, title: str, points: Sequence[Point]) -> None:
        """Another stage is shown."""
        self._progress.open(stage, title, points)
        self._drawn()

    def known(self, attempt: Attempt) -> None:
        """Shown with the next drawing."""
        self._progress.finish(attempt)

    def room(self, slots: int) -> None:
        """For the time left."""
        self._progress.slots = max(1, slots)

    def started(self, stage: str, point: Point, why: str) -> None:  # noqa: ARG002 - a listener's signature
        """A point is shown as running."""
        self._progress.start(point, why, time.monotonic())
        self._drawn()

    def finished(self, attempt: Attempt) -> None:
        """Its result is shown."""
        self._progress.finish(attempt)
        self._drawn()

    def decided(self, stage: str, decision: Decision) -> None:  # noqa: ARG002 - a listener's signature
        """What is known, and what comes next."""
        self._progress.decide(decision)
        self._drawn()

    def said(self, message: str) -> None:
        """Stays above the view."""
        from rich.text import Text  # noqa: PLC0415 - only a terminal is worth the wait

        self._drawn()
        if self._live is not None:
            self._live.console.print(Text(printable(message), style="yellow"))

    def waiting(self) -> None:
        """The clock goes on, and the terminal may have another size."""
        self._drawn()

    def closed(self) -> None:
        """The view goes; the report follows."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _drawn(self) -> None:
        # Drawn from the hunt's own thread: it comes by at least twice a second, and nothing is seen half made.
        if self._live is None:
            from rich.console import Console  # noqa: PLC0415 - only a terminal is worth the wait
            from rich.live import Live  # noqa: PLC0415

            self._live = Live(
                console=Console(file=self._stream), auto_refresh=False, transient=True
            )
            self._live.start()
        from karat.hunt.live_view import rendered  # noqa: PLC0415

        size = self._live.console.size
        self._live.update(
            rendered(self._progress, size.width, size.height, time.monotonic()), refresh=True
        )
