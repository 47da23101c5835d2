"""Workers: many files are looked at by several processes at once.

A worker is this interpreter started anew, which is safe whatever threads the caller has, and works wherever
Python does. It is handed its files in one message and answers in one, both msgpack. What a worker did not answer,
because it died or could not start, is done here; workers make a scan faster, never different.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from karat.policy.scan_glance import Glance, glance

_WORTH_A_WORKER = 150
"""Below this many files another process would cost more than it saves."""
_MOST = 16

Progress = Callable[[int, int], None]


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one worker, as the bytes that the system knows them by."""

    paths: tuple[bytes, ...]
    roots: tuple[str, ...] = ()


def look(
    paths: Sequence[str], *, roots: Sequence[str] = (), jobs: int | None = None, progress: Progress | None = None
) -> list[Glance]:  # fmt: skip
    """A glance at every file, in order; `jobs` None for as many processes as help."""
    count = _processes(len(paths), jobs)
    shares = [list(paths[number::count]) for number in range(count)]
    workers = [_start(share, roots) for share in shares[1:]]
    answers = [_here(shares[0], roots, progress, len(paths))]
    for share, worker in zip(shares[1:], workers, strict=True):
        answers.append(_answer(worker, share, roots) or _here(share, roots, None, 0))
    if progress is not None:
        progress(len(paths), len(paths))
    found = {each.path: each for answer in answers for each in answer}
    return [found[path] for path in paths]


def _processes(files: int, jobs: int | None) -> int:
    if jobs is not None:
        return max(1, min(jobs, files))
    return max(1, min(_cores(), _MOST, files // _WORTH_A_WORKER))


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


def _here(
    paths: Sequence[str], roots: Sequence[str], progress: Progress | None, total: int
) -> list[Glance]:
    done = []
    with no_collection():
        for number, path in enumerate(paths):
            done.append(glance(path, roots))
            if progress is not None and number % 50 == 0:
                progress(number * total // len(paths), total)
    return done


@contextmanager
def no_collection() -> Iterator[None]:
    """Without the cyclic collector: syntax trees have no cycles, and it would go over them again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _start(paths: Sequence[str], roots: Sequence[str]) -> subprocess.Popen[bytes] | None:
    if not sys.executable:
        return None
    # -P: the scanned tree may be the current folder, and must not be imported from.
    here = os.getcwd()  # noqa: PTH109
    path = os.pathsep.join(entry for entry in sys.path if os.path.isabs(entry) and entry != here)  # noqa: PTH117
    message = msgspec.msgpack.encode(
        Share(paths=tuple(map(os.fsencode, paths)), roots=tuple(roots))
    )
    try:
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "karat.policy.scan_worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
    except OSError:
        return None
    try:
        assert worker.stdin is not None  # noqa: S101 - a pipe was asked for
        with worker.stdin as pipe:
            pipe.write(message)
    except OSError:
        pass  # it died at once; its answer will be missing
    return worker


def _answer(
    worker: subprocess.Popen[bytes] | None, paths: Sequence[str], roots: Sequence[str]
) -> list[Glance] | None:
    if worker is None:
        return None
    assert worker.stdout is not None  # noqa: S101 - a pipe was asked for
    with worker.stdout as pipe:
        data = pipe.read()
    worker.wait()
    try:
        told = msgspec.msgpack.decode(data, type=list[bytes | None])
        found = [
            msgspec.msgpack.decode(one, type=Glance) if one is not None else None for one in told
        ]
    except msgspec.DecodeError:
        return None
    if worker.returncode != 0 or len(found) != len(paths):
        return None
    return [
        named(one, path) if one is not None else glance(path, roots)
        for one, path in zip(found, paths, strict=True)
    ]


def unnamed(one: Glance) -> Glance:
    """Without its path: a name that is not UTF-8 does not travel as text, and the order says whose it is."""
    return named(one, "")


def named(one: Glance, path: str) -> Glance:
    """With its path."""
    facts = one.facts and msgspec.structs.replace(one.facts, path=path)
    return msgspec.structs.replace(one, path=path, facts=facts)
