"""Zips in karat's one form, written as a stream: stored, deflate or zstd, and zip64 where needed.

A case becomes members of a zip of its own or of the zip of all cases; every byte is read, packed and verified once.

Python's `zipfile` writes no zstd before 3.14, has no way to take over members that are packed already, and
leaves bytes to chance that this form fixes (`karat.bundles.zip_format`).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol

import msgspec

from karat import __version__
from karat.bundles.index import NAME, IndexedArchive, IndexedCase, IndexedFile, build, encode
from karat.bundles.verify import Watch, Witness
from karat.bundles.zip_format import DEFLATE, METHODS, STORED, WHOLE, ZipMember, directory, is_large, local_header
from karat.findings import UsageError
from karat.store.packs.output import PackedFile
from karat.store.packs.survey import PackCandidate
from karat.system.hashes import sha256
from karat.tensors.tensor import Damaged, Extent, read_blocks

if TYPE_CHECKING:
    from hashlib import _Hash

_BLOCK = 1 << 20
Compression = Literal["stored", "deflate", "zstd"]
LEVELS = {"stored": (0, 0, 0), "deflate": (1, 6, 9), "zstd": (1, 3, 19)}
"""Compression → lowest, default and highest level."""


class Packer(Protocol):
    """A compressor of the standard library's kind."""

    def compress(self, data: bytes | memoryview, /) -> bytes: ...

    def flush(self) -> bytes: ...


class ZipWriter:
    """One zip, written front to back; only the header of the member just written is touched again.

    `start`: members of a zip of which another writer has what lies before, and the directory.
    """

    def __init__(
        self, file: BinaryIO, compression: Compression = "stored", level: int | None = None, start: int = 0
    ) -> None:
        self.members: list[ZipMember] = []
        self._file = file
        self._compression: Compression = compression
        self._level = checked_level(compression, level)
        self.size = start
        file.seek(start)

    def add(self, name: str, chunks: Iterable[bytes | memoryview], size: int, *, stored: bool = False) -> ZipMember:
        """Packs one file of exactly `size` bytes; `Damaged` if the chunks give more or fewer."""
        method = STORED if stored else METHODS[self._compression]
        blank = ZipMember(name=name, method=method, size=size, packed=0, crc=0, start=self.size)
        self._file.write(local_header(blank))
        packer = None if method == STORED else _packer(method, self._level)
        seen = packed = crc = 0
        for chunk in chunks:
            seen += len(chunk)
            crc = zlib.crc32(chunk, crc)
            packed += self._file.write(chunk if packer is None else packer.compress(chunk))
        if packer is not None:
            packed += self._file.write(packer.flush())
        if seen != size:
            raise Damaged(f"expected {size:,} bytes of {name}, found {seen:,}: it changed meanwhile")
        member = msgspec.structs.replace(blank, packed=packed, crc=crc)
        if not is_large(member.size) and member.packed >= WHOLE:
            raise Damaged(f"{member.name} packs to {member.packed:,} bytes, more than it has")
        self._file.seek(member.start)
        self._file.write(local_header(member))
        self._follow(member)
        return member

    def _follow(self, member: ZipMember) -> None:
        self.size = member.end
        self._file.seek(self.size)
        self.members.append(member)

    def take(self, member: ZipMember, chunks: Iterable[bytes | memoryview]) -> None:
        """Takes over a member that is packed already: header and data as they lie in another zip."""
        moved = msgspec.structs.replace(member, start=self.size)
        for chunk in chunks:
            self.size += self._file.write(chunk)
        if self.size != moved.end:
            raise Damaged(f"expected the packed bytes of {member.name}, found {self.size:,} of them")
        self.members.append(moved)

    def adopt(self, member: ZipMember) -> None:
        """A member that another writer has put just where this one is."""
        if member.start != self.size:
            raise Damaged(f"expected {member.name} at {self.size:,}, found it at {member.start:,}")
        self._follow(member)

    def close(self) -> bytes:
        """Writes the directory, and returns its bytes; the file is the caller's to close."""
        tail = directory(self.members, self.size)
        self._file.write(tail)
        return tail


def stored_size(name: str, size: int) -> int:
    """Bytes that a stored file takes in a zip, before its directory."""
    return ZipMember(name=name, method=STORED, size=size, packed=size, crc=0, start=0).end


