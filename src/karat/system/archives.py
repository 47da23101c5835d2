"""Archives: zip files from strangers, read with limits and only where wanted.

Everything that is no plain file under a plain name refuses the whole archive: whoever packed a link or `../x` once did not
pack goldens. Limits on size and ratio hold for the members that are wanted, since only those are unpacked: a golden may
lie beside a checkpoint of many gigabytes. `Unusable` says why nothing of one artifact can be taken; it becomes a finding in
one place, so that one bad artifact never costs the others.
"""

from __future__ import annotations

import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import BinaryIO

import msgspec

from karat.findings import Finding, fail
from karat.system.foreign import limits
from karat.system.names import folded, not_plain, refusal, shown

DAMAGE = frozenset({"artifact-corrupt", "artifact-truncated", "artifact-not-zip"})
"""Kinds that bytes left by an earlier process may be to blame for."""


class Unusable(Exception):  # noqa: N818 - it is a state of an artifact, not a bug
    """One artifact cannot be used; the kind of finding, and what was expected and found."""

    def __init__(self, kind: str, message: str, *, next_command: str | None = None) -> None:
        super().__init__(message)
        self.kind, self.next_command = kind, next_command

    def finding(self, name: str, next_command: str | None = None) -> Finding:
        """What the person is told of the artifact of that name, and to do next."""
        return fail(self.kind, f"artifact {name}: {self}", path=name, next=next_command or self.next_command)


def no_room(error: OSError) -> Unusable:
    """The disk here, not the server, is why it cannot be taken."""
    said = f"expected room on this disk for what arrives, found {error.strerror or error}"
    return Unusable("transfer-failed", said, next_command="df -h")


_LOCAL, _END, _END64, _LOCATOR64 = b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_END_SIZE, _END64_SIZE, _LOCATOR_SIZE, _LOCAL_SIZE, _CENTRAL_SIZE = 22, 56, 20, 30, 46
_LONGEST_COMMENT = 0xFFFF
_ENCRYPTED, _STRONG, _UTF8, _MASKED = 0x1, 0x40, 0x800, 0x2000
_CHUNK = 1 << 18
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_LOOKS_LIKE = {
    (b"<!doctype html", b"<html"): "an HTML page",
    (b"<?xml",): "an XML document",
    (b"{", b"["): "JSON",
    (b"\x1f\x8b",): "gzip",
}
# What the standard library raises for bytes that are not what they claim to be.
_BROKEN = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error,
    EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError,
)  # fmt: skip


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one archive may hold and unpack to."""

    members: int = msgspec.field(default_factory=limits.MEMBERS.value)
    header: int = 3 << 10  # Bytes of the central directory for each of so many members; it is read into memory.
    archive: int = msgspec.field(default_factory=limits.TOTAL.value)
    """Bytes of a whole archive whose size nobody has said before it comes."""
    member: int = msgspec.field(default_factory=limits.UNPACKED.value)
    total: int = msgspec.field(default_factory=limits.TOTAL.value)
    ratio: int = msgspec.field(default_factory=limits.RATIO.value)
    ratio_floor: int = 4 << 20  # A member that unpacks to less than this may be as dense as it likes.


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One file in an archive."""

    name: str
    size: int
    packed: int
    start: int  # Where its local header begins.
    end: int  # No byte of it lies at or after this place.
    info: zipfile.ZipInfo


