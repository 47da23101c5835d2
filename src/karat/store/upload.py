"""Planning: from the files of cases to a snapshot and the objects that it needs; nothing is sent.

What goes into which object depends on the files alone, never on what a store has, so that the same cases
always have the same digest. Manifests change every night (they say when and where), so they are packed apart
from what does not: runs of neighbouring cases, cut where the hash of a case's path says so, so that a case
that comes or goes moves no other cut.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256

import msgspec

from karat.bundles.manifest import NAME as MANIFEST
from karat.findings import CannotVerify
from karat.store import snapshot as snapshots
from karat.store.backends import Absent, Backend
from karat.store.objects import EXPIRING, KEPT, FoundObject, Part, Watch, find, key_of, together
from karat.store.snapshot import CHUNK, Snapshot, SnapshotCase, SnapshotFile
from karat.system.pool import in_parallel
from karat.tensors.blocks import blocks
from karat.tensors.tensor import Extent, Reader

SMALL = 64 << 10
_BLOCK = 1 << 20
"""Bytes that are read at once; a whole number of them makes a chunk."""
_LONGEST_RUN = 256
_CUT_BELOW = 16
"""Of 256: a run of manifests is 16 long on average."""


class CaseFiles(msgspec.Struct, frozen=True, kw_only=True):
    """One case to be pushed."""

    path: str
    files: Mapping[str, Extent]
    """Name below the case's folder → its bytes."""


