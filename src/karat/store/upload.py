"""Upload: the files of cases become a plan (a snapshot and the objects it needs), and what a store lacks is sent.

What goes into which object depends on the files alone, never on what a store has, so that the same cases
always have the same digest. Manifests are packed apart from the rest: in runs of neighbouring cases, cut where the hash of a
case's path says so, so that adding or removing a case moves no other cut. When and where a case was captured goes into the
snapshot, so that what did not change since an earlier snapshot is known by its manifest, and not read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from functools import partial
from operator import itemgetter

import msgspec

from karat.bundles.extents import FileExtent, MemoryExtent, read_all
from karat.bundles.manifest import NAME as MANIFEST
from karat.findings import CannotVerify
from karat.store import snapshot as snapshots
from karat.store.backends import Absent, Backend, StoredObject
from karat.store.backends.folder import FolderBackend
from karat.store.objects import BLAKE3, EXPIRING, KEPT, Part, Watch, find, key_of, name_of, name_of_range
from karat.store.snapshot import CHUNK, Snapshot, SnapshotCase, SnapshotFile, Tail
from karat.system.hashes import sha256, sha256_hex, start_hash
from karat.system.pool import in_parallel
from karat.tensors.tensor import Extent, read_blocks, read_range

SMALL = 64 << 10
_LONGEST_RUN = 256
_CUT_BELOW = 16  # of 256: a run of manifests is 16 long on average
LARGE, LARGE_AT_ONCE = 4 << 20, 4  # Objects above this size, and how many of them are in memory at once.


class CaseFiles(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    files: Mapping[str, Extent]  # Name below the case's folder → its bytes.
    known: SnapshotCase | None = None  # As an earlier snapshot has it, whose manifest says the same of its files.


class UploadUnit(msgspec.Struct, frozen=True, kw_only=True):
    """Objects that are read together: one file in pieces, or a pack of small files."""

    parts: tuple[Part, ...]
    extents: tuple[Extent, ...]

    def objects(self, wanted: set[str]) -> Iterator[tuple[Part, bytes | memoryview]]:
        """The wanted objects, read in one go from front to back."""
        if len(self.parts) == 1:
            if self.parts[0].digest in wanted:
                yield self.parts[0], b"".join(map(read_all, self.extents))
            return
        seekable, start = self.extents[0].seekable, 0
        with closing(self.extents[0].open()) as reader:
            for part in self.parts:
                if not seekable or part.digest in wanted:
                    data = memoryview(bytearray(part.size))
                    reader.read_into(start, data)
                    if part.digest in wanted:
                        yield part, data
                start += part.size

    def ranges(self, file: FileExtent, wanted: set[str]) -> Iterator[tuple[Part, FileExtent]]:
        """The wanted objects as ranges of the file."""
        start = file.start
        for part in self.parts:
            if part.digest in wanted:
                yield part, msgspec.structs.replace(file, start=start, size=part.size)
            start += part.size


class UploadPlan(msgspec.Struct, frozen=True, kw_only=True):
    snapshot: Snapshot
    data: bytes  # The snapshot's own bytes.
    digest: str
    units: tuple[UploadUnit, ...]  # All but what an earlier snapshot has.

    def parts(self) -> dict[str, Part]:
        """Every object needed but for the snapshot, once."""
        return {part.digest: part for part in self.snapshot.parts()}


class _Member(msgspec.Struct, frozen=True, kw_only=True):
    case: int
    name: str
    extent: Extent  # What is stored of it.
    known: SnapshotFile | None = None
    tail: Tail | None = None
    tail_size: int = 0


_Hashed = tuple[Part | None, list[tuple[Part, ...]]]  # The pack of a group, and the pieces of each of its files.
_Task = Callable[[], tuple[int, int, _Hashed]]  # Number of a group, where in its file, and what was found.


def plan_upload(cases: Iterable[CaseFiles], workers: int, before: Snapshot | None = None) -> UploadPlan:
    """What to send for the cases; `before` is the snapshot that known ones are of."""
    ordered = sorted(cases, key=lambda case: case.path)
    tails: dict[str, int] = {}
    groups = [*_runs(ordered, tails), *_others(ordered)]
    found = {i: _found_before(group, before) for i, group in enumerate(groups)}
    new = [i for i, known in found.items() if known is None]
    tasks = [task for i in new for task in _tasks(i, groups[i])]
    for i, _, hashed in sorted(in_parallel(tasks, workers), key=itemgetter(0, 1)):
        sooner = found[i]
        found[i] = hashed if sooner is None else (None, [sooner[1][0] + hashed[1][0]])
    packs: dict[Part, int] = {}
    files: list[list[SnapshotFile]] = [[] for _ in ordered]
    for i, group in enumerate(groups):
        pack, contents = found[i] or (None, [])
        number, offset = None if pack is None else packs.setdefault(pack, len(packs)), 0
        for member, parts in zip(group, contents, strict=True):
            stored = sum(part.size for part in parts)
            file = SnapshotFile(
                name=member.name,
                size=stored + member.tail_size,
                digest=parts[0].digest if len(parts) == 1 else "",
                chunks=parts if len(parts) > 1 else (),
                pack=number,
                offset=offset,
                tail=member.tail,
            )
            files[member.case].append(file)
            offset += stored if number is not None else 0
    snapshot = Snapshot(
        size=sum(file.size for case in files for file in case),
        packs=tuple(packs),
        tails=tuple(tails),
        cases=tuple(
            SnapshotCase(path=case.path, files=tuple(sorted(found, key=lambda file: file.name)))
            for case, found in zip(ordered, files, strict=True)
        ),
    )
    data = snapshots.encode(snapshot)
    units = []
    for i in new:
        pack, contents = found[i] or (None, [])
        extents = tuple(member.extent for member in groups[i])
        units.append(UploadUnit(parts=contents[0] if pack is None else (pack,), extents=extents))
    return UploadPlan(snapshot=snapshot, data=data, digest=sha256_hex(data), units=tuple(units))


def divided(manifest: bytes) -> tuple[bytes, str, str]:
    """What of a manifest stays from night to night; then where it was captured, and then when, with the seal."""
    where, when = manifest.find(b'\n "environment": '), manifest.find(b'\n "created": ')
    if 0 <= where < when:
        with suppress(UnicodeDecodeError):
            return manifest[:where], manifest[where:when].decode(), manifest[when:].decode()
    return manifest, "", ""


def _runs(cases: Sequence[CaseFiles], tails: dict[str, int]) -> Iterator[list[_Member]]:
    """Small manifests of neighbouring cases; `tails` is filled with what many end with."""
    run: list[_Member] = []
    for i, case in enumerate(cases):
        extent = case.files.get(MANIFEST)
        if extent is None or extent.size >= SMALL:
            continue
        data, shared, own = divided(read_all(extent))
        member = _Member(
            case=i, name=MANIFEST, extent=MemoryExtent(data=data, name=MANIFEST), known=_known(case, MANIFEST)
        )
        if shared:
            tail = Tail(len(data), tails.setdefault(shared, len(tails)), own)
            member = msgspec.structs.replace(member, tail=tail, tail_size=extent.size - len(data))
        run.append(member)
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
            if extent.size < SMALL and name == MANIFEST:
                continue
            member = _Member(case=i, name=name, extent=extent, known=_known(case, name))
            if extent.size >= SMALL:
                yield [member]
            else:
                small.append(member)
        if small:
            yield small


def _known(case: CaseFiles, name: str) -> SnapshotFile | None:
    return None if case.known is None else next((file for file in case.known.files if file.name == name), None)


def _found_before(group: Sequence[_Member], before: Snapshot | None) -> _Hashed | None:
    """What hashing the group would give, if an earlier snapshot has just these files together."""
    known = [member.known for member in group if member.known is not None]
    if before is None or len(known) < len(group):
        return None
    number, contents = known[0].pack, [snapshots.pieces(file) for file in known]
    if len(group) == 1:
        return (None, contents) if number is None else None
    together = number is not None and all(file.pack == number for file in known)
    if not together or sum(file.stored for file in known) != before.packs[number or 0].size:
        return None
    return before.packs[number or 0], contents


def _tasks(number: int, group: Sequence[_Member]) -> Iterator[_Task]:
    """What hashes a group; the pieces of a large file each on its own, so that all cores have something to do."""
    extent = group[0].extent
    starts = range(0, max(1, extent.size), CHUNK)
    if len(group) > 1:
        yield partial(_hashed_pack, number, group)
    elif extent.seekable:
        yield from (partial(_hashed_chunks, number, extent, [at]) for at in starts)
    else:
        yield partial(_hashed_chunks, number, extent, starts)


def _hashed_pack(number: int, group: Sequence[_Member]) -> tuple[int, int, _Hashed]:
    together, files = start_hash("blake3"), list[tuple[Part, ...]]()
    for member in group:
        alone = start_hash("blake3")
        for block in read_blocks(member.extent):
            together.update(block)
            alone.update(block)
        files.append((Part(BLAKE3 + alone.hexdigest(), member.extent.size),))
    pack = Part(BLAKE3 + together.hexdigest(), sum(member.extent.size for member in group))
    return number, 0, (pack, files)


def _hashed_chunks(number: int, extent: Extent, starts: Sequence[int]) -> tuple[int, int, _Hashed]:
    parts = []
    with closing(extent.open()) as reader:
        for start in starts:
            running, size = start_hash("blake3"), min(CHUNK, extent.size - start)
            for block in read_range(reader, start, size):
                running.update(block)
            parts.append(Part(BLAKE3 + running.hexdigest(), size))
    return number, starts[0], (None, [tuple(parts)])


class StoreComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What of a plan a store lacks, and what it has."""

    to_send: Mapping[str, Part]
    damaged: frozenset[str] = frozenset()  # Of what is to be sent: present with the wrong size.
    present: Mapping[str, StoredObject] = {}


