"""Verify every byte of every case against its manifest, and every file against all manifests.

`verify_place` reads in order to verify. A `Witness` watches the files of a case while they are read anyway, to be
packed: what was verified is then the very bytes that were packed, and they are read once. Statistics are not computed
again: they follow from the bytes, which the digests vouch for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from posixpath import basename, dirname
from typing import Any

import msgspec

from karat.bundles import index
from karat.bundles.cases import FILES, RAW, Case, cases, divide, finding
from karat.bundles.extents import file_digest
from karat.bundles.manifest import NAME, TensorRecord, read
from karat.bundles.places import Place
from karat.bundles.tensor_files import LARGEST, TABLE, decode_rows, encode_rows, row_of
from karat.findings import Finding
from karat.system.hashes import sha256
from karat.system.processes import available_cores
from karat.tensors.blocks import start_digest
from karat.tensors.tensor import Damaged, read_blocks, read_range

_TABLE = f"{RAW}/{TABLE}"
Progress = Callable[[int, int], None]
"""Called with the bytes verified so far and those to verify in all, from any thread, one at a time."""
Watch = Callable[[memoryview], None]  # Takes the blocks of one file, in order.
_Count = Callable[[int], None]
_Piece = tuple[Case, Callable[[_Count], None]]  # Something of a case that one thread reads from front to back.


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    cases: int
    tensors: int
    findings: tuple[Finding, ...]


def verify_case(case: Case) -> tuple[Finding, ...]:
    """Everything that is wrong with one case; every byte of it is read."""
    return (*case.findings, *_run(_pieces(case), lambda _: None))


def verify_place(place: Place, progress: Progress | None = None) -> Verification:
    """Everything that is wrong with a place: its cases, its index, and files that belong to no case."""
    from concurrent.futures import ThreadPoolExecutor

    found = cases(place)
    findings = [*place.findings(), *_strays(place)]
    findings += [one for case in found for one in case.findings]
    if not found and not findings:
        message = "expected captured cases, found none; nothing was verified"
        findings.append(finding("nothing-compared", place.name, message))
    count = _counter(place, progress)

    def check_index() -> tuple[Finding, ...]:
        try:
            packed = index.read(place)
            return index.check(place, packed, progress=count) if packed is not None else ()
        except Damaged as damage:
            return (finding("bundle-damaged", index.NAME, str(damage)),)

    # An archive's one hash is over all of it and cannot be shared out; the tensors' can, meanwhile.
    with ThreadPoolExecutor(1) as beside:
        indexed = beside.submit(check_index)
        damaged = _run((piece for case in found for piece in _pieces(case)), count)
        findings += (*indexed.result(), *damaged)
    tensors = sum(len(case.manifest.tensors) for case in found)
    return Verification(cases=len(found), tensors=tensors, findings=tuple(findings))


def _counter(place: Place, progress: Progress | None) -> _Count:
    if progress is None:
        return lambda _: None
    files = place.files()
    # A zip with an index is read twice: as an archive, and as cases.
    total = sum(files.values()) * (2 if place.kind == "zip" and index.NAME in files else 1)
    done, lock = 0, threading.Lock()

    def count(read: int) -> None:
        nonlocal done
        with lock:
            done = min(total, done + read)
            progress(done, total)

    return count


def _strays(place: Place) -> Iterator[Finding]:
    """Files of no case; a folder that has all but a manifest is a case that lost it."""
    _, strays = divide(place)
    lost = set()
    for path in strays:
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
            run(count)
        except Damaged as damage:
            return finding("bundle-damaged", case.path, str(damage))
        return None

    with ThreadPoolExecutor(min(8, available_cores())) as pool:
        return tuple(found for found in pool.map(verify, pieces) if found is not None)


def _pieces(case: Case) -> Iterator[_Piece]:
    """A piece per tensor; per file if it is packed and must be read in order.

    Nothing of a case whose names or sizes are wrong already: its findings are enough.
    """
    if any(one.kind != "unexpected-file" for one in case.findings):
        return
    for file in dict.fromkeys(record.file for record in case.manifest.tensors):
        records = [record for record in case.manifest.tensors if record.file == file]
        if _is_seekable(case, file):
            yield from ((case, _tensors(case, file, [record])) for record in records)
        else:
            yield case, _tensors(case, file, records)
    raws = [record for record in case.manifest.tensors if record.raw is not None]
    if raws:
        yield case, lambda count: _verify_raw(case, raws, count)
    program = case.manifest.program
    if program is not None:

        def verify_program(count: _Count) -> None:
            digest = file_digest(case.extent(program.file), lambda block: count(len(block)))
            _require(case.name_of(program.file), digest, program.sha256)

        yield case, verify_program


def _is_seekable(case: Case, file: str) -> bool:
    try:
        case.header(file)
        return case.extent(file).seekable
    except Damaged:
        return False  # said once, when the file is verified


def _tensors(case: Case, file: str, records: list[TensorRecord]) -> Callable[[_Count], None]:
    def verify(count: _Count) -> None:
        header = case.header(file)
        with closing(case.extent(file).open()) as reader:
            for record in sorted(records, key=lambda r: header.entries[r.name].data_offsets):
                begin, end = header.entries[record.name].data_offsets
                digest = start_digest(record.dtype, record.shape)
                for block in read_range(reader, header.start + begin, end - begin):
                    digest.update(block)
                    count(len(block))
                _require(f"{case.name_of(file)}, {record.name}", digest.hexdigest(), record.sha256)

    return verify


def _verify_raw(case: Case, records: list[TensorRecord], count: _Count) -> None:
    """The table must say what the manifest says, and each file what the table says."""
    name = case.name_of(_TABLE)
    data = case.place.read(name, LARGEST)
    found = {row.name: row for row in decode_rows(data, name)}
    rows = []
    for record in records:
        # The table is not sealed; the tensors' own digests over the same bytes are.
        file = record.raw or ""
        own, plain = start_digest(record.dtype, record.shape), sha256()
        for block in read_blocks(case.extent(file)):
            own.update(block)
            plain.update(block)
            count(len(block))
        _require(case.name_of(file), own.hexdigest(), record.sha256)
        rows.append(row_of(record, plain.hexdigest(), basename(file)))
    for row in rows:
        if found.get(row.name) != row:
            raise Damaged(f"{name}: expected {row.name} as in the manifest, found {found.get(row.name)}")
    if encode_rows(rows) != data:
        raise Damaged(f"{name}: expected the table as it was written, found it changed")


def _require(what: str, found: str, expected: str) -> None:
    if found != expected:
        raise Damaged(f"{what}: expected the digest {expected}, found {found}")


class _Span(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Bytes in a row that one hash of the manifest is over."""

    what: str
    size: int
    digest: Any
    expected: str


