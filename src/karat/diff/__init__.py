"""Two sides → Diff: pairs goldens, reads them in one stream, compares, groups and gives advice.

In: two sides, a rule book, and what to narrow to. Out: a `Diff`, pure data for every report.
Called by `karat diff` and `karat summary`, and as `karat.diff` from Python. One bad file is one
finding; it never costs the rest of the report. Memory stays flat: bytes and curves of a file are
dropped once it is judged, unless a report needs to draw them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from karat.compare import STATUS_ORDER, Change, Diff, Pair, RuleBook, Verdict, compare_many
from karat.compare.groups import groups_of
from karat.diff.advice import advise
from karat.diff.moves import mark_moves
from karat.diff.sides import Blob, Item, Items, Ref, Side, pair_up, resolve_sides
from karat.findings import Finding, Severity
from karat.goldens import formats, git
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter, common_root, identity_of, narrow
from karat.goldens.shapes import Reading, Series

__all__ = ["Options", "diff", "diff_sides"]

_BATCH_POINTS = 150_000
"""Curves are scored once this many points are at hand: enough to be fast, little to keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to look at, and how to judge it."""

    globs: Sequence[str] = DEFAULT_GLOBS
    exclude: Sequence[str] = ()
    cases: Sequence[str] = ()
    """Patterns that read a case's identity off its path."""
    rules: RuleBook = RuleBook()
    status: Sequence[str] = STATUS_ORDER
    only: Sequence[str] = ()
    only_metric: Sequence[str] = ()
    everything: bool = False
    """Read unchanged goldens as well."""
    keep_curves: bool = False
    progress: Callable[[int, int], None] | None = None


def diff(
    old: str | None = None, new: str | None = None, *, cwd: str | Path = ".", options: Options | None = None
) -> Diff:
    """The difference between two revisions, folders or files; HEAD and the work tree by default."""
    left, right = resolve_sides(old, new, Path(cwd).absolute())
    return diff_sides(left, right, options or Options())


def diff_sides(old: Side, new: Side, options: Options) -> Diff:
    """The difference between two sides that are already resolved."""
    found = pair_up(old, new, PathFilter(options.globs, options.exclude), everything=options.everything)
    asked = replace(found, items=[i for i in found.items if narrow(i.path, options.only)])
    changes: list[Change] = []
    unchanged = found.unchanged
    digests: dict[str, tuple[bytes | None, bytes | None]] = {}
    for batch in _batches(_pairs(asked, options, digests)):
        read = [pair for pair in batch if pair is not None]
        unchanged += len(batch) - len(read)
        changes += compare_many(
            read, options.rules, status=options.status, keep_curves=options.keep_curves
        )
    changes = mark_moves(changes, digests)
    if options.only_metric:
        changes = [_only_metrics(change, options.only_metric) for change in changes]
    advised = sorted((advise(change, old, new) for change in changes), key=_gravity)
    return Diff(
        old=old.name,
        new=new.name,
        changes=tuple(advised),
        groups=groups_of(advised, options.rules),
        findings=(*found.findings, *_nothing_compared(asked, changes, unchanged, options)),
        unchanged=unchanged,
        root=common_root(item.path for item in asked.items),
    )


def _gravity(change: Change) -> tuple[int, int, float, str]:
    severity = change.severity
    return (3 if severity is None else severity.rank, change.verdict.rank, -change.worst_avg, change.path)


def _pairs(
    found: Items, options: Options, digests: dict[str, tuple[bytes | None, bytes | None]]
) -> Iterator[Pair | None]:
    """Every item read; None for one whose bytes turn out to be equal."""
    total = len(found.items)
    for done, (item, old, new) in enumerate(_contents(found), 1):
        if options.progress is not None:
            options.progress(done, total)
        if isinstance(old, bytes) and old == new and not item.certain:
            yield None
            continue
        if item.old is None or item.new is None:
            digests[item.path] = (_bytes(old), _bytes(new))
        yield _pair(item, old, new, options)


def _bytes(content: bytes | Finding | None) -> bytes | None:
    if not isinstance(content, bytes):
        return None
    import hashlib  # noqa: PLC0415 - only where goldens came or went

    return hashlib.sha256(content).digest()