class UploadUnit(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that are read together: one file in pieces, or a pack of small files."""

    parts: tuple[Part, ...]
    extents: tuple[Extent, ...]

    def objects(self, wanted: set[str]) -> Iterator[tuple[Part, bytes]]:
        """The wanted objects, read in one go from front to back."""
        if len(self.parts) == 1:
            if self.parts[0].sha256 in wanted:
                yield self.parts[0], b"".join(_all_of(extent) for extent in self.extents)
            return
        seekable = self.extents[0].seekable
        reader = self.extents[0].open()
        start = 0
        try:
            for part in self.parts:
                if seekable and part.sha256 not in wanted:
                    start += part.size
                    continue
                data = _read(reader, start, part.size)
                start += part.size
                if part.sha256 in wanted:
                    yield part, data
        finally:
            reader.close()


class UploadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A push before it has begun."""

    snapshot: Snapshot
    data: bytes
    """The snapshot's own bytes."""
    digest: str
    units: tuple[UploadUnit, ...]

    def parts(self) -> dict[str, Part]:
        """Every object needed but for the snapshot, once."""
        return {part.sha256: part for unit in self.units for part in unit.parts}


class _Member(msgspec.Struct, frozen=True, kw_only=True):
    case: int
    name: str
    extent: Extent


class _Hashed(msgspec.Struct, frozen=True, kw_only=True):
    group: int
    unit: UploadUnit
    files: tuple[Part, ...]


def plan_upload(cases: Iterable[CaseFiles], workers: int, watch: Watch | None = None) -> UploadPlan:
    """Reads and hashes everything."""
    ordered = sorted(cases, key=lambda case: case.path)
    groups = [*_runs(ordered), *_others(ordered)]
    tasks = [partial(_hashed, i, group, watch) for i, group in enumerate(groups)]
    done: dict[int, _Hashed] = {}
    for one in together(tasks, workers):
        done[one.group] = one
    return _assembled(ordered, groups, [done[i] for i in range(len(groups))])


def _assembled(
    cases: Sequence[CaseFiles], groups: Sequence[Sequence[_Member]], hashed: Sequence[_Hashed]
) -> UploadPlan:
    packs: list[Part] = []
    numbers: dict[str, int] = {}
    files: list[list[SnapshotFile]] = [[] for _ in cases]
    for group, one in zip(groups, hashed, strict=True):
        number, offset = None, 0
        if len(group) > 1:
            part = one.unit.parts[0]
            if part.sha256 not in numbers:
                numbers[part.sha256] = len(packs)
                packs.append(part)
            number = numbers[part.sha256]
        chunks = one.unit.parts if len(one.unit.parts) > 1 else ()
        for member, found in zip(group, one.files, strict=True):
            files[member.case].append(
                SnapshotFile(name=member.name, size=found.size, sha256=found.sha256,
                             chunks=chunks, pack=number, offset=offset)
            )  # fmt: skip
            offset += found.size if number is not None else 0
    snapshot = Snapshot(
        size=sum(file.size for case in files for file in case),
        packs=tuple(packs),
        cases=tuple(
            SnapshotCase(path=case.path, files=tuple(sorted(found, key=lambda file: file.name)))
            for case, found in zip(cases, files, strict=True)
        ),
    )
    data = snapshots.encode(snapshot)
    units = tuple(one.unit for one in hashed)
    return UploadPlan(snapshot=snapshot, data=data, digest=snapshots.digest_of(data), units=units)


def _runs(cases: Sequence[CaseFiles]) -> Iterator[list[_Member]]:
    """Small manifests of neighbouring cases."""
    run: list[_Member] = []
    for i, case in enumerate(cases):
        extent = case.files.get(MANIFEST)
        if extent is None or extent.size >= SMALL:
            continue
        run.append(_Member(case=i, name=MANIFEST, extent=extent))
        cut = sha256(case.path.encode("utf-8", "surrogatepass")).digest()[0] < _CUT_BELOW
        if cut or len(run) == _LONGEST_RUN:
            yield run
            run = []
    if run:
        yield run


def _others(cases: Sequence[CaseFiles]) -> Iterator[list[_Member]]:
    """Of each case, the small files together and each larger one alone."""
    for i, case in enumerate(cases):
        small = []
        for name, extent in sorted(case.files.items()):
            member = _Member(case=i, name=name, extent=extent)
            if extent.size >= SMALL:
                yield [member]
            elif name != MANIFEST:
                small.append(member)
        if small:
            yield small


def _hashed(number: int, group: Sequence[_Member], watch: Watch | None) -> _Hashed:
    extents = tuple(member.extent for member in group)
    if len(group) == 1 and extents[0].size > CHUNK:
        whole, chunks = _hashed_chunks(extents[0], watch)
        return _Hashed(group=number, unit=UploadUnit(parts=chunks, extents=extents), files=(whole,))
    together = sha256()
    files = []
    for extent in extents:
        alone = sha256()
        for block in blocks(extent, _BLOCK):
            together.update(block)
            if len(group) > 1:
                alone.update(block)
            if watch is not None:
                watch(len(block))
        digest = alone if len(group) > 1 else together
        files.append(Part(digest.hexdigest(), extent.size))
    part = Part(together.hexdigest(), sum(file.size for file in files))
    return _Hashed(
        group=number, unit=UploadUnit(parts=(part,), extents=extents), files=tuple(files)
    )


def _hashed_chunks(extent: Extent, watch: Watch | None) -> tuple[Part, tuple[Part, ...]]:
    whole, chunks = sha256(), []
    current, filled = sha256(), 0
    for block in blocks(extent, _BLOCK):
        whole.update(block)
        current.update(block)
        filled += len(block)
        if filled == CHUNK:
            chunks.append(Part(current.hexdigest(), filled))
            current, filled = sha256(), 0
        if watch is not None:
            watch(len(block))
    if filled:
        chunks.append(Part(current.hexdigest(), filled))
    return Part(whole.hexdigest(), extent.size), tuple(chunks)


def _all_of(extent: Extent) -> bytes:
    reader = extent.open()
    try:
        return _read(reader, 0, extent.size)
    finally:
        reader.close()


def _read(reader: Reader, start: int, size: int) -> bytes:
    data = bytearray(size)
    reader.read_into(start, memoryview(data))
    return bytes(data)


# DOC-HERE uploading: Uploading: puts into a store what it lacks; an object is there whole or not at all.

_LARGE = 4 << 20
_MANY_LARGE = 4
"""So many large objects are in memory at once."""


class StoreComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What of a plan a store lacks, and what it has."""

    absent: Mapping[str, Part]
    damaged: Mapping[str, Part]
    """There, and of another size than they should be."""
    present: Mapping[str, FoundObject]


def compare_with_store(
    backend: Backend, parts: Mapping[str, Part], workers: int
) -> StoreComparison:
    """Compares a plan with a store by name and size."""
    found = find(backend, sorted(parts), workers)
    wrong = {d: part for d, part in parts.items() if d in found and found[d].size != part.size}
    return StoreComparison(
        absent={digest: part for digest, part in parts.items() if digest not in found},
        damaged=wrong,
        present={digest: one for digest, one in found.items() if digest not in wrong},
    )


def corrupt_objects(
    backend: Backend, present: Mapping[str, FoundObject], parts: Mapping[str, Part], workers: int
) -> dict[str, Part]:
    """Objects that are there and are not what their name says; all are read."""
    tasks = [
        partial(_is_rotten, backend, parts[digest], found.drawer)
        for digest, found in present.items()
    ]
    return {part.sha256: part for part, bad in together(tasks, workers) if bad}


def upload(
    backend: Backend,
    plan: UploadPlan,
    missing: StoreComparison,
    workers: int,
    watch: Watch | None = None,
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
    backend: Backend, part: Part, data: bytes, damaged: Mapping[str, FoundObject] | Collection[str]
) -> None:
    """One object; a damaged one is replaced wherever it lies."""
    if part.sha256 not in damaged:
        backend.put(key_of(part.sha256), data)
        return
    for drawer in (EXPIRING, KEPT):
        key = key_of(part.sha256, drawer)
        if drawer == EXPIRING or backend.head(key) is not None:
            backend.put(key, data, replace=True)


def renew_objects(backend: Backend, digests: Sequence[str], workers: int) -> None:
    """Makes reused objects young again, so that a bucket's own rule does not take them too early."""
    tasks = [partial(_freshen, backend, digest) for digest in digests]
    for _ in together(tasks, workers):
        pass


def _freshen(backend: Backend, digest: str) -> None:
    try:
        backend.touch(key_of(digest))
    except Absent:  # only the kept one was there; the other drawer is the one that expires
        backend.copy(key_of(digest, KEPT), key_of(digest))


def _shared_out(
    units: Sequence[UploadUnit], wanted: set[str]
) -> Iterator[tuple[UploadUnit, set[str]]]:
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
    backend: Backend, unit: UploadUnit, digests: set[str], missing: StoreComparison,
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
