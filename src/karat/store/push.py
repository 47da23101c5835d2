"""Push: cases become objects, a snapshot, and last of all a reference.

A push killed at any moment leaves objects that nothing names yet; the next push finds them and sends the rest. Nothing
of a push is visible before its reference is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

import karat
from karat.bundles.cases import divide
from karat.bundles.extents import MemoryExtent
from karat.bundles.manifest import NAME as MANIFEST, is_sealed
from karat.bundles.places import Place
from karat.bundles.verify import verify_place
from karat.findings import CannotVerify, Finding, KaratError, Severity, UsageError
from karat.report.words import byte_size, count
from karat.store import references, snapshot as snapshots
from karat.store.backends import Backend, create_store, is_store, lifecycle
from karat.store.backends.lifecycle import AppliedRule
from karat.store.leases import LeaseTimes, lease, wait_for_collectors
from karat.store.objects import BLAKE3, Part, Watch, is_kept, name_of
from karat.store.references import SnapshotReference
from karat.store.snapshot import Snapshot
from karat.store.upload import (
    CaseFiles,
    StoreComparison,
    UploadPlan,
    compare_with_store,
    divided,
    plan_upload,
    put_object,
    renew_objects,
    upload,
)
from karat.system import signatures
from karat.system.command import Command
from karat.tensors.tensor import Damaged, Extent


class PushOptions(msgspec.Struct, frozen=True, kw_only=True):
    retention: int = 90
    keep: int | None = None
    sign: Path | None = None  # The SSH key to sign the reference with.
    dry_run: bool = False
    workers: int = 16
    ci: Mapping[str, str] = msgspec.field(default_factory=dict)
    times: LeaseTimes = msgspec.field(default_factory=LeaseTimes)
    again: Command = Command("karat", "push", "PLACE", "NAME")  # The command that was typed, for advice to build upon.


class Watchers(msgspec.Struct, frozen=True, kw_only=True):
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
    signed: bool = False
    dry_run: bool = False


class Refused(Exception):  # noqa: N818 - a state of the place
    """A place that must not be pushed, and why."""

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        super().__init__()
        self.findings = findings


class _Incomplete(Exception):  # noqa: N818 - a state of the store
    """The store lacks an object of an earlier snapshot."""


def objections(
    place: Place, progress: Callable[[int, int], None] | None = None, without: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Why a place must not be pushed: everything that fails verification; nothing is read of cases in some folders."""
    verified = verify_place(place, progress, without)
    return tuple(one for one in verified.findings if one.severity is Severity.FAIL)


