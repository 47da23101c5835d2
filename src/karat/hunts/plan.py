"""Planning: what a hunt would do, without doing it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec
from msgspec import structs

from karat.hunts.journal.records import environment_values, redact
from karat.hunts.model import Point
from karat.hunts.probe.jobs import job_for
from karat.hunts.probe.outcomes import search_metrics
from karat.hunts.report.sentences import duration
from karat.hunts.search.strategies import open_strategy
from karat.hunts.settings import HuntSettings, parse_duration
from karat.hunts.stages import stages
from karat.hunts.timelines.timeline import (
    Workspace,
    mark_skipped,
    open_timeline,
    unmatched_skips,
)
from karat.report.words import count


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that would come first: its point, why, and its commands as a person would type them."""

    point: Point
    why: str
    commands: tuple[str, ...]


class HuntPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a hunt would do."""

    schema: str = "karat.hunt-plan/1"
    stages: tuple[str, ...]
    points: tuple[Point, ...]
    """Of the first stage; finer ones depend on what it finds."""
    first: tuple[PlannedRun, ...]
    expected: int | None
    """Runs of the first stage, as far as the strategy can say before it has seen anything."""
    sweep: int
    """Runs that trying every point once would take."""
    longest: float
    """Seconds a run may take at most: its warm-ups and repeats, each to its time-out."""
    notes: tuple[str, ...] = ()


def plan(settings: HuntSettings, place: Workspace) -> HuntPlan:
    """What a hunt would do: its points, the first runs, the cost of a sweep."""
    listed = stages(settings)
    timeline = open_timeline(settings, listed[0], None, place)
    try:
        points = mark_skipped(timeline.points, settings.skip)
        missing = [index for index, point in enumerate(points) if point.missing]
        strategy = open_strategy(
            structs.replace(settings.search, max_runs=0),
            len(points),
            search_metrics(settings),
            missing=missing,
            names=[point.id for point in points],
        )
        decision = strategy.decide({}, {}, max(1, settings.engine.slots))
        environment, steps = environment_values(settings), []
        for ask in decision.asks:
            job = job_for(timeline, points[ask.index], settings, key="plan", place=place)
            lines = tuple(
                shlex.join(redact(word, environment) for word in command.argv)
                for command in job.commands
            )
            steps.append(PlannedRun(point=points[ask.index], why=ask.text(points), commands=lines))
        notes = (
            *(finding.message for finding in timeline.findings),
            *(f"skip: no point is called {t!r}" for t in unmatched_skips(points, settings.skip)),
        )
    finally:
        timeline.close()
    probe = settings.probe
    return HuntPlan(
        stages=tuple(stage.text for stage in listed),
        points=points,
        first=tuple(steps),
        expected=decision.expected_left,
        sweep=len(points) - len(missing),
        longest=parse_duration(probe.timeout) * (probe.repeats + probe.warmups),
        notes=notes,
    )


def plan_lines(found: HuntPlan) -> Iterator[str]:
    missing = [point for point in found.points if point.missing]
    yield f"stages: {', then '.join(found.stages)}"
    lacking = f", {len(missing):,} of them not available" if missing else ""
    yield f"{count(len(found.points), 'point')} at the first stage{lacking}:"
    for point in found.points:
        yield f"  {point.label}{f'  ({point.missing})' if point.missing else ''}"
    for step in found.first:
        yield f"first: {step.point.label} ({step.why})"
        yield from (f"  {command}" for command in step.commands)
    yield from found.notes
    expected = (
        f"about {count(found.expected, 'run')}" if found.expected is not None else "some runs"
    )
    limit = duration(found.longest)
    yield (
        f"cost: {expected} to start with, more where something changed; a sweep takes "
        f"{count(found.sweep, 'run')}, each {limit} at most, plus preparation"
    )