def compare_with_store(backend: Backend, parts: Mapping[str, Part], workers: int) -> StoreComparison:
    found = find(backend, sorted(parts), workers)
    present = {digest: one for digest, one in found.items() if one.size == parts[digest].size}
    lacking = {digest: part for digest, part in parts.items() if digest not in present}
    return StoreComparison(to_send=lacking, damaged=frozenset(found.keys() - present.keys()), present=present)


def upload(
    backend: Backend, plan: UploadPlan, compared: StoreComparison, workers: int, watch: Watch | None = None
) -> None:
    """Send every absent or damaged object of the plan; the snapshot itself is the caller's to put."""
    slots = threading.BoundedSemaphore(LARGE_AT_ONCE)
    stopped = threading.Event()

    def send(unit: UploadUnit, digests: set[str]) -> None:
        # The plain file that holds all of it, if one does, which a folder can share.
        first, alone = unit.extents[0], len(unit.extents) == 1 and isinstance(backend, FolderBackend)
        file = first if alone and isinstance(first, FileExtent) else None
        large = file is None and max(part.size for part in unit.parts) > LARGE
        with slots if large else nullcontext():
            for part, data in unit.objects(digests) if file is None else unit.ranges(file, digests):
                if stopped.is_set():
                    return
                put_object(backend, part, data, compared.damaged)
                if watch is not None:
                    watch(part.size)

    # No object is sent twice, and large files go piece by piece.
    tasks: list[Callable[[], None]] = []
    left = set(compared.to_send)
    for unit in plan.units:
        digests = {part.digest for part in unit.parts} & left
        left -= digests
        if len(digests) > 1 and unit.extents[0].seekable:
            tasks += [partial(send, unit, {digest}) for digest in sorted(digests)]
        elif digests:
            tasks.append(partial(send, unit, digests))
    list(in_parallel(tasks, workers, stop=stopped.set))


