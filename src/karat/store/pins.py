"""Pins and lock files: snapshots that a store keeps for good, and those that a repository uses.

A pin's objects are in `kept/`, which no lifecycle rule of a bucket reaches; they are copied there before the pin is
written. When the pin is removed, `karat gc` moves them back or deletes them.

`bundles.lock.json` says which snapshot a consumer uses, one line per name. Lines are sorted and each ends in a comma,
and the schema closes the object, so two branches that move different names merge without a conflict. What a lock
names, `karat gc --lock` never deletes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from karat.goldens.saves import LockFile
from karat.store import snapshot as snapshots
from karat.store.backends import Absent, Backend
from karat.store.leases import LeaseTimes, lease, wait_for_collectors
from karat.store.objects import (
    EXPIRING,
    KEPT,
    Part,
    digest_of,
    find,
    is_kept,
    key_of,
    missing,
    seal,
    unreadable,
    unsealed,
)
from karat.store.references import format_date
from karat.system.hashes import is_sha256
from karat.system.pool import in_parallel

SCHEMA = "karat.pinned/1"
_A_PIN = f"a pin ({SCHEMA})"
LOCK_SCHEMA = "karat.bundle-lock/1"
PREFIX = "pins/"


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """Why a snapshot is kept."""

    schema: str = SCHEMA
    digest: str
    reason: str
    name: str = ""  # The name it was pinned by.
    date: str


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    pins: tuple[Pin, ...]
    removed: bool


def pin(  # noqa: PLR0913 - most have defaults
    backend: Backend,
    digest: str,
    reason: str,
    name: str = "",
    *,
    workers: int = 16,
    times: LeaseTimes | None = None,
    notice: Callable[[str], None] | None = None,
) -> Pin:
    """Keep a snapshot; a pin that it already has stays as it is."""
    times = times or LeaseTimes()
    with lease(backend, "pin", snapshots=(digest,), times=times) as held:
        wait_for_collectors(backend, held, times, notice)
        snapshot = snapshots.load(backend, digest)
        needed = {part.digest: part for part in snapshot.parts()} | {digest: Part(digest, -1)}
        found = find(backend, sorted(needed), workers)
        for lost in sorted(needed.keys() - found.keys()):
            raise missing(backend, lost)
        # One of the wrong size is copied again from where it may be whole.
        tasks = [
            partial(backend.copy, key_of(one, EXPIRING), key_of(one, KEPT))
            for one, part in needed.items()
            if not is_kept(found[one]) or part.size not in {-1, found[one].size}
        ]
        try:
            list(in_parallel(tasks, workers))
        except Absent as absent:
            raise missing(backend, digest_of(absent.key) or absent.key) from None
        held.check()
        date = format_date(datetime.fromtimestamp(held.now(), UTC))
        made = Pin(digest=digest, reason=reason, name=name, date=date)
        backend.put(_key(digest), seal(made))
        return read(backend, digest) or made


def read(backend: Backend, digest: str) -> Pin | None:
    try:
        found = unsealed(backend, _key(digest), backend.get(_key(digest)), Pin, _A_PIN)
    except Absent:
        return None
    if found.schema != SCHEMA or found.digest != digest:
        raise unreadable(backend, _key(digest), _A_PIN, "something else")
    return found


def read_all(backend: Backend) -> dict[str, Pin]:
    """All pins by digest; one that cannot be read stops whoever must know."""
    found = {}
    for one in backend.list(PREFIX):
        digest = one.key.removeprefix(PREFIX).removesuffix(".json")
        if one.key != _key(digest):
            raise unreadable(backend, one.key, _A_PIN, "another name")
        if (pinned := read(backend, digest)) is not None:
            found[digest] = pinned
    return found


def remove(backend: Backend, digest: str) -> bool:
    if backend.head(_key(digest)) is None:
        return False
    backend.delete([_key(digest)])
    return True


def _key(digest: str) -> str:
    return f"{PREFIX}{digest}.json"


def lines(pinned: Pinned, reason: str | None) -> Iterator[str]:
    for one in pinned.pins:
        if pinned.removed:
            yield f"unpinned sha256:{one.digest}; karat gc forgets it once its references expire"
        else:
            before = "" if one.reason == reason else " (it was pinned before, and keeps that reason)"
            yield f"pinned sha256:{one.digest} on {one.date[:10]}: {one.reason}{before}"


class Locked(msgspec.Struct, frozen=True, kw_only=True):
    """One line: the snapshot that a name stands for here."""

    store: str  # A URL, or a folder; one that starts with a dot is taken from where the lock is (`store_of`).
    digest: str
    date: str

    def __post_init__(self) -> None:
        if not is_sha256(self.digest):
            raise ValueError(f"digest {self.digest[:80]!r}")


_LOCK = LockFile(LOCK_SCHEMA, Locked)
read_lock, write_lock = _LOCK.read, _LOCK.write


def store_in(file: Path, url: str) -> str:
    """A store as a lock names it: a folder of the same checkout by its path from the lock."""
    here = file.absolute().parent
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    if "://" in url or not Path(url).is_relative_to(root):
        return url
    path = Path(os.path.relpath(url, here)).as_posix()
    return path if path.startswith("..") else f"./{path}"


def store_of(file: Path, written: str) -> str:
    """The store that a line of a lock means, wherever one stands."""
    return str(file.absolute().parent / written) if written.startswith(("./", "../")) else written
