"""Snapshots: the files of a push, case by case; an object itself, whose sha256 is what consumers pin.

The same cases give the same bytes, whoever pushes them and whatever the store holds already. A file is one
object, or several of at most 64 MiB in a row, or a range of a pack. Packs hold small files: the manifests of
a few neighbouring cases, and apart from them the other small files of one case. The end of a manifest, which says when and
where it was captured and is another one every night, stands in the snapshot, so that the rest is an object that stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import msgspec

from karat.store.backends import Backend, damaged
from karat.store.objects import EXPIRING, Part, fetch, is_object
from karat.system.command import Command
from karat.system.names import DEVICE, folded, refusal, shown

SCHEMA = "karat.snapshot/2"
_SCHEMA_1 = "karat.snapshot/1"  # What karat wrote before: every digest is a sha256, and called so.
CHUNK = 64 << 20


class Tail(msgspec.Struct, frozen=True):
    """The end of a file that is in no object."""

    stored: int  # Bytes of the file before it.
    text: int  # Number of the text that it begins with, among `tails`.
    own: str  # How it goes on.


class SnapshotFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a case, and the objects that hold it."""

    name: str  # Below the case's folder.
    size: int
    digest: str = ""  # Of what is stored; of a file over 64 MiB, its chunks say it.
    chunks: tuple[Part, ...] = ()  # Of a file over 64 MiB, in order; a smaller one is the object of its own digest.
    pack: int | None = None  # Number of the pack that holds it.
    offset: int = 0
    tail: Tail | None = None

    @property
    def stored(self) -> int:
        """How many of its bytes are in objects; the rest is its tail."""
        return self.size if self.tail is None else self.tail.stored


class SnapshotCase(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    files: tuple[SnapshotFile, ...]


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Every case of a push."""

    schema: str = SCHEMA
    size: int  # Bytes of all files.
    packs: tuple[Part, ...]
    tails: tuple[str, ...] = ()  # Texts that the tails of many files begin with.
    cases: tuple[SnapshotCase, ...]

    def parts(self) -> Iterator[Part]:
        """Every object that it needs; itself is not among them."""
        yield from self.packs
        for case in self.cases:
            for file in case.files:
                if file.pack is None:
                    yield from pieces(file)

    def files(self) -> Iterator[tuple[str, SnapshotFile]]:
        for case in self.cases:
            for file in case.files:
                yield f"{case.path}/{file.name}", file

    def tail_of(self, file: SnapshotFile) -> bytes:
        return b"" if file.tail is None else (self.tails[file.tail.text] + file.tail.own).encode()


def pieces(file: SnapshotFile) -> tuple[Part, ...]:
    """What a file's stored bytes are, piece by piece; if it is in no pack, each is an object."""
    return file.chunks or (Part(file.digest, file.stored),)


def encode(snapshot: Snapshot) -> bytes:
    """The bytes whose sha256 is the digest: a line per case, so that two can be compared by eye."""
    cases = b",\n".join(msgspec.json.encode(case) for case in snapshot.cases)
    head = msgspec.json.encode(msgspec.structs.replace(snapshot, cases=()))
    return head[: -len(b"[]}")] + b"[\n" + cases + b"\n]}\n"


def load(backend: Backend, digest: str, *, area: str = EXPIRING, safe: bool = True) -> Snapshot:
    """A snapshot of the store, whole and safe to write to a disk, unless nobody will."""
    data = fetch(backend, Part(digest, -1), area=area)
    try:
        if f'"{_SCHEMA_1}"'.encode() in data[:64]:
            data = data.replace(b'"sha256":', b'"digest":')  # keys alone: inside a text there is a backslash
        snapshot = msgspec.json.decode(data, type=Snapshot)
        if safe:
            check(snapshot)
    except (ValueError, RecursionError) as error:  # msgspec's are among the former
        said = f"sha256:{digest} of {backend.url}: expected a snapshot ({SCHEMA}), found {error!s}"
        then = Command("karat", "ls", "--store", backend.url)
        raise damaged(said, path=f"sha256:{digest}", next_command=then) from error
    return snapshot


def check(snapshot: Snapshot) -> None:
    """A digest says that the bytes are whole, not that whoever pushed them meant well: ValueError."""
    if snapshot.schema not in {SCHEMA, _SCHEMA_1}:
        raise ValueError(f"schema {snapshot.schema[:60]!r}")
    names: dict[str, str] = {}

    @lru_cache  # Most cases have files of the same names.
    def refused(path: str) -> str | None:
        wrong = refusal(path)
        if wrong is None and (not path.isprintable() or set(path) & set(':*?"<>|')):
            return "holds a character that some file systems refuse"
        odd = (part for part in path.split("/") if part.startswith(".karat") or part[-1] in ". " or DEVICE.match(part))
        return "means something else on some machines" if wrong is None and any(odd) else wrong

    for path, file in snapshot.files():
        wrong = refused(path[: -len(file.name) - 1]) or refused(file.name) or (len(path) > 1000 and refusal(path))
        if wrong:
            raise ValueError(f"the name {shown(path)}, which {wrong}")
        key = folded(path)
        if key in names:
            raise ValueError(f"{shown(path)} beside {shown(names[key])}")
        names[key] = path
        _check_file(path, file, snapshot)
    for above, below in pairwise(sorted(f"{key}/" for key in names)):
        if below.startswith(above):
            raise ValueError(f"{shown(names[above[:-1]])} as a file and as a folder")
    for part in snapshot.parts():
        if not is_object(part.digest) or not 0 <= part.size <= CHUNK:
            raise ValueError(f"an object called {part.digest[:80]!r} of {part.size} bytes")


def _check_file(path: str, file: SnapshotFile, snapshot: Snapshot) -> None:
    packs, tail = snapshot.packs, file.tail
    fits = file.stored >= 0 and (is_object(file.digest) or bool(file.chunks))
    if tail is not None:
        fits = fits and 0 <= tail.text < len(snapshot.tails) and not file.chunks
        fits = fits and file.stored + len(snapshot.tail_of(file)) == file.size
    if file.pack is not None:
        fits = fits and 0 <= file.pack < len(packs) and not file.chunks
        fits = fits and 0 <= file.offset <= packs[file.pack].size - file.stored
    elif file.chunks:
        fits = fits and sum(part.size for part in file.chunks) == file.size
        fits = fits and all(0 < part.size <= CHUNK for part in file.chunks)
    else:
        fits = fits and file.size <= CHUNK
    if not fits:
        raise ValueError(f"{shown(path)} in objects that cannot hold it")
