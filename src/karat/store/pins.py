"""Pins: snapshots that are kept for good, and why.

A pin's objects lie in `kept/`, which no lifecycle rule of a bucket reaches; they are copied there before the
pin is written. When it is taken away, `karat gc` moves them back or deletes them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import msgspec

from karat.findings import CannotVerify
from karat.store import snapshot as snapshots
from karat.store.backend import Absent, Backend
from karat.store.objects import EXPIRING, KEPT, Part, find, key_of, missing
from karat.store.presence import Times, lease, wait_for_collectors
from karat.store.references import stamp
from karat.store.sealed import seal, unseal
from karat.store.snapshot import Snapshot
from karat.store.teamwork import together

SCHEMA = "karat.pinned/1"
PREFIX = "pins/"


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """Why a snapshot is kept."""

    schema: str = SCHEMA
    digest: str
    reason: str
    name: str = ""
    """The name it was pinned by."""
    date: str


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """What `karat pin` did."""

    store: str
    pins: tuple[Pin, ...]
    removed: bool


def pin(  # noqa: PLR0913 - most have defaults
    backend: Backend, digest: str, reason: str, name: str = "", *, workers: int = 16,
    times: Times | None = None, notice: Callable[[str], None] | None = None,
) -> Pin:  # fmt: skip
    """Keeps a snapshot; the pin that it has already stays as it is."""
    times = times or Times()
    with lease(backend, "pin", snapshots=(digest,), times=times) as held:
        wait_for_collectors(backend, held, times, notice)
        keep(backend, digest, snapshots.load(backend, digest), workers)
        held.check()
        return write(backend, digest, reason, name, held.now())


def keep(backend: Backend, digest: str, snapshot: Snapshot, workers: int) -> None:
    """Everything that the snapshot needs lies in `kept/`, too."""
    needed = {part.sha256: part for part in snapshot.parts()} | {digest: Part(digest, -1)}
    found = find(backend, sorted(needed), workers)
    for lost in sorted(needed.keys() - found.keys()):
        raise missing(backend, lost)
    # One of the wrong size is copied again from where it may be whole.
    tasks = [
        partial(backend.copy, key_of(one, EXPIRING), key_of(one, KEPT))
        for one, part in needed.items()
        if found[one].drawer != KEPT or part.size not in {-1, found[one].size}
    ]
    try:
        for _ in together(tasks, workers):
            pass
    except Absent as absent:
        raise missing(backend, absent.key.rpartition("/")[2]) from None


def write(backend: Backend, digest: str, reason: str, name: str, now: float) -> Pin:
    """The pin itself, once everything is in its place."""
    date = stamp(datetime.fromtimestamp(now, UTC))
    made = Pin(digest=digest, reason=reason, name=name, date=date)
    backend.put(_key(digest), seal(made))
    return read(backend, digest) or made


def read(backend: Backend, digest: str) -> Pin | None:
    """The pin of a snapshot, if it has one."""
    try:
        data = backend.get(_key(digest))
    except Absent:
        return None
    try:
        found = unseal(data, Pin)
    except ValueError as error:  # msgspec's are among them
        raise _unreadable(backend, _key(digest), str(error)) from error
    if found.schema != SCHEMA or found.digest != digest:
        raise _unreadable(backend, _key(digest), "something else")
    return found


def every(backend: Backend) -> dict[str, Pin]:
    """All pins by digest; one that cannot be read stops whoever must know."""
    found = {}
    for one in backend.list(PREFIX):
        digest = one.key.removeprefix(PREFIX).removesuffix(".json")
        if one.key != _key(digest):
            raise _unreadable(backend, one.key, "another name")
        pinned = read(backend, digest)
        if pinned is not None:
            found[digest] = pinned
    return found


def remove(backend: Backend, digest: str) -> bool:
    """Takes the pin away; False if there was none."""
    if backend.head(_key(digest)) is None:
        return False
    backend.delete([_key(digest)])
    return True


def _key(digest: str) -> str:
    return f"{PREFIX}{digest}.json"


def _unreadable(backend: Backend, key: str, found: str) -> CannotVerify:
    return CannotVerify(
        f"expected a pin ({SCHEMA}) in {key} of {backend.url}, found: {found}",
        next_command=backend.look(key),
    )
