"""The driver of a hunt: stage by stage, each change on its own, down to the finest.

In: settings, a workspace, an engine, a journal (new, or of a hunt that was stopped) and a listener. Out: the report. What the
journal has is not done again.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from itertools import islice
from math import inf

import msgspec
from msgspec import structs

from karat.changepoints.series import Outcome
from karat.engines.job import Engine
from karat.findings import KaratError
from karat.hunts.attribution import Judge, Measure, attribute, confirm
from karat.hunts.journal import Journal
from karat.hunts.measure import HuntContext, HuntStopped, Measurer, OpenStage
from karat.hunts.model import Ask, ChangeRow, Decision, HuntReport, Metric, Observed, Point, Span, StageRow, Window
from karat.hunts.probe.outcomes import search_metrics
from karat.hunts.report.assemble import NOT_REPRODUCED, build_report, shown_in
from karat.hunts.report.sentences import change_text, moved_text
from karat.hunts.report.terminal import Listener
from karat.hunts.search.inference import PairJudgement, judge
from karat.hunts.search.observations import observed_in
from karat.hunts.search.requests import most_runs, spare_requests
from karat.hunts.search.strategies import strategy_for
from karat.hunts.settings import HuntSettings, Stage, stages
from karat.hunts.timelines.timeline import Workspace, mark_skipped, notes_on, open_timeline
from karat.report.words import count
from karat.system.secrets import scrub, secrets_in

INTERRUPTED = "it was interrupted"
_SURE, _UNSURE, _DETAILS = "found:", "no longer sure:", " — "
FAILED = Metric(name="fails", better="lower", binary=True)


def run_hunt(
    settings: HuntSettings, place: Workspace, engine: Engine, journal: Journal, listener: Listener
) -> HuntReport:
    """Hunt until there is nothing left to ask, or the budget is spent; Ctrl-C is noted, and goes on to the caller."""
    hunt = HuntContext(settings, place, engine, journal, listener, search_metrics(settings))
    journal.clear_running()
    journal.set_fact("state", "running")
    # However it ends, the journal says how.
    try:
        Driver(hunt).run()
        journal.clear_running()
        journal.set_fact("state", "done")
    except HuntStopped as stop:
        mark_stopped(journal, str(stop), stop.more)
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
    return build_report(journal)


def mark_stopped(journal: Journal, why: str, more: Sequence[str] = ()) -> None:
    """Keep why it stopped, and what a resume must say to go on (`--max-runs 80`)."""
    why = scrub(why, secrets_in(os.environ))
    journal.set_fact("why", why)
    journal.set_fact("more", json.dumps(more))
    journal.set_fact("state", "stopped")
    journal.add_event(why)


class Driver:
    def __init__(self, hunt: HuntContext) -> None:
        self._hunt, self._journal, self._listener = hunt, hunt.journal, hunt.listener
        self._stages = stages(hunt.settings)
        self._measurer = Measurer(hunt)
        self._lacking: list[str] = []

    def run(self) -> None:
        """Every stage, from the coarsest on; a finer one that cannot be opened does not keep the others from it."""
        first = self._stages[0]
        self._stage(StageRow(key="0", title=first.text, timeline=first.timeline), 0)
        if self._lacking:
            raise HuntStopped("; ".join(self._lacking))

    def _stage(self, row: StageRow, depth: int, wanted: Sequence[Span] = ()) -> None:
        """One stage, what it found, and the finer ones below it; `wanted` are the changes that the coarser one saw there."""
        before = self._journal.stage(row.key)
        if before is not None and before.state == "done" and before.decision is not None:
            self._announce(row, self._journal.points(row.key))
            self._zoom(before, before.decision, depth)
            return
        if (stage := self._open(row, depth)) is None:
            return
        with closing(stage.timeline):
            decision = self._search(stage, row.levels)
            for site in sites(decision.spans):
                # What else is in the window is looked into from where it was first seen.
                if not wanted or shown_in([decision.spans[n] for n in site.numbers], wanted):
                    self._look_into(stage, decision, site)
        notes = notes_on(stage.timeline, stage.points, self._hunt.settings.skip if depth == 0 else ())
        if wanted and not shown_in(decision.spans, wanted):
            # A merged branch has an explanation of its own.
            usual = "what is put under test here may be another build or environment than at the coarser stage"
            usual += ", or nothing was rebuilt; `karat hunt show POINT` says what was under test"
            why = stage.timeline.absent or usual
            notes.append(f"{NOT_REPRODUCED} ({stage.points[0].label} … {stage.points[-1].label}): {why}")
            self._listener.said(notes[-1])
        self._journal.finish_stage(row.key, [scrub(note, secrets_in(os.environ)) for note in notes])
        self._zoom(self._journal.stage(row.key) or row, decision, depth)

    def _search(self, stage: OpenStage, levels: Mapping[str, tuple[float, float]]) -> Decision:
        """Search the points of a stage until nothing is left to ask; `HuntStopped` where the budget ends it before."""
        points, measurer = stage.points, self._measurer
        settings = self._hunt.settings.search
        # In a window its own ends are the known points, not those of the first stage.
        if stage.window is not None:
            settings = structs.replace(settings, good="", bad="")
        breaks = stage.timeline.breaks
        if breaks:  # it may come and go
            settings = structs.replace(settings, strategy="adaptive")
        tips = [Ask(index=at, why="end of a branch") for begin in breaks for at in (begin - 1, begin)]
        strategy = strategy_for(settings, points, self._hunt.metrics, levels or None)
        indices = {point.id: index for index, point in enumerate(points)}
        seen: dict[int, Observed] = {}

        def observe(point: Point) -> None:
            if attempts := measurer.attempts(stage, point):
                seen[indices[point.id]] = observed_in(attempts)

        told = self._told(stage.key)

        def tell(decision: Decision) -> Decision:
            # From the end of one branch to the begin of the next nothing changed: they are not one line.
            own = [span for span in decision.spans if not any(span.good < at <= span.bad for at in breaks)]
            decision = structs.replace(decision, spans=tuple(own))
            self._journal.save_decision(stage.key, decision)
            self._listener.decided(decision)
            # Each change the moment it is sure, whatever else is still open.
            now = {change_text(span, points): moved_text(span) for span in decision.spans if span.sure}
            for text in sorted(told ^ now.keys()):
                word, moved = (_SURE, now[text]) if text in now else (_UNSURE, "")
                said = f"{word} {text}{_DETAILS}{moved}after {count(measurer.budget.runs, 'run')}"
                told.symmetric_difference_update({text})
                self._journal.add_event(said, stage.key)
                self._listener.said(said)
            return decision

        for point in points:
            observe(point)
        while True:
            flying = Counter(indices[run.point.id] for run in measurer.in_flight)
            decision = strategy.decide(seen, flying, measurer.room)
            tell(decision)
            ends = [tip for tip in tips if tip.index not in seen and tip.index not in flying]
            for ask in ends[: measurer.room] or decision.asks or self._ruling_out(stage, decision, seen):
                measurer.start(stage, points[ask.index], ask.text(points))
            stage.timeline.ahead([points[i] for i in decision.likely_next])
            if not measurer.in_flight:
                break
            while not (finished := measurer.wait()):
                pass
            # What was found at one point counts for those that are the same build.
            for index in {*seen, *(indices[run.point.id] for run in finished)}:
                observe(points[index])
        # Maybe it is only the budget that leaves no room to ask.
        if measurer.budget.spent and strategy.decide(seen, {}, 1).asks:
            raise measurer.stopped()
        # What comes now, swapping and confirming, is no part of what the strategy expected.
        return tell(structs.replace(decision, expected_left=0))

    def _ruling_out(self, stage: OpenStage, decision: Decision, seen: Mapping[int, Observed]) -> Sequence[Ask]:
        """What is left of a budget, for what `min_dip` wished for: less what confirms the changes, and before no finer stage."""
        search, missed = self._hunt.settings.search, decision.missed
        left = self._measurer.budget.room(0) - 2 * search.confirmations * len(decision.spans)
        wished = search.strategy == "adaptive" and search.min_dip and missed is not None and missed.chance > 0
        busy = self._measurer.in_flight or stage.window is not None or len(self._stages) > 1
        if not wished or busy or not 0 < left < inf:
            return ()
        tried = {*seen, *(at for at, point in enumerate(stage.points) if point.missing)}
        spare = islice(spare_requests(len(stage.points), tried), int(min(left, self._measurer.room)))
        return [Ask(index=request.at, why="ruling out a dip") for request in spare]

    def _told(self, stage: str) -> set[str]:
        """The changes of which the journal says that they are sure."""
        told = set[str]()
        for _, key, said in self._journal.events():
            if key == stage and said.startswith((_SURE, _UNSURE)):
                told.symmetric_difference_update({said.partition(": ")[2].rpartition(_DETAILS)[0]})
        return told

    def _open(self, row: StageRow, depth: int) -> OpenStage | None:
        """The stage with its timeline; points that the journal knows stay what they were."""
        settings, journal = self._hunt.settings, self._journal
        try:
            timeline = open_timeline(settings, self._config(depth), row.window, self._hunt.place)
        except KaratError as error:
            if not row.parent:
                raise
            said = f"change {row.parent} could not be zoomed into at {row.title!r}: {error}"
            self._listener.said(said)
            self._lacking.append(said)
            return None
        points = mark_skipped(timeline.points, settings.skip)
        row = structs.replace(row, timeline=timeline.name, title=timeline.title or row.title)
        if journal.stage(row.key) is None:
            journal.begin_stage(row, points)
        else:
            # Positions mean something to the strategy and in reports, so what has come since is for another hunt.
            # Whether a point can be had is today's word.
            now = {point.id: point for point in points}
            begun, gone = journal.points(row.key), "no longer on the timeline"
            points = tuple(now.get(p.id) or structs.replace(p, missing=p.missing or gone) for p in begun)
            for position, (old, new) in enumerate(zip(begun, points, strict=True)):
                if old != new:
                    journal.update_point(row.key, position, new)
            if more := len(now.keys() - {point.id for point in begun}):
                said = f"{more:,} points are new since this hunt began and are left out"
                self._listener.said(f"{said} (karat hunt run --fresh includes them)")
        for note in timeline.notes:
            self._listener.said(note)
        self._announce(row, points)
        return OpenStage(key=row.key, depth=depth, title=row.title, timeline=timeline, points=points, window=row.window)

    def _announce(self, row: StageRow, points: Sequence[Point]) -> None:
        """A listener that comes late hears what the journal has of a stage."""
        runs = sum(not attempt.shared_with for attempt in self._journal.attempts(row.key))
        self._listener.opened(row.key, row.title, points, runs)

    def _config(self, depth: int) -> Stage:
        """What stands in `stages`; below the last, merges are followed on the same timeline."""
        return self._stages[min(depth, len(self._stages) - 1)]

    def _look_into(self, stage: OpenStage, decision: Decision, site: Site) -> None:
        """Whose change it is, and where to look closer; the verdict is in the journal."""
        old, new = stage.points[site.good], stage.points[site.bad]
        blame = Blame(self._hunt, self._measurer, stage, site)
        zoom = None
        for number in site.numbers:
            found = self._journal.changes(stage.key).get(number, ChangeRow())
            found = blame.swapped(found, decision.spans[number])
            if zoom is None:
                finer = stage.depth + 1 < len(self._stages)
                if not finer and site.bad == site.good + 1:
                    # A merge has a branch that can be looked into on the same timeline; an environment has packages.
                    both = found.verdict.interaction  # of one commit: its partner is looked for, see below
                    finer = stage.timeline.finer(*((old, new) if both else self._ends(stage.key, found, old, new)))
                zoom = child_key(stage.key, site.numbers[0], stage.depth + 1) if finer else ""
            if not zoom:
                found = blame.confirmed(found, decision.spans[number])
                # A stage that looks for a partner ("+") looks for no other.
                if stage.timeline.name == "commits" and number == site.numbers[0] and "+" not in stage.key:
                    found = blame.together(found, decision.spans[number], self._journal.points("0")[0])
                    if found.verdict.interaction:
                        zoom = f"{child_key(stage.key, number, stage.depth + 1)}+"
            found = structs.replace(found, zoom=zoom, suspects=tuple(stage.timeline.suspects(old, new)))
            self._journal.save_change(stage.key, number, found)

    def _ends(self, stage: str, found: ChangeRow, old: Point, new: Point) -> tuple[Point, Point]:
        """Where a finer stage looks: only the part that made the change moves, where one did."""
        mixed = (self._journal.point(stage, name) if name else None for name in (found.since, found.towards))
        since, towards = mixed
        return since or old, towards or new

    def _zoom(self, row: StageRow, decision: Decision, depth: int) -> None:
        points, found = self._journal.points(row.key), self._journal.changes(row.key)
        for site in sites(decision.spans):
            whose = found.get(site.numbers[0], ChangeRow())
            if not whose.zoom:
                continue
            old, new = self._ends(row.key, whose, points[site.good], points[site.bad])
            config = self._config(depth + 1)
            # What was really under test at each, the last time it was.
            tried = (reversed(self._journal.attempts(row.key, at.id)) for at in (old, new))
            seen_at = [next((one.identity for one in those if one.identity), {}) for those in tried]
            child = StageRow(
                key=whose.zoom,
                title=config.text,
                timeline=config.timeline,
                parent=f"{row.key}.{site.numbers[0]}",
                levels=levels_of(decision.spans, site),
                window=Window(old=old, new=new, old_identity=seen_at[0], new_identity=seen_at[1]),
            )
            self._stage(child, depth + 1, [decision.spans[number] for number in site.numbers])
            # A change that the finer stage did not show ends here: whether it holds is asked here.
            known, finer = self._journal.changes(row.key), self._journal.stage(whose.zoom)
            seen = finer.decision.spans if finer and finer.decision else ()
            unseen = [n for n in site.numbers if not known[n].confirmed and not shown_in(seen, [decision.spans[n]])]
            if not unseen or finer is None or finer.state != "done" or (stage := self._open(row, depth)) is None:
                continue
            with closing(stage.timeline):
                blame = Blame(self._hunt, self._measurer, stage, site)
                for number in unseen:
                    self._journal.save_change(row.key, number, blame.confirmed(known[number], decision.spans[number]))


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A place where something changed; changes of several metrics between the same two points are looked into once."""

    good: int
    bad: int
    numbers: tuple[int, ...]  # Of its changes, in the order of the stage's spans.