def _pair(item: Item, old: bytes | Finding | None, new: bytes | Finding | None, options: Options) -> Pair:
    after = _reading(new, item.path)
    same = isinstance(old, bytes) and old == new
    before = after if same else _reading(old, item.path)
    identity = identity_of(item.path, options.cases) if options.cases else {}
    return Pair(path=item.path, old=before, new=after, identity=identity, same_bytes=same)


def _reading(content: bytes | Finding | None, path: str) -> Reading | None:
    if content is None:
        return None
    if isinstance(content, Finding):
        return Reading(None, (content,))
    return formats.read(content, path)


def _contents(found: Items) -> Iterator[tuple[Item, bytes | Finding | None, bytes | Finding | None]]:
    oids = [
        ref.oid for item in found.items for ref in (item.old, item.new) if isinstance(ref, Blob)
    ]
    blobs = git.read_blobs(found.root, oids) if found.root and oids else iter(())
    for item in found.items:
        yield item, _fetch(item, item.old, blobs), _fetch(item, item.new, blobs)


def _fetch(item: Item, ref: Ref | None, blobs: Iterator[bytes | None]) -> bytes | Finding | None:
    if ref is None:
        return None
    if isinstance(ref, Blob):
        data = next(blobs, None)
        return data if data is not None else _missing_object(item, ref)
    try:
        with open(ref.path, "rb") as file:  # noqa: PTH123 - Path.open costs as much as the read
            return file.read()
    except OSError as error:
        message = f"expected to read {ref.path}, but: {error.strerror or error}"
        return Finding(
            kind="cannot-read", severity=Severity.FAIL, path=item.path, message=message,
            next=f"ls -l {os.fspath(ref.path)!r}",
        )  # fmt: skip


def _missing_object(item: Item, ref: Blob) -> Finding:
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        path=item.path,
        message=f"git has no object {ref.oid[:12]} for it (a partial clone, or a damaged repository)",
        next="git fetch --refetch",
    )


def _batches(pairs: Iterable[Pair | None]) -> Iterator[list[Pair | None]]:
    batch: list[Pair | None] = []
    points = 0
    for pair in pairs:
        batch.append(pair)
        golden = pair.new.golden if pair is not None and pair.new else None
        if isinstance(golden, Series):
            points += sum(len(metric.steps) for metric in golden.metrics.values())
        if points >= _BATCH_POINTS:
            yield batch
            batch, points = [], 0
    if batch:
        yield batch


def _only_metrics(change: Change, wanted: Sequence[str]) -> Change:
    """The change seen through the metrics asked for; what concerns the whole file stays."""

    def asked(metric: str | None) -> bool:
        return metric is None or any(fnmatchcase(metric, glob) for glob in wanted)

    rows = tuple(row for row in change.metrics if asked(row.metric))
    findings = tuple(f for f in change.findings if asked(f.metric))
    verdict = change.verdict
    if change.metrics and verdict not in {Verdict.NEW, Verdict.REMOVED, Verdict.UNREADABLE}:
        ranked = [row.verdict for row in rows]
        if any(f.metric is None and f.severity is Severity.FAIL for f in findings):
            ranked.append(verdict)
        verdict = min(ranked, key=lambda v: v.rank, default=Verdict.SAME)
    return replace(change, metrics=rows, findings=findings, verdict=verdict)


def _nothing_compared(
    found: Items, changes: Sequence[Change], unchanged: int, options: Options
) -> Iterator[Finding]:
    """Comparing nothing must not look like a match."""
    if not found.items and (options.only or not unchanged):
        asked = ", ".join(options.only or options.globs)
        yield Finding(
            kind="nothing-compared",
            severity=Severity.FAIL,
            message=f"expected goldens, found none on either side that match {asked}",
            next="karat config --show-origin",
        )
    elif options.only_metric and changes and not any(change.metrics for change in changes):
        asked = ", ".join(options.only_metric)
        yield Finding(
            kind="nothing-compared",
            severity=Severity.FAIL,
            message=f"expected a metric that matches {asked}, found none in {len(changes)} changed files",
            next="karat diff --json -",
        )
