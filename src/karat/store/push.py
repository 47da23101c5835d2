"""Pushing: cases become objects, a snapshot, and last of all a reference.

Killed at any moment, a push leaves objects that nobody names yet; the next push finds them there and sends
the rest. Nothing of a push is visible before its reference is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

import karat
from karat.bundles.cases import cases, divide
from karat.bundles.places import Place
from karat.bundles.verify import verify_place
from karat.findings import CannotVerify, Finding, Severity, UsageError
from karat.store import pins, references, snapshot as snapshots
from karat.store.backends import Backend, create_store, is_store, lifecycle
from karat.store.leases import HeldLease, LeaseTimes, lease, wait_for_collectors
from karat.store.objects import EXPIRING, Part, Watch
from karat.store.references import Reference
from karat.store.upload import (
    CaseFiles,
    StoreComparison,
    UploadPlan,
    compare_with_store,
    corrupt_objects,
    plan_upload,
    put_object,
    renew_objects,
    upload,
)


class PushOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to push."""

    retention: int = 90
    keep: int | None = None
    pin: str | None = None
    """Why it is to be kept for good."""
    verify_existing: bool = False
    dry_run: bool = False
    workers: int = 16
    ci: Mapping[str, str] = msgspec.field(default_factory=dict)
    times: LeaseTimes = msgspec.field(default_factory=LeaseTimes)
    again: str = "karat push PLACE NAME"
    """The command that asked for it, for advice to build upon."""


class Watchers(msgspec.Struct, frozen=True, kw_only=True):
    """Those who are told how it goes."""

    hashed: Watch | None = None
    sending: Callable[[int], None] | None = None
    """How many bytes will be sent."""
    sent: Watch | None = None
    notice: Callable[[str], None] | None = None


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """What a push did, or would do."""

    store: str
    name: str
    digest: str
    cases: int
    files: int
    size: int
    new_objects: int
    new_bytes: int
    """Sent, the snapshot included."""
    reused_objects: int
    reused_bytes: int
    repaired: int = 0
    """Objects that were there and damaged."""
    freshened: int = 0
    date: str | None = None
    expires: str | None = None
    pinned: str | None = None
    """Why; what was pinned before keeps its first reason."""
    dry_run: bool = False


def push(
    backend: Backend,
    cases: Iterable[CaseFiles],
    name: str,
    options: PushOptions,
    watchers: Watchers | None = None,
) -> Pushed:
    """Puts the cases into the store under a name."""
    references.check_name(name)
    watchers = watchers or Watchers()
    made = plan_upload(cases, options.workers, watchers.hashed)
    if not made.snapshot.cases:
        raise UsageError("expected cases to push, found none", next_command="karat push --help")
    _check(made)
    parts = {**made.parts(), made.digest: Part(made.digest, len(made.data))}
    if options.dry_run:
        missing = (
            compare_with_store(backend, parts, options.workers)
            if is_store(backend)
            else _all(parts)
        )
        return _told(backend, name, made, parts, missing, options)
    days = options.keep or options.retention
    by_age = lifecycle.covers(backend, days, options.again)
    create_store(backend)
    with lease(backend, "push", objects=tuple(sorted(parts)), times=options.times) as held:
        wait_for_collectors(backend, held, options.times, watchers.notice)
        missing = _sent(backend, made, parts, options, watchers)
        freshened = _freshened(backend, held, missing, options) if by_age else 0
        reference = _named(backend, held, made, name, options)
        pinned = None
        if options.pin is not None:
            pins.keep(backend, made.digest, made.snapshot, options.workers)
            pinned = pins.write(backend, made.digest, options.pin, name, held.now()).reason
    told = _told(backend, name, made, parts, missing, options)
    return msgspec.structs.replace(
        told,
        date=reference.date,
        expires=reference.expires,
        freshened=freshened,
        pinned=pinned,
    )


