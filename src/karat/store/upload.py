"""Upload: the files of cases become a plan (a snapshot and the objects it needs), and what a store lacks is sent.

What goes into which object depends on the files alone, never on what a store has, so that the same cases
always have the same digest. Manifests change every night (they say when and where), so they are packed apart
from the rest: in runs of neighbouring cases, cut where the hash of a case's path says so, so that adding or removing a
case moves no other cut.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from functools import partial
from operator import itemgetter

import msgspec

from karat.bundles.extents import read_all
from karat.bundles.manifest import NAME as MANIFEST
from karat.findings import CannotVerify
from karat.store import snapshot as snapshots
from karat.store.backends import Absent, Backend
from karat.store.objects import EXPIRING, KEPT, FoundObject, Part, Watch, find, key_of
from karat.store.snapshot import CHUNK, Snapshot, SnapshotCase, SnapshotFile
from karat.system.hashes import sha256, sha256_hex
from karat.system.pool import in_parallel
from karat.tensors.tensor import Extent, read_blocks

SMALL = 64 << 10
_BLOCK = 1 << 20  # bytes that are read at once; a whole number of them makes a chunk
_LONGEST_RUN = 256
_CUT_BELOW = 16  # of 256: a run of manifests is 16 long on average
LARGE, LARGE_AT_ONCE = 4 << 20, 4  # Objects above this size, and how many of them are in memory at once.


class CaseFiles(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    files: Mapping[str, Extent]  # Name below the case's folder → its bytes.


class UploadUnit(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that are read together: one file in pieces, or a pack of small files."""

    parts: tuple[Part, ...]
    extents: tuple[Extent, ...]

    def objects(self, wanted: set[str]) -> Iterator[tuple[Part, bytes]]:
        """The wanted objects, read in one go from front to back."""
        if len(self.parts) == 1:
            if self.parts[0].sha256 in wanted:
                yield self.parts[0], b"".join(map(read_all, self.extents))
            return
        seekable = self.extents[0].seekable
        start = 0
        with closing(self.extents[0].open()) as reader:
            for part in self.parts:
                if seekable and part.sha256 not in wanted:
                    start += part.size
                    continue
                data = bytearray(part.size)
                reader.read_into(start, memoryview(data))
                start += part.size
                if part.sha256 in wanted:
                    yield part, bytes(data)


class UploadPlan(msgspec.Struct, frozen=True, kw_only=True):
    snapshot: Snapshot
    data: bytes  # The snapshot's own bytes.
    digest: str
    units: tuple[UploadUnit, ...]

    def parts(self) -> dict[str, Part]:
        """Every object needed but for the snapshot, once."""
        return {part.sha256: part for unit in self.units for part in unit.parts}


class _Member(msgspec.Struct, frozen=True, kw_only=True):
    case: int
    name: str
    extent: Extent


def plan_upload(cases: Iterable[CaseFiles], workers: int, watch: Watch | None = None) -> UploadPlan:
    ordered = sorted(cases, key=lambda case: case.path)
    groups = [*_runs(ordered), *_others(ordered)]
    tasks = [partial(_hashed, i, group, watch or (lambda _: None)) for i, group in enumerate(groups)]
    hashed = [one[1:] for one in sorted(in_parallel(tasks, workers), key=itemgetter(0))]
    packs: list[Part] = []
    numbers: dict[str, int] = {}
    files: list[list[SnapshotFile]] = [[] for _ in ordered]
    for group, (unit, contents) in zip(groups, hashed, strict=True):
        number, offset = None, 0
        if len(group) > 1:
            part = unit.parts[0]
            if part.sha256 not in numbers:
                numbers[part.sha256] = len(packs)
                packs.append(part)
            number = numbers[part.sha256]
        chunks = unit.parts if len(unit.parts) > 1 else ()
        for member, found in zip(group, contents, strict=True):
            files[member.case].append(
                SnapshotFile(
                    name=member.name, size=found.size, sha256=found.sha256, chunks=chunks, pack=number, offset=offset
                )
            )
            offset += found.size if number is not None else 0
    snapshot = Snapshot(
        size=sum(file.size for case in files for file in case),
        packs=tuple(packs),
        cases=tuple(
            SnapshotCase(path=case.path, files=tuple(sorted(found, key=lambda file: file.name)))
            for case, found in zip(ordered, files, strict=True)
        ),
    )
    data = snapshots.encode(snapshot)
    units = tuple(unit for unit, _ in hashed)
    return UploadPlan(snapshot=snapshot, data=data, digest=sha256_hex(data), units=units)


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


