"""Witnesses: a case's files held against its manifest while they are read for something else.

`karat.bundles.verifying` reads in order to verify. Whoever reads a case anyway, front to back, to pack it, has
a witness look on: what was verified is then the very bytes that were packed, and they are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from posixpath import basename
from typing import Any

import msgspec

from karat.bundles.cases import Case
from karat.bundles.checking import RAW
from karat.bundles.manifest import NAME, TensorRecord, read
from karat.bundles.raw import TABLE, RawRow, encode_rows
from karat.tensors.digest import start as start_digest
from karat.tensors.tensor import Damaged

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
