"""One stage of a hunt: its timeline is opened, and searched until the strategy has its answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import structs

from karat.hunt import skipping
from karat.hunt.journal_rows import StageRow
from karat.hunt.kit import Kit, OpenStage
from karat.hunt.measuring import Measuring
from karat.hunt.opening import open_timeline
from karat.hunt.point import Point, Window
from karat.hunt.searching import Decision, Seen, Strategy
from karat.hunt.seeing import seen_of
from karat.hunt.settings import SearchSettings, Stage
from karat.hunt.strategies import open_strategy

Levels = Mapping[str, tuple[float, float]]
_GONE = "no longer on the timeline"


def open_stage(kit: Kit, stage: Stage, row: StageRow, depth: int) -> OpenStage:
    """The stage with its timeline; points that the journal knows stay what they were."""
    timeline = open_timeline(kit.settings, stage, row.window, kit.place)
    points = skipping.without(timeline.points, kit.settings.skip)
    if kit.journal.stage(row.key) is None:
        kit.journal.begin_stage(structs.replace(row, timeline=timeline.name), points)
    else:
        points = _as_begun(kit, row.key, points)
    for finding in timeline.findings:
        kit.listener.said(finding.message)
    kit.listener.opened(row.key, row.title, points)
    for entry in kit.journal.entries(row.key):
        kit.listener.known(entry.attempt)
    return OpenStage(
        key=row.key,
        depth=depth,
        title=row.title,
        timeline=timeline,
        points=points,
        window=row.window,
    )


def _as_begun(kit: Kit, key: str, today: Sequence[Point]) -> tuple[Point, ...]:
    """The list as it was when the stage began: positions mean something to the strategy and in reports.

    What has come since is for another hunt. Whether a point can be had is today's word.
    """
    now = {point.id: point for point in today}
    begun = kit.journal.points(key)
    points = tuple(now.get(p.id) or structs.replace(p, missing=p.missing or _GONE) for p in begun)
    for position, (old, new) in enumerate(zip(begun, points, strict=True)):
        if old != new:
            kit.journal.update_point(key, position, new)
    more = len(now.keys() - {point.id for point in begun})
    if more:
        kit.listener.said(
            f"{more:,} points are new since this hunt began; they are left out (karat hunt run --fresh takes them in)"
        )
    return points


def timeline_notes(kit: Kit, stage: OpenStage) -> tuple[str, ...]:
    """What a person should know of the list of points itself."""
    skipped = skipping.unmatched(stage.points, kit.settings.skip) if stage.depth == 0 else ()
    return (
        *(finding.message for finding in stage.timeline.findings),
        *(f"skip: no point is called {text!r}" for text in skipped),
    )


class Search:
    """A strategy at work on the points of a stage."""

    def __init__(self, kit: Kit, measuring: Measuring, stage: OpenStage, levels: Levels) -> None:
        self._kit = kit
        self._measuring = measuring
        self._stage = stage
        self._indices = {point.id: index for index, point in enumerate(stage.points)}
        self._strategy = self._opened(levels)
        self._seen: dict[int, Seen] = {}
        for index in range(len(stage.points)):
            self._look(index)

    def _opened(self, levels: Levels) -> Strategy:
        points = self._stage.points
        return open_strategy(
            _search_settings(self._kit.settings.search, self._stage.window),
            len(points),
            self._kit.metrics,
            missing=[index for index, point in enumerate(points) if point.missing],
            names=[point.id for point in points],
            levels=levels or None,
        )

    def _look(self, index: int) -> None:
        attempts = self._measuring.attempts(self._stage, self._stage.points[index])
        if attempts:
            self._seen[index] = seen_of(attempts)

    def run(self) -> Decision:
        """Search until nothing is left to ask; `Stopped` where the budget ends it before."""
        while True:
            decision = self._decide(self._measuring.room)
            for ask in decision.asks:
                point = self._stage.points[ask.index]
                self._measuring.start(self._stage, point, _by_label(ask.why, self._stage.points))
            self._stage.timeline.ahead([self._stage.points[i] for i in decision.likely_next])
            if not self._measuring.in_flight:
                return self._ended(decision)
            while not (finished := self._measuring.wait()):
                pass
            for run in finished:
                self._look(self._indices[run.point.id])

    def _ended(self, decision: Decision) -> Decision:
        """The answer, unless it is only the budget that leaves no room to ask."""
        if self._measuring.spent and self._strategy.decide(self._seen, {}, 1).asks:
            raise self._measuring.stopped()
        # What comes now, swapping and confirming, is no part of what the strategy expected.
        return self._known(structs.replace(decision, expected_left=0))

    def _decide(self, room: int) -> Decision:
        flying = Counter(self._indices[run.point.id] for run in self._measuring.in_flight)
        return self._known(self._strategy.decide(self._seen, flying, room))

    def _known(self, decision: Decision) -> Decision:
        self._kit.journal.decided(self._stage.key, decision)
        self._kit.listener.decided(self._stage.key, decision)
        return decision


def _by_label(why: str, points: Sequence[Point]) -> str:
    """`midpoint of 12 and 24` with the points' labels: a person does not count."""

    def labelled(match: re.Match[str]) -> str:
        first, last = int(match[1]), int(match[2])
        if max(first, last) >= len(points):
            return match[0]
        return f"midpoint of {points[first].label} and {points[last].label}"

    return re.sub(r"midpoint of (\d+) and (\d+)", labelled, why)


def _search_settings(settings: SearchSettings, window: Window | None) -> SearchSettings:
    """In a window its own ends are the known points, not those of the first stage. The budget is the whole hunt's."""
    own = structs.replace(settings, max_runs=0)
    return own if window is None else structs.replace(own, good="", bad="")