class Witness:
    """Watches every byte of one case; `problems` says in the end what is not as it was captured."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._refused: list[str] = []
        self._spans: list[_Span] = []
        self._manifest, self._table = bytearray(), sha256()
        self._raws = {r.raw: (r, sha256()) for r in case.manifest.tensors if r.raw is not None}

    def watch(self, file: str) -> Watch:
        """What to call with the bytes of a file."""
        if file == NAME:
            return self._manifest.extend
        if file == _TABLE:
            return self._table.update
        try:
            spans = [*self._spans_of(file)]
        except Damaged as damage:
            self._refused.append(str(damage))
            return lambda _: None
        self._spans += spans
        watch = _watch(spans)
        if file not in self._raws:
            return watch
        plain = self._raws[file][1]

        def watch_raw(block: memoryview) -> None:
            watch(block)
            plain.update(block)

        return watch_raw

    def problems(self) -> tuple[str, ...]:
        """What is not as the manifest says, once all files have been read."""
        changed = [*self._refused]
        for span in self._spans:
            found = span.digest.hexdigest()
            if found != span.expected:
                changed.append(f"{span.what}: expected the digest {span.expected}, found {found}")
        try:
            if read(bytes(self._manifest)).sha256 != self._case.manifest.sha256:
                changed.append(f"{NAME}: expected it to stay as it was, found another while packing")
        except Damaged as damage:
            changed.append(str(damage))
        rows = [row_of(record, plain.hexdigest(), basename(record.raw or "")) for record, plain in self._raws.values()]
        if not changed and rows and sha256(encode_rows(rows)).digest() != self._table.digest():
            changed.append(f"{_TABLE}: expected a table of the raw files as they are, found another")
        return tuple(changed)

    def _spans_of(self, file: str) -> Iterator[_Span]:
        manifest = self._case.manifest
        if file in self._raws:
            yield _tensor_span(file, self._raws[file][0])
        elif manifest.program is not None and file == manifest.program.file:
            size, expected = manifest.program.size, manifest.program.sha256
            yield _Span(what=file, size=size, digest=sha256(), expected=expected)
        else:
            header, expected = self._case.header(file), manifest.headers[file]
            yield _Span(what=f"{file}, header", size=header.start, digest=sha256(), expected=expected)
            for name in sorted(header.entries, key=lambda n: header.entries[n].data_offsets):
                yield _tensor_span(f"{file}, {name}", self._case.record(name))


def _tensor_span(what: str, record: TensorRecord) -> _Span:
    digest = start_digest(record.dtype, record.shape)
    return _Span(what=what, size=record.nbytes, digest=digest, expected=record.sha256)


def _watch(spans: list[_Span]) -> Watch:
    """Deal blocks out to spans, whose borders are nowhere near those of blocks."""
    coming = iter(spans)
    digest: Any = None
    left = 0

    def watch(block: memoryview) -> None:
        nonlocal digest, left
        while len(block):
            while not left:
                span = next(coming, None)
                if span is None:
                    return  # longer than its manifest says, which its size has shown
                digest, left = span.digest, span.size
            part = block[:left]
            digest.update(part)
            left -= len(part)
            block = block[len(part) :]

    return watch