class Archive:
    """An opened zip archive whose every name has been looked at."""

    def __init__(self, file: BinaryIO, most: Limits | None = None, *, methods: Collection[int] = _METHODS) -> None:
        """Looks at every name; members packed by other `methods` refuse the archive.

        Whoever allows more than stored and deflated unpacks them by other means than `extract`.
        """
        self._limits = most or Limits()
        start, size, announced = find_directory(file)
        if announced > self._limits.members:
            held = f"at most {self._limits.members:,} members are allowed, it holds {announced:,}"
            raise _refused(f"{held}; {limits.MEMBERS.setting}")
        if size > self._limits.members * self._limits.header:
            raise _refused(f"its central directory alone takes {size:,} bytes; {limits.MEMBERS.setting}")
        # Counted by hand: what `zipfile` makes of a million headers, it makes before anyone can count.
        headers = _read_at(file, start, size)
        at = count = 0
        while at + _CENTRAL_SIZE <= len(headers) and count <= announced:
            at += _CENTRAL_SIZE + sum(struct.unpack_from("<3H", headers, at + 28))
            count += 1
        if at != len(headers) or count != announced:
            raise _corrupt(f"its directory does not hold the {announced:,} members it announces")
        try:
            self._zip = zipfile.ZipFile(file)
        except _BROKEN as error:
            raise _corrupt(f"its central directory does not parse ({error})") from None
        if self._zip.start_dir != start or len(self._zip.infolist()) != announced:
            raise _corrupt("two readings of its end record disagree")
        members = _members(self._zip.infolist(), start, methods)
        self.members = {member.name: member for member in members}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.members)

    def wanted(self, wanted: Callable[[str], bool]) -> list[Member]:
        """The members to unpack, in the order they lie; refuses what unpacks to too much."""
        chosen = [member for member in self.members.values() if wanted(member.name)]
        total = 0
        for member in chosen:
            total += member.size
            most = self._limits
            name = shown(member.name)
            if wrong := refusal(member.name):
                raise _refused(f"the name {name} {wrong}")
            if member.size > most.member:
                raise _refused(
                    f"{name} unpacks to {member.size:,} bytes, at most {most.member:,} are allowed; "
                    f"{limits.UNPACKED.setting}"
                )
            if total > most.total:
                raise _refused(f"its wanted members unpack to more than {most.total:,} bytes; {limits.TOTAL.setting}")
            if member.size > most.ratio_floor and member.size > most.ratio * max(member.packed, 1):
                raise _refused(
                    f"{name} unpacks to {member.size:,} bytes from {member.packed:,}, more than "
                    f"{most.ratio}-fold: a bomb; {limits.RATIO.setting}"
                )
        return sorted(chosen, key=lambda member: member.start)

    def extract(self, member: Member, target: BinaryIO) -> None:
        """Unpacks one member; its size and checksum are verified."""
        written = 0
        try:
            with self._zip.open(member.info) as source:
                while chunk := source.read(_CHUNK):
                    written += len(chunk)
                    target.write(chunk)
        except _BROKEN as error:
            raise _corrupt(f"{shown(member.name)} does not unpack ({error})") from None
        if written != member.size:
            raise _corrupt(f"{shown(member.name)} should unpack to {member.size:,} bytes and gives {written:,}")


def find_directory(file: BinaryIO) -> tuple[int, int, int]:
    """Where the central directory begins, its size, and how many members it announces.

    Says apart what is cut from what never was a zip.
    """
    size = file.seek(0, 2)
    for comment in (0, _LONGEST_COMMENT):  # most have none, and a remote tail is dear
        tail_start = max(0, size - comment - _END_SIZE - _LOCATOR_SIZE - _END64_SIZE)
        tail = _read_at(file, tail_start, size - tail_start)
        # The end record is the last one whose comment ends with the file.
        ends = ((m.start(), m.end() + _END_SIZE - len(_END)) for m in re.finditer(re.escape(_END), tail))
        fit = (at for at, end in ends if end + int.from_bytes(tail[end - 2 : end], "little") == len(tail))
        at = max(fit, default=None)
        if at is not None:
            break
    if at is None:
        head = _read_at(file, 0, min(size, 512))
        if not size:
            raise Unusable("artifact-truncated", "expected a zip archive, found no bytes at all")
        if head.startswith((_LOCAL, _END)):
            said = f"expected a whole zip archive, found the first {size:,} bytes of one"
            raise Unusable("artifact-truncated", said)
        begins = head.lstrip()[:64].lower()
        what = next((what for marks, what in _LOOKS_LIKE.items() if begins.startswith(marks)), "something else")
        raise Unusable("artifact-not-zip", f"expected a zip archive, found {what} ({size:,} bytes)")
    _, disk, _, here, count, length, start, _ = struct.unpack_from("<4s4H2LH", tail, at)
    end = tail_start + at
    if tail[at - _LOCATOR_SIZE : at][:4] == _LOCATOR64:
        at -= _LOCATOR_SIZE + _END64_SIZE
        if at < 0 or tail[at : at + 4] != _END64:
            raise _corrupt("its zip64 end record is not where it should be")
        fields = struct.unpack_from("<4sQ2H2L4Q", tail, at)
        disk, here, count, length, start = fields[4], *fields[6:10]
        end = tail_start + at
    if disk or here != count:
        raise _refused("it is one part of an archive in several parts")
    if start + length != end:
        raise _corrupt("its central directory is not where its end record says")
    return start, length, count