def _sent(
    backend: Backend, made: UploadPlan, parts: Mapping[str, Part], options: PushOptions, watchers: Watchers
) -> StoreComparison:  # fmt: skip
    missing = compare_with_store(backend, parts, options.workers)
    if options.verify_existing:
        bad = corrupt_objects(backend, missing.present, parts, options.workers)
        missing = msgspec.structs.replace(
            missing,
            damaged={**missing.damaged, **bad},
            present={d: one for d, one in missing.present.items() if d not in bad},
        )
    if watchers.sending is not None:
        lacked = (*missing.absent.values(), *missing.damaged.values())
        watchers.sending(sum(part.size for part in lacked))
    upload(backend, made, missing, options.workers, watchers.sent)
    if made.digest not in missing.present:
        put_object(backend, parts[made.digest], made.data, missing.damaged)
    return missing


def _freshened(
    backend: Backend, held: HeldLease, missing: StoreComparison, options: PushOptions
) -> int:
    """Where the bucket deletes by age: what is reused must outlive this reference."""
    oldest = held.now() - lifecycle.SLACK * 86400
    # What lies in `kept/` alone would be gone from under this reference when it is unpinned.
    old = [
        digest for digest, one in missing.present.items()
        if one.drawer == EXPIRING and one.modified < oldest
    ]  # fmt: skip
    renew_objects(backend, old, options.workers)
    return len(old)


def _named(
    backend: Backend, held: HeldLease, made: UploadPlan, name: str, options: PushOptions
) -> Reference:  # fmt: skip
    # Had the lease lapsed, a collector might have taken what this push found there.
    held.check()
    now = datetime.fromtimestamp(held.now(), UTC)
    days = options.keep or options.retention
    return references.write(
        backend,
        Reference(
            name=name,
            digest=made.digest,
            date=references.format_date(now),
            expires=references.format_date(now + timedelta(days=days)),
            keep=options.keep,
            cases=len(made.snapshot.cases),
            files=sum(len(case.files) for case in made.snapshot.cases),
            size=made.snapshot.size,
            karat=karat.__version__,
            ci=options.ci,
        ),
    )


def _check(made: UploadPlan) -> None:
    """What could not be pulled is not pushed."""
    try:
        snapshots.check(made.snapshot)
    except ValueError as error:
        raise CannotVerify(
            f"expected cases that can be pulled on every machine, found {error}",
            next_command="karat verify PLACE",
        ) from error


def _all(parts: Mapping[str, Part]) -> StoreComparison:
    return StoreComparison(absent=parts, damaged={}, present={})


def _told(
    backend: Backend, name: str, made: UploadPlan, parts: Mapping[str, Part], missing: StoreComparison,
    options: PushOptions,
) -> Pushed:  # fmt: skip
    sent = {**missing.absent, **missing.damaged}
    return Pushed(
        store=backend.url,
        name=name,
        digest=made.digest,
        cases=len(made.snapshot.cases),
        files=sum(len(case.files) for case in made.snapshot.cases),
        size=made.snapshot.size,
        new_objects=len(sent),
        new_bytes=sum(part.size for part in sent.values()),
        reused_objects=len(missing.present),
        reused_bytes=sum(parts[digest].size for digest in missing.present),
        repaired=len(missing.damaged),
        dry_run=options.dry_run,
    )


# DOC-HERE gathering: Gathering: the cases of a place that are fit to be pushed; one that is not stops the push.

Progress = Callable[[int, int], None]


def objections(place: Place, progress: Progress | None = None) -> tuple[Finding, ...]:
    """Why a place must not be pushed: everything about it that fails."""
    verified = verify_place(place, progress)
    return tuple(one for one in verified.findings if one.severity is Severity.FAIL)


def gather(place: Place) -> list[CaseFiles]:
    """Every case with its files, under the path that its manifest says; what is no case's stays behind."""
    owned, _ = divide(place)
    return [
        CaseFiles(path=case.path, files={name: case.extent(name) for name in owned[case.folder]})
        for case in cases(place)
    ]