def sites(spans: Sequence[Span]) -> tuple[Site, ...]:
    """Places of change, oldest first.

    Those that overlap stay apart: a level that changed across a range of crashes, and the two ends of that range, have
    other neighbours each, and with them other culprits.
    """
    pairs: dict[tuple[int, int], list[int]] = {}
    for number, span in enumerate(spans):
        pairs.setdefault((span.good, span.bad), []).append(number)
    return tuple(Site(good=g, bad=b, numbers=tuple(ns)) for (g, b), ns in sorted(pairs.items()))


def child_key(parent: str, number: int, depth: int) -> str:
    """`0.2/1`: change 2 of stage 0, looked into at stage 1."""
    return f"{parent}.{number}/{depth}"


def levels_of(spans: Sequence[Span], site: Site) -> dict[str, tuple[float, float]]:
    """Metric → its levels before and after, as a coarser stage saw them."""
    # The first of a metric counts.
    here = [spans[number] for number in reversed(site.numbers)]
    return {one.metric: (one.before, one.after) for one in here if one.before is not None and one.after is not None}


class Blame:
    """What swapping and confirming say of one place of change. What the journal knows already is not run again."""

    def __init__(self, hunt: HuntContext, measurer: Measurer, stage: OpenStage, site: Site) -> None:
        self._hunt, self._measurer, self._stage = hunt, measurer, stage
        self._old, self._new = stage.points[site.good], stage.points[site.bad]
        self._name = site.numbers[0]

    def swapped(self, found: ChangeRow, span: Span) -> ChangeRow:
        if found.swapped or not self._hunt.settings.search.attribution:
            return found
        timeline = self._stage.timeline
        if timeline.mixed(self._old, self._new, frozenset()) is None:
            return structs.replace(found, swapped=True)
        verdict = attribute(timeline, self._old, self._new, *self._means("swap", "swapping parts", span))
        since = towards = ""
        if (verdict.part or verdict.beside) and not verdict.interaction:
            beside = frozenset(verdict.beside)
            ends = [timeline.mixed(self._old, self._new, taken) for taken in (beside, beside | set(verdict.parts))]
            since, towards = (point.id if point is not None else "" for point in ends)
        return structs.replace(found, verdict=verdict, swapped=True, since=since, towards=towards)

    def confirmed(self, found: ChangeRow, span: Span) -> ChangeRow:
        """Whether the culprit and its parent, run again, still differ."""
        times = self._hunt.settings.search.confirmations
        if found.confirmed or not times:
            return found
        moved = 0.0 if span.before is None or span.after is None else span.after - span.before
        means = self._means("confirm", "confirming", span)
        # No more runs in all than a sweep of the same precision.
        there = sum(not point.missing for point in self._stage.points)
        most = most_runs(self._hunt.settings.search, there)
        left = most - self._measurer.runs_of(self._stage, but=f"confirm {self._name}")
        if left < 2 * times:
            said = f"not run again: the {most} runs of a sweep of the same precision were spent"
            tried = (*found.verdict.tried, said)
            return structs.replace(found, verdict=structs.replace(found.verdict, tried=tried), confirmed=True)
        rounds = min(4, left // (2 * times))
        verdict = confirm(self._old, self._new, *means, times=times, direction=moved, rounds=rounds)
        tried, sure = (*found.verdict.tried, *verdict.tried), verdict.confidence
        merged = structs.replace(found.verdict, confirmed=verdict.confirmed, confidence=sure, tried=tried)
        return structs.replace(found, verdict=merged, confirmed=True)

    def together(self, found: ChangeRow, span: Span, first: Point) -> ChangeRow:
        """Whether the change also shows without what other repositories did before it, since the hunt's first point."""
        old, new, timeline = self._old, self._new, self._stage.timeline
        moved = frozenset(name for name, commit in new.parts.items() if old.parts.get(name) != commit)
        start = first if timeline.mixed(first, new, moved) else self._stage.points[0]
        before, after = (timeline.mixed(start, at, moved) for at in (old, new))
        known = found.verdict.interaction or not found.verdict.confirmed
        wanted = self._hunt.settings.search.attribution and not known
        if not wanted or before is None or after is None or len(moved) != 1 or before.parts == old.parts:
            return found
        verdict = confirm(before, after, *self._means("alone", "without the others", span), times=1)
        if verdict.confirmed is not False:
            return found
        tried = (*found.verdict.tried, f"without what others did before it: {verdict.tried[0]}")
        both = structs.replace(found.verdict, part="", parts=tuple(moved), interaction=True, tried=tried)
        return structs.replace(found, verdict=both, since=after.id, towards="")

    def _means(self, purpose: str, why: str, span: Span) -> tuple[Metric, Measure, Judge]:
        """What is looked at, how points are run, and how two of them are judged."""
        search = self._hunt.settings.search
        measure = self._measurer.measure(self._stage, f"{purpose} {self._name}", why)
        # Without a value on one side it is a crash nobody asked for, and only that is compared.
        fails = span.before is None or span.after is None
        metric = FAILED if fails else next(one for one in self._hunt.metrics if one.name == span.metric)

        def measured(points: Sequence[Point]) -> Sequence[Observed]:
            return [as_failures(seen) if fails else seen for seen in measure(points)]

        def judged(old: Observed, new: Observed) -> PairJudgement:
            return judge(old, new, metric, smallest=search.smallest, confidence=search.confidence)

        return metric, measured, judged


def as_failures(seen: Observed) -> Observed:
    """A point by whether it failed: all that two sides of a crash have in common."""
    evidence = [o for o in seen.outcomes if o in (Outcome.OK, Outcome.CRASH, Outcome.HANG)]
    failed = tuple(float(outcome is not Outcome.OK) for outcome in evidence)
    return structs.replace(seen, values={FAILED.name: failed} if failed else {})
