"""Watching a hunt: who listens to it, and what it shows: a view that is drawn anew on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import IO, TYPE_CHECKING

from karat.changepoints.series import Outcome
from karat.hunts.model import Attempt, Decision, Point, Span
from karat.hunts.report.sentences import averages, duration
from karat.hunts.settings import HuntSettings
from karat.hunts.stages import dips
from karat.report.terminal import say
from karat.report.words import count, printable

if TYPE_CHECKING:
    from rich.live import Live


class Listener:
    """Hears what a hunt does; this one is silent.

    It must not raise, and need not hurry: nobody measures meanwhile in this process.
    """

    def opened(self, stage: str, title: str, points: Sequence[Point]) -> None:
        """A stage begins, or goes on."""

    def known(self, attempt: Attempt) -> None:
        """An attempt that the journal had already."""

    def room(self, slots: int) -> None:
        """So many points can be under test at a time, from now on."""

    def started(self, stage: str, point: Point, why: str) -> None:
        """A point is put under test."""

    def finished(self, attempt: Attempt) -> None:
        """An attempt is over, and in the journal."""

    def decided(self, stage: str, decision: Decision) -> None:
        """What is known now, and what comes next."""

    def said(self, message: str) -> None:
        """One sentence for a person."""

    def waiting(self) -> None:
        """Nothing happened for a moment: time to redraw a clock."""

    def closed(self) -> None:
        """The hunt is over, or was stopped."""


RUNNING, UNKNOWN = "running", "unknown"
LEVEL_OF = {"regression": "worse", "crash": "worse", "improvement": "better", "recovery": "better", "shift": "moved"}


class HuntProgress(Listener):
    """The stage that is searched now, and what was counted over all; what changed may be drawn at once."""

    def __init__(self, units: Mapping[str, str], stream: IO[str] | None = None) -> None:
        self.units, self._stream = units, stream
        self.slots = 1
        self.stage, self.title = "", ""
        self.points: Sequence[Point] = ()
        self.decision: Decision | None = None
        self._since = 0  # Runs that have ended since the decision.
        self.done: list[Attempt] = []  # Of this stage, oldest first.
        self.running: dict[str, tuple[Point, str, float]] = {}  # Point → itself, why, since when.
        self.runs = 0
        self._seconds: list[float] = []
        self._places: dict[str, int] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._values: dict[int, float] = {}

    def opened(self, stage: str, title: str, points: Sequence[Point]) -> None:
        """Another stage; its points are all there is to see from now on."""
        self.stage, self.title, self.points = stage, title, points
        self.decision, self.done, self.running = None, [], {}
        self._places = {point.id: index for index, point in enumerate(points)}
        self._outcomes, self._values = {}, {}
        self.waiting()

    def room(self, slots: int) -> None:
        self.slots = max(1, slots)

    def started(self, stage: str, point: Point, why: str) -> None:  # noqa: ARG002 - a listener's signature
        self.running[point.id] = point, why, time.monotonic()
        self.waiting()

    def known(self, attempt: Attempt) -> None:
        self.running.pop(attempt.point, None)
        self.done.append(attempt)
        self._since += 1
        if not attempt.shared_with:
            self.runs += 1
            self._seconds.append(attempt.seconds)
        index = self._places.get(attempt.point)
        if index is None:
            return
        if self._outcomes.get(index) is not Outcome.OK:
            self._outcomes[index] = attempt.outcome
        if lead := next(iter(attempt.samples.values()), ()):
            self._values[index] = fmean(lead)

    def finished(self, attempt: Attempt) -> None:
        self.known(attempt)
        self.waiting()

    def decided(self, stage: str, decision: Decision) -> None:  # noqa: ARG002 - a listener's signature
        self.decision, self._since = decision, 0
        self.waiting()

    def label(self, point: str) -> str:
        index = self._places.get(point)
        return printable(point if index is None else self.points[index].label)

    @property
    def tried(self) -> int:
        return len(self._outcomes)

    @property
    def left(self) -> int | None:
        """Runs still to come in this search, with those under way; None: nobody can say, or it is over."""
        if self.decision is None or not self.decision.expected_left:
            return None
        return max(self.decision.expected_left - self._since, len(self.running))

    @property
    def seconds_left(self) -> float | None:
        """As far as can be said: runs still to come, at what they took so far, over the slots."""
        if self.left is None or not self._seconds:
            return None
        return self.left * fmean(self._seconds[-20:]) / self.slots

    @property
    def spans(self) -> Sequence[Span]:
        return self.decision.spans if self.decision is not None else ()

    def states(self) -> list[str]:
        """A word for each point: its outcome, or of one with values how its level compares with the first."""
        # good, worse, better, moved, dip: by the changes before each point.
        levels, pairs = ["good"] * len(self.points), dips(self.spans, len(self.points))
        opened: dict[int, str] = {}
        current = "good"
        ordered = sorted(range(len(self.spans)), key=lambda n: self.spans[n].bad)
        for place, number in enumerate(ordered):
            span, dip = self.spans[number], pairs.get(number)
            if dip is not None and dip in opened:
                current = opened[dip]
            else:
                if dip is not None:
                    opened[dip] = current
                current = "dip" if dip is not None else LEVEL_OF.get(span.kind, "moved")
            following = ordered[place + 1 :]
            end = self.spans[following[0]].bad if following else len(self.points)
            levels[span.bad : end] = [current] * (end - span.bad)
        found = []
        for index, point in enumerate(self.points):
            outcome = self._outcomes.get(index)
            if point.id in self.running:
                found.append(RUNNING)
            elif outcome is Outcome.OK:
                found.append(levels[index])
            elif outcome is not None:
                found.append(outcome.value)
            else:
                found.append(Outcome.MISSING.value if point.missing else UNKNOWN)
        return found

    def heights(self) -> list[float | None]:
        """For each point its value between the lowest (0) and the highest (1); None without one."""
        if not self._values:
            return [None] * len(self.points)
        low, high = min(self._values.values()), max(self._values.values())
        heights = {i: (value - low) / (high - low) if high > low else 0.5 for i, value in self._values.items()}
        return [heights.get(i) for i in range(len(self.points))]

    def took(self, attempt: Attempt) -> str:
        """`12 min`, or whose result it is."""
        return f"as {printable(attempt.shared_with)}" if attempt.shared_with else duration(attempt.seconds)

    def result(self, attempt: Attempt) -> str:
        """`577.1 MLUPS`, or how it failed."""
        if attempt.samples and attempt.outcome is Outcome.OK:
            return averages(attempt.samples, self.units)
        said = attempt.signature or attempt.note
        return printable(f"{attempt.outcome.value}: {said}" if said else attempt.outcome.value)


def listener_for(stream: IO[str], environ: Mapping[str, str], settings: HuntSettings) -> Listener:
    """Someone who shows on the stream what a hunt does."""
    units = {metric.name: metric.unit for metric in settings.probe.metrics}
    terminal = stream.isatty() and environ.get("TERM") != "dumb"
    return LiveListener(units, stream) if terminal else LineListener(units, stream)


class LineListener(HuntProgress):
    """One line per attempt, for logs."""

    def opened(self, stage: str, title: str, points: Sequence[Point]) -> None:
        super().opened(stage, title, points)
        missing = sum(bool(point.missing) for point in points)
        lacking = f", {missing:,} of them not available" if missing else ""
        ends = f" ({points[0].label} … {points[-1].label})" if points else ""
        where = f"stage {stage}, {title}" if stage != "0" else title
        self.said(f"{where}: {count(len(points), 'point')}{ends}{lacking}")

    def finished(self, attempt: Attempt) -> None:
        super().finished(attempt)
        total = f"/≈{self.runs + self.left}" if self.left is not None else ""
        what = f"{self.label(attempt.point)} {self.result(attempt)} ({self.took(attempt)}) {attempt.why}"
        self.said(f"[{self.runs}{total}] {what}")

    def said(self, message: str) -> None:
        say(message, self._stream)


class LiveListener(HuntProgress):
    """A view of the stage at work that is drawn anew as things happen."""

    _live: Live | None = None

    def said(self, message: str) -> None:
        from rich.text import Text

        self.waiting()
        if self._live is not None:
            self._live.console.print(Text(printable(message), style="yellow"))

    def waiting(self) -> None:
        """Draw: the clock goes on, and the terminal may have another size.

        From the hunt's own thread: it comes by at least twice a second, and nothing is seen half made.
        """
        from karat.hunts.report.live_view import render

        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._stream), auto_refresh=False, transient=True)
            self._live.start()
        size = self._live.console.size
        self._live.update(render(self, size.width, size.height, time.monotonic()), refresh=True)

    def closed(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
