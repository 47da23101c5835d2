"""Culprits: each line of stages followed to its end. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from karat.hunt.report import ChangeReport, Culprit, StageReport
from karat.hunt.searching import Metric


def culprits(
    stages: Sequence[StageReport], parents: Mapping[str, str], metrics: Sequence[Metric]
) -> tuple[Culprit, ...]:
    """As close as the hunt came to every change of the stages that look into no other."""
    tree = {stage.key: stage for stage in stages}
    known = {metric.name: metric for metric in metrics}
    found = []
    for stage in stages:
        if parents.get(stage.key):
            continue
        for change in stage.changes:
            found += [
                _culprit(path, leaf, change, known) for path, leaf in _ends(stage, change, tree, ())
            ]
    return tuple(found)


def _ends(
    stage: StageReport, change: ChangeReport, tree: Mapping[str, StageReport], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ChangeReport]]:
    """The finest changes of this metric below a change; the change itself where none shows."""
    here = (*path, stage.key)
    finer = tree.get(change.zoom)
    below = [c for c in finer.changes if c.span.metric == change.span.metric] if finer else []
    if finer is None or not below:
        yield here, change
        return
    for one in below:
        yield from _ends(finer, one, tree, here)


def _culprit(
    path: tuple[str, ...], change: ChangeReport, coarse: ChangeReport, known: Mapping[str, Metric]
) -> Culprit:
    metric = known.get(change.span.metric)
    # Whether it is a dip can only be told where both of its ends are seen: at the coarsest stage.
    if coarse.dip is not None and change.dip is None:
        change = structs.replace(change, kind=coarse.kind, dip=coarse.dip)
    return Culprit(
        change=change,
        stage=path[-1],
        path=path,
        metric=change.span.metric,
        better=metric.better if metric else None,
        suspects=change.suspects,
        message=change.message,
    )