def put_object(backend: Backend, part: Part, data: bytes | memoryview | FileExtent, damaged: Collection[str]) -> None:
    """Write one object, if it still is what it was; a damaged one is replaced in both areas."""

    def require(found: str) -> None:
        if found != part.digest:
            said = "expected the files to stay as they were while they are pushed, found that one changed"
            raise CannotVerify(said, next_command="karat verify PLACE")

    def check(handle: int) -> None:
        require(name_of_range(handle, 0, part.size, part.digest))

    replace = part.digest in damaged
    for area in (EXPIRING, KEPT):
        key = key_of(part.digest, area)
        if area == KEPT and (not replace or backend.head(key) is None):
            continue
        if isinstance(data, FileExtent) and isinstance(backend, FolderBackend):
            backend.put_file(key, data, check, replace=replace)
        elif not isinstance(data, FileExtent):
            require(name_of(data, part.digest))
            backend.put(key, data, replace=replace)


def renew_objects(backend: Backend, digests: Sequence[str], workers: int) -> None:
    """Reset the age of reused objects, so that a bucket's own rule does not delete them too early."""

    def renew(digest: str) -> None:
        try:
            backend.touch(key_of(digest))
        except Absent:  # only the kept one was there; the other area is the one that expires
            backend.copy(key_of(digest, KEPT), key_of(digest))

    list(in_parallel([partial(renew, digest) for digest in digests], workers))
