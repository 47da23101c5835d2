"""Objects: bytes under their digest, in one of two areas; and sealed files, which carry their sha256 inside.

`expiring/` holds what lives as long as a reference needs it, and may be subject to a bucket's own lifecycle rule;
`kept/` holds what is pinned. An object may be in both. Its name is its hash, so every reader knows whether it is intact.
A digest is `blake3:…`, or the bare digits of a sha256: of snapshots, and of all that karat pushed before.
A reference or a pin has a name of its own, so its last member is the sha256 of everything before it: a flipped
bit in a date is as visible as one in a tensor.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from karat.findings import CannotVerify
from karat.store.backends import Absent, Backend, StoredObject, StoreProblem, damaged
from karat.system.hashes import is_sha256, sha256_hex, start_hash
from karat.system.pool import in_parallel

EXPIRING, KEPT = "expiring", "kept"
BLAKE3 = "blake3:"
_FEW = 256  # up to this many objects are looked up one by one; for more, the areas are listed
_SEAL = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n\}\n\Z')
T = TypeVar("T", bound=msgspec.Struct)
Watch = Callable[[int], None]  # Called with the number of bytes that have just moved.


class Part(msgspec.Struct, frozen=True):
    """An object that something needs: a file, a piece of one, or a pack of small ones."""

    digest: str
    size: int


def seal(document: msgspec.Struct) -> bytes:
    """The bytes of a sealed file: indented JSON that ends with its sha256."""
    body = msgspec.json.format(msgspec.json.encode(document), indent=1).removesuffix(b"\n}")
    return body + b',\n "sha256": "%s"\n}\n' % sha256_hex(body).encode()


def unseal(data: bytes, kind: type[T]) -> T:
    """The document in a sealed file; ValueError if it is damaged or of another kind."""
    # Decoded first: what is no JSON at all is reported as that, rather than as changed.
    try:
        found = msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise ValueError("brackets without end") from error
    end = _SEAL.search(data)
    if end is None or sha256_hex(data[: end.start()]).encode() != end[1]:
        raise ValueError("one that was changed after it was sealed")
    return found


def unsealed(backend: Backend, key: str, data: bytes, kind: type[T], what: str) -> T:
    """The document in the bytes of a sealed file of the store; CannotVerify if it is not `what` it should be."""
    try:
        return unseal(data, kind)
    except ValueError as error:  # msgspec's are among them
        raise unreadable(backend, key, what, str(error)) from error


def unreadable(backend: Backend, key: str, what: str, found: str) -> CannotVerify:
    """A file of the store is not what it should be."""
    said = f"expected {what} in {key} of {backend.url}, found: {found}"
    return CannotVerify(said, next_command=backend.look(key))


def is_object(digest: str) -> bool:
    return is_sha256(digest.removeprefix(BLAKE3))


def name_of(data: bytes | memoryview, like: str) -> str:
    """The digest of bytes, made as another one was."""
    return f"{BLAKE3}{start_hash('blake3', data).hexdigest()}" if like.startswith(BLAKE3) else sha256_hex(data)


def name_of_range(handle: int, start: int, size: int, like: str) -> str:
    """The same of bytes in an open file."""
    blake3 = like.startswith(BLAKE3)
    running = start_hash("blake3" if blake3 else "sha256")
    buffer, end = memoryview(bytearray(min(1 << 20, size))), start + size
    while start < end and (got := os.preadv(handle, [buffer[: end - start]], start)):
        running.update(buffer[:got])
        start += got
    return (BLAKE3 if blake3 else "") + str(running.hexdigest())


def key_of(digest: str, area: str = EXPIRING) -> str:
    """An object's key: a folder for each first two digits, so that listings can run side by side."""
    digits = digest.removeprefix(BLAKE3)
    return f"{area}/{'sha256' if digits == digest else 'blake3'}/{digits[:2]}/{digits}"


def digest_of(key: str) -> str | None:
    digits = key.rpartition("/")[2]
    digest = f"{BLAKE3}{digits}" if "/blake3/" in key else digits
    return digest if is_sha256(digits) else None


def find(backend: Backend, digests: Sequence[str], workers: int) -> dict[str, StoredObject]:
    """Which of the objects exist; for one in both areas, that in `kept/` is reported."""

    def find_one(digest: str) -> tuple[str, StoredObject | None]:
        return digest, backend.head(key_of(digest, KEPT)) or backend.head(key_of(digest, EXPIRING))

    if len(digests) <= _FEW:
        found = in_parallel([partial(find_one, digest) for digest in digests], workers)
        return {digest: one for digest, one in found if one is not None}
    wanted = set(digests)
    listed: dict[str, StoredObject] = {}
    for area in (EXPIRING, KEPT):  # the later one has the last word
        for one in every(backend, area, workers, {key_of(digest, area).rpartition("/")[0] for digest in wanted}):
            digest = digest_of(one.key)
            if digest in wanted:
                listed[digest] = one
    return listed


def is_kept(one: StoredObject) -> bool:
    """Whether it is where nothing expires."""
    return one.key.startswith(f"{KEPT}/")


def every(backend: Backend, area: str, workers: int, folders: Iterable[str] | None = None) -> Iterator[StoredObject]:
    """All objects of an area, or those in some of its folders."""
    folders = (f"{area}/blake3", f"{area}/sha256") if folders is None else folders
    tasks = [lambda prefix=f"{folder}/": list(backend.list(prefix)) for folder in sorted(folders)]
    for page in in_parallel(tasks, workers):
        yield from page


def fetch(backend: Backend, part: Part, *, area: str = EXPIRING) -> bytes:
    """An object's verified bytes; `area` is looked at first."""
    wrong = ""
    # A third time, because a wrong answer may have been the network's.
    for place in (area, EXPIRING if area == KEPT else KEPT, area):
        try:
            data = backend.get(key_of(part.digest, place))
        except Absent:
            continue
        found = name_of(data, part.digest)
        if found == part.digest:
            return data
        wrong = wrong or described(data, part, found)
    if wrong:
        said = f"object {part.digest} of {backend.url}: {wrong}"
        raise damaged(said, path=key_of(part.digest), next_command=backend.look(key_of(part.digest)))
    raise missing(backend, part.digest)


def missing(backend: Backend, digest: str) -> StoreProblem:
    """An object that should exist and does not is as bad as a damaged one."""
    said = f"object {digest} of {backend.url}: expected it to be there, found nothing"
    return damaged(said, path=key_of(digest), next_command=backend.look(key_of(digest)))


def described(data: bytes, part: Part, found: str) -> str:
    """What came instead of an object."""
    start = data[:64].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        size = f"{part.size:,} bytes of an object" if part.size >= 0 else "this digest"
        return f"expected {size}, found an HTML page"
    if len(data) != part.size and part.size >= 0:
        return f"expected {part.size:,} bytes, found {len(data):,}"
    return f"expected this digest, found {found}"
