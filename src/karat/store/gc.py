"""Collecting: forgets references that have expired, and deletes what nothing needs any more.

In: a store, lock files, days. Out: what was (or would be) deleted, and why. Everything that must be known is
read before anything is deleted; a reference, pin, lease, lock or snapshot that cannot be read stops it there,
for what it needs is not known. References go first and objects after, so that killed at any moment a
collection leaves objects without a reference, and never a reference without its objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from karat.findings import CannotVerify
from karat.store import pins, references, snapshot as snapshots
from karat.store.backends import STAGING, TOUCHING, Backend, Stored, StoreProblem, lifecycle
from karat.store.leases import (
    HeldLease,
    LeaseTimes,
    abandoned,
    live_leases,
    marker,
    other_collectors,
    store_busy,
)
from karat.store.objects import EXPIRING, KEPT, digest_of, every, find, key_of, together
from karat.store.pins import read_lock
from karat.store.references import Reference, ReferenceEntry, parse_date
from karat.store.upload import renew_objects

_BATCH = 500
Why = Literal["live", "newest", "pinned", "locked", "expired", "gone"]


class GcOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to collect."""

    dry_run: bool = False
    locks: tuple[Path, ...] = ()
    retention: int | None = None
    """Days for references whose push did not say how long; None: what held when they were pushed."""
    grace: float = 24.0
    """Hours for which an object stays that nobody needs."""
    expire_newest: bool = False
    """Also forget the newest reference of a name."""
    workers: int = 16
    times: LeaseTimes = msgspec.field(default_factory=LeaseTimes)


