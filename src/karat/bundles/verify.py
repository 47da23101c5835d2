"""Witnesses: a case's files held against its manifest while they are read for something else.

`karat.bundles.verify` reads in order to verify. Whoever reads a case anyway, front to back, to pack it, has
a witness look on: what was verified is then the very bytes that were packed, and they are read once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from posixpath import basename, dirname
from typing import Any

import msgspec

from karat.bundles import index
from karat.bundles.cases import FILES, RAW, Case, cases, divide, finding
from karat.bundles.extents import BLOCK
from karat.bundles.manifest import NAME, TensorRecord, read
from karat.bundles.places import Place
from karat.bundles.tensor_files import LARGEST, TABLE, RawRow, decode_rows, encode_rows
from karat.findings import Finding
from karat.tensors.blocks import start as start_digest
from karat.tensors.compare import available_cores
from karat.tensors.tensor import Damaged, Reader

_TABLE = f"{RAW}/{TABLE}"
Watch = Callable[[memoryview], None]
"""Takes the blocks of one file, in order."""


class _Span(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Bytes in a row that one hash of the manifest is over."""

    what: str
    size: int
    digest: Any
    expected: str


class Witness:
    """Sees every byte of one case; `wrong` says in the end what is not as it was captured."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._refused: list[str] = []
        self._spans: list[_Span] = []
        self._manifest, self._table = bytearray(), sha256()
        self._raws = {r.raw: (r, sha256()) for r in case.manifest.tensors if r.raw is not None}

    def watch(self, file: str) -> Watch:
        """Someone to show the bytes of a file to."""
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
        along = _along(spans)
        if file not in self._raws:
            return along
        return _both(along, self._raws[file][1].update)

    def wrong(self) -> tuple[str, ...]:
        """What is not as the manifest says, once all files have gone by."""
        changed = (*self._refused, *self._changed())
        # Of a table nothing can be said but that it lists the files as they should be.
        return changed or tuple(self._changed_table())

    def _spans_of(self, file: str) -> Iterator[_Span]:
        manifest = self._case.manifest
        if file in self._raws:
            yield _span(file, self._raws[file][0])
        elif manifest.program is not None and file == manifest.program.file:
            size, expected = manifest.program.size, manifest.program.sha256
            yield _Span(what=file, size=size, digest=sha256(), expected=expected)
        else:
            header = self._case.header(file)
            expected = manifest.headers[file]
            what = f"{file}, header"
            yield _Span(what=what, size=header.start, digest=sha256(), expected=expected)
            for name in sorted(header.entries, key=lambda n: header.entries[n].data_offsets):
                yield _span(f"{file}, {name}", self._case.record(name))

    def _changed(self) -> Iterator[str]:
        for span in self._spans:
            found = span.digest.hexdigest()
            if found != span.expected:
                yield f"{span.what}: expected the digest {span.expected}, found {found}"
        try:
            again = read(bytes(self._manifest)).sha256
        except Damaged as damage:
            yield str(damage)
        else:
            if again != self._case.manifest.sha256:
                yield f"{NAME}: expected it to stay as it was, found another while packing"

    def _changed_table(self) -> Iterator[str]:
        rows = [row_of(record, whole.hexdigest()) for record, whole in self._raws.values()]
        if rows and sha256(encode_rows(rows)).digest() != self._table.digest():
            yield f"{_TABLE}: expected a table of the raw files as they are, found another"


def _span(what: str, record: TensorRecord) -> _Span:
    digest = start_digest(record.dtype, record.shape)
    return _Span(what=what, size=record.nbytes, digest=digest, expected=record.sha256)


def _along(spans: list[_Span]) -> Watch:
    """Deals blocks out to spans, whose borders are nowhere near those of blocks."""
    coming = iter(spans)
    digest: Any = None
    left = 0

    def watch(block: memoryview) -> None:
        nonlocal digest, left
        while len(block):
            while not left:
                span = next(coming, None)
                if span is None:
                    return  # longer than its manifest says: whoever reads it knows the size
                digest, left = span.digest, span.size
            part = block[:left]
            digest.update(part)
            left -= len(part)
            block = block[len(part) :]

    return watch


def _both(one: Watch, other: Watch) -> Watch:
    def watch(block: memoryview) -> None:
        one(block)
        other(block)

    return watch


def row_of(record: TensorRecord, digest: str) -> RawRow:
    """The line of a tensor in the table of raw files; `digest` is over the file's bytes."""
    return RawRow(
        role=record.role,
        name=record.name,
        dtype=record.dtype,
        shape=record.shape,
        nbytes=record.nbytes,
        sha256=digest,
        file=basename(record.raw or ""),
    )


# DOC-HERE verifying: Verifying: every byte of every case against the manifest that names it, and every file against all of them.
#
# Statistics are not computed again: they follow from the bytes, which the digests vouch for, and the seal vouches
# for what was written about them.

Progress = Callable[[int, int], None]
"""Called with the bytes verified so far and those to verify in all, from any thread, one at a time."""
_Count = Callable[[int], None]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What verifying a place came to."""

    cases: int
    tensors: int
    findings: tuple[Finding, ...]


class _Work(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A piece of a case that one thread reads from front to back."""

    case: Case
    run: Callable[[_Count], None]


def verify_case(case: Case) -> tuple[Finding, ...]:
    """Everything that is wrong with one case; every byte of it is read."""
    return (*case.findings, *_run(_work(case), lambda _: None))


