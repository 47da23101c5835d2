"""Push: cases become objects, a snapshot, and last of all a reference.

A push killed at any moment leaves objects that nothing names yet; the next push finds them and sends the rest. Nothing
of a push is visible before its reference is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

import karat
from karat.bundles.cases import cases
from karat.bundles.places import Place
from karat.bundles.verify import verify_place
from karat.findings import CannotVerify, Finding, Severity, UsageError
from karat.store import pins, references, snapshot as snapshots
from karat.store.backends import Backend, create_store, is_store, lifecycle
from karat.store.leases import LeaseTimes, lease, wait_for_collectors
from karat.store.objects import EXPIRING, Part, Watch
from karat.store.references import SnapshotReference
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
from karat.system import signatures
from karat.system.command import Command


class PushOptions(msgspec.Struct, frozen=True, kw_only=True):
    retention: int = 90
    keep: int | None = None
    pin: str | None = None  # The reason for keeping it for good.
    sign: Path | None = None  # The SSH key to sign the reference with.
    verify_existing: bool = False
    dry_run: bool = False
    workers: int = 16
    ci: Mapping[str, str] = msgspec.field(default_factory=dict)
    times: LeaseTimes = msgspec.field(default_factory=LeaseTimes)
    again: Command = Command("karat", "push", "PLACE", "NAME")  # The command that was typed, for advice to build upon.


class Watchers(msgspec.Struct, frozen=True, kw_only=True):
    hashed: Watch | None = None
    sending: Callable[[int], None] | None = None  # Called with the number of bytes that will be sent.
    sent: Watch | None = None
    notice: Callable[[str], None] | None = None


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    name: str
    digest: str
    cases: int
    files: int
    size: int
    new_objects: int
    new_bytes: int  # Sent, including the snapshot.
    reused_objects: int
    reused_bytes: int
    repaired: int = 0  # Objects that existed and were damaged.
    freshened: int = 0
    date: str | None = None
    expires: str | None = None
    pinned: str | None = None  # The reason; what was pinned before keeps its first one.
    signed: bool = False
    dry_run: bool = False


def objections(place: Place, progress: Callable[[int, int], None] | None = None) -> tuple[Finding, ...]:
    """Why a place must not be pushed: everything that fails verification."""
    verified = verify_place(place, progress)
    return tuple(one for one in verified.findings if one.severity is Severity.FAIL)


def gather(place: Place) -> list[CaseFiles]:
    """Every case under the path in its manifest; files that belong to no case are left out."""
    return [CaseFiles(path=c.path, files={name: c.extent(name) for name in c.files}) for c in cases(place)]


def push(
    backend: Backend, cases: Iterable[CaseFiles], name: str, options: PushOptions, watchers: Watchers | None = None
) -> Pushed:
    references.check_name(name)
    watchers = watchers or Watchers()
    if options.sign is not None:
        # A key that cannot sign is better known before gigabytes are sent.
        signatures.sign(b"", options.sign, references.NAMESPACE)
    plan = plan_upload(cases, options.workers, watchers.hashed)
    if not plan.snapshot.cases:
        raise UsageError("expected cases to push, found none", next_command="karat push --help")
    try:
        snapshots.check(plan.snapshot)
    except ValueError as error:
        said = f"expected cases that can be pulled on every machine, found {error}"
        raise CannotVerify(said, next_command="karat verify PLACE") from error
    parts = {**plan.parts(), plan.digest: Part(plan.digest, len(plan.data))}
    if options.dry_run:
        compared = StoreComparison(absent=parts, damaged={}, present={})
        if is_store(backend):
            compared = compare_with_store(backend, parts, options.workers)
        return msgspec.structs.replace(_result(backend, name, plan, parts, compared), dry_run=True)
    days = options.keep or options.retention
    by_age = lifecycle.covers(backend, days, options.again)
    create_store(backend)
    with lease(backend, "push", objects=tuple(sorted(parts)), times=options.times) as held:
        wait_for_collectors(backend, held, options.times, watchers.notice)
        compared = compare_with_store(backend, parts, options.workers)
        if options.verify_existing:
            bad = corrupt_objects(backend, compared.present, parts, options.workers)
            compared = msgspec.structs.replace(
                compared,
                damaged={**compared.damaged, **bad},
                present={d: one for d, one in compared.present.items() if d not in bad},
            )
        if watchers.sending is not None:
            watchers.sending(sum(part.size for part in compared.to_send.values()))
        upload(backend, plan, compared, options.workers, watchers.sent)
        if plan.digest not in compared.present:
            put_object(backend, parts[plan.digest], plan.data, compared.damaged)
        old: list[str] = []
        if by_age:
            # What is reused must outlive this reference. An object in `kept/` alone would be gone once it is unpinned.
            oldest = held.now() - lifecycle.SLACK * 86400
            old = [digest for digest, one in compared.present.items() if one.area == EXPIRING and one.modified < oldest]
            renew_objects(backend, old, options.workers)
        # Had the lease lapsed, a collector might have deleted what this push found there.
        held.check()
        now = datetime.fromtimestamp(held.now(), UTC)
        told = _result(backend, name, plan, parts, compared)
        reference = SnapshotReference(
            name=name,
            digest=plan.digest,
            date=references.format_date(now),
            expires=references.format_date(now + timedelta(days=days)),
            keep=options.keep,
            cases=told.cases,
            files=told.files,
            size=told.size,
            karat=karat.__version__,
            ci=options.ci,
        )
        made = references.write(backend, reference, options.sign)
        pinned = None
        if options.pin is not None:
            pins.keep(backend, plan.digest, plan.snapshot, options.workers)
            pinned = pins.write(backend, plan.digest, options.pin, name, held.now()).reason
    signed = options.sign is not None
    done = msgspec.structs.replace(told, date=made.date, expires=made.expires, freshened=len(old))
    return msgspec.structs.replace(done, pinned=pinned, signed=signed)


def _result(backend: Backend, name: str, plan: UploadPlan, parts: dict[str, Part], compared: StoreComparison) -> Pushed:
    return Pushed(
        store=backend.url,
        name=name,
        digest=plan.digest,
        cases=len(plan.snapshot.cases),
        files=sum(len(case.files) for case in plan.snapshot.cases),
        size=plan.snapshot.size,
        new_objects=len(compared.to_send),
        new_bytes=sum(part.size for part in compared.to_send.values()),
        reused_objects=len(compared.present),
        reused_bytes=sum(parts[digest].size for digest in compared.present),
        repaired=len(compared.damaged),
    )
