"""Garbage collection: forgets expired references, and deletes objects that nothing needs any more.

Everything is read before anything is deleted: a reference, pin, lease, lock or snapshot that cannot be read stops the
collection, because what it needs is unknown. References go first and objects after, so that a collection killed at any
moment leaves objects without a reference, never a reference without its objects.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from karat.findings import CannotVerify
from karat.report.words import byte_size, count
from karat.store import pins, references, snapshot as snapshots
from karat.store.backends import STAGING, TOUCHING, Backend, StoredObject, StoreProblem, lifecycle
from karat.store.leases import HeldLease, LeaseTimes, abandoned, lease, live_leases, other_collectors, store_busy
from karat.store.objects import EXPIRING, KEPT, digest_of, every, find, key_of
from karat.store.pins import read_lock
from karat.store.references import parse_date
from karat.store.upload import renew_objects
from karat.system.command import Command
from karat.system.pool import in_parallel

_BATCH = 500
_TRIES = 4  # to be the only collector
Why = Literal["live", "newest", "pinned", "locked", "expired", "gone"]


class GcOptions(msgspec.Struct, frozen=True, kw_only=True):
    dry_run: bool = False
    locks: tuple[Path, ...] = ()
    grace: float = 24.0  # Hours that an unneeded object stays.
    expire_newest: bool = False  # Also forget the newest reference of a name.
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
    because: str  # A sentence.


class ObjectTally(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that share a fate."""

    fate: Literal["needed", "young", "duplicate", "moved", "unneeded"]
    because: str
    objects: int
    size: int
    deleted: bool


