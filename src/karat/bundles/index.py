"""index.json: everything that a packed place holds, so that what is missing is noticed as surely as what changed.

It stands at the root of a zip, is written last, and seals itself as a manifest does. `archive` is over every
byte of the zip before the index, and the form of the rest is fixed (`karat.bundles.zips`), so there is no
byte of a zip that nothing vouches for. A folder that a zip was unpacked to is held against names, sizes and
the manifests' seals; the manifests vouch for every byte of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path

import msgspec

from karat.bundles.extents import file_digest, whole_file
from karat.bundles.manifest import NAME as MANIFEST
from karat.bundles.places import Place
from karat.findings import Finding, fail
from karat.system.command import Command
from karat.system.hashes import sha256_hex
from karat.system.processes import available_cores
from karat.tensors.digests import digest_of, hash_of
from karat.tensors.tensor import Damaged, TensorExtent

SCHEMA = "karat.index/1"
NAME = "index.json"
LIMIT = 256 << 20


class IndexedFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    size: int


class IndexedCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case, and the seal of its manifest, which has the hash of everything else in the case."""

    path: str
    sha256: str


class IndexedArchive(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The bytes of the zip before the index."""

    size: int
    sha256: str
    digest: str | None = None
    """The same bytes' as a tensor of uint8, which all cores can check; zips made before have none."""


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was packed; both lists sorted by path."""

    schema: str = SCHEMA
    karat: str
    cases: tuple[IndexedCase, ...]
    files: tuple[IndexedFile, ...]
    archive: IndexedArchive | None = None
    sha256: str = ""


def build(
    karat: str, cases: Iterable[IndexedCase], files: Iterable[IndexedFile], archive: IndexedArchive | None = None
) -> Index:
    by_path = attrgetter("path")
    sorted_cases, sorted_files = tuple(sorted(cases, key=by_path)), tuple(sorted(files, key=by_path))
    bare = Index(karat=karat, cases=sorted_cases, files=sorted_files, archive=archive)
    return msgspec.structs.replace(bare, sha256=_seal(bare))


def encode(index: Index) -> bytes:
    """The bytes of index.json; there is one way to write it."""
    return msgspec.json.format(msgspec.json.encode(index), indent=1) + b"\n"


def decode(data: bytes) -> Index:
    """The index; `Damaged` if it is none, or not as it was sealed."""
    try:
        index = msgspec.json.decode(data, type=Index)
    except (ValueError, RecursionError) as error:  # msgspec's are among the former
        raise Damaged(f"{NAME}: expected an index of karat, found: {error}") from error
    if index.schema != SCHEMA:
        raise Damaged(f"{NAME}: expected schema {SCHEMA}, found {index.schema!r}")
    if index.sha256 != _seal(index) or encode(index) != data:
        raise Damaged(f"{NAME}: expected it as it was sealed, found it changed")
    return index


def read(place: Place) -> Index | None:
    return decode(place.read(NAME, LIMIT)) if NAME in place.files() else None


class _Sealed(msgspec.Struct, frozen=True):
    sha256: str


def check(place: Place, index: Index, *, progress: Callable[[int], None] | None = None) -> Iterator[Finding]:
    """What is not as the index says; what is in a case's files, its manifest must say."""
    there, known = place.files(), {file.path: file for file in index.files}
    for path, file in known.items():
        if path not in there:
            yield _damaged(path, "expected by the index, found nothing", place)
        elif there[path] != file.size:
            yield _damaged(path, f"expected {file.size:,} bytes, found {there[path]:,}", place)
    for path in there.keys() - known.keys() - {NAME}:
        said = f"{path}: expected only what {NAME} lists, found a file that it does not know"
        yield fail("unexpected-file", said, path=path, next=_inspect(place, path))
    for case in index.cases:
        path = f"{case.path}/{MANIFEST}"
        if path not in there:
            continue  # it is among the files, which have said so
        try:
            found = msgspec.json.decode(place.read(path), type=_Sealed).sha256
        except (Damaged, ValueError, RecursionError) as error:
            found = str(error)
        if found != case.sha256:
            yield _damaged(path, f"expected the seal {case.sha256}, found {found}", place)
    if index.archive is not None and place.kind == "zip":
        yield from _check_archive(place, index.archive, progress)


def _check_archive(place: Place, expected: IndexedArchive, progress: Callable[[int], None] | None) -> Iterator[Finding]:
    from karat.bundles.zips import STORED, read_members  # a folder has no need of them

    path = Path(place.name)
    try:
        with path.open("rb") as file:
            last = next(reversed(read_members(file)), None)
        if last is None or (last.name, last.method) != (NAME, STORED):
            raise Damaged(f"expected {NAME} as the last member, stored, found another")  # noqa: TRY301 - told below
        if last.start != expected.size:
            raise Damaged(f"expected {expected.size:,} bytes before {NAME}, found {last.start:,}")  # noqa: TRY301
        before = msgspec.structs.replace(whole_file(path), size=expected.size)
        count = progress or (lambda _: None)
        if expected.digest is None:
            right, found = f"sha256:{expected.sha256}", file_digest(before, "sha256", lambda block: count(len(block)))
        else:
            bits = TensorExtent(dtype="uint8", shape=(expected.size,), extent=before)
            with ThreadPoolExecutor(min(8, available_cores())) as pool:
                right, found = expected.digest, digest_of(bits, hash_of(expected.digest), run=pool.map, watch=count)
    except OSError as error:
        yield _damaged("", f"expected to read it, but: {error.strerror or error}", place)
    except Damaged as damage:
        yield _damaged("", f"{damage}; a zip that another tool repacked is no longer karat's", place)
    else:
        if found != right:
            yield _damaged("", f"expected the digest {right} of the bytes before {NAME}, found {found}", place)


def _damaged(path: str, message: str, place: Place) -> Finding:
    return fail("bundle-damaged", f"{path or place.name}: {message}", path=path, next=_inspect(place, path))


def _inspect(place: Place, path: str) -> str:
    """The packer of a zip has its sha256; a folder's file can be listed."""
    if place.kind == "folder":
        return str(Command("ls", "-l", str(Path(place.name) / path)))
    return str(Command("sha256sum", place.name))


def _seal(index: Index) -> str:
    return sha256_hex(msgspec.json.encode(msgspec.structs.replace(index, sha256="")))