def checked_level(compression: Compression, level: int | None) -> int:
    """The level in force; no compression has another range than its own."""
    lowest, default, highest = LEVELS[compression]
    if level is None:
        return default
    if not lowest <= level <= highest:
        said = f"--level: expected {lowest} to {highest} for {compression}, found {level}"
        raise UsageError(said, next_command="karat pack --help")
    return level


def _packer(method: int, level: int) -> Packer:
    if method == DEFLATE:
        return zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    try:
        import zstandard
    except ImportError as error:
        said = "--compression zstd needs zstandard, which is not installed"
        raise UsageError(said, next_command="pip install 'karat[zstd]'") from error
    # The frame's own checksum: readers that know no index still notice a flipped bit.
    packer: Packer = zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj()
    return packer


class PackTarget(msgspec.Struct, frozen=True, kw_only=True):
    file: Path
    use: Literal["case", "combined", "scratch"]
    """A zip of the case that stays; the zip of all cases; or one to be taken over and thrown away."""
    start: int = 0


class ZipOptions(msgspec.Struct, frozen=True, kw_only=True):
    compression: Compression
    level: int | None
    count: Callable[[int], None]  # Told of bytes that have been packed, from any thread.


class PackedCase(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    case: IndexedCase
    files: tuple[IndexedFile, ...]
    members: tuple[ZipMember, ...]  # Without the index.
    output: PackedFile | None  # The zip of its own, where it stays.
    wrong: tuple[str, ...]  # What is not as the case's manifest says.


def pack_case(candidate: PackCandidate, target: PackTarget, packing: ZipOptions) -> PackedCase:
    """Pack one case, and verify it against its manifest on the way."""
    case = IndexedCase(path=candidate.path, sha256=candidate.case.manifest.sha256)
    witness, output = Witness(candidate.case), None
    if target.use != "combined":
        target.file.parent.mkdir(parents=True, exist_ok=True)
    with target.file.open("r+b" if target.use == "combined" else "x+b") as file:
        writer = ZipWriter(file, packing.compression, packing.level, target.start)
        files = []
        for name in candidate.files:
            extent, path = candidate.case.extent(name), f"{candidate.path}/{name}"
            writer.add(path, _watched(extent, witness.watch(name), packing.count), extent.size)
            files.append(IndexedFile(path=path, size=extent.size))
        members, wrong = tuple(writer.members), witness.problems()
        if target.use == "case" and not wrong:
            whole = sha256()
            for chunk in _range(file, 0, writer.size):
                whole.update(chunk)
            output = _finish(file, writer, whole, [case], files, f"cases/{candidate.path}.zip")
    return PackedCase(case=case, files=tuple(files), members=members, output=output, wrong=wrong)


def _watched(extent: Extent, watch: Watch, count: Callable[[int], None]) -> Iterator[memoryview]:
    for block in read_blocks(extent):
        watch(block)
        yield block
        count(len(block))


def _finish(
    file: BinaryIO, writer: ZipWriter, whole: _Hash, cases: list[IndexedCase], files: list[IndexedFile], name: str
) -> PackedFile:
    """Write index and directory, and wait for the disk; `whole` has hashed everything before."""
    start = writer.size
    archive = IndexedArchive(size=start, sha256=whole.hexdigest())
    data = encode(build(__version__, cases, files, archive))
    writer.add(NAME, [data], len(data), stored=True)
    writer.close()
    size = file.tell()
    file.truncate()  # after a case that was refused, there may be more
    for chunk in _range(file, start, size):
        whole.update(chunk)
    os.fsync(file.fileno())  # a name must not outlive its bytes
    return PackedFile(path=name, size=size, sha256=whole.hexdigest())


class CombinedZip:
    """All cases in one zip, part by part, in the order given."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("x+b")
        self._writer = ZipWriter(self._file)
        self._whole = sha256()
        self._cases: list[IndexedCase] = []
        self._files: list[IndexedFile] = []

    def take(self, part: PackedCase, path: Path) -> None:
        """Copy the packed members of a case; those already in place stay."""
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

    def finish(self) -> PackedFile | None:
        """Index and directory, and what it came to; None if it is empty."""
        if not self._cases:
            return None
        return _finish(self._file, self._writer, self._whole, self._cases, self._files, self._path.name)

    def close(self) -> None:
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
