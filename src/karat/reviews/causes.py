"""Causes: the changed goldens as decisions, worst first, and what one decision takes of a golden. Pure.

A golden has one decision, with the gravest group that it is a member of: whoever has taken the loss of forty goldens
does not want to be asked about their memory again, and whoever takes memory has not taken a truncated run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal

import msgspec

from karat.compare.change import Change, Verdict
from karat.diffs.result import Diff, FindingGroup
from karat.findings import Severity, UsageError
from karat.goldens.paths import narrow
from karat.goldens.shapes import Golden, Series, Table, with_columns, with_curves
from karat.report.words import count

State = Literal["pending", "accepted", "rejected", "partly", "skipped"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One changed golden, and what has been decided about it."""

    path: str
    verdict: Verdict
    change: Change
    groups: tuple[int, ...] = ()  # Places in `Diff.groups`, gravest first; the first is where it is decided.
    state: State = "pending"
    seen: str = ""  # A digest of HEAD's blob, the index's and the file: a decision on anything else is stale.


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Goldens that are decided together."""

    number: int  # From 1, worst first.
    id: str  # The same as long as its group exists, whatever was decided before.
    title: str
    severity: Severity | None
    paths: tuple[str, ...]  # Largest movement first.
    group: FindingGroup | None = None  # None: goldens that need no look.


def causes_of(diff: Diff) -> tuple[Cause, ...]:
    """Every changed golden in one cause, worst first; those that need no look come last, by verdict."""
    taken: set[str] = set()
    found: list[Cause] = []
    for group in (group for group in diff.groups if group.severity is not Severity.INFO):
        paths = tuple(path for path in group.paths if path not in taken)
        taken.update(paths)
        if paths:
            key = (group.platform, group.kind, group.family, group.direction, group.severity)
            found.append(_cause(found, key, group.title, paths, group))
    rest: dict[Verdict, list[str]] = {}
    for change in diff.changes:
        if change.path not in taken and not change.same_bytes:
            rest.setdefault(change.verdict, []).append(change.path)
    for verdict, left in sorted(rest.items(), key=lambda one: one[0].rank):
        title = f"{verdict.value}: {count(len(left), 'golden')} that need{'s' if len(left) == 1 else ''} no look"
        found.append(_cause(found, (verdict.value,), title, tuple(left), None))
    return tuple(found)


def _cause(
    before: Sequence[Cause], key: Iterable[str], title: str, paths: tuple[str, ...], group: FindingGroup | None
) -> Cause:
    digest = sha256("\0".join(key).encode("utf-8", "surrogateescape")).hexdigest()
    severity = group.severity if group else None
    return Cause(number=len(before) + 1, id=f"g{digest[:7]}", title=title, severity=severity, paths=paths, group=group)


def groups_by_path(groups: Sequence[FindingGroup]) -> dict[str, tuple[int, ...]]:
    """Golden → the groups it is a member of, in their order."""
    found: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        for path in group.paths:
            found.setdefault(path, []).append(place)
    return {path: tuple(places) for path, places in found.items()}


def meant(
    causes: Sequence[Cause], globs: Sequence[str] = (), groups: Sequence[str] = (), exclude: Sequence[str] = ()
) -> list[str]:
    """The goldens of these groups, by number or id, or of all, that match a glob, if there is one, and are not excluded."""
    for word in groups:
        if not any(word in {str(cause.number), cause.id} for cause in causes):
            known = f"a number from 1 to {len(causes)}, or an id"
            known = known if causes else "a changed golden, and none has changed"
            raise UsageError(f"--group {word}: expected {known}", next_command="karat review")
    chosen = [cause for cause in causes if not groups or {str(cause.number), cause.id} & set(groups)]
    paths = [path for cause in chosen for path in cause.paths]
    for glob in globs:
        if not any(narrow(path, [glob]) for path in paths):
            said = f"expected a changed golden that matches {glob!r}, found none among {len(paths):,} that changed"
            raise UsageError(said, next_command="karat review")
    return [path for path in paths if narrow(path, globs) and not (exclude and narrow(path, exclude))]


def metrics_of(change: Change) -> tuple[str, ...]:
    """What can be decided apart from the rest of a golden: its curves or columns that changed."""
    if change.shape not in {"series", "table"} or change.verdict in {Verdict.NEW, Verdict.REMOVED, Verdict.UNREADABLE}:
        return ()
    moved = [row for row in change.metrics if row.verdict is not Verdict.SAME]
    return tuple(row.metric for row in sorted(moved, key=lambda row: (row.verdict.rank, -(row.threshold_ratio or 0))))


def with_metric(base: Golden, source: Golden, metric: str) -> Golden:
    """`base` with one curve or column of `source`, or without it where that has none."""
    if isinstance(base, Series) and isinstance(source, Series):
        if not any(metric in part for one in (base, source) for part in (one.metrics, one.scalars, one.others)):
            raise _no_such(metric, [*source.metrics, *source.scalars])
        return with_curves(base, source, (metric,))
    if isinstance(base, Table) and isinstance(source, Table) and base.key == source.key:
        if metric in base.key or metric not in base.columns or metric not in source.columns:
            raise _no_such(metric, [c for c in base.columns if c not in base.key and c in source.columns])
        return with_columns(base, source, (metric,))
    became = f" that became a {source.shape}" if base.shape != source.shape else ""
    said = f"--metric knows curves and columns; this is a {base.shape}{became}"
    raise UsageError(said, next_command="karat review")


def _no_such(metric: str, there: Sequence[str]) -> UsageError:
    said = f"--metric {metric}: it has no such metric, only {', '.join(there[:8]) or 'none'}"
    return UsageError(said, next_command="karat review")
