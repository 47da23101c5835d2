"""Work spread over forked processes.

A worker is a fork of this process, so it starts with everything it needs to know. Workers take the numbers of tasks from
one pipe, as this process does, and leave their results, as msgpack, each in its own unnamed file. A task whose result is
missing because a worker died is done here; workers make work faster, never different. Where forking is not safe (any other
thread, such as a BLAS pool; no fork), this process works alone.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any, TypeVar

import msgspec

R = TypeVar("R")
T = TypeVar("T")
Worker = Callable[[], AbstractContextManager[Callable[[int], R]]]
"""Entered once by each process; what it gives makes a result of a task's number."""

_CHUNK = 45
_WORTH_A_WORKER = 100  # Below this many items a second process would cost more than it saves.
_MOST = 16
_NUMBER = struct.Struct("<I")
_MOST_CHUNKS = 65_536 // _NUMBER.size  # What a pipe surely holds at once, so that filling it never waits.


def chunks_of(items: Sequence[T]) -> list[Sequence[T]]:
    """The items in tasks of a size that is worth the asking."""
    size = max(_CHUNK, -(-len(items) // _MOST_CHUNKS))
    return [items[i : i + size] for i in range(0, len(items), size)]


def helpers_for(items: int, jobs: int | None) -> int:
    """How many more processes than this one; `jobs` None for as many as help with so many items."""
    try:
        # Threads of libraries count; where that is not known, none is forked.
        threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - a count, not paths
    except OSError:
        return 0
    if threads != 1 or not hasattr(os, "fork"):
        return 0
    if jobs is not None:
        return jobs - 1
    worth = min(items // _WORTH_A_WORKER, _MOST - 1)
    if not worth:
        return 0
    from karat.system.processes import available_cores

    return min(available_cores() - 1, worth)


def spread(
    tasks: int, worker: Worker[R], kind: type[R], *, helpers: int, done: Callable[[int], None] = lambda _: None
) -> list[R]:
    """The result of every task, in order; `done` hears the number of each that this process has done."""
    results: dict[int, R] = {}
    # A pipe with the number of every task in it, then its end.
    queue, writing = os.pipe()
    os.write(writing, b"".join(map(_NUMBER.pack, range(tasks))))
    os.close(writing)
    forked = _fork(helpers, queue, worker)
    try:
        with worker() as work:
            for number in _numbers(queue):
                results[number] = work(number)
                done(number)
            for pid, file in forked:
                os.waitpid(pid, 0)
                results |= _results(file, kind)
            for number in range(tasks):
                if number not in results:
                    results[number] = work(number)
    finally:
        os.close(queue)
        for _, file in forked:
            file.close()
    return [results[number] for number in range(tasks)]


def _numbers(queue: int) -> Iterator[int]:
    # Whoever reads first gets the number: the kernel is the scheduler.
    while len(record := os.read(queue, _NUMBER.size)) == _NUMBER.size:
        yield _NUMBER.unpack(record)[0]


def _fork(count: int, queue: int, worker: Worker[Any]) -> list[tuple[int, IO[bytes]]]:
    forked: list[tuple[int, IO[bytes]]] = []
    for _ in range(count):
        try:
            if hasattr(os, "memfd_create"):
                file: IO[bytes] = os.fdopen(os.memfd_create("karat"), "w+b")
            else:
                from tempfile import TemporaryFile

                file = TemporaryFile()  # noqa: SIM115 - `spread` closes it
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
        except OSError:
            break  # no room for another process or file; this one can do it alone
        if pid == 0:
            _serve(queue, worker, file)
        forked.append((pid, file))
    return forked


def _serve(queue: int, worker: Worker[Any], file: IO[bytes]) -> None:
    """The life of a worker. It leaves without clean-up that belongs to the process it came from."""
    status = 1
    try:
        with worker() as work:
            for number in _numbers(queue):
                message = msgspec.msgpack.encode((number, work(number)))
                file.write(_NUMBER.pack(len(message)) + message)
        file.flush()
        status = 0
    finally:
        # An error here is not this process's to tell: the result is missing, and is made again.
        os._exit(status)


def _results(file: IO[bytes], kind: type[R]) -> dict[int, R]:
    """The whole results in a worker's file; a worker that was killed may have left half of one."""
    file.seek(0)
    decoder = msgspec.msgpack.Decoder(tuple[int, kind])  # type: ignore[valid-type]
    found: dict[int, R] = {}
    # One by one: all of them at once would be in memory twice.
    while len(size := file.read(_NUMBER.size)) == _NUMBER.size:
        message = file.read(_NUMBER.unpack(size)[0])
        if len(message) < _NUMBER.unpack(size)[0]:
            break
        number, result = decoder.decode(message)
        found[number] = result
    return found
