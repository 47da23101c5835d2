"""Culprits: each line of stages followed to its end. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from msgspec import structs

from karat.changes.series import Outcome
from karat.hunt.point import Suspect
from karat.hunt.report import ChangeReport, Culprit, PointReport, StageReport
from karat.hunt.searching import Metric, Span
from karat.hunt.zooming import alike


def culprits(
    stages: Sequence[StageReport], parents: Mapping[str, str], metrics: Sequence[Metric]
) -> tuple[Culprit, ...]:
    """As close as the hunt came to every change of the stages that look into no other."""
    tree = {stage.key: stage for stage in stages}
    known = {metric.name: metric for metric in metrics}
    numbers: dict[tuple[str, int], int] = {}
    found = [
        _culprit(path, _dipped(leaf, change, path, numbers), known)
        for stage in stages
        if not parents.get(stage.key)
        for change in stage.changes
        for path, leaf in _ends(stage, change, tree, ())
    ]
    first: dict[object, Culprit] = {}
    for number, culprit in enumerate(found):
        first.setdefault(_whose(culprit) or number, culprit)
    return tuple(first.values())


def _whose(culprit: Culprit) -> tuple[object, ...]:
    """The one commit that made a change, and the way it went; nothing where it is not one.

    A branch that took in the main line has its changes, too, so that a commit may be found more than once.
    """
    if len(culprit.suspects) != 1:
        return ()
    span, suspect = culprit.change.span, culprit.suspects[0]
    up = (span.after or 0.0) > (span.before or 0.0)
    return culprit.metric, up, suspect.part, suspect.id


def _ends(
    stage: StageReport, change: ChangeReport, tree: Mapping[str, StageReport], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ChangeReport]]:
    """The finest changes below a change that may be it; the change itself where none shows."""
    here = (*path, stage.key)
    finer = tree.get(change.zoom)
    below = [c for c in finer.changes if alike(c.span, change.span)] if finer else []
    if finer is None or not below:
        yield here, _of_the_merge(change, finer)
        return
    for one in below:
        yield from _ends(finer, one, tree, here)


def _of_the_merge(change: ChangeReport, finer: StageReport | None) -> ChangeReport:
    """The change with the merge as its only suspect, where the merged branch was looked into and ends as it was before it."""
    moved = [n for n, commit in change.new.parts.items() if change.old.parts.get(n) != commit]
    part = change.verdict.part or (moved[0] if len(moved) == 1 else "")
    merge = change.new.parts.get(part)
    if finer is None or finer.state != "done" or finer.timeline != "commits":
        return change
    if not merge or not finer.points:
        return change
    # Any other line of commits ends with the new point's own; the branch of a merge ends before it.
    tip = finer.points[-1]
    if tip.point.parts.get(part, merge) == merge or not _as_before(tip, change.span):
        return change
    alone = tuple(one for one in change.suspects if (one.part, one.id) == (part, merge))
    return structs.replace(change, suspects=alone or change.suspects)


def _as_before(point: PointReport, span: Span) -> bool:
    """Whether a point was tried, and is rather as it was before a change than after it."""
    if span.before is None or span.after is None:
        works = point.outcome is Outcome.OK
        fails = point.outcome in (Outcome.CRASH, Outcome.HANG)
        return works if span.before is not None else fails
    values = point.values.get(span.metric, ())
    return bool(values) and abs(fmean(values) - span.before) < abs(fmean(values) - span.after)


def _dipped(
    leaf: ChangeReport,
    coarse: ChangeReport,
    path: tuple[str, ...],
    numbers: dict[tuple[str, int], int],
) -> ChangeReport:
    """The change with the number of its dip in the whole hunt: every stage counts its own from 0.

    Whether it is a dip can mostly be told only where both of its ends are seen: at the coarsest stage.
    """
    for stage, change in ((path[0], coarse), (path[-1], leaf)):
        if change.dip is not None:
            number = numbers.setdefault((stage, change.dip), len(numbers))
            return structs.replace(leaf, kind=change.kind, dip=number)
    return leaf


def _culprit(path: tuple[str, ...], change: ChangeReport, known: Mapping[str, Metric]) -> Culprit:
    metric = known.get(change.span.metric)
    return Culprit(
        change=change,
        stage=path[-1],
        path=path,
        metric=change.span.metric,
        better=metric.better if metric else None,
        suspects=_blamed(change),
        message=change.message,
    )


def _blamed(change: ChangeReport) -> tuple[Suspect, ...]:
    """Suspects without the repositories that swapping has cleared."""
    verdict = change.verdict
    parts = (verdict.part,) if verdict.part else verdict.parts if verdict.interaction else ()
    return tuple(one for one in change.suspects if one.part in parts) or change.suspects
