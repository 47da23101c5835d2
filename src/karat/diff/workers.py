"""Workers: many goldens are judged by several processes at once.

Fresh interpreters, not forks (numpy's threads and fork do not mix), started before this process
imports what it needs itself. They speak length-prefixed msgpack over their pipes: data only, no
pickle. A chunk whose worker dies, or cannot say its answer, is judged here instead; workers make
a diff faster, never different.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Thread
from typing import IO, Any

import msgspec

from karat.compare.change import Change
from karat.compare.rules import PartialRule, RuleBook
from karat.diff.sides import Item
from karat.findings import Severity

_CHUNK = 48
_WORTH_A_WORKER = 150
"""Below this many goldens a worker would still be importing when the work is done."""
_MOST = 16
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """How to judge, whoever does it."""

    cases: Sequence[str]
    rules: RuleBook
    status: Sequence[str]
    keep_curves: bool = False


@dataclass(slots=True)
class Judged:
    """What came of some items."""

    changes: list[Change] = field(default_factory=list)
    unchanged: int = 0
    """Items whose bytes turned out to be equal."""
    digests: dict[str, tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    """Of goldens that came or went, to recognise moves."""

    def add(self, other: Judged) -> None:
        """Take over another part's results."""
        self.changes += other.changes
        self.unchanged += other.unchanged
        self.digests |= other.digests


class Terms(msgspec.Struct, frozen=True):
    """What a worker is told once: everything of a Task but the curves."""

    cases: list[str]
    rules: list[PartialRule]
    status: list[str]


Progress = Callable[[int, int], None]


def judge(
    items: Sequence[Item], task: Task, *, jobs: int | None = None, progress: Progress | None = None
) -> Judged:
    """The changes of all items, in order."""
    chunks = deque(enumerate(items[i : i + _CHUNK] for i in range(0, len(items), _CHUNK)))
    results: dict[int, Judged] = {}
    helpers = [] if task.keep_curves else _start(_helpers(len(items), jobs), task)
    threads = [Thread(target=_serve, args=(h, chunks, results), daemon=True) for h in helpers]
    for thread in threads:
        thread.start()
    try:
        from karat.diff.judging import judge_items  # noqa: PLC0415 - heavy; workers are starting

        _work(chunks, results, lambda part: judge_items(part, task), progress, len(items))
        for thread in threads:
            thread.join()
        # What a worker dropped came back to the queue.
        _work(chunks, results, lambda part: judge_items(part, task), progress, len(items))
    finally:
        for helper in helpers:
            _stop(helper)
    whole = Judged()
    for index in sorted(results):
        whole.add(results[index])
    return whole


def _helpers(items: int, jobs: int | None) -> int:
    if jobs is not None:
        return max(jobs - 1, 0)
    return min(_cores(), _MOST, items // _WORTH_A_WORKER + 1) - 1


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def _work(
    chunks: deque[tuple[int, Sequence[Item]]],
    results: dict[int, Judged],
    judge_part: Callable[[Sequence[Item]], Judged],
    progress: Progress | None,
    total: int,
) -> None:
    while chunks:
        try:
            index, part = chunks.popleft()
        except IndexError:  # a worker took the last one
            return
        results[index] = judge_part(part)
        if progress is not None:
            progress(min(len(results) * _CHUNK, total), total)


def _start(count: int, task: Task) -> list[subprocess.Popen[bytes]]:
    # -P: never import from the current folder, which may be anybody's repository.
    command = [sys.executable, "-P", "-m", "karat.diff.worker"]
    helpers: list[subprocess.Popen[bytes]] = []
    terms = Terms(list(task.cases), list(task.rules.rules), list(task.status))
    for _ in range(count):
        try:
            helper = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            break  # this process can do it alone
        helpers.append(helper)
        try:
            send(helper.stdin, msgspec.msgpack.encode(terms))
        except (OSError, ValueError):
            break
    return helpers


def _serve(
    helper: subprocess.Popen[bytes],
    chunks: deque[tuple[int, Sequence[Item]]],
    results: dict[int, Judged],
) -> None:
    while chunks:
        try:
            index, part = chunks.popleft()
        except IndexError:
            return
        try:
            send(helper.stdin, msgspec.msgpack.encode(part))
            answer = receive(helper.stdout)
            results[index] = msgspec.msgpack.decode(answer, type=Judged)
        except (OSError, EOFError, ValueError, msgspec.MsgspecError):
            chunks.append((index, part))
            return


def _stop(helper: subprocess.Popen[bytes]) -> None:
    helper.kill()
    for pipe in (helper.stdin, helper.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue  # it is gone already
    helper.wait()


def send(pipe: IO[bytes] | None, message: bytes) -> None:
    """Write one message."""
    if pipe is None:
        raise EOFError
    pipe.write(_LENGTH.pack(len(message)) + message)
    pipe.flush()


def receive(pipe: IO[bytes] | None) -> bytes:
    """Read one message; EOFError at the end."""
    if pipe is None:
        raise EOFError
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    message = pipe.read(length)
    if len(message) < length:
        raise EOFError
    return message


def rule_book(rules: Sequence[PartialRule]) -> RuleBook:
    """A book of rules that came over a pipe, where enums are texts."""
    return RuleBook([PartialRule(r.pattern, _typed(r.sets), r.origin, r.path) for r in rules])


def _typed(sets: Mapping[str, Any]) -> dict[str, Any]:
    return {key: Severity(value) if key == "worst" else value for key, value in sets.items()}