def _hashed(number: int, group: Sequence[_Member], watch: Watch) -> tuple[int, UploadUnit, tuple[Part, ...]]:
    """The group's number, what is sent for it, and the digest and size of each of its files."""
    extents = tuple(member.extent for member in group)
    if len(group) == 1 and extents[0].size > CHUNK:
        whole, chunks = _hashed_chunks(extents[0], watch)
        return number, UploadUnit(parts=chunks, extents=extents), (whole,)
    together = sha256()
    files = []
    for extent in extents:
        alone = sha256() if len(group) > 1 else together
        for block in read_blocks(extent, _BLOCK):
            together.update(block)
            if alone is not together:
                alone.update(block)
            watch(len(block))
        files.append(Part(alone.hexdigest(), extent.size))
    part = Part(together.hexdigest(), sum(file.size for file in files))
    return number, UploadUnit(parts=(part,), extents=extents), tuple(files)


def _hashed_chunks(extent: Extent, watch: Watch) -> tuple[Part, tuple[Part, ...]]:
    whole, chunks = sha256(), []
    current, filled = sha256(), 0
    for block in read_blocks(extent, _BLOCK):
        whole.update(block)
        current.update(block)
        filled += len(block)
        if filled == CHUNK:
            chunks.append(Part(current.hexdigest(), filled))
            current, filled = sha256(), 0
        watch(len(block))
    if filled:
        chunks.append(Part(current.hexdigest(), filled))
    return Part(whole.hexdigest(), extent.size), tuple(chunks)


class StoreComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What of a plan a store lacks, and what it has."""

    absent: Mapping[str, Part]
    damaged: Mapping[str, Part]  # Present with the wrong size.
    present: Mapping[str, FoundObject]

    @property
    def to_send(self) -> dict[str, Part]:
        return {**self.absent, **self.damaged}


def compare_with_store(backend: Backend, parts: Mapping[str, Part], workers: int) -> StoreComparison:
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
    """Objects whose content does not match their name; all are read."""

    def is_corrupt(part: Part, area: str) -> tuple[Part, bool]:
        try:
            return part, sha256_hex(backend.get(key_of(part.sha256, area))) != part.sha256
        except Absent:
            return part, True

    tasks = [partial(is_corrupt, parts[digest], found.area) for digest, found in present.items()]
    return {part.sha256: part for part, bad in in_parallel(tasks, workers) if bad}


def upload(
    backend: Backend, plan: UploadPlan, compared: StoreComparison, workers: int, watch: Watch | None = None
) -> None:
    """Send every absent or damaged object of the plan; the snapshot itself is the caller's to put."""
    slots = threading.BoundedSemaphore(LARGE_AT_ONCE)
    stopped = threading.Event()

    def send(unit: UploadUnit, digests: set[str]) -> None:
        large = max(part.size for part in unit.parts) > LARGE
        with slots if large else nullcontext():
            for part, data in unit.objects(digests):
                if stopped.is_set():
                    return
                if sha256_hex(data) != part.sha256:
                    said = "expected the files to stay as they were while they are pushed, found that one changed"
                    raise CannotVerify(said, next_command="karat verify PLACE")
                put_object(backend, part, data, compared.damaged)
                if watch is not None:
                    watch(len(data))

    # No object is sent twice, and large files go piece by piece.
    tasks: list[Callable[[], None]] = []
    left = set(compared.to_send)
    for unit in plan.units:
        digests = {part.sha256 for part in unit.parts} & left
        left -= digests
        if len(digests) > 1 and unit.extents[0].seekable:
            tasks += [partial(send, unit, {digest}) for digest in sorted(digests)]
        elif digests:
            tasks.append(partial(send, unit, digests))
    list(in_parallel(tasks, workers, stop=stopped.set))


def put_object(backend: Backend, part: Part, data: bytes, damaged: Collection[str]) -> None:
    """Write one object; a damaged one is replaced in both areas."""
    if part.sha256 not in damaged:
        backend.put(key_of(part.sha256), data)
        return
    for area in (EXPIRING, KEPT):
        key = key_of(part.sha256, area)
        if area == EXPIRING or backend.head(key) is not None:
            backend.put(key, data, replace=True)


def renew_objects(backend: Backend, digests: Sequence[str], workers: int) -> None:
    """Reset the age of reused objects, so that a bucket's own rule does not delete them too early."""

    def renew(digest: str) -> None:
        try:
            backend.touch(key_of(digest))
        except Absent:  # only the kept one was there; the other area is the one that expires
            backend.copy(key_of(digest, KEPT), key_of(digest))

    list(in_parallel([partial(renew, digest) for digest in digests], workers))
