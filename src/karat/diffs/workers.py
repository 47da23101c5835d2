"""Items → changes: fetch the bytes, read them, compare, in several processes at once. The heavy part; imported late."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext

import msgspec
from msgspec.structs import replace

from karat.compare.change import Change, PackedRows
from karat.compare.pairs import GoldenPair, compare_many
from karat.compare.rules import RuleBook
from karat.diffs.sides import Blob, Item, Ref
from karat.findings import Finding, fail
from karat.goldens import formats
from karat.goldens.paths import identity_of
from karat.goldens.shapes import Reading, Series
from karat.system import git
from karat.system.command import Command
from karat.system.foreign.limits import GOLDEN, TooLong, read_plain
from karat.system.forks import chunks_of, helpers_for, spread

_BATCH_POINTS = 20_000
"""Curves are scored once this many points are at hand: enough to be fast, few enough for the cache."""

_MANY = 5_000
"""From so many goldens on their rows are packed, so that a hundred thousand take hundreds of megabytes, not a gigabyte."""

Content = bytes | Finding | None
Progress = Callable[[int, int], None]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """How to compare, whoever does it."""

    cases: Sequence[str]
    rules: RuleBook
    status: Sequence[str]
    keep_curves: bool = False
    digests: bool = False  # Hash every golden, not only those that came or went.
    packed: bool = False


class Compared(msgspec.Struct):
    changes: list[Change] = []
    unchanged: int = 0  # Items whose bytes turned out to be equal.
    digests: dict[str, tuple[bytes | None, bytes | None]] = {}
    """SHA-256 of goldens that came or went, to recognise moves; of all, where they are asked for."""


def _pairs(
    items: Sequence[Item], task: Task, compared: Compared, blobs: Iterator[bytes | int | None]
) -> Iterator[GoldenPair]:
    for item in items:
        old, new = _fetch(item, item.old, blobs), _fetch(item, item.new, blobs)
        same = isinstance(old, bytes) and old == new
        if same and not item.certain:
            compared.unchanged += 1
            continue
        if task.digests or item.old is None or item.new is None:
            from hashlib import sha256

            one, other = (sha256(side).digest() if isinstance(side, bytes) else None for side in (old, new))
            compared.digests[item.path] = one, other
        after = _reading(new, item.path)
        before = after if same else _reading(old, item.path)
        identity = identity_of(item.path, task.cases) if task.cases else {}
        yield GoldenPair(path=item.path, old=before, new=after, identity=identity, same_bytes=same)


def _reading(content: Content, path: str) -> Reading | None:
    if isinstance(content, Finding):
        return Reading(None, (content,))
    return None if content is None else formats.read(content, path)


def _fetch(item: Item, ref: Ref | None, blobs: Iterator[bytes | int | None]) -> Content:
    if ref is None:
        return None
    if isinstance(ref, Blob):
        data = next(blobs, None)
        if isinstance(data, int):
            return formats.too_long(data, item.path)
        if data is not None:
            return data
        return fail("cannot-read", git.no_object(ref.oid), path=item.path, next=git.REFETCH)
    try:
        return read_plain(ref.path, GOLDEN, follow=ref.follow)
    except TooLong as error:
        return formats.too_long(error.size, item.path)
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror or error
    message = f"expected to read {ref.path}, but: {why}"
    return fail("cannot-read", message, path=item.path, next=str(Command("ls", "-l", ref.path)))


def _batches(pairs: Iterable[GoldenPair]) -> Iterator[list[GoldenPair]]:
    batch: list[GoldenPair] = []
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


def _compare(items: Sequence[Item], task: Task, blobs: git.Blobs | None) -> Compared:
    oids = [ref.oid for item in items for ref in (item.old, item.new) if isinstance(ref, Blob)]
    read, compared = blobs.read(oids, GOLDEN.value()) if blobs else iter(()), Compared()
    for batch in _batches(_pairs(items, task, compared, read)):
        made = compare_many(batch, task.rules, status=task.status, keep_curves=task.keep_curves)
        compared.changes += [replace(c, metrics=PackedRows.of(c.metrics)) for c in made] if task.packed else made
    return compared


def compare_items(
    items: Sequence[Item], task: Task, *, jobs: int | None = 1, progress: Progress | None = None
) -> Compared:
    """The changes of all items, in order; `jobs` None for as many processes as help."""
    chunks = chunks_of(items)
    if len(items) >= _MANY and not task.keep_curves:
        task = replace(task, packed=True)

    @contextmanager
    def comparing() -> Iterator[Callable[[int], Compared]]:
        """Compares chunk after chunk, with one git process for all of them."""
        roots = (ref.root for item in items for ref in (item.old, item.new) if isinstance(ref, Blob))
        root = next(roots, None)
        with closing(git.Blobs(root)) if root else nullcontext() as blobs:
            yield lambda number: _compare(chunks[number], task, blobs)

    def done(number: int) -> None:
        if progress is not None:
            progress(min((number + 1) * len(chunks[0]), len(items)), len(items))

    # Curves that a report is to draw do not travel between processes.
    helpers = 0 if task.keep_curves else helpers_for(len(items), jobs)
    whole = Compared()
    for part in spread(len(chunks), comparing, Compared, helpers=helpers, done=done):
        whole.changes += part.changes
        whole.unchanged += part.unchanged
        whole.digests |= part.digests
    if progress is not None:
        progress(len(items), len(items))
    return whole
