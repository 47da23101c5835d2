"""One case as a zip of its own, and many of those as one: what is packed once is taken over as it lies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from karat import __version__
from karat.bundles.index import (
    NAME,
    Archive,
    Index,
    IndexedCase,
    IndexedFile,
    build,
    encode,
)
from karat.bundles.zip_form import Member
from karat.store.pack_output import Output
from karat.store.zip_writer import Compression, ZipWriter
from karat.tensors.tensor import Extent

if TYPE_CHECKING:
    from hashlib import _Hash

_BLOCK = 1 << 20


class Part(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A case in its zip."""

    case: IndexedCase
    files: tuple[IndexedFile, ...]
    members: tuple[Member, ...]
    """Without the index."""
    output: Output | None
    """None for one that is only there to be taken over."""


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """How cases are packed."""

    compression: Compression = "stored"
    level: int | None = None
    keep: bool = True
    """False: the zip will not outlive the pack, and needs no index and no disk."""


class Source(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A case to be packed: its path, its seal, and its files under the names they shall have."""

    path: str
    seal: str
    files: tuple[tuple[str, Extent], ...]


def pack_case(source: Source, target: Path, packing: Packing) -> Part:
    """Writes the zip of one case; every file is read once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    case = IndexedCase(path=source.path, sha256=source.seal)
    with target.open("x+b") as file:
        writer = ZipWriter(file, packing.compression, packing.level)
        indexed = [_add(writer, path, extent) for path, extent in source.files]
        members = tuple(writer.members)
        output = None
        if packing.keep:
            whole = sha256()
            for chunk in _range(file, 0, writer.size):
                whole.update(chunk)
            finish(file, writer, whole, [case], indexed)
            name = f"cases/{source.path}.zip"
            output = Output(path=name, size=file.tell(), sha256=whole.hexdigest())
            sync(file)
        else:
            writer.close()
    return Part(case=case, files=tuple(indexed), members=members, output=output)


def finish(
    file: BinaryIO,
    writer: ZipWriter,
    whole: _Hash,
    cases: list[IndexedCase],
    files: list[IndexedFile],
) -> Index:
    """Index and directory; `whole` has seen what lies before, and has then seen all."""
    archive = Archive(size=writer.size, sha256=whole.hexdigest())
    index = build(__version__, cases, files, archive)
    data = encode(index)
    start = writer.size
    writer.add(NAME, [data], len(data), stored=True)
    writer.close()
    end = file.tell()
    for chunk in _range(file, start, end):
        whole.update(chunk)
    return index


class Combined:
    """All cases in one zip, part by part, in the order given."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._writer = ZipWriter(file)
        self._whole = sha256()
        self._cases: list[IndexedCase] = []
        self._files: list[IndexedFile] = []

    def take(self, part: Part, path: Path) -> None:
        """Copies the members of a case's own zip."""
        with path.open("rb") as source:
            for member in part.members:
                self._writer.take(member, self._seen(_range(source, member.start, member.end)))
        self._cases.append(part.case)
        self._files += part.files

    def close(self, name: str) -> Output:
        """Index and directory; what it came to."""
        finish(self._file, self._writer, self._whole, self._cases, self._files)
        size = self._file.tell()
        sync(self._file)
        return Output(path=name, size=size, sha256=self._whole.hexdigest())

    def _seen(self, chunks: Iterator[memoryview]) -> Iterator[memoryview]:
        for chunk in chunks:
            self._whole.update(chunk)
            yield chunk


def sync(file: BinaryIO) -> None:
    """Waits for the disk: a name must not outlive its bytes."""
    file.flush()
    os.fsync(file.fileno())


def _add(writer: ZipWriter, path: str, extent: Extent) -> IndexedFile:
    whole = sha256()
    writer.add(path, _hashed(extent, whole), extent.size)
    return IndexedFile(path=path, size=extent.size, sha256=whole.hexdigest())


def _hashed(extent: Extent, whole: _Hash) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(_BLOCK, max(1, extent.size))))
    reader = extent.open()
    try:
        for start in range(0, extent.size, _BLOCK):
            chunk = buffer[: min(_BLOCK, extent.size - start)]
            reader.read_into(start, chunk)
            whole.update(chunk)
            yield chunk
    finally:
        reader.close()


def _range(file: BinaryIO, start: int, end: int) -> Iterator[memoryview]:
    """The bytes of a file from start to end; the file stands at `end` afterwards."""
    file.flush()
    buffer = memoryview(bytearray(min(_BLOCK, max(1, end - start))))
    file.seek(start)
    while start < end:
        got = file.readinto(buffer[: end - start])  # type: ignore[attr-defined]
        if not got:
            raise OSError(f"expected {end - start:,} bytes more of a zip just written, found none")
        start += got
        yield buffer[:got]