def push_place(
    backend: Backend,
    place: Place,
    name: str,
    options: PushOptions,
    watchers: Watchers | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Pushed:
    """Push the cases of a place, all verified; those that the newest push of the name has are in the store, and not read."""
    before = None
    with suppress(KaratError):  # none that can be read: a push mends it
        reference = references.resolve(backend, name)
        newest = snapshots.load(backend, reference.digest, safe=False)  # The one that is made of it is checked.
        before = newest if newest.schema == snapshots.SCHEMA else None
    while True:
        gathered = gather(place, before)
        known = {folder for folder, case in gathered.items() if case.known is not None}
        if refused := objections(place, progress, known):
            raise Refused(refused)
        try:
            return push(backend, gathered.values(), name, options, watchers, before)
        except _Incomplete:
            before = None  # then everything is read


class _Path(msgspec.Struct):
    path: str


def gather(place: Place, before: Snapshot | None = None) -> dict[str, CaseFiles]:
    """Folder → case, under the path in its manifest; files that belong to no case are left out."""
    earlier = {case.path: case for case in before.cases} if before is not None else {}
    found = {}
    for folder, files in sorted(divide(place)[0].items()):
        prefix = f"{folder}/" if folder else ""
        extents: dict[str, Extent] = {file: place.extent(f"{prefix}{file}") for file in files}
        case = CaseFiles(path=folder, files=extents)
        with suppress(Damaged, ValueError, RecursionError):  # whoever verifies it says what is wrong
            data = place.read(f"{prefix}{MANIFEST}")
            extents[MANIFEST] = MemoryExtent(data=data, name=MANIFEST)
            path = msgspec.json.decode(data, type=_Path).path
            known = earlier.get(path)
            if known is not None:
                # As it was, if the manifest says the same of the same files: it has the digest of every byte of them.
                there = {file.name: file for file in known.files}
                sizes = {**files, MANIFEST: there[MANIFEST].size if MANIFEST in there else None}
                same = is_sealed(data) and {name: file.size for name, file in there.items()} == sizes
                same = same and name_of(divided(data)[0], BLAKE3) == there[MANIFEST].digest
                known = known if same else None
            case = CaseFiles(path=path, files=extents, known=known)
        found[folder] = case
    return found


def push(
    backend: Backend,
    cases: Iterable[CaseFiles],
    name: str,
    options: PushOptions,
    watchers: Watchers | None = None,
    before: Snapshot | None = None,
) -> Pushed:
    references.check_name(name)
    watchers = watchers or Watchers()
    if options.sign is not None:
        # A key that cannot sign is better known before gigabytes are sent.
        signatures.sign(b"", options.sign, references.NAMESPACE)
    plan = plan_upload(cases, options.workers, before)
    if not plan.snapshot.cases:
        raise UsageError("expected cases to push, found none", next_command="karat push --help")
    try:
        snapshots.check(plan.snapshot)
    except ValueError as error:
        said = f"expected cases that can be pulled on every machine, found {error}"
        raise CannotVerify(said, next_command="karat verify PLACE") from error
    parts = {**plan.parts(), plan.digest: Part(plan.digest, len(plan.data))}
    if options.dry_run:
        compared = StoreComparison(to_send=parts)
        if is_store(backend):
            compared = compare_with_store(backend, parts, options.workers)
        return msgspec.structs.replace(_result(backend, name, plan, parts, compared), dry_run=True)
    days = options.keep or options.retention
    by_age = lifecycle.covers(backend, days, options.again)
    create_store(backend)
    with lease(backend, "push", objects=tuple(sorted(parts)), times=options.times) as held:
        wait_for_collectors(backend, held, options.times, watchers.notice)
        compared = compare_with_store(backend, parts, options.workers)
        sendable = {part.digest for unit in plan.units for part in unit.parts} | {plan.digest}
        if not compared.to_send.keys() <= sendable:
            raise _Incomplete
        if watchers.sending is not None:
            watchers.sending(sum(part.size for part in compared.to_send.values()))
        upload(backend, plan, compared, options.workers, watchers.sent)
        if plan.digest not in compared.present:
            put_object(backend, parts[plan.digest], plan.data, compared.damaged)
        old: list[str] = []
        if by_age:
            # What is reused must outlive this reference. An object in `kept/` alone would be gone once it is unpinned.
            oldest = held.now() - lifecycle.SLACK * 86400
            old = [digest for digest, one in compared.present.items() if not is_kept(one) and one.modified < oldest]
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
    signed = options.sign is not None
    return msgspec.structs.replace(told, date=made.date, expires=made.expires, freshened=len(old), signed=signed)


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


def lines(pushed: Pushed, applied: AppliedRule | None) -> Iterator[str]:
    verb = "would push" if pushed.dry_run else "pushed"
    yield f"{verb} {pushed.name} to {pushed.store}"
    yield f"  sha256:{pushed.digest}"
    yield f"  {count(pushed.cases, 'case')}, {count(pushed.files, 'file')}, {byte_size(pushed.size)}"
    yield f"  new: {count(pushed.new_objects, 'object')}, {byte_size(pushed.new_bytes)}"
    yield f"  there already: {count(pushed.reused_objects, 'object')}, {byte_size(pushed.reused_bytes)}"
    if pushed.signed:
        yield "  signed"
    if pushed.repaired:
        yield f"  replaced, since they were damaged: {count(pushed.repaired, 'object')}"
    if pushed.freshened:
        yield f"  renewed for the bucket's rule: {count(pushed.freshened, 'object')}"
    if pushed.expires:
        yield f"  kept until {pushed.expires[:10]}"
    if applied is not None:
        done = "written" if applied.changed else "as it was"
        yield f"  rule {applied.id} of the bucket, {count(applied.days, 'day')}: {done}"
