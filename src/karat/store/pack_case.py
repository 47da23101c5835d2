"""One case as members of a zip, and the zip of all cases: every byte is read, packed and verified once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import msgspec

from karat import __version__
from karat.bundles.index import NAME, Archive, IndexedCase, IndexedFile, build, encode
from karat.bundles.witness import Witness
from karat.bundles.zip_form import Member
from karat.store.pack_output import Output
from karat.store.pack_survey import Candidate
from karat.store.zip_writer import Compression, ZipWriter
from karat.tensors.digest import blocks

if TYPE_CHECKING:
    from hashlib import _Hash

_BLOCK = 1 << 20


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Where a case's members are written."""

    file: Path
    use: Literal["case", "combined", "scratch"]
    """A zip of the case that stays; the zip of all cases; or one to be taken over and thrown away."""
    start: int = 0


class Packing(msgspec.Struct, frozen=True, kw_only=True):
    """How cases are packed."""

    compression: Compression
    level: int | None
    count: Callable[[int], None]
    """Told of bytes that have been packed, from any thread."""


class Part(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A case that has been packed."""

    case: IndexedCase
    files: tuple[IndexedFile, ...]
    members: tuple[Member, ...]
    """Without the index."""
    output: Output | None
    """The zip of its own, where it stays."""
    wrong: tuple[str, ...]
    """What is not as the case's manifest says."""


def pack_case(candidate: Candidate, spot: Spot, packing: Packing) -> Part:
    """Packs one case, and holds it against its manifest as it goes by."""
    case = IndexedCase(path=candidate.path, sha256=candidate.case.manifest.sha256)
    witness, output = Witness(candidate.case), None
    with _opened(spot) as file:
        writer = ZipWriter(file, packing.compression, packing.level, spot.start)
        files = [_add(writer, candidate, name, witness, packing.count) for name in candidate.files]
        members, wrong = tuple(writer.members), witness.wrong()
        if spot.use == "case" and not wrong:
            whole = sha256()
            for chunk in _range(file, 0, writer.size):
                whole.update(chunk)
            output = _finish(file, writer, whole, [case], files, f"cases/{candidate.path}.zip")
    return Part(case=case, files=tuple(files), members=members, output=output, wrong=wrong)


def _opened(spot: Spot) -> BinaryIO:
    if spot.use == "combined":
        return spot.file.open("r+b")
    spot.file.parent.mkdir(parents=True, exist_ok=True)
    return spot.file.open("x+b")


def _add(
    writer: ZipWriter,
    candidate: Candidate,
    name: str,
    witness: Witness,
    count: Callable[[int], None],
) -> IndexedFile:
    extent, watch = candidate.case.extent(name), witness.watch(name)

    def seen() -> Iterator[memoryview]:
        for block in blocks(extent):
            watch(block)
            yield block
            count(len(block))

    path = f"{candidate.path}/{name}"
    writer.add(path, seen(), extent.size)
    return IndexedFile(path=path, size=extent.size)


def _finish(
    file: BinaryIO,
    writer: ZipWriter,
    whole: _Hash,
    cases: list[IndexedCase],
    files: list[IndexedFile],
    name: str,
) -> Output:
    """Writes index and directory, and waits for the disk; `whole` has seen what lies before."""
    start = writer.size
    archive = Archive(size=start, sha256=whole.hexdigest())
    data = encode(build(__version__, cases, files, archive))
    writer.add(NAME, [data], len(data), stored=True)
    writer.close()
    size = file.tell()
    file.truncate()  # after a case that was refused, there may be more
    for chunk in _range(file, start, size):
        whole.update(chunk)
    os.fsync(file.fileno())  # a name must not outlive its bytes
    return Output(path=name, size=size, sha256=whole.hexdigest())


class Combined:
    """All cases in one zip, part by part, in the order given."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("x+b")
        self._writer = ZipWriter(self._file)
        self._whole = sha256()
        self._cases: list[IndexedCase] = []
        self._files: list[IndexedFile] = []

    def take(self, part: Part, path: Path) -> None:
        """Takes the members of a case over as they lie; those that lie in place already stay."""
        with path.open("rb") as source:
            for member in part.members:
                chunks = self._seen(_range(source, member.start, member.end))
                if path == self._path and member.start == self._writer.size:
                    for _ in chunks:
                        pass
                    self._writer.adopt(member)
                else:
                    # From further on in this very file if a case before was refused: what is
                    # overwritten has been read.
                    self._writer.take(member, chunks)
        self._cases.append(part.case)
        self._files += part.files

    def finish(self) -> Output | None:
        """Index and directory, and what it came to; None if it is empty."""
        if not self._cases:
            return None
        return _finish(
            self._file, self._writer, self._whole, self._cases, self._files, self._path.name
        )

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()

    def _seen(self, chunks: Iterator[memoryview]) -> Iterator[memoryview]:
        for chunk in chunks:
            self._whole.update(chunk)
            yield chunk


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
