"""Verify every byte of every case against its manifest, and every file against all manifests.

Statistics are not computed again: they follow from the bytes, which the digests vouch for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from posixpath import basename, dirname
from typing import Any

import msgspec

from karat.bundles import index
from karat.bundles.cases import FILES, RAW, Case, cases, divide, finding
from karat.bundles.extents import require_file
from karat.bundles.manifest import FORMAT_1, TensorRecord
from karat.bundles.places import Place
from karat.bundles.tensor_files import FIRST, FIRST_1, LARGEST, SMALL, TABLE, encode_rows, row_of
from karat.findings import Finding
from karat.system.hashes import sha256
from karat.system.processes import available_cores
from karat.tensors.digests import PIECE, TensorDigest, digest_of, hash_of, require_digest
from karat.tensors.tensor import Damaged, read_blocks, read_range

Progress = Callable[[int, int], None]
"""Called with the bytes verified so far and those to verify in all, from any thread, one at a time."""
_Count = Callable[[int], None]
_Map = Callable[..., Iterable[Any]]
_Piece = tuple[Case, Callable[[_Count, _Map], None]]  # Something of a case; what it maps may run on other threads.


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    cases: int
    tensors: int
    findings: tuple[Finding, ...]


def verify_case(case: Case) -> tuple[Finding, ...]:
    """Everything that is wrong with one case; every byte of it is read."""
    return (*case.findings, *_run(_pieces(case), lambda _: None))


def verify_place(place: Place, progress: Progress | None = None, without: Collection[str] = ()) -> Verification:
    """Everything that is wrong with a place: its index, files of no case, and its cases but those in some folders."""
    from concurrent.futures import ThreadPoolExecutor

    found = cases(place, without)
    findings = [*place.findings(), *strays(place)]
    findings += [one for case in found for one in case.findings]
    if not found and not findings and not without:
        message = "expected captured cases, found none; nothing was verified"
        findings.append(finding("nothing-compared", place.name, message))
    # A zip with an index is read twice: as an archive, and as cases.
    files = place.files()
    total = sum(files.values()) * (2 if place.kind == "zip" and index.NAME in files else 1)
    done, lock = 0, threading.Lock()

    def count(read: int) -> None:
        nonlocal done
        if progress is not None:
            with lock:
                done = min(total, done + read)
                progress(done, total)

    def check_index() -> tuple[Finding, ...]:
        try:
            packed = index.read(place)
            return () if packed is None else tuple(index.check(place, packed, progress=count))
        except Damaged as damage:
            return (finding("bundle-damaged", index.NAME, str(damage)),)

    # An archive's one hash is over all of it and cannot be shared out; the tensors' can, meanwhile.
    with ThreadPoolExecutor(1) as beside:
        indexed = beside.submit(check_index)
        damaged = _run((piece for case in found for piece in _pieces(case)), count)
        findings += (*indexed.result(), *damaged)
    tensors = sum(len(case.manifest.tensors) for case in found)
    return Verification(cases=len(found), tensors=tensors, findings=tuple(findings))


def strays(place: Place) -> Iterator[Finding]:
    """Files of no case; a folder that has all but a manifest is a case that lost it."""
    lost = set()
    for path in divide(place)[1]:
        folder = dirname(path)
        if path == index.NAME:
            continue
        if basename(folder) in {RAW, "program"}:
            folder = dirname(folder)
        elif basename(path) not in FILES.values():
            yield finding("unexpected-file", path, "expected only cases and an index, found a file of neither")
            continue
        lost.add(folder)
    for folder in sorted(lost):
        yield finding("incomplete-case", folder or place.name, "expected a manifest beside its files, found none")


def _run(pieces: Iterable[_Piece], count: _Count) -> tuple[Finding, ...]:
    """Verify the pieces on a few threads; hashing and reading both release the interpreter's lock."""
    from concurrent.futures import ThreadPoolExecutor

    def verify(piece: _Piece) -> Finding | None:
        case, run = piece
        try:
            run(count, beside.map)
        except Damaged as damage:
            return finding("bundle-damaged", case.path, str(damage))
        return None

    threads = min(8, available_cores())
    with ThreadPoolExecutor(threads) as beside, ThreadPoolExecutor(threads) as pool:
        return tuple(found for found in pool.map(verify, pieces) if found is not None)


def _pieces(case: Case) -> Iterator[_Piece]:
    """A piece per tensor; per file if it is small, or packed so that it must be read in order.

    Nothing of a case whose names or sizes are wrong already: its findings are enough.
    """
    if any(one.kind != "unexpected-file" for one in case.findings):
        return
    for file in dict.fromkeys(record.file for record in case.manifest.tensors):
        records = [record for record in case.manifest.tensors if record.file == file]
        seekable = False
        with suppress(Damaged):  # said once, when the file is verified
            case.header(file)
            seekable = case.files[file] > SMALL and case.extent(file).seekable
        if seekable:
            yield from ((case, partial(_verify_tensor, case, record)) for record in records)
        else:
            yield case, partial(_verify_tensors, case, file, records)
    raws = [record for record in case.manifest.tensors if record.raw is not None]
    if raws:
        yield case, partial(_verify_raw, case, raws)
    program = case.manifest.program
    if program is not None:

        def verify_program(count: _Count, _: _Map) -> None:
            name, extent = case.name_of(program.file), case.extent(program.file)
            require_file(extent, program.digest, name, lambda block: count(len(block)))

        yield case, verify_program


def _verify_tensor(case: Case, record: TensorRecord, count: _Count, run: _Map) -> None:
    """A tensor that can be read anywhere; a large one on all threads."""
    each = run if record.nbytes > PIECE else map
    found = digest_of(case.tensor(record.name), hash_of(record.digest), run=each, watch=count)
    require_digest(f"{case.name_of(record.file)}, {record.name}", record.digest, found)


def _verify_tensors(case: Case, file: str, records: list[TensorRecord], count: _Count, _: _Map) -> None:
    """All tensors of a packed file, from its front to its back."""
    header = case.header(file)
    with closing(case.extent(file).open()) as reader:
        for record in sorted(records, key=lambda r: header.entries[r.name].data_offsets):
            begin, end = header.entries[record.name].data_offsets
            digest = _start(record)
            for block in read_range(reader, header.start + begin, end - begin):
                digest.update(block)
                count(len(block))
            require_digest(f"{case.name_of(file)}, {record.name}", record.digest, digest.text())


def _verify_raw(case: Case, records: list[TensorRecord], count: _Count, _: _Map) -> None:
    """The table must say what the manifest says, and each file what the table says."""
    name = case.name_of(f"{RAW}/{TABLE}")
    data = case.place.read(name, LARGEST)
    rows, first_format = [], case.manifest.schema == FORMAT_1
    for record in records:
        # The table is not sealed; the tensors' own digests over the same bytes are.
        file = record.raw or ""
        own, plain = _start(record), sha256()
        for block in read_blocks(case.extent(file)):
            own.update(block)
            if first_format:
                plain.update(block)
            count(len(block))
        require_digest(case.name_of(file), record.digest, own.text())
        rows.append(row_of(record, plain.hexdigest() if first_format else record.digest, basename(file)))
    if encode_rows(rows, FIRST_1 if first_format else FIRST) != data:
        raise Damaged(f"{name}: expected the table as it was written, found it changed")


def _start(record: TensorRecord) -> TensorDigest:
    return TensorDigest(record.dtype, record.shape, hash_of(record.digest))