class GcResult(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    dry_run: bool
    references: tuple[ReferenceFate, ...]
    objects: tuple[ObjectTally, ...]
    abandoned: int = 0  # Leases, markers and partial files of processes that have ended.
    leases: int = 0  # Of pushes and pins in progress; what they need was spared.
    freshened: int = 0  # Objects that a reference or lock needs, renewed because the bucket deletes by age.

    @property
    def freed(self) -> int:
        return sum(tally.size for tally in self.objects if tally.deleted)


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that must be known before anything is deleted."""

    judged: tuple[ReferenceFate, ...]
    kept: frozenset[str]  # objects that pins and locks need
    needed: frozenset[str]  # objects that anything needs
    leased: frozenset[str]  # Objects that a push or pin in progress needs, in either area: a pin is filling `kept/`.
    leases: int
    gone: tuple[references.ReferenceEntry, ...]


_BECAUSE = {
    "needed": "a reference, pin, lock or push in progress needs them",
    "young": "nothing needs them, but they are younger than the grace",
    "duplicate": "pinned, so they are in kept/ as well",
    "moved": "no longer pinned; a reference still needs them, in expiring/",
    "unneeded": "nothing needs them",
}


def collect(backend: Backend, options: GcOptions) -> GcResult:
    """Delete what has expired; with `dry_run`, only say what would be deleted."""
    if options.dry_run:
        now = datetime.now(UTC).timestamp()
        return _fates(backend, options, _known(backend, options, now), now)[0]
    for tries in range(_TRIES):
        # Two that began at once have seen each other and both gave way; chance decides who is next.
        time.sleep(random.uniform(0, options.times.poll) if tries else 0)  # noqa: S311
        with lease(backend, "gc", options.times) as held:
            busy = other_collectors(backend, held, options.times)
            if not busy:
                return _collect(backend, options, held)
    raise store_busy(backend, busy[0])


def _collect(backend: Backend, options: GcOptions, held: HeldLease) -> GcResult:
    now = held.now()
    known = _known(backend, options, now)
    result, delete, move, old = _fates(backend, options, known, now)
    # What killed processes left unfinished never had a name that means anything.
    grace = max(options.grace, 1.0) * 3600
    unfinished = (*backend.list(STAGING), *backend.list(TOUCHING))
    gone = abandoned(backend, held, options.times)
    gone += [one.key for one in unfinished if now - one.modified >= grace]
    by_age = lifecycle.read(backend) is not None
    if by_age:
        renew_objects(backend, old, options.workers)
    held.check()
    moves = [partial(backend.copy, key_of(digest, KEPT), key_of(digest, EXPIRING)) for digest in move]
    list(in_parallel(moves, options.workers))
    # A collector that was silent for long may have been given up by a push, and must stop.
    for i in range(0, len(known.gone), _BATCH):
        held.check()
        references.forget(backend, known.gone[i : i + _BATCH])
    for i in range(0, len(delete), _BATCH):
        held.check()
        backend.delete(delete[i : i + _BATCH])
    backend.delete(gone)
    return msgspec.structs.replace(result, abandoned=len(gone), freshened=len(old) if by_age else 0)


def _known(backend: Backend, options: GcOptions, now: float) -> _Known:
    # Leases first: a push writes its reference before it gives up its lease.
    leases = live_leases(backend, now, options.times)
    pinned = pins.read_all(backend)
    locked: dict[str, str] = {}
    for file in options.locks:
        if not file.is_file():
            said = f"expected a lock file at {file}, found none; what it names is not known"
            raise CannotVerify(said, next_command=Command("ls", "-l", str(file)))
        locked |= {line.digest: str(file) for line in read_lock(file).values()}
    entries = references.entries(backend)
    judged = _judge(backend, entries, options, now, pinned.keys(), locked)
    roots = {one.digest for one in judged if one.kept}
    lasting = pinned.keys() | {digest for digest in locked if find(backend, [digest], 1)}
    in_use = {digest for lease in leases for digest in lease.snapshots}

    def objects_of(digest: str) -> set[str]:
        try:
            snapshot = snapshots.load(backend, digest)
        except StoreProblem as problem:
            said = f"{problem}; what it needs is not known, so nothing was deleted"
            then = Command("karat", "ls", f"sha256:{digest}", "--store", backend.url)
            raise CannotVerify(said, next_command=then) from problem
        return {digest} | {part.digest for part in snapshot.parts()}

    def closure(digests: Iterable[str]) -> set[str]:
        """The snapshots and all objects that they need."""
        tasks = [partial(objects_of, digest) for digest in sorted(digests)]
        return set().union(*in_parallel(tasks, min(options.workers, 4)))

    kept = closure(lasting)
    leased = closure(in_use) | {digest for lease in leases for digest in lease.objects}
    return _Known(
        judged=tuple(judged),
        kept=frozenset(kept),
        needed=frozenset(kept | leased | closure(roots - lasting)),
        leased=frozenset(leased),
        leases=len(leases),
        gone=tuple(entry for entry, fate in zip(entries, judged, strict=True) if not fate.kept),
    )


def _judge(
    backend: Backend,
    entries: Sequence[references.ReferenceEntry],
    options: GcOptions,
    now: float,
    pinned: Collection[str],
    locked: Mapping[str, str],
) -> list[ReferenceFate]:
    for key in references.unrecognised(backend):
        said = f"expected only references below {references.PREFIX} of {backend.url}, found {key}; nothing was deleted"
        raise CannotVerify(said, next_command=backend.look(key))
    newest = {entry.name: entry.key for entry in entries}
    fates = []
    found, errors = references.read_each(backend, entries, options.workers)
    if errors:
        raise errors[0]
    for entry, reference in zip(entries, found, strict=True):
        moment = parse_date(reference.expires)
        day = references.format_date(moment)
        kept, why, because = True, "live", f"expires {day[:10]}"
        if reference.digest in pinned:
            why, because = "pinned", "it is pinned"
        elif reference.digest in locked:
            why, because = "locked", f"{locked[reference.digest]} names it"
        elif moment.timestamp() <= now:
            because = f"expired {day[:10]}"
            if newest[entry.name] != entry.key or options.expire_newest:
                kept, why = False, "expired"
            elif find(backend, [reference.digest], 1):
                why, because = "newest", f"{because}, but it is the newest of its name"
            else:
                kept, why, because = False, "gone", f"{because}, and its snapshot is gone"
        told = {"name": reference.name, "digest": reference.digest, "date": reference.date, "expires": day}
        fate = ReferenceFate(key=entry.key, **told, kept=kept, why=why, because=because)  # type: ignore[arg-type]
        fates.append(fate)
    return fates


def _fates(
    backend: Backend, options: GcOptions, known: _Known, now: float
) -> tuple[GcResult, list[str], list[str], list[str]]:
    """What becomes of everything; then the keys to delete, and digests.

    Those to copy back from `kept/` to `expiring/`, and those that are needed in `expiring/` and that a bucket that
    deletes by age would soon delete.
    """
    grace = options.grace * 3600
    counts: dict[str, list[StoredObject]] = {fate: [] for fate in _BECAUSE}
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
    deleted = ("unneeded", "duplicate", "moved")
    oldest = now - lifecycle.SLACK * 86400
    needed = [one for one in counts["needed"] if one.key.startswith(EXPIRING) and one.modified < oldest]
    result = GcResult(
        store=backend.url,
        dry_run=options.dry_run,
        references=known.judged,
        leases=known.leases,
        objects=tuple(
            ObjectTally(
                fate=fate,  # type: ignore[arg-type]
                because=_BECAUSE[fate],
                objects=len(found),
                size=sum(one.size for one in found),
                deleted=fate in deleted,
            )
            for fate, found in counts.items()
            if found
        ),
    )
    delete = [one.key for fate in deleted for one in counts[fate]]
    return result, delete, move, [digest_of(one.key) or "" for one in needed]


def lines(result: GcResult) -> Iterator[str]:
    """What went, what stayed, and why."""
    would = "would forget" if result.dry_run else "forgot"
    gone = [one for one in result.references if not one.kept]
    for one in gone:
        yield f"{would} {one.name} of {one.date[:19]}Z, sha256:{one.digest[:12]}: {one.because}"
    for one in result.references:
        if one.kept and (result.dry_run or one.why != "live"):
            yield f"kept {one.name} of {one.date[:19]}Z, sha256:{one.digest[:12]}: {one.because}"
    for tally in result.objects:
        verb = ("would delete" if result.dry_run else "deleted") if tally.deleted else "kept"
        yield f"{verb} {count(tally.objects, 'object')}, {byte_size(tally.size)}: {tally.because}"
    if result.leases:
        pushes = "1 push" if result.leases == 1 else f"{result.leases:,} pushes"
        yield f"spared what {pushes} in progress may need"
    if result.freshened:
        yield f"renewed {count(result.freshened, 'object')} for the bucket's rule"
    if result.abandoned:
        yield f"cleared {count(result.abandoned, 'leftover')} of killed processes"
    kept = len(result.references) - len(gone)
    verb = "would free" if result.dry_run else "freed"
    yield f"{count(kept, 'reference')} kept, {len(gone):,} gone; {verb} {byte_size(result.freed)} in {result.store}"
