"""The driver of a hunt: stage by stage, each change on its own, down to the finest.

In: settings, a workspace, an engine, a journal (new, or of a hunt that was stopped) and a listener. Out: the report. What the
journal has is not done again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import structs

from karat.changepoints.series import Outcome
from karat.engines.job import Engine
from karat.findings import KaratError
from karat.hunts.attribution import attribute, confirm
from karat.hunts.journal.journal import Journal
from karat.hunts.journal.records import ChangeRow, StageRow
from karat.hunts.measure import HuntContext, HuntStopped, Measurer, OpenStage
from karat.hunts.model import Decision, HuntReport, Metric, Observed, Point, Span, Strategy, Window
from karat.hunts.probe.outcomes import search_metrics
from karat.hunts.report.assemble import build_report
from karat.hunts.report.findings import NOT_REPRODUCED
from karat.hunts.report.live import Listener
from karat.hunts.search.inference import Judgement, judge
from karat.hunts.search.observations import observed_in
from karat.hunts.search.strategies import open_strategy
from karat.hunts.settings import HuntSettings, SearchSettings, Stage
from karat.hunts.stages import Site, child_key, levels_of, shown_in, sites, stages
from karat.hunts.timelines import timeline as skipping
from karat.hunts.timelines.timeline import Workspace, open_timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

Levels = Mapping[str, tuple[float, float]]
_GONE = "no longer on the timeline"


def open_stage(kit: HuntContext, stage: Stage, row: StageRow, depth: int) -> OpenStage:
    """The stage with its timeline; points that the journal knows stay what they were."""
    timeline = open_timeline(kit.settings, stage, row.window, kit.place)
    points = skipping.mark_skipped(timeline.points, kit.settings.skip)
    if kit.journal.stage(row.key) is None:
        kit.journal.begin_stage(structs.replace(row, timeline=timeline.name), points)
    else:
        points = _as_begun(kit, row.key, points)
    for finding in timeline.findings:
        kit.listener.said(finding.message)
    kit.listener.opened(row.key, row.title, points)
    for entry in kit.journal.attempts(row.key):
        kit.listener.known(entry.attempt)
    return OpenStage(
        key=row.key,
        depth=depth,
        title=row.title,
        timeline=timeline,
        points=points,
        window=row.window,
    )


def _as_begun(kit: HuntContext, key: str, today: Sequence[Point]) -> tuple[Point, ...]:
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


def timeline_notes(kit: HuntContext, stage: OpenStage) -> tuple[str, ...]:
    """What a person should know of the list of points itself."""
    skipped = skipping.unmatched_skips(stage.points, kit.settings.skip) if stage.depth == 0 else ()
    return (
        *(finding.message for finding in stage.timeline.findings),
        *(f"skip: no point is called {text!r}" for text in skipped),
    )


class Search:
    """A strategy at work on the points of a stage."""

    def __init__(
        self, kit: HuntContext, measuring: Measurer, stage: OpenStage, levels: Levels
    ) -> None:
        self._kit = kit
        self._measuring = measuring
        self._stage = stage
        self._indices = {point.id: index for index, point in enumerate(stage.points)}
        self._strategy = self._opened(levels)
        self._seen: dict[int, Observed] = {}
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
            self._seen[index] = observed_in(attempts)

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
        self._kit.journal.save_decision(self._stage.key, decision)
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


Measure = Callable[[Sequence[Point]], Sequence[Observed]]


class Blame:
    """What swapping and confirming say of one place of change. What the journal knows already is not run again."""

    def __init__(self, kit: HuntContext, measuring: Measurer, stage: OpenStage, site: Site) -> None:
        self._kit, self._measuring, self._stage = kit, measuring, stage
        self._old, self._new = stage.points[site.good], stage.points[site.bad]
        self._name = site.numbers[0]

    def swapped(self, found: ChangeRow, span: Span) -> ChangeRow:
        """Which part made it, where parts can be swapped."""
        if found.swapped or not self._kit.settings.search.attribution:
            return found
        timeline = self._stage.timeline
        if timeline.mixed(self._old, self._new, frozenset()) is None:
            return structs.replace(found, swapped=True)
        measure = self._measure("swap", "swapping parts", span)
        metric = self._metric(span)
        verdict = attribute(
            timeline, self._old, self._new, metric, measure, lambda a, b: self._judged(a, b, metric)
        )
        towards = ""
        if verdict.part and not verdict.interaction:
            mixed = timeline.mixed(self._old, self._new, frozenset({verdict.part}))
            towards = mixed.id if mixed is not None else ""
        return structs.replace(found, verdict=verdict, swapped=True, towards=towards)

    def confirmed(self, found: ChangeRow, span: Span) -> ChangeRow:
        """Whether the culprit and its parent, run again, still differ."""
        times = self._kit.settings.search.confirmations
        if found.confirmed or not times:
            return found
        measure = self._measure("confirm", "confirming", span)
        metric = self._metric(span)
        verdict = confirm(
            self._old,
            self._new,
            metric,
            measure,
            lambda a, b: self._judged(a, b, metric),
            times=times,
            direction=0.0 if _without_level(span) else _direction(span),
        )
        merged = structs.replace(
            found.verdict, confirmed=verdict.confirmed, confidence=verdict.confidence,
            tried=(*found.verdict.tried, *verdict.tried),
        )  # fmt: skip
        return structs.replace(found, verdict=merged, confirmed=True)

    def _metric(self, span: Span) -> Metric:
        if _without_level(span):
            return FAILED
        return next(metric for metric in self._kit.metrics if metric.name == span.metric)

    def _judged(self, old: Observed, new: Observed, metric: Metric) -> Judgement:
        search = self._kit.settings.search
        return judge(old, new, metric, smallest=search.smallest, confidence=search.confidence)

    def _measure(self, purpose: str, why: str, span: Span) -> Measure:
        measure = self._measuring.measure(self._stage, f"{purpose} {self._name}", why)
        if not _without_level(span):
            return measure
        return lambda points: [as_failures(seen) for seen in measure(points)]


FAILED = Metric(name="fails", better="lower", binary=True)


def as_failures(seen: Observed) -> Observed:
    """A point by whether it failed: all that two sides of a crash have in common."""
    evidence = [o for o in seen.outcomes if o in (Outcome.OK, Outcome.CRASH, Outcome.HANG)]
    failed = tuple(float(outcome is not Outcome.OK) for outcome in evidence)
    return structs.replace(seen, values={FAILED.name: failed} if failed else {})


def _without_level(span: Span) -> bool:
    """Whether one side has no values: a crash nobody asked for."""
    return span.before is None or span.after is None


def _direction(span: Span) -> float:
    return (span.after or 0.0) - (span.before or 0.0)


INTERRUPTED = "it was interrupted"


def run_hunt(
    settings: HuntSettings, place: Workspace, engine: Engine, journal: Journal, listener: Listener
) -> HuntReport:
    """Hunt until there is nothing left to ask, or the budget is spent; Ctrl-C is noted, and goes on to the caller."""
    kit = HuntContext(
        settings=settings,
        place=place,
        engine=engine,
        journal=journal,
        listener=listener,
        metrics=search_metrics(settings),
    )
    journal.clear_running()
    journal.set_fact("state", "running")
    with _ended(journal, listener):
        Hunt(kit).run()
    return build_report(journal)


@contextmanager
def _ended(journal: Journal, listener: Listener) -> Iterator[None]:
    """However it ends, the journal says how."""
    try:
        yield
        journal.clear_running()
        journal.set_fact("state", "done")
    except HuntStopped as stop:
        mark_stopped(journal, str(stop))
    except KeyboardInterrupt:
        mark_stopped(journal, INTERRUPTED)
        raise
    except KaratError as error:
        # It may be the journal itself that cannot be written.
        with suppress(KaratError):
            mark_stopped(journal, str(error))
        raise
    finally:
        listener.closed()


def mark_stopped(journal: Journal, why: str) -> None:
    """The journal says that the hunt is not finished, and why."""
    journal.set_fact("why", why)
    journal.set_fact("state", "stopped")
    journal.add_event(why)


class Hunt:
    """A hunt at work."""

    def __init__(self, kit: HuntContext) -> None:
        self._kit = kit
        self._stages = stages(kit.settings)
        self._measuring = Measurer(kit)
        self._lacking: list[str] = []

    def run(self) -> None:
        """Every stage, from the coarsest on; a finer one that cannot be opened does not keep the others from it."""
        first = self._stages[0]
        self._stage(StageRow(key="0", title=first.text, timeline=first.timeline), 0)
        if self._lacking:
            raise HuntStopped("; ".join(self._lacking))

    def _stage(self, row: StageRow, depth: int, wanted: Sequence[Span] = ()) -> None:
        """One stage, what it found, and the finer ones below it; `wanted` are the changes that the coarser one saw there."""
        kit = self._kit
        before = kit.journal.stage(row.key)
        if before is not None and before.state == "done" and before.decision is not None:
            self._told_again(before)
            self._below(before, before.decision, depth)
            return
        stage = self._opened(row, depth)
        if stage is None:
            return
        try:
            decision = Search(kit, self._measuring, stage, row.levels).run()
            last = depth + 1 >= len(self._stages)
            for site in sites(decision.spans):
                # What else is in the window is looked into from where it was first seen.
                if not wanted or shown_in([decision.spans[n] for n in site.numbers], wanted):
                    self._look_into(stage, decision, site, last=last)
        finally:
            stage.timeline.close()
        lacking = tuple(_not_reproduced(stage, decision, wanted))
        kit.journal.finish_stage(row.key, (*timeline_notes(kit, stage), *lacking))
        for note in lacking:
            kit.listener.said(note)
        done = kit.journal.stage(row.key)
        self._below(done or row, decision, depth)

    def _opened(self, row: StageRow, depth: int) -> OpenStage | None:
        try:
            return open_stage(self._kit, self._config(depth), row, depth)
        except KaratError as error:
            if not row.parent:
                raise
            said = f"change {row.parent} could not be looked into at {row.title!r}: {error}"
            self._kit.listener.said(said)
            self._lacking.append(said)
            return None

    def _config(self, depth: int) -> Stage:
        """What stands in `stages`; below the last, merges are followed on the same timeline."""
        return self._stages[min(depth, len(self._stages) - 1)]

    def _told_again(self, row: StageRow) -> None:
        """A listener that comes late hears of a stage that is done."""
        self._kit.listener.opened(row.key, row.title, self._kit.journal.points(row.key))
        for entry in self._kit.journal.attempts(row.key):
            self._kit.listener.known(entry.attempt)

    def _look_into(self, stage: OpenStage, decision: Decision, site: Site, *, last: bool) -> None:
        """Whose change it is, and where to look closer; the verdict is in the journal."""
        old, new = stage.points[site.good], stage.points[site.bad]
        finer = not last or _is_merge(stage, site, old, new)
        zoom = child_key(stage.key, site.numbers[0], stage.depth + 1) if finer else ""
        blame = Blame(self._kit, self._measuring, stage, site)
        for number in site.numbers:
            found = self._kit.journal.changes(stage.key).get(number, ChangeRow())
            span = decision.spans[number]
            found = blame.swapped(found, span)
            if not finer:
                found = blame.confirmed(found, span)
            found = structs.replace(
                found, zoom=zoom, suspects=tuple(stage.timeline.suspects(old, new))
            )
            self._kit.journal.save_change(stage.key, number, found)

    def _below(self, row: StageRow, decision: Decision, depth: int) -> None:
        """The finer stages, one per place of change."""
        points = self._kit.journal.points(row.key)
        found = self._kit.journal.changes(row.key)
        for site in sites(decision.spans):
            whose = found.get(site.numbers[0], ChangeRow())
            if not whose.zoom:
                continue
            config = self._config(depth + 1)
            window = self._window(row, points[site.good], points[site.bad], whose)
            child = StageRow(
                key=whose.zoom,
                title=config.text,
                timeline=config.timeline,
                parent=f"{row.key}.{site.numbers[0]}",
                levels=levels_of(decision.spans, site),
                window=window,
            )
            self._stage(child, depth + 1, [decision.spans[number] for number in site.numbers])
            self._held(row, decision, site, depth)

    def _held(self, row: StageRow, decision: Decision, site: Site, depth: int) -> None:
        """A change that the finer stage did not show ends here: whether it holds is asked here."""
        found = self._kit.journal.changes(row.key)
        finer = self._kit.journal.stage(found[site.numbers[0]].zoom)
        seen = finer.decision.spans if finer and finer.decision else ()
        asked = [
            number
            for number in site.numbers
            if not shown_in(seen, [decision.spans[number]]) and not found[number].confirmed
        ]
        if not asked or finer is None or finer.state != "done":
            return
        stage = self._opened(row, depth)
        if stage is None:
            return
        try:
            blame = Blame(self._kit, self._measuring, stage, site)
            for number in asked:
                known = blame.confirmed(found[number], decision.spans[number])
                self._kit.journal.save_change(row.key, number, known)
        finally:
            stage.timeline.close()

    def _window(self, row: StageRow, old: Point, new: Point, found: ChangeRow) -> Window:
        """Between the two points; only the part that made the change moves, where one did."""
        mixed = self._kit.journal.point(row.key, found.towards) if found.towards else None
        end = mixed or new
        return Window(
            old=old,
            new=end,
            old_identity=self._identity(row.key, old),
            new_identity=self._identity(row.key, end),
        )

    def _identity(self, stage: str, point: Point) -> Mapping[str, str]:
        """What was really under test at a point, the last time it was."""
        entries = self._kit.journal.attempts(stage, point.id)
        known = [entry.attempt.identity for entry in entries if entry.attempt.identity]
        return known[-1] if known else {}


def _not_reproduced(stage: OpenStage, decision: Decision, wanted: Sequence[Span]) -> Iterator[str]:
    if wanted and not shown_in(decision.spans, wanted):
        # A merged branch has an explanation of its own.
        why = getattr(stage.timeline, "absent", "") or (
            "what is put under test here may be another build or environment than at the coarser stage, or nothing was "
            "rebuilt; `karat hunt show POINT` says what was under test"
        )
        yield f"{NOT_REPRODUCED} ({stage.points[0].label} … {stage.points[-1].label}): {why}"


def _is_merge(stage: OpenStage, site: Site, old: Point, new: Point) -> bool:
    """Whether the last stage found a merge, whose branch can be looked into on the same timeline."""
    finer = getattr(stage.timeline, "finer", None)
    return (
        stage.timeline.name == "commits"
        and site.bad == site.good + 1
        and bool(finer and finer(old, new))
    )
