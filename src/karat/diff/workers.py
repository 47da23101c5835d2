"""Workers: many goldens are judged by several processes at once.

A worker is a fork of this process, so it starts with everything it needs to know. Workers take
chunk numbers from one pipe, as this process does, and leave their results, as msgpack, each in its
own unnamed file. A chunk whose result is missing because a worker died is judged here; workers make
a diff faster, never different. Where forking is not safe (any other thread, such as a BLAS pool; no
fork), this process works alone.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import IO

import msgspec

from karat.diff.judging import Judge, Judged, Task
from karat.diff.sides import Item

_CHUNK = 16
_WORTH_A_WORKER = 100
"""Below this many goldens a second process would cost more than it saves."""
_MOST = 16
_NUMBER = struct.Struct("<I")
_MOST_CHUNKS = 65_536 // _NUMBER.size
"""What a pipe surely holds at once, so that filling it never waits."""

Progress = Callable[[int, int], None]


class _Result(msgspec.Struct, array_like=True):
    chunk: int
    judged: Judged


def judge(
    items: Sequence[Item], task: Task, *, jobs: int | None = 1, progress: Progress | None = None
) -> Judged:
    """The changes of all items, in order; `jobs` None for as many processes as help."""
    size = max(_CHUNK, -(-len(items) // _MOST_CHUNKS))
    chunks = [items[i : i + size] for i in range(0, len(items), size)]
    results: dict[int, Judged] = {}
    queue = _filled_pipe(len(chunks))
    helpers = _fork(_helpers(len(items), task, jobs), queue, chunks, task)
    try:
        with closing(Judge(task)) as judge_:
            for number in _numbers(queue):
                results[number] = judge_.judge(chunks[number])
                if progress is not None:
                    progress(min((number + 1) * size, len(items)), len(items))
            for pid, file in helpers:
                os.waitpid(pid, 0)
                results |= _results(file)
            for number in range(len(chunks)):
                if number not in results:
                    results[number] = judge_.judge(chunks[number])
    finally:
        os.close(queue)
        for _, file in helpers:
            file.close()
    if progress is not None:
        progress(len(items), len(items))
    whole = Judged()
    for number in range(len(chunks)):
        whole.add(results[number])
    return whole


def _filled_pipe(count: int) -> int:
    """A pipe with the numbers 0 … count − 1 in it, then its end."""
    reading, writing = os.pipe()
    os.write(writing, b"".join(map(_NUMBER.pack, range(count))))
    os.close(writing)
    return reading


def _numbers(queue: int) -> Iterator[int]:
    # Whoever reads first gets the number: the kernel is the scheduler.
    while len(record := os.read(queue, _NUMBER.size)) == _NUMBER.size:
        yield _NUMBER.unpack(record)[0]


def _helpers(items: int, task: Task, jobs: int | None) -> int:
    """How many more processes than this one."""
    if task.keep_curves or not hasattr(os, "fork"):
        return 0
    if _threads() != 1:
        return 0
    if jobs is not None:
        return jobs - 1
    return min(_cores(), _MOST, items // _WORTH_A_WORKER + 1) - 1


def _threads() -> int:
    """Threads of this process, those of libraries included; 0 where that is not known."""
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - a count, not paths
    except OSError:
        return 0


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def _fork(
    count: int, queue: int, chunks: Sequence[Sequence[Item]], task: Task
) -> list[tuple[int, IO[bytes]]]:
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
    from tempfile import TemporaryFile  # noqa: PLC0415 - not on Linux

    return TemporaryFile()


def _serve(queue: int, chunks: Sequence[Sequence[Item]], task: Task, file: IO[bytes]) -> None:
    """The life of a worker. It leaves without clean-up that belongs to the process it came from."""
    status = 1
    try:
        judge_ = Judge(task)
        for number in _numbers(queue):
            _put(file, msgspec.msgpack.encode(_Result(number, judge_.judge(chunks[number]))))
        judge_.close()
        file.flush()
        status = 0
    finally:
        # An error here is not this process's to tell: the chunk is missing, and is judged again.
        os._exit(status)


def _put(file: IO[bytes], message: bytes) -> None:
    file.write(_NUMBER.pack(len(message)) + message)


def _results(file: IO[bytes]) -> dict[int, Judged]:
    """The whole results in a worker's file; a worker that was killed may have left half of one."""
    file.seek(0)
    data = memoryview(file.read())
    decoder = msgspec.msgpack.Decoder(_Result)
    found: dict[int, Judged] = {}
    while len(data) >= _NUMBER.size:
        end = _NUMBER.size + _NUMBER.unpack(data[: _NUMBER.size])[0]
        if end > len(data):
            break
        result = decoder.decode(data[_NUMBER.size : end])
        found[result.chunk] = result.judged
        data = data[end:]
    return found
