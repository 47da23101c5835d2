"""One point of a hunt by hand, or two in turns: run now, in a work area of its own, and not kept in the journal."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import msgspec

from karat.changepoints.series import Outcome
from karat.engines.job import open_engine
from karat.findings import UsageError
from karat.hunts.hunt import settings_of
from karat.hunts.hunt_toml import apply_overrides, ignore_in_git, workspace_of
from karat.hunts.journal.database import show_command
from karat.hunts.journal.journal import Journal
from karat.hunts.model import Attempt, Point
from karat.hunts.probe.jobs import job_for
from karat.hunts.probe.outcomes import read_attempt, search_metrics
from karat.hunts.report.assemble import engine_used
from karat.hunts.report.reproduce import reproduce_script
from karat.hunts.report.terminal import find_point
from karat.hunts.search.inference import judge
from karat.hunts.search.observations import observed_in
from karat.hunts.settings import parse_size
from karat.hunts.stages import stages
from karat.hunts.timelines.timeline import open_timeline
from karat.system.command import Command

AGAIN = 3  # Runs of each of two points, unless more or fewer are asked for.


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What `karat hunt try` ran. Schema karat.hunt-try/1."""

    schema: str = "karat.hunt-try/1"
    stage: str
    points: tuple[Point, ...]  # The one asked for; with --against the other one first.
    attempts: tuple[Attempt, ...]
    verdicts: dict[str, Literal["differ", "same", "unsure"]] = msgspec.field(default_factory=dict)
    """Metric → whether the two differ; nothing where one was run."""

    @property
    def code(self) -> int:
        """0: it works, or the two do not differ; 1: it fails, or they do; 3: it cannot be run, or that is not clear."""
        outcomes = {attempt.outcome for attempt in self.attempts}
        if outcomes & {Outcome.BROKEN, Outcome.MISSING} or "unsure" in self.verdicts.values():
            return 3
        failed = outcomes & {Outcome.CRASH, Outcome.HANG} if len(self.points) == 1 else ()
        return int(bool(failed) or "differ" in self.verdicts.values())


def try_point(
    journal: Journal,
    name: str,
    *,
    stage: str | None = None,
    against: str | None = None,
    times: int | None = None,
    said: Callable[[Point, Attempt, str], None],
) -> Tried:
    """Run a point, or two in turns; `against` may be `parent`: the point before. `said` hears of each, with its output."""
    key, point = find_point(journal, name, stage)
    file, plain, overrides = settings_of(journal)
    settings, place = apply_overrides(plain, overrides), workspace_of(file, plain)
    wanted = [point] if against is None else [_other(journal, key, point, against), point]
    row, listed, own = journal.stage(key), stages(settings), settings.engine
    memory, attempts = parse_size(own.memory), list[Attempt]()
    ignore_in_git(place)
    # In a work area of its own: the hunt may be running.
    engine = open_engine("local", slots=1, work=place.work / "try", cores=own.cores, gpus=own.gpus, memory=memory)
    try:
        config = listed[min(key.count("/"), len(listed) - 1)]
        timeline = open_timeline(settings, config, row.window if row else None, place)
        try:
            for number in range(1, (times or (AGAIN if against else 1)) + 1):
                for one in wanted:
                    engine.submit(job_for(timeline, one, settings, key=f"try-{number}-{one.id}", place=place))
                    (result,) = engine.wait()
                    attempt = read_attempt(result, settings, stage=key, point=one, number=number, place=place)
                    attempts.append(attempt)
                    shown = [ran for ran in result.ran if ran.role == "measure" or (ran.exit_code and not ran.skipped)]
                    said(one, attempt, b"".join(r.output for r in shown).decode("utf-8", "backslashreplace"))
        finally:
            timeline.close()
    finally:
        engine.close()
    verdicts = {}
    for metric in search_metrics(settings) if against is not None else ():
        old, new = (observed_in(tried for tried in attempts if tried.point == one.id) for one in wanted)
        search = settings.search
        judged = judge(old, new, metric, smallest=search.smallest, confidence=search.confidence)
        verdicts[metric.name] = judged.verdict
    return Tried(stage=key, points=tuple(wanted), attempts=tuple(attempts), verdicts=verdicts)


def _other(journal: Journal, stage: str, point: Point, name: str) -> Point:
    if name != "parent":
        return find_point(journal, name, stage)[1]
    for parent, one in pairwise(journal.points(stage)):
        if one.id == point.id:
            return parent
    said = f"--against parent: expected a point before {point.label}, found none"
    raise UsageError(said, next_command=Command("karat", "hunt", "status", str(journal.path)))


def script_of(journal: Journal, name: str, stage: str | None) -> str:
    """A script that runs the point without karat."""
    key, point = find_point(journal, name, stage)
    settings, row = settings_of(journal)[1], journal.stage(key)
    tried = [one.attempt for one in journal.attempts(key, point.id)]
    identity = next((one.identity for one in reversed(tried) if one.identity), {})
    kind = "split" if settings.split is not None else row.timeline if row else ""
    script = reproduce_script(settings, kind, point, identity, engine=engine_used(journal, key, tried))
    if not script:
        said = f"expected a point that a script can put under test, found {point.label}, which takes a hunt's work area"
        raise UsageError(said, next_command=show_command(point.id, stage=key, verb="try"))
    return script
