"""Items → changes: fetch the bytes, read them, compare. The heavy part; imported late.

In: items and a task. Out: `Judged`. Runs in the caller's process and in the workers' alike.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from karat.compare.change import Change
from karat.compare.pairs import Pair, compare_many
from karat.compare.rules import RuleBook
from karat.diff.advice import quoted
from karat.diff.sides import Blob, Item, OnDisk, Ref
from karat.findings import Finding, Severity
from karat.goldens import formats, git
from karat.goldens.paths import identity_of
from karat.goldens.shapes import Reading, Series

_BATCH_POINTS = 20_000
"""Curves are scored once this many points are at hand: enough to be fast, few enough for the cache."""

Content = bytes | Finding | None


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """How to judge, whoever does it."""

    cases: Sequence[str]
    rules: RuleBook
    status: Sequence[str]
    keep_curves: bool = False


class Judged(msgspec.Struct):
    """What came of some items."""

    changes: list[Change] = msgspec.field(default_factory=list)
    unchanged: int = 0
    """Items whose bytes turned out to be equal."""
    digests: dict[str, tuple[bytes | None, bytes | None]] = msgspec.field(default_factory=dict)
    """Of goldens that came or went, to recognise moves."""

    def add(self, other: Judged) -> None:
        """Take over another part's results."""
        self.changes += other.changes
        self.unchanged += other.unchanged
        self.digests |= other.digests


class Judge:
    """Judges chunk after chunk, with one git process for all of them."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._blobs: git.Blobs | None = None

    def judge(self, items: Sequence[Item]) -> Judged:
        """The changes of these items, in order."""
        oids = [r.oid for item in items for r in (item.old, item.new) if isinstance(r, Blob)]
        roots = (r.root for item in items for r in (item.old, item.new) if isinstance(r, Blob))
        if oids and self._blobs is None:
            self._blobs = git.Blobs(next(roots))
        return _judge(items, self._task, self._blobs.read(oids) if self._blobs else iter(()))

    def close(self) -> None:
        """End the git process, if there was one."""
        if self._blobs is not None:
            self._blobs.close()


def _judge(items: Sequence[Item], task: Task, blobs: Iterator[bytes | None]) -> Judged:
    judged = Judged()
    for batch in _batches(_pairs(items, task, judged, blobs)):
        judged.changes += compare_many(
            batch, task.rules, status=task.status, keep_curves=task.keep_curves
        )
    return judged


def _pairs(
    items: Sequence[Item], task: Task, judged: Judged, blobs: Iterator[bytes | None]
) -> Iterator[Pair]:
    for item in items:
        old, new = _fetch(item, item.old, blobs), _fetch(item, item.new, blobs)
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
    if not isinstance(content, bytes):
        return None
    import hashlib  # noqa: PLC0415 - only where goldens came or went

    return hashlib.sha256(content).digest()


def _reading(content: Content, path: str) -> Reading | None:
    if content is None:
        return None
    if isinstance(content, Finding):
        return Reading(None, (content,))
    return formats.read(content, path)


def _fetch(item: Item, ref: Ref | None, blobs: Iterator[bytes | None]) -> Content:
    if ref is None:
        return None
    if isinstance(ref, Blob):
        data = next(blobs, None)
        return data if data is not None else _missing(item, ref)
    try:
        return _read(ref)
    except OSError as error:
        return _unreadable(item, ref, error)


def _read(ref: OnDisk) -> bytes:
    # A pipe would wait for ever, a device never end: look before reading, and never wait to look.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if ref.follow else os.O_NOFOLLOW)
    with os.fdopen(os.open(ref.path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no plain file")
        return file.read()


def _missing(item: Item, ref: Blob) -> Finding:
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        path=item.path,
        message=f"git has no object {ref.oid[:12]} for it (a partial clone, or a damaged repository)",
        next="git fetch --refetch",
    )


def _unreadable(item: Item, ref: OnDisk, error: OSError) -> Finding:
    why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror or error
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        path=item.path,
        message=f"expected to read {ref.path}, but: {why}",
        next=f"ls -l {quoted(ref.path)}",
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
