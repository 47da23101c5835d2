"""Items → changes: fetch the bytes, read them, compare. The heavy part; imported late.

In: items and a task. Out: `Judged`. Runs in the caller's process and in the workers' alike.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from karat.compare.pairs import Pair, compare_many
from karat.diff.sides import Blob, Item, OnDisk, Ref
from karat.diff.workers import Judged, Task
from karat.findings import Finding, Severity
from karat.goldens import formats, git
from karat.goldens.paths import identity_of
from karat.goldens.shapes import Reading, Series

_BATCH_POINTS = 20_000
"""Curves are scored once this many points are at hand: enough to be fast, few enough for the cache."""

Content = bytes | Finding | None


def judge_items(items: Sequence[Item], task: Task) -> Judged:
    """The changes of these items, in order."""
    judged = Judged()
    for batch in _batches(_pairs(items, task, judged)):
        judged.changes += compare_many(
            batch, task.rules, status=task.status, keep_curves=task.keep_curves
        )
    return judged


def _pairs(items: Sequence[Item], task: Task, judged: Judged) -> Iterator[Pair]:
    for item, old, new in _contents(items):
        same = isinstance(old, bytes) and old == new
        if same and not item.certain:
            judged.unchanged += 1
            continue
        if item.old is None or item.new is None:
            judged.digests[item.path] = (_digest(old), _digest(new))
        after = _reading(new, item.path)
        before = after if same else _reading(old, item.path)
        identity = identity_of(item.path, task.cases) if task.cases else {}
        yield Pair(path=item.path, old=before, new=after, identity=identity, same_bytes=same)


def _digest(content: Content) -> bytes | None:
    return hashlib.sha256(content).digest() if isinstance(content, bytes) else None


def _reading(content: Content, path: str) -> Reading | None:
    if content is None:
        return None
    if isinstance(content, Finding):
        return Reading(None, (content,))
    return formats.read(content, path)


def _contents(items: Sequence[Item]) -> Iterator[tuple[Item, Content, Content]]:
    blobs = [r for item in items for r in (item.old, item.new) if isinstance(r, Blob)]
    root = Path(blobs[0].root) if blobs else Path()
    with closing(git.read_blobs(root, [blob.oid for blob in blobs])) as fetched:
        for item in items:
            yield item, _fetch(item, item.old, fetched), _fetch(item, item.new, fetched)


def _fetch(item: Item, ref: Ref | None, blobs: Iterator[bytes | None]) -> Content:
    if ref is None:
        return None
    if isinstance(ref, Blob):
        data = next(blobs, None)
        return data if data is not None else _missing(item, ref)
    try:
        with open(ref.path, "rb") as file:  # noqa: PTH123 - Path.open costs as much as the read
            return file.read()
    except OSError as error:
        return _unreadable(item, ref, error)


def _missing(item: Item, ref: Blob) -> Finding:
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        path=item.path,
        message=f"git has no object {ref.oid[:12]} for it (a partial clone, or a damaged repository)",
        next="git fetch --refetch",
    )


def _unreadable(item: Item, ref: OnDisk, error: OSError) -> Finding:
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        path=item.path,
        message=f"expected to read {ref.path}, but: {error.strerror or error}",
        next=f"ls -l {shlex.quote(ref.path)}",
    )


def _batches(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    batch: list[Pair] = []
    points = 0
    for pair in pairs:
        batch.append(pair)
        golden = pair.new.golden if pair.new else None
        if isinstance(golden, Series):
            points += sum(len(metric.steps) for metric in golden.metrics.values())
        if points >= _BATCH_POINTS:
            yield batch
            batch, points = [], 0
    if batch:
        yield batch
