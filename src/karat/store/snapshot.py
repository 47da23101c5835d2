"""Snapshots: the files of a push, case by case; an object itself, whose sha256 is what consumers pin.

The same cases give the same bytes, whoever pushes them and whatever the store holds already. A file is one
object, or several of at most 64 MiB in a row, or a range of a pack. Packs hold small files: the manifests of
a few neighbouring cases, which change every night, and apart from them the other small files of one case.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from karat.store.backends import Backend, damaged
from karat.store.objects import EXPIRING, Part, fetch
from karat.system.command import Command
from karat.system.hashes import is_sha256
from karat.system.names import DEVICE, folded, refusal, shown

SCHEMA = "karat.snapshot/1"
CHUNK = 64 << 20


class SnapshotFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a case, and the objects that hold it."""

    name: str  # Below the case's folder.
    size: int
    sha256: str
    chunks: tuple[Part, ...] = ()  # Of a file over 64 MiB, in order; a smaller one is the object of its own digest.
    pack: int | None = None  # Number of the pack that holds it.
    offset: int = 0


class SnapshotCase(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    files: tuple[SnapshotFile, ...]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Every case of a push."""

    schema: str = SCHEMA
    size: int  # Bytes of all files.
    packs: tuple[Part, ...]
    cases: tuple[SnapshotCase, ...]

    def parts(self) -> Iterator[Part]:
        """Every object that it needs; itself is not among them."""
        yield from self.packs
        for case in self.cases:
            for file in case.files:
                if file.pack is None:
                    yield from pieces(file)

    def files(self) -> Iterator[tuple[str, SnapshotFile]]:
        """Path and file, case by case."""
        for case in self.cases:
            for file in case.files:
                yield f"{case.path}/{file.name}", file


def pieces(file: SnapshotFile) -> tuple[Part, ...]:
    """The objects of a file that is in no pack."""
    return file.chunks or (Part(file.sha256, file.size),)


def encode(snapshot: Snapshot) -> bytes:
    """The bytes whose sha256 is the digest: a line per case, so that two can be compared by eye."""
    cases = b",\n".join(msgspec.json.encode(case) for case in snapshot.cases)
    head = msgspec.json.encode(msgspec.structs.replace(snapshot, cases=()))
    return head[: -len(b"[]}")] + b"[\n" + cases + b"\n]}\n"


def load(backend: Backend, digest: str, *, area: str = EXPIRING) -> Snapshot:
    """A snapshot of the store, whole and safe to write to a disk."""
    data = fetch(backend, Part(digest, -1), area=area)
    try:
        snapshot = msgspec.json.decode(data, type=Snapshot)
        check(snapshot)
    except (ValueError, RecursionError) as error:  # msgspec's are among the former
        said = f"sha256:{digest} of {backend.url}: expected a snapshot ({SCHEMA}), found {error!s}"
        then = Command("karat", "ls", "--store", backend.url)
        raise damaged(said, path=f"sha256:{digest}", next_command=then) from error
    return snapshot


def check(snapshot: Snapshot) -> None:
    """A digest says that the bytes are whole, not that whoever pushed them meant well: ValueError."""
    if snapshot.schema != SCHEMA:
        raise ValueError(f"schema {snapshot.schema[:60]!r}")
    names: dict[str, str] = {}
    for path, file in snapshot.files():
        wrong = refusal(path)
        if wrong is None and (not path.isprintable() or set(path) & set(':*?"<>|')):
            wrong = "holds a character that some file systems refuse"
        odd = (part for part in path.split("/") if part.startswith(".karat") or part[-1] in ". " or DEVICE.match(part))
        if wrong is None and any(odd):
            wrong = "means something else on some machines"
        if wrong:
            raise ValueError(f"the name {shown(path)}, which {wrong}")
        key = folded(path)
        if key in names:
            raise ValueError(f"{shown(path)} beside {shown(names[key])}")
        names[key] = path
        _check_file(path, file, snapshot.packs)
    for above, below in pairwise(sorted(f"{key}/" for key in names)):
        if below.startswith(above):
            raise ValueError(f"{shown(names[above[:-1]])} as a file and as a folder")
    for part in snapshot.parts():
        if not is_sha256(part.sha256) or not 0 <= part.size <= CHUNK:
            raise ValueError(f"an object called {part.sha256[:80]!r} of {part.size} bytes")


def _check_file(path: str, file: SnapshotFile, packs: tuple[Part, ...]) -> None:
    fits = is_sha256(file.sha256) and file.size >= 0
    if file.pack is not None:
        fits = fits and 0 <= file.pack < len(packs) and not file.chunks
        fits = fits and 0 <= file.offset <= packs[file.pack].size - file.size
    elif file.chunks:
        fits = fits and sum(part.size for part in file.chunks) == file.size
        fits = fits and all(0 < part.size <= CHUNK for part in file.chunks)
    else:
        fits = fits and file.size <= CHUNK
    if not fits:
        raise ValueError(f"{shown(path)} in objects that cannot hold it")
