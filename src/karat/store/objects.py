"""Sealed files: small JSON documents of a store whose last member is the sha256 of all that comes before it.

An object's name says whether it is whole; what has a name of its own, such as a reference or a pin, carries
the proof inside. So a flipped bit in a date is as visible as one in a tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from typing import TypeVar

import msgspec

from karat.store.backends import Absent, Backend, Stored, StoreProblem, damaged
from karat.system.pool import in_parallel

T = TypeVar("T", bound=msgspec.Struct)
_SEAL = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n\}\n\Z')


def seal(document: msgspec.Struct) -> bytes:
    """The bytes of a file: indented, with the seal at its end."""
    body = msgspec.json.format(msgspec.json.encode(document), indent=1).removesuffix(b"\n}")
    return body + b',\n "sha256": "%s"\n}\n' % sha256(body).hexdigest().encode()


def unseal(data: bytes, kind: type[T]) -> T:
    """The document in a file, as it was sealed; ValueError if it is not, or is another's."""
    # What is no JSON at all, or another's, is said to be that, rather than to have changed.
    try:
        found = msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise ValueError("brackets without end") from error
    end = _SEAL.search(data)
    if end is None or sha256(data[: end.start()]).hexdigest().encode() != end[1]:
        raise ValueError("one that was changed after it was sealed")
    return found


# DOC-HERE teamwork: Teamwork: many calls to a backend at once, each of which ends by itself.

T_TEAMWORK = TypeVar("T_TEAMWORK")


def together(tasks: Sequence[Callable[[], T_TEAMWORK]], workers: int) -> Iterator[T_TEAMWORK]:
    """What the tasks return, in the order they finish; the first exception ends it all."""
    return in_parallel(tasks, workers, stop=_nothing)


def _nothing() -> None:
    """A call that has begun ends by itself; the next one is not begun."""


# DOC-HERE objects: Objects: bytes under the sha256 of them, in one of two drawers.
#
# `expiring/` holds what lives as long as some reference needs it, and may stand under a bucket's own lifecycle
# rule; `kept/` holds what is pinned. The same object may lie in both. An object's name is its hash, so whoever
# reads one knows whether it is whole.

EXPIRING, KEPT = "expiring/sha256", "kept/sha256"
_DRAWERS = (KEPT, EXPIRING)
_FEW = 256
"""Up to so many objects are asked for one by one; of more, the drawers are listed."""


class Part(msgspec.Struct, frozen=True):
    """An object that something needs: a file, a piece of one, or a pack of small ones."""

    sha256: str
    size: int


class FoundObject(msgspec.Struct, frozen=True, kw_only=True):
    """Where an object lies, and how old it is there."""

    size: int
    modified: float
    drawer: str


def key_of(digest: str, drawer: str = EXPIRING) -> str:
    """An object's key: a folder for each first two digits, which lets listings run side by side."""
    return f"{drawer}/{digest[:2]}/{digest}"


def digest_of(key: str) -> str | None:
    """The digest in an object's key; None if it is none."""
    name = key.rpartition("/")[2]
    return name if len(name) == 64 and set(name) <= set("0123456789abcdef") else None


def find(backend: Backend, digests: Sequence[str], workers: int) -> dict[str, FoundObject]:
    """Which of the objects are there; those in `kept/` are said to be there."""
    if len(digests) <= _FEW:
        tasks = [partial(_find_one, backend, digest) for digest in digests]
        found = together(tasks, workers)
        return {digest: one for digest, one in found if one is not None}
    wanted = set(digests)
    listed: dict[str, FoundObject] = {}
    for drawer in (EXPIRING, KEPT):  # the later one has the last word
        for one in every(backend, drawer, workers, {digest[:2] for digest in wanted}):
            digest = digest_of(one.key)
            if digest in wanted:
                listed[digest] = FoundObject(size=one.size, modified=one.modified, drawer=drawer)
    return listed


def every(
    backend: Backend, drawer: str, workers: int, firsts: Iterable[str] | None = None
) -> Iterator[Stored]:
    """All objects of a drawer, or those whose digests start so."""
    if firsts is None:
        yield from backend.list(f"{drawer}/")
        return
    tasks = [partial(_listed, backend, f"{drawer}/{first}/") for first in sorted(firsts)]
    for page in together(tasks, workers):
        yield from page


def fetch(backend: Backend, part: Part, *, drawer: str = EXPIRING) -> bytes:
    """An object's bytes, whole; from the drawer named first, if they are there."""
    other = EXPIRING if drawer == KEPT else KEPT
    wrong = ""
    for place in (
        drawer,
        other,
        drawer,
    ):  # a third time: a wrong answer may have been the network's
        try:
            data = backend.get(key_of(part.sha256, place))
        except Absent:
            continue
        found = sha256(data).hexdigest()
        if found == part.sha256:
            return data
        wrong = wrong or described(data, part, found)
    if wrong:
        raise damaged(
            f"object {part.sha256} of {backend.url}: {wrong}",
            path=key_of(part.sha256),
            next_command=backend.look(key_of(part.sha256)),
        )
    raise missing(backend, part.sha256)


def missing(backend: Backend, digest: str) -> StoreProblem:
    """An object that should be there is not: as bad as a damaged one."""
    return damaged(
        f"object {digest} of {backend.url}: expected it to be there, found nothing",
        path=key_of(digest),
        next_command=backend.look(key_of(digest)),
    )


def described(data: bytes, part: Part, found: str) -> str:
    """What came instead of an object."""
    start = data[:64].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        size = f"{part.size:,} bytes of an object" if part.size >= 0 else "this sha256"
        return f"expected {size}, found an HTML page"
    if len(data) != part.size and part.size >= 0:
        return f"expected {part.size:,} bytes, found {len(data):,}"
    return f"expected this sha256, found {found}"


def _find_one(backend: Backend, digest: str) -> tuple[str, FoundObject | None]:
    for drawer in _DRAWERS:
        one = backend.head(key_of(digest, drawer))
        if one is not None:
            return digest, FoundObject(size=one.size, modified=one.modified, drawer=drawer)
    return digest, None


def _listed(backend: Backend, prefix: str) -> list[Stored]:
    return list(backend.list(prefix))


Watch = Callable[[int], None]
"""Told of every so many bytes that have moved."""
