"""Items → changes: fetch the bytes, read them, compare, in several processes at once. The heavy part; imported late.

A worker is a fork of this process, so it starts with everything it needs to know. Workers take chunk numbers from one
pipe, as this process does, and leave their results, as msgpack, each in its own unnamed file. A chunk whose result is
missing because a worker died is compared here; workers make a diff faster, never different. Where forking is not safe
(any other thread, such as a BLAS pool; no fork), this process works alone.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import IO

import msgspec

from karat.compare.change import Change
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

_BATCH_POINTS = 20_000
"""Curves are scored once this many points are at hand: enough to be fast, few enough for the cache."""

_CHUNK = 16
_WORTH_A_WORKER = 100
"""Below this many goldens a second process would cost more than it saves."""
_MOST = 16
_NUMBER = struct.Struct("<I")
_MOST_CHUNKS = 65_536 // _NUMBER.size
"""What a pipe surely holds at once, so that filling it never waits."""

Content = bytes | Finding | None
Progress = Callable[[int, int], None]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """How to compare, whoever does it."""

    cases: Sequence[str]
    rules: RuleBook
    status: Sequence[str]
    keep_curves: bool = False


class Compared(msgspec.Struct):
    """What came of some items."""

    changes: list[Change] = []
    unchanged: int = 0
    """Items whose bytes turned out to be equal."""
    digests: dict[str, tuple[bytes | None, bytes | None]] = {}
    """Of goldens that came or went, to recognise moves."""


class Comparer:
    """Compares chunk after chunk, with one git process for all of them."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._blobs: git.Blobs | None = None

    def compare(self, items: Sequence[Item]) -> Compared:
        """The changes of these items, in order."""
        oids = [
            ref.oid
            for item, last in zip(items, (None, *items), strict=False)
            for ref in (None if _goes_on(item, last) else item.old, item.new)
            if isinstance(ref, Blob)
        ]
        roots = (r.root for item in items for r in (item.old, item.new) if isinstance(r, Blob))
        if oids and self._blobs is None:
            self._blobs = git.Blobs(next(roots))
        blobs = self._blobs.read(oids, GOLDEN.value()) if self._blobs else iter(())
        task, compared = self._task, Compared()
        for batch in _batches(_pairs(items, task, compared, blobs)):
            compared.changes += compare_many(batch, task.rules, status=task.status, keep_curves=task.keep_curves)
        return compared

    def close(self) -> None:
        """End the git process, if there was one."""
        if self._blobs is not None:
            self._blobs.close()


def _goes_on(item: Item, last: Item | None) -> bool:
    """Whether the new side of the last item is this one's old, as in a history; it is fetched and read once."""
    return last is not None and item.path == last.path and isinstance(item.old, Blob) and item.old == last.new


def _pairs(
    items: Sequence[Item], task: Task, compared: Compared, blobs: Iterator[bytes | int | None]
) -> Iterator[GoldenPair]:
    new: Content = None
    after: Reading | None = None
    for item, last in zip(items, (None, *items), strict=False):
        old, known = (new, after) if _goes_on(item, last) else (_fetch(item, item.old, blobs), None)
        new, after = _fetch(item, item.new, blobs), None
        same = isinstance(old, bytes) and old == new
        if same and not item.certain:
            compared.unchanged += 1
            continue
        if item.old is None or item.new is None:
            from hashlib import sha256

            one, other = (sha256(side).digest() if isinstance(side, bytes) else None for side in (old, new))
            compared.digests[item.path] = one, other
        after = _reading(new, item.path)
        before = after if same else known or _reading(old, item.path)
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


class _Result(msgspec.Struct, array_like=True):
    chunk: int
    compared: Compared


def compare_items(
    items: Sequence[Item], task: Task, *, jobs: int | None = 1, progress: Progress | None = None
) -> Compared:
    """The changes of all items, in order; `jobs` None for as many processes as help."""
    size = max(_CHUNK, -(-len(items) // _MOST_CHUNKS))
    chunks = [items[i : i + size] for i in range(0, len(items), size)]
    results: dict[int, Compared] = {}
    # A pipe with the number of every chunk in it, then its end.
    queue, writing = os.pipe()
    os.write(writing, b"".join(map(_NUMBER.pack, range(len(chunks)))))
    os.close(writing)
    helpers = _fork(_helpers(len(items), task, jobs), queue, chunks, task)
    try:
        with closing(Comparer(task)) as comparer:
            for number in _numbers(queue):
                results[number] = comparer.compare(chunks[number])
                if progress is not None:
                    progress(min((number + 1) * size, len(items)), len(items))
            for pid, file in helpers:
                os.waitpid(pid, 0)
                results |= _results(file)
            for number in range(len(chunks)):
                if number not in results:
                    results[number] = comparer.compare(chunks[number])
    finally:
        os.close(queue)
        for _, file in helpers:
            file.close()
    if progress is not None:
        progress(len(items), len(items))
    whole = Compared()
    for _, part in sorted(results.items()):
        whole.changes += part.changes
        whole.unchanged += part.unchanged
        whole.digests |= part.digests
    return whole


def _numbers(queue: int) -> Iterator[int]:
    # Whoever reads first gets the number: the kernel is the scheduler.
    while len(record := os.read(queue, _NUMBER.size)) == _NUMBER.size:
        yield _NUMBER.unpack(record)[0]


def _helpers(items: int, task: Task, jobs: int | None) -> int:
    """How many more processes than this one."""
    if task.keep_curves or not hasattr(os, "fork"):
        return 0
    try:
        # Threads of libraries count; where that is not known, none is forked.
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - a count, not paths
    except OSError:
        return 0
    if threads != 1:
        return 0
    if jobs is not None:
        return jobs - 1
    worth = min(items // _WORTH_A_WORKER, _MOST - 1)
    if not worth:
        return 0
    from karat.system.processes import available_cores

    return min(available_cores() - 1, worth)


def _fork(count: int, queue: int, chunks: Sequence[Sequence[Item]], task: Task) -> list[tuple[int, IO[bytes]]]:
    helpers: list[tuple[int, IO[bytes]]] = []
    for _ in range(count):
        try:
            file = _unnamed_file()
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
        except OSError:
            break  # no room for another process or file; this one can do it alone
        if pid == 0:
            _serve(queue, chunks, task, file)
        helpers.append((pid, file))
    return helpers


def _unnamed_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("karat"), "w+b")
    from tempfile import TemporaryFile

    return TemporaryFile()


def _serve(queue: int, chunks: Sequence[Sequence[Item]], task: Task, file: IO[bytes]) -> None:
    """The life of a worker. It leaves without clean-up that belongs to the process it came from."""
    status = 1
    try:
        comparer = Comparer(task)
        for number in _numbers(queue):
            message = msgspec.msgpack.encode(_Result(number, comparer.compare(chunks[number])))
            file.write(_NUMBER.pack(len(message)) + message)
        comparer.close()
        file.flush()
        status = 0
    finally:
        # An error here is not this process's to tell: the chunk is missing, and is compared again.
        os._exit(status)


def _results(file: IO[bytes]) -> dict[int, Compared]:
    """The whole results in a worker's file; a worker that was killed may have left half of one."""
    file.seek(0)
    data = memoryview(file.read())
    decoder = msgspec.msgpack.Decoder(_Result)
    found: dict[int, Compared] = {}
    while len(data) >= _NUMBER.size:
        end = _NUMBER.size + _NUMBER.unpack(data[: _NUMBER.size])[0]
        if end > len(data):
            break
        result = decoder.decode(data[_NUMBER.size : end])
        found[result.chunk] = result.compared
        data = data[end:]
    return found