def _read_at(file: BinaryIO, start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


def _members(infos: Sequence[zipfile.ZipInfo], directory: int, methods: Collection[int]) -> Iterator[Member]:
    """The plain files of the directory; raises for anything that is neither file nor folder."""
    ends = _ends(infos, directory)
    seen: dict[str, str] = {}
    for info in infos:
        parts = [part for part in info.orig_filename.split("/") if part not in {"", "."}]
        name = "/".join(parts)
        if wrong := not_plain(info.orig_filename) or (None if parts or info.is_dir() else "is empty"):
            raise _refused(f"the name {shown(info.orig_filename)} {wrong}")
        _check_kind(info, name, methods)
        if info.is_dir():
            continue
        key = folded(name)
        if key in seen:
            how = "twice" if seen[key] == name else f"beside {shown(seen[key])}"
            raise _refused(f"it holds {shown(name)} {how}")
        seen[key] = name
        yield Member(
            name=name,
            size=info.file_size,
            packed=info.compress_size,
            start=info.header_offset,
            end=ends[info.header_offset],
            info=info,
        )
    # No file is the folder of another; sorted, since a name may have 30,000 parents.
    for (above, file), (below, name) in pairwise(sorted((f"{k}/", n) for k, n in seen.items())):
        if below.startswith(above):
            raise _refused(f"{shown(file)} is a file and the folder of {shown(name)}")


def _ends(infos: Sequence[zipfile.ZipInfo], directory: int) -> dict[int, int]:
    """Member's start → where the next thing begins; refuses members that share bytes."""
    ordered = sorted(infos, key=lambda info: info.header_offset)
    nexts = [*(info.header_offset for info in ordered), directory][1:]
    ends = {}
    for info, end in zip(ordered, nexts, strict=True):
        name = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437", "replace")
        least = info.header_offset + _LOCAL_SIZE + len(name) + info.compress_size
        if info.header_offset < 0 or least > end:
            raise _refused(f"{shown(info.orig_filename)} overlaps what follows it: a bomb")
        # Fields of the local header may take 64 KiB, the record after the data 24 bytes; more
        # than that between two members is a gap that nobody needs to fetch.
        ends[info.header_offset] = min(end, least + 0xFFFF + 24)
    return ends


def _check_kind(info: zipfile.ZipInfo, name: str, methods: Collection[int]) -> None:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in {0, stat.S_IFREG} and not (kind == stat.S_IFDIR and info.is_dir()):
        words = {stat.S_IFLNK: "a symbolic link", stat.S_IFDIR: "a folder with content"}
        raise _refused(f"{shown(name)} is {words.get(kind, 'a device, pipe or socket')}")
    if info.flag_bits & (_ENCRYPTED | _STRONG | _MASKED):
        raise _refused(f"{shown(name)} is encrypted")
    if info.compress_type not in methods:
        known = "stored, deflated and zstd" if len(methods) > len(_METHODS) else "stored and deflated"
        raise _refused(f"{shown(name)} is compressed by method {info.compress_type}; {known} are read")


def _refused(message: str) -> Unusable:
    return Unusable("archive-refused", f"expected plain files under plain names; {message}")


def _corrupt(message: str) -> Unusable:
    return Unusable("artifact-corrupt", f"expected a sound zip archive; {message}")