def verify_place(place: Place, progress: Progress | None = None) -> Verification:
    """Everything that is wrong with a place: its cases, its index, and files that belong to no case."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only for those who verify

    found = cases(place)
    findings = [*place.findings(), *_strays(place)]
    findings += [one for case in found for one in case.findings]
    if not found and not findings:
        message = "expected captured cases, found none; nothing was verified"
        findings.append(finding("nothing-compared", place.name, message))
    count = _counter(place, progress)
    # An archive's one hash is over all of it and cannot be shared out; the tensors' can, meanwhile.
    with ThreadPoolExecutor(1) as beside:
        indexed = beside.submit(_check_index, place, count)
        damaged = _run((piece for case in found for piece in _work(case)), count)
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


def _check_index(place: Place, count: _Count) -> tuple[Finding, ...]:
    try:
        found = index.read(place)
        return index.check(place, found, progress=count) if found is not None else ()
    except Damaged as damage:
        return (finding("bundle-damaged", index.NAME, str(damage)),)


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
            message = "expected only cases and an index, found a file of neither"
            yield finding("unexpected-file", path, message)
            continue
        lost.add(folder)
    for folder in sorted(lost):
        message = "expected a manifest beside its files, found none"
        yield finding("incomplete-case", folder or place.name, message)


def _run(work: Iterable[_Work], count: _Count) -> tuple[Finding, ...]:
    """The pieces on a few threads; hashing and reading both let go of the interpreter."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only for those who verify

    def one(piece: _Work) -> Finding | None:
        try:
            piece.run(count)
        except Damaged as damage:
            return finding("bundle-damaged", piece.case.path, str(damage))
        return None

    with ThreadPoolExecutor(min(8, available_cores())) as pool:
        return tuple(told for told in pool.map(one, work) if told is not None)


def _work(case: Case) -> Iterator[_Work]:
    """A piece per tensor; per file where a file is packed and must be read in order.

    Nothing of a case whose names or sizes are wrong already: what is said of it is enough.
    """
    if any(one.kind != "unexpected-file" for one in case.findings):
        return
    for file in dict.fromkeys(record.file for record in case.manifest.tensors):
        try:
            records = _in_order(case, file)
            parts = [[record] for record in records] if case.extent(file).seekable else [records]
        except Damaged as damage:
            yield _Work(case=case, run=_raising(str(damage)))
            continue
        for part in parts:
            yield _Work(case=case, run=_tensors(case, file, part))
    raws = [record for record in case.manifest.tensors if record.raw is not None]
    if raws:
        yield _Work(case=case, run=_raw_files(case, raws))
    if case.manifest.program is not None:
        record = case.manifest.program
        yield _Work(case=case, run=_plain_file(case, record.file, record.sha256))


def _raising(message: str) -> Callable[[_Count], None]:
    def run(_: _Count) -> None:
        raise Damaged(message)

    return run


def _in_order(case: Case, file: str) -> list[TensorRecord]:
    entries = case.header(file).entries
    records = [record for record in case.manifest.tensors if record.file == file]
    return sorted(records, key=lambda record: entries[record.name].data_offsets)


def _tensors(case: Case, file: str, records: list[TensorRecord]) -> Callable[[_Count], None]:
    def run(count: _Count) -> None:
        header, reader = case.header(file), case.extent(file).open()
        try:
            for record in records:
                begin, end = header.entries[record.name].data_offsets
                digest = start_digest(record.dtype, record.shape)
                _hash(reader, header.start + begin, end - begin, digest, count)
                what = f"{case.name_of(file)}, {record.name}"
                _compare(what, digest.hexdigest(), record.sha256)
        finally:
            reader.close()

    return run


def _raw_files(case: Case, records: list[TensorRecord]) -> Callable[[_Count], None]:
    """The table must say what the manifest says, and each file what the table says."""

    def run(count: _Count) -> None:
        name = case.name_of(f"{RAW}/{TABLE}")
        data = case.place.read(name, LARGEST)
        found = {row.name: row for row in decode_rows(data, name)}
        # The table is not sealed; the tensors' own digests over the same bytes are.
        hashes = {record.name: _raw_file(case, record, count) for record in records}
        rows = [row_of(record, hashes[record.name]) for record in records]
        odd = next((row for row in rows if found.get(row.name) != row), None)
        if odd is not None:
            said = f"found {found.get(odd.name)}"
            raise Damaged(f"{name}: expected {odd.name} as in the manifest, {said}")
        if encode_rows(rows) != data:
            raise Damaged(f"{name}: expected the table as it was written, found it changed")

    return run


def _raw_file(case: Case, record: TensorRecord, count: _Count) -> str:
    """sha256 of the file's bytes, which are the tensor's."""
    file = record.raw or ""
    both = _Both(start_digest(record.dtype, record.shape), sha256())
    reader = case.extent(file).open()
    try:
        _hash(reader, 0, record.nbytes, both, count)
    finally:
        reader.close()
    _compare(case.name_of(file), both.first.hexdigest(), record.sha256)
    return str(both.second.hexdigest())


class _Both:
    """Two hashes of one reading."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second

    def update(self, block: memoryview) -> None:
        self.first.update(block)
        self.second.update(block)


def _plain_file(case: Case, file: str, expected: str) -> Callable[[_Count], None]:
    def run(count: _Count) -> None:
        _compare(case.name_of(file), index.file_digest(case.extent(file), count), expected)

    return run


def _hash(reader: Reader, start: int, size: int, digest: Any, count: _Count) -> None:
    buffer = memoryview(bytearray(min(BLOCK, size)))
    for at in range(0, size, BLOCK):
        block = buffer[: min(BLOCK, size - at)]
        reader.read_into(start + at, block)
        digest.update(block)
        count(len(block))


def _compare(what: str, found: str, expected: str) -> None:
    if found != expected:
        raise Damaged(f"{what}: expected the digest {expected}, found {found}")
