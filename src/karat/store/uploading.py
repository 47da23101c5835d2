"""Uploading: puts into a store what it lacks; an object is there whole or not at all."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256

import msgspec

from karat.findings import CannotVerify
from karat.sources.crew import in_parallel
from karat.store.backend import Absent, Backend
from karat.store.objects import EXPIRING, KEPT, Found, Part, Watch, find, key_of
from karat.store.planning import Plan, Unit
from karat.store.teamwork import together

_LARGE = 4 << 20
_MANY_LARGE = 4
"""So many large objects are in memory at once."""


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """What of a plan a store lacks, and what it has."""

    absent: Mapping[str, Part]
    damaged: Mapping[str, Part]
    """There, and of another size than they should be."""
    present: Mapping[str, Found]


def lacking(backend: Backend, parts: Mapping[str, Part], workers: int) -> Missing:
    """Compares a plan with a store by name and size."""
    found = find(backend, sorted(parts), workers)
    wrong = {d: part for d, part in parts.items() if d in found and found[d].size != part.size}
    return Missing(
        absent={digest: part for digest, part in parts.items() if digest not in found},
        damaged=wrong,
        present={digest: one for digest, one in found.items() if digest not in wrong},
    )


def rotten(
    backend: Backend, present: Mapping[str, Found], parts: Mapping[str, Part], workers: int
) -> dict[str, Part]:
    """Objects that are there and are not what their name says; all are read."""
    tasks = [
        partial(_is_rotten, backend, parts[digest], found.drawer)
        for digest, found in present.items()
    ]
    return {part.sha256: part for part, bad in together(tasks, workers) if bad}


def upload(
    backend: Backend, plan: Plan, missing: Missing, workers: int, watch: Watch | None = None
) -> None:
    """Every object of the plan that is absent or damaged; the snapshot itself is the caller's to put."""
    wanted = set(missing.absent) | set(missing.damaged)
    slots = threading.BoundedSemaphore(_MANY_LARGE)
    stopped = threading.Event()
    tasks = [
        partial(_upload, backend, unit, digests, missing, slots, stopped, watch)
        for unit, digests in _shared_out(plan.units, wanted)
    ]
    for _ in in_parallel(tasks, workers, stop=stopped.set):
        pass


def put_object(
    backend: Backend, part: Part, data: bytes, damaged: Mapping[str, Found] | Collection[str]
) -> None:
    """One object; a damaged one is replaced wherever it lies."""
    if part.sha256 not in damaged:
        backend.put(key_of(part.sha256), data)
        return
    for drawer in (EXPIRING, KEPT):
        key = key_of(part.sha256, drawer)
        if drawer == EXPIRING or backend.head(key) is not None:
            backend.put(key, data, replace=True)


def freshen(backend: Backend, digests: Sequence[str], workers: int) -> None:
    """Makes reused objects young again, so that a bucket's own rule does not take them too early."""
    tasks = [partial(_freshen, backend, digest) for digest in digests]
    for _ in together(tasks, workers):
        pass


def _freshen(backend: Backend, digest: str) -> None:
    try:
        backend.touch(key_of(digest))
    except Absent:  # only the kept one was there; the other drawer is the one that expires
        backend.copy(key_of(digest, KEPT), key_of(digest))


def _shared_out(units: Sequence[Unit], wanted: set[str]) -> Iterator[tuple[Unit, set[str]]]:
    """What each task has to send; no object twice, large files piece by piece."""
    taken: set[str] = set()
    for unit in units:
        digests = {part.sha256 for part in unit.parts} & wanted - taken
        taken |= digests
        if len(digests) > 1 and unit.extents[0].seekable:
            yield from ((unit, {digest}) for digest in sorted(digests))
        elif digests:
            yield unit, digests


def _upload(  # noqa: PLR0913, PLR0917 - what a task needs
    backend: Backend, unit: Unit, digests: set[str], missing: Missing,
    slots: threading.BoundedSemaphore, stopped: threading.Event, watch: Watch | None,
) -> None:  # fmt: skip
    large = max(part.size for part in unit.parts) > _LARGE
    if large:
        slots.acquire()
    try:
        for part, data in unit.objects(digests):
            if stopped.is_set():
                return
            if sha256(data).hexdigest() != part.sha256:
                raise CannotVerify(
                    "expected the files to stay as they were while they are pushed, found that one changed",
                    next_command="karat verify PLACE",
                )
            put_object(backend, part, data, missing.damaged)
            if watch is not None:
                watch(len(data))
    finally:
        if large:
            slots.release()


def _is_rotten(backend: Backend, part: Part, drawer: str) -> tuple[Part, bool]:
    try:
        data = backend.get(key_of(part.sha256, drawer))
    except Absent:
        return part, True
    return part, sha256(data).hexdigest() != part.sha256