class ReferenceFate(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a reference."""

    key: str
    name: str
    digest: str
    date: str
    expires: str
    kept: bool
    why: Why
    because: str
    """A sentence."""


class ObjectTally(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that share a fate."""

    fate: Literal["needed", "young", "duplicate", "moved", "unneeded"]
    because: str
    objects: int
    size: int
    deleted: bool


class GcResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection did, or would do."""

    store: str
    dry_run: bool
    references: tuple[ReferenceFate, ...]
    objects: tuple[ObjectTally, ...]
    abandoned: int
    """Leases, markers and half-made files of processes that are no more."""
    leases: int
    """Of those that are at work; what they need was spared."""
    freshened: int = 0
    """Objects that a reference or lock needs, made young again because the bucket deletes by age."""

    @property
    def freed(self) -> int:
        """Bytes."""
        return sum(tally.size for tally in self.objects if tally.deleted)


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that must be known before anything is deleted."""

    judged: tuple[ReferenceFate, ...]
    kept: frozenset[str]
    """Objects that pins and locks need."""
    needed: frozenset[str]
    """Objects that anything needs."""
    leased: frozenset[str]
    """Objects that somebody who is at work needs, wherever they lie: one who pins is filling `kept/`."""
    leases: int


class _Fates(msgspec.Struct, frozen=True, kw_only=True):
    tallies: tuple[ObjectTally, ...]
    delete: tuple[str, ...]
    move: tuple[str, ...]
    """Digests of what goes back from `kept/` to `expiring/`."""
    old: tuple[str, ...]
    """Digests of what is needed in `expiring/`, and would be too old for a bucket that deletes by age."""


_BECAUSE = {
    "needed": "a reference, pin, lock or a push at work needs them",
    "young": "nothing needs them, but they are younger than the grace",
    "duplicate": "pinned, so they lie in kept/ as well",
    "moved": "not pinned any more; a reference still needs them, in expiring/",
    "unneeded": "nothing needs them",
}


def collect(backend: Backend, options: GcOptions) -> GcResult:
    """Deletes what has had its time; with `dry_run`, only says what it would delete."""
    if options.dry_run:
        now = datetime.now(UTC).timestamp()
        known = _known(backend, options, now)
        fates = _fates(backend, options, known, now)
        return _told(backend, options, known, fates, 0)
    with marker(backend, options.times) as held:
        now = held.now()
        busy = other_collectors(backend, held, options.times)
        if busy:
            raise store_busy(backend, busy[0])
        known = _known(backend, options, now)
        fates = _fates(backend, options, known, now)
        gone = [*abandoned(backend, held, options.times), *_leftovers(backend, options, now)]
        by_age = lifecycle.deletes_by_age(backend)
        if by_age:
            renew_objects(backend, fates.old, options.workers)
        _delete(backend, options, held, known, fates)
        backend.delete(gone)
        told = _told(backend, options, known, fates, len(gone))
        return msgspec.structs.replace(told, freshened=len(fates.old) if by_age else 0)


def _delete(
    backend: Backend, options: GcOptions, held: HeldLease, known: _Known, fates: _Fates
) -> None:
    forgotten = [one.key for one in known.judged if not one.kept]
    moves = [
        partial(backend.copy, key_of(digest, KEPT), key_of(digest, EXPIRING))
        for digest in fates.move
    ]
    held.check()
    for _ in together(moves, options.workers):
        pass
    for keys in (*_batches(forgotten), *_batches(fates.delete)):
        # Whoever was silent for long may have been given up by a push, and must not go on.
        held.check()
        backend.delete(keys)


def _known(backend: Backend, options: GcOptions, now: float) -> _Known:
    # Leases first: a push writes its reference before it gives up its lease.
    leases = live_leases(backend, now, options.times)
    pinned = pins.read_all(backend)
    locked = _locked(options.locks)
    judged = _judged(backend, options, now, pinned.keys(), locked)
    roots = {one.digest for one in judged if one.kept}
    lasting = pinned.keys() | {digest for digest in locked if _is_there(backend, digest)}
    in_use = {digest for lease in leases for digest in lease.snapshots}
    closure = partial(_closure, backend, workers=options.workers)
    kept = closure(sorted(lasting))
    leased = closure(sorted(in_use)) | {digest for lease in leases for digest in lease.objects}
    needed = kept | leased | closure(sorted(roots - lasting))
    return _Known(
        judged=tuple(judged),
        kept=frozenset(kept),
        needed=frozenset(needed),
        leased=frozenset(leased),
        leases=len(leases),
    )


def _judged(
    backend: Backend, options: GcOptions, now: float, pinned: Iterable[str], locked: Mapping[str, str]
) -> list[ReferenceFate]:  # fmt: skip
    for key in references.unrecognised(backend):
        raise CannotVerify(
            f"expected only references below {references.PREFIX} of {backend.url}, found {key}; "
            "nothing was deleted",
            next_command=backend.look(key),
        )
    entries = references.entries(backend)
    read = references.read_all(backend, entries, options.workers)
    newest = {entry.name: entry.key for entry in entries}
    pins_ = set(pinned)
    return [
        _judge(backend, entry, reference, options, now, newest=newest[entry.name] == entry.key,
               pinned=reference.digest in pins_, lock=locked.get(reference.digest))
        for entry, reference in zip(entries, read, strict=True)
    ]  # fmt: skip


def _judge(  # noqa: PLR0913 - one parameter per thing that may keep a reference
    backend: Backend, entry: ReferenceEntry, reference: Reference, options: GcOptions, now: float, *,
    newest: bool, pinned: bool, lock: str | None,
) -> ReferenceFate:  # fmt: skip
    moment = parse_date(reference.expires)
    if options.retention is not None and reference.keep is None:
        moment = parse_date(reference.date) + timedelta(days=options.retention)
    day = references.format_date(moment)
    kept, why, because = True, "live", f"expires {day[:10]}"
    if pinned:
        why, because = "pinned", "it is pinned"
    elif lock is not None:
        why, because = "locked", f"{lock} names it"
    elif moment.timestamp() <= now:
        because = f"expired {day[:10]}"
        if newest and not options.expire_newest:
            why, because = "newest", f"{because}, but it is the newest of its name"
            if not _is_there(backend, reference.digest):
                kept, why, because = False, "gone", f"expired {day[:10]}, and its snapshot is gone"
        else:
            kept, why = False, "expired"
    return ReferenceFate(
        key=entry.key, name=reference.name, digest=reference.digest, date=reference.date,
        expires=day, kept=kept, why=why, because=because,  # type: ignore[arg-type]
    )  # fmt: skip


def _fates(backend: Backend, options: GcOptions, known: _Known, now: float) -> _Fates:
    grace = options.grace * 3600
    counts: dict[str, list[Stored]] = {fate: [] for fate in _BECAUSE}
    lasting = {digest_of(one.key): one for one in every(backend, KEPT, options.workers)}
    here: dict[str | None, int] = {}
    for one in every(backend, EXPIRING, options.workers):
        digest = digest_of(one.key)
        here[digest] = one.size
        twin = lasting.get(digest)
        if digest in known.needed:
            double = digest in known.kept and twin is not None and twin.size == one.size
            fate = "duplicate" if double and now - one.modified >= grace else "needed"
        else:
            fate = "unneeded" if now - one.modified >= grace else "young"
        counts[fate].append(one)
    move = []
    for digest, one in lasting.items():
        if digest in known.kept or digest in known.leased:
            fate = "needed"
        elif digest in known.needed and digest is not None:
            fate = "moved"
            move += [] if here.get(digest) == one.size else [digest]
        else:
            fate = "unneeded" if now - one.modified >= grace else "young"
        counts[fate].append(one)
    # A duplicate is one only as long as nobody unpins it; a live reference would want it here again.
    deleted = {"duplicate", "moved", "unneeded"}
    delete = [one.key for fate in ("unneeded", "duplicate", "moved") for one in counts[fate]]
    oldest = now - lifecycle.SLACK * 86400
    old = [digest_of(one.key) or "" for one in counts["needed"]
           if one.key.startswith(EXPIRING) and one.modified < oldest]  # fmt: skip
    return _Fates(
        old=tuple(old),
        tallies=tuple(
            ObjectTally(fate=fate, because=_BECAUSE[fate], objects=len(found),  # type: ignore[arg-type]
                  size=sum(one.size for one in found), deleted=fate in deleted)
            for fate, found in counts.items() if found
        ),
        delete=tuple(delete),
        move=tuple(move),
    )  # fmt: skip


def _closure(backend: Backend, digests: Sequence[str], workers: int) -> set[str]:
    """The snapshots and all objects that they need."""
    tasks = [partial(_objects_of, backend, digest) for digest in digests]
    found: set[str] = set()
    for objects in together(tasks, min(workers, 4)):
        found |= objects
    return found


def _objects_of(backend: Backend, digest: str) -> set[str]:
    try:
        snapshot = snapshots.load(backend, digest)
    except StoreProblem as problem:
        raise CannotVerify(
            f"{problem}; what it needs is not known, so nothing was deleted",
            next_command=f"karat ls sha256:{digest} --store {backend.url}",
        ) from problem
    return {digest} | {part.sha256 for part in snapshot.parts()}


def _locked(files: Sequence[Path]) -> dict[str, str]:
    """Digest → the lock file that names it."""
    found: dict[str, str] = {}
    for file in files:
        if not file.is_file():
            raise CannotVerify(
                f"expected a lock file at {file}, found none; what it names is not known",
                next_command=f"ls -l {file}",
            )
        found |= {line.digest: str(file) for line in read_lock(file).values()}
    return found


def _is_there(backend: Backend, digest: str) -> bool:
    return bool(find(backend, [digest], 1))


def _leftovers(backend: Backend, options: GcOptions, now: float) -> list[str]:
    """What killed processes left half-made; it never had a name that means anything."""
    grace = max(options.grace, 1.0) * 3600
    found = (*backend.list(STAGING), *backend.list(TOUCHING))
    return [one.key for one in found if now - one.modified >= grace]


def _batches(keys: Sequence[str]) -> list[list[str]]:
    return [list(keys[i : i + _BATCH]) for i in range(0, len(keys), _BATCH)]


def _told(
    backend: Backend, options: GcOptions, known: _Known, fates: _Fates, gone: int
) -> GcResult:
    return GcResult(
        store=backend.url,
        dry_run=options.dry_run,
        references=known.judged,
        objects=fates.tallies,
        abandoned=gone,
        leases=known.leases,
    )
