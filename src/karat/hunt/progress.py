"""Progress: what someone who watches a hunt wants to see, gathered from what it says. No clock of its own, no drawing."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from karat.changes.series import Outcome
from karat.hunt.attempt import Attempt
from karat.hunt.point import Point
from karat.hunt.report_sentences import value
from karat.hunt.searching import Decision, Span
from karat.hunt.zooming import dips
from karat.report.words import printable

RUNNING, UNKNOWN = "running", "unknown"
_CLASS = {"regression": "worse", "crash": "worse", "improvement": "better", "shift": "moved"}


class Progress:
    """The stage that is searched now, and what was counted over all."""

    def __init__(self, units: dict[str, str], slots: int = 1) -> None:
        self.units, self.slots = units, slots
        self.stage, self.title = "", ""
        self.points: Sequence[Point] = ()
        self.decision: Decision | None = None
        self._since = 0
        """Runs that have ended since the decision."""
        self.done: list[Attempt] = []
        """Of this stage, oldest first."""
        self.running: dict[str, tuple[Point, str, float]] = {}
        """Point → itself, why, since when."""
        self.runs = 0
        self._seconds: list[float] = []
        self._places: dict[str, int] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._values: dict[int, float] = {}

    def open(self, stage: str, title: str, points: Sequence[Point]) -> None:
        """Another stage; its points are all there is to see from now on."""
        self.stage, self.title, self.points = stage, title, points
        self.decision, self.done, self.running = None, [], {}
        self._places = {point.id: index for index, point in enumerate(points)}
        self._outcomes, self._values = {}, {}

    def start(self, point: Point, why: str, now: float) -> None:
        """A point is under test."""
        self.running[point.id] = point, why, now

    def finish(self, attempt: Attempt) -> None:
        """An attempt is over."""
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
        lead = next(iter(attempt.samples.values()), ())
        if lead:
            self._values[index] = fmean(lead)

    def decide(self, decision: Decision) -> None:
        """What is known now."""
        self.decision, self._since = decision, 0

    def label(self, point: str) -> str:
        """A point's label."""
        index = self._places.get(point)
        return printable(point if index is None else self.points[index].label)

    @property
    def tried(self) -> int:
        """How many points have an answer."""
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
        """Changes that are known of this stage."""
        return self.decision.spans if self.decision is not None else ()

    def states(self) -> list[str]:
        """A word for each point: its outcome, or of one with values how its level compares with the first."""
        levels = self._levels()
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

    def _levels(self) -> list[str]:
        """good, worse, better, moved, dip: by the changes before each point."""
        levels, pairs = ["good"] * len(self.points), dips(self.spans)
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
                current = "dip" if dip is not None else _CLASS.get(span.kind, "moved")
            following = ordered[place + 1 :]
            end = self.spans[following[0]].bad if following else len(self.points)
            levels[span.bad : end] = [current] * (end - span.bad)
        return levels

    def heights(self) -> list[float | None]:
        """For each point its value between the lowest (0) and the highest (1); None without one."""
        if not self._values:
            return [None] * len(self.points)
        low, high = min(self._values.values()), max(self._values.values())
        room = (high - low) or 1.0
        return [
            (self._values[i] - low) / room if i in self._values and high > low else
            (0.5 if i in self._values else None)
            for i in range(len(self.points))
        ]  # fmt: skip

    def result(self, attempt: Attempt) -> str:
        """`577.1 MLUPS`, or how it failed."""
        if attempt.samples and attempt.outcome is Outcome.OK:
            return ", ".join(
                f"{value(fmean(samples))} {self.units.get(name) or name}"
                for name, samples in attempt.samples.items()
                if samples
            )
        said = attempt.signature or attempt.note
        return printable(f"{attempt.outcome.value}: {said}" if said else attempt.outcome.value)
