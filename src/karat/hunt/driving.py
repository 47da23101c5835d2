"""Driving a hunt: stage by stage, each change on its own, down to the finest.

In: settings, a place, an engine, a journal (new, or of a hunt that was stopped) and a listener. Out: the report. What the
journal has is not done again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from msgspec import structs

from karat.engines.engine import Engine
from karat.findings import KaratError
from karat.hunt.blaming import Blame
from karat.hunt.hunt_findings import NOT_REPRODUCED
from karat.hunt.journal import Journal
from karat.hunt.journal_rows import Found, StageRow
from karat.hunt.kit import Kit, OpenStage, Stopped
from karat.hunt.listening import Listener
from karat.hunt.measuring import Measuring
from karat.hunt.point import Point, Window
from karat.hunt.probing import metrics_of
from karat.hunt.report import HuntReport
from karat.hunt.reporting import report_of
from karat.hunt.searching import Decision, Span
from karat.hunt.settings import HuntSettings, Stage
from karat.hunt.stage_run import Search, open_stage, timeline_notes
from karat.hunt.stages import stages
from karat.hunt.timeline import Place
from karat.hunt.zooming import Site, child_key, levels_of, shown_in, sites

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERRUPTED = "it was interrupted"


def drive(
    settings: HuntSettings, place: Place, engine: Engine, journal: Journal, listener: Listener
) -> HuntReport:
    """Hunt until there is nothing left to ask, or the budget is spent; Ctrl-C is noted, and goes on to the caller."""
    kit = Kit(
        settings=settings,
        place=place,
        engine=engine,
        journal=journal,
        listener=listener,
        metrics=metrics_of(settings),
    )
    journal.none_running()
    journal.note("state", "running")
    with _ended(journal, listener):
        Hunt(kit).run()
    return report_of(journal)


@contextmanager
def _ended(journal: Journal, listener: Listener) -> Iterator[None]:
    """However it ends, the journal says how."""
    try:
        yield
        journal.none_running()
        journal.note("state", "done")
    except Stopped as stop:
        stopped(journal, str(stop))
    except KeyboardInterrupt:
        stopped(journal, INTERRUPTED)
        raise
    except KaratError as error:
        # It may be the journal itself that cannot be written.
        with suppress(KaratError):
            stopped(journal, str(error))
        raise
    finally:
        listener.closed()


def stopped(journal: Journal, why: str) -> None:
    """The journal says that the hunt is not finished, and why."""
    journal.note("why", why)
    journal.note("state", "stopped")
    journal.event(why)


class Hunt:
    """A hunt at work."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._stages = stages(kit.settings)
        self._measuring = Measuring(kit)
        self._lacking: list[str] = []

    def run(self) -> None:
        """Every stage, from the coarsest on; a finer one that cannot be opened does not keep the others from it."""
        first = self._stages[0]
        self._stage(StageRow(key="0", title=first.text, timeline=first.timeline), 0)
        if self._lacking:
            raise Stopped("; ".join(self._lacking))

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
        kit.journal.stage_done(row.key, (*timeline_notes(kit, stage), *lacking))
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
        for entry in self._kit.journal.entries(row.key):
            self._kit.listener.known(entry.attempt)

    def _look_into(self, stage: OpenStage, decision: Decision, site: Site, *, last: bool) -> None:
        """Whose change it is, and where to look closer; the verdict is in the journal."""
        old, new = stage.points[site.good], stage.points[site.bad]
        finer = not last or _is_merge(stage, site, old, new)
        zoom = child_key(stage.key, site.numbers[0], stage.depth + 1) if finer else ""
        blame = Blame(self._kit, self._measuring, stage, site)
        for number in site.numbers:
            found = self._kit.journal.changes(stage.key).get(number, Found())
            span = decision.spans[number]
            found = blame.swapped(found, span)
            if not finer:
                found = blame.confirmed(found, span)
            found = structs.replace(
                found, zoom=zoom, suspects=tuple(stage.timeline.suspects(old, new))
            )
            self._kit.journal.found(stage.key, number, found)

    def _below(self, row: StageRow, decision: Decision, depth: int) -> None:
        """The finer stages, one per place of change."""
        points = self._kit.journal.points(row.key)
        found = self._kit.journal.changes(row.key)
        for site in sites(decision.spans):
            whose = found.get(site.numbers[0], Found())
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
                self._kit.journal.found(row.key, number, known)
        finally:
            stage.timeline.close()

    def _window(self, row: StageRow, old: Point, new: Point, found: Found) -> Window:
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
        entries = self._kit.journal.entries(stage, point.id)
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
