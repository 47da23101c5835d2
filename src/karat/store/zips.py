"""Zips in karat's one form, written as a stream: stored, deflate or zstd, and zip64 where needed.

A case becomes members of a zip of its own or of the zip of all cases.

Python's `zipfile` writes no zstd before 3.14, has no way to take over members that are packed already, and
leaves bytes to chance that this form fixes (`karat.bundles.zips`).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from karat import __version__
from karat.bundles.cases import Case
from karat.bundles.index import NAME, IndexedArchive, IndexedCase, IndexedFile, build, encode
from karat.bundles.manifest import NAME as MANIFEST
from karat.bundles.verify import verify_case
from karat.bundles.zips import DEFLATE, METHODS, STORED, WHOLE, ZSTD, ZipMember, directory, is_large, local_header
from karat.findings import UsageError
from karat.system.hashes import sha256
from karat.tensors.digests import TensorDigest
from karat.tensors.tensor import Damaged, Extent, read_blocks

_BLOCK = 1 << 20
Compression = Literal["stored", "deflate", "zstd"]


class ZipWriter:
    """One zip, written front to back; only the header of the member just written is touched again."""

    def __init__(self, file: BinaryIO, compression: Compression = "stored") -> None:
        self.members: list[ZipMember] = []
        self.size = 0
        self._file, self._compression = file, compression

    def add(self, name: str, chunks: Iterable[bytes | memoryview], size: int, *, stored: bool = False) -> ZipMember:
        """Packs one file of exactly `size` bytes; `Damaged` if the chunks give more or fewer."""
        method = STORED if stored else METHODS[self._compression]
        blank = ZipMember(name=name, method=method, size=size, packed=0, crc=0, start=self.size)
        self._file.write(local_header(blank))
        packer: Any = zlib.compressobj(wbits=-zlib.MAX_WBITS) if method == DEFLATE else None
        if method == ZSTD:
            try:
                import zstandard
            except ImportError as error:
                said = "--compression zstd needs zstandard, which is not installed"
                raise UsageError(said, next_command="pip install 'karat[zstd]'") from error
            # The frame's own checksum: readers that know no index still notice a flipped bit.
            packer = zstandard.ZstdCompressor(write_checksum=True).compressobj()
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
        self.size = member.end
        self._file.seek(self.size)
        self.members.append(member)
        return member

    def take(self, member: ZipMember, chunks: Iterable[bytes | memoryview]) -> None:
        """Takes over a member that is packed already: header and data as they lie in another zip."""
        moved = msgspec.structs.replace(member, start=self.size)
        for chunk in chunks:
            self.size += self._file.write(chunk)
        if self.size != moved.end:
            raise Damaged(f"expected the packed bytes of {member.name}, found {self.size:,} of them")
        self.members.append(moved)

    def close(self) -> None:
        """Writes the directory; the file is the caller's to close."""
        self._file.write(directory(self.members, self.size))


class PackedFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str  # Below OUT.
    size: int
    sha256: str


class PackedCase(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    case: IndexedCase
    files: tuple[IndexedFile, ...]
    members: tuple[ZipMember, ...]  # Without the index.
    output: PackedFile | None  # The zip of its own, if nothing is wrong.
    wrong: tuple[str, ...]  # What is not as the case's manifest says.


def pack_case(captured: Case, target: Path, compression: Compression, count: Callable[[int], None]) -> PackedCase:
    """Pack one case, and hold it against its manifest; `count` is told of packed bytes, from any thread."""
    case = IndexedCase(path=captured.path, sha256=captured.manifest.sha256)

    def counted(extent: Extent) -> Iterator[memoryview]:
        for block in read_blocks(extent):
            yield block
            count(len(block))

    output = None
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("x+b") as file:
        writer = ZipWriter(file, compression)
        files = []
        for name in sorted(captured.files):
            extent, path = captured.extent(name), f"{captured.path}/{name}"
            writer.add(path, counted(extent), extent.size)
            files.append(IndexedFile(path=path, size=extent.size))
        # Asked for after the files were read, so that what changed before or meanwhile shows.
        now = Case(captured.place, captured.folder, captured.files)
        wrong: tuple[str, ...] = (f"{MANIFEST}: expected it to stay as it was, found another while packing",)
        if now.manifest.sha256 == case.sha256:
            wrong = tuple(finding.message for finding in verify_case(now))
        members = tuple(writer.members)
        if not wrong:
            whole = _ZipHash()
            for chunk in _range(file, 0, writer.size):
                whole.update(chunk)
            output = _finish(file, writer, whole, [case], files, f"cases/{captured.path}.zip")
    return PackedCase(case=case, files=tuple(files), members=members, output=output, wrong=wrong)


def _finish(
    file: BinaryIO, writer: ZipWriter, whole: _ZipHash, cases: list[IndexedCase], files: list[IndexedFile], name: str
) -> PackedFile:
    """Write index and directory, and wait for the disk; `whole` has hashed everything before."""
    start = writer.size
    digest = TensorDigest("uint8", (start,)).text(whole.pieces.pieces())
    archive = IndexedArchive(size=start, sha256=whole.sha256.hexdigest(), digest=digest)
    data = encode(build(__version__, cases, files, archive))
    writer.add(NAME, [data], len(data), stored=True)
    writer.close()
    size = file.tell()
    for chunk in _range(file, start, size):
        whole.sha256.update(chunk)
    os.fsync(file.fileno())  # a name must not outlive its bytes
    return PackedFile(path=name, size=size, sha256=whole.sha256.hexdigest())


class _ZipHash:
    """What `sha256sum` will say of a zip, and what its index says of the bytes before it."""

    def __init__(self) -> None:
        self.sha256, self.pieces = sha256(), TensorDigest("uint8", ())

    def update(self, chunk: memoryview) -> None:
        self.sha256.update(chunk)
        self.pieces.update(chunk)


class CombinedZip:
    """All cases in one zip, part by part, in the order given."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("x+b")
        self._writer = ZipWriter(self._file)
        self._whole = _ZipHash()
        self._cases: list[IndexedCase] = []
        self._files: list[IndexedFile] = []

    def take(self, part: PackedCase, path: Path) -> None:
        """Copy the packed members of a case."""

        def seen(chunks: Iterator[memoryview]) -> Iterator[memoryview]:
            for chunk in chunks:
                self._whole.update(chunk)
                yield chunk

        with path.open("rb") as source:
            for member in part.members:
                self._writer.take(member, seen(_range(source, member.start, member.end)))
        self._cases.append(part.case)
        self._files += part.files

    def finish(self) -> PackedFile | None:
        """Index and directory, and what it came to; None if it is empty."""
        if not self._cases:
            return None
        return _finish(self._file, self._writer, self._whole, self._cases, self._files, self._path.name)

    def close(self) -> None:
        self._file.close()


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
