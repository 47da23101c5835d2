"""A shelf: what has arrived of one artifact.

Partial downloads grow in place, so that a killed process loses nothing; a record says what belongs
to which version of the artifact. Nothing is believed without its checksum: what does not match is
deleted, and fetched again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from karat.sources.archive import Archive, Member

_RECORD = "record"
_CHUNK = 1 << 18


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One file on a shelf, and how to know that it is still whole."""

    file: str
    size: int
    sha256: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What a shelf holds, and of which version of the artifact."""

    validator: str = ""
    """What the server calls this version: a strong ETag, or a date of change."""
    names: tuple[str, ...] | None = None
    """Every file in the archive; None while its directory has not been read."""
    members: dict[str, Kept] = msgspec.field(default_factory=dict)
    archive: Kept | None = None
    """The whole archive, if it was fetched as a whole."""


class Shelf:
    """The folder of one artifact; whoever has it holds its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.record = self._load()
        with suppress(OSError):
            os.utime(folder)

    def note(self, record: Record) -> None:
        """Remembers, in one step."""
        body = msgspec.json.encode(record)
        draft = self.folder / f".{_RECORD}.tmp"
        draft.write_bytes(_sha256_of(body).encode() + b"\n" + body)
        draft.replace(self.folder / _RECORD)
        self.record = record

    def forget(self) -> None:
        """Throws away everything, as the artifact is another now, or what is here is damaged."""
        for path in self.folder.iterdir():
            path.unlink()
        self.record = Record()

    def belongs_to(self, validator: str) -> None:
        """Makes sure that all that lies here is of that version."""
        if self.record.validator != validator:
            self.forget()
            self.note(Record(validator=validator))

    def part(self, start: int, end: int | None) -> Path:
        """Where a stretch of the archive grows; `end` None: as much as there is."""
        return self.folder / f"{start}-{'' if end is None else end}.part"

    def drop_parts(self) -> None:
        """Stretches whose members are unpacked are of no more use."""
        for path in self.folder.glob("*.part"):
            with suppress(OSError):
                path.unlink()

    def find(self, kept: Kept | None) -> Path | None:
        """A file that is there and whole, or None."""
        if kept is None:
            return None
        path = self.folder / kept.file
        try:
            whole = path.stat().st_size == kept.size and file_sha256(path) == kept.sha256
        except OSError:
            return None
        return path if whole else None

    def keep_archive(self, path: Path, sha256: str) -> Path:
        """The whole archive under the name it keeps."""
        kept = Kept(file="archive.zip", size=path.stat().st_size, sha256=sha256)
        final = self.folder / kept.file
        path.replace(final)
        self.note(msgspec.structs.replace(self.record, archive=kept))
        return final

    def keep_member(self, name: str, fill: Callable[[BinaryIO], object]) -> Kept:
        """One member, unpacked by `fill` into a file whose name owes nothing to the member's."""
        file = f"{_sha256_of(name.encode('utf-8', 'surrogatepass'))[:40]}.member"
        draft = self.folder / f"{file}.tmp"
        with draft.open("wb") as target:
            writer = _Hashing(target)
            fill(writer)  # type: ignore[arg-type]  # it is only written to
        path = self.folder / file
        draft.replace(path)
        return Kept(file=file, size=writer.size, sha256=writer.sha256.hexdigest())

    def here(self, names: Iterable[str]) -> dict[str, Kept]:
        """Those members that an earlier process has left, and that are whole."""
        kept = self.record.members
        return {name: kept[name] for name in names if self.find(kept.get(name)) is not None}

    def unpack(self, archive: Archive, members: Iterable[Member]) -> dict[str, Kept]:
        """Members out of their archive; also those of a work half done need not be fetched again."""
        fresh: dict[str, Kept] = {}
        try:
            for member in members:
                fill = partial(archive.extract, member)
                fresh[member.name] = self.keep_member(member.name, fill)
        finally:
            self.learn(archive.names, fresh)
        return fresh

    def learn(self, names: tuple[str, ...], fresh: Mapping[str, Kept]) -> None:
        """Remembers all names of the artifact, and more of its members."""
        members = {**self.record.members, **fresh}
        self.note(msgspec.structs.replace(self.record, names=names, members=members))

    def paths(self, kept: Mapping[str, Kept]) -> dict[str, Path]:
        """Where members lie, by their names."""
        return {name: self.folder / one.file for name, one in kept.items()}

    def _load(self) -> Record:
        try:
            checksum, _, body = (self.folder / _RECORD).read_bytes().partition(b"\n")
            if checksum.decode("ascii", "replace") == _sha256_of(body):
                return msgspec.json.decode(body, type=Record)
        except FileNotFoundError:
            return Record()
        except (OSError, ValueError, msgspec.MsgspecError):
            pass
        self.record = Record()
        self.forget()
        return self.record


class _Hashing:
    """A file being written, and the checksum of what was."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        self.size += len(data)
        return self._file.write(data)


def file_sha256(path: Path) -> str:
    """The checksum of a file, read in pieces."""
    with path.open("rb") as file:
        return hash_of(file).hexdigest()


def hash_of(file: BinaryIO) -> hashlib._Hash:
    """A hash of all that is in a file, to go on with."""
    running = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        running.update(chunk)
    return running


def _sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
