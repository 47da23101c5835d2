"""Leases: who is at work in a store, so that garbage collection never deletes what a push or pin is about to rely on.

Whoever pushes or pins first writes a lease that names what it needs, and then looks for collectors; whoever
collects first writes its marker, and then reads the leases. Since a store shows everyone what was written
before they look, at least one of the two sees the other: a collector spares what leases name, a pusher waits
until a collector that may not have seen its lease is done. Both kinds of file have unique names, so
nobody deletes another's by mistake. Ages are measured by the store's clock alone: a file is as old
as the difference between its time and that of the one that the asker has just written.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Self

import msgspec

from karat.findings import CannotVerify, KaratError
from karat.store.backends import Absent, Backend, StoredObject, StoreProblem
from karat.store.objects import unreadable
from karat.system.command import Command
from karat.system.processes import process_of

LEASES, COLLECTORS = "pushes/", "gc/"
SCHEMA = "karat.lease/1"
Digests = tuple[str, ...]


class LeaseTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take, in seconds."""

    lease: float = 24 * 3600.0  # A lease not renewed for this long has been abandoned.
    renewal: float = 600.0
    collector: float = 300.0  # The same for a collector's marker.
    beat: float = 15.0
    patience: float = 900.0  # How long to wait for a collector to be done.
    poll: float = 2.0


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """What a push or pin in progress needs."""

    schema: str = SCHEMA
    id: str
    kind: str  # `push`, `pin` or `gc`.
    process: str  # Machine and process, where that can be told.
    objects: Digests = ()
    snapshots: Digests = ()


class HeldLease:
    """A lease or marker of this process, renewed until it is released."""

    def __init__(self, backend: Backend, lease: Lease, prefix: str, *, every: float, longest: float) -> None:
        self.key = f"{prefix}{lease.id}.json"
        self._backend, self._every, self._longest = backend, every, longest
        self._data = msgspec.json.encode(lease)
        self._renewed = _clock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="karat-lease")

    def __enter__(self) -> Self:
        self.renew()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._thread.join()
        try:
            self._backend.delete([self.key])
        except KaratError:
            # It ends by itself; but whoever believes all went well should hear that it did not.
            if kind is None:
                raise

    def renew(self) -> float:
        if not self._write():
            raise self._lost()
        return self.now()

    def now(self) -> float:
        """When it was last written, by the store's clock."""
        found = self._backend.head(self.key)
        if found is None:
            raise self._lost()
        return found.modified

    def check(self) -> None:
        """Raise unless nobody can have taken it for abandoned: it exists, and was always renewed in time."""
        if self._was_silent() or self._backend.head(self.key) is None:
            raise self._lost()

    def _was_silent(self) -> bool:
        return _clock() - self._renewed > self._longest

    def _write(self) -> bool:
        """Renew it, unless it was silent for so long that others may have gone on without it.

        A process on a machine that slept must not carry on as if nothing had happened.
        """
        if self._was_silent():
            return False
        began = _clock()
        self._backend.put(self.key, self._data, replace=True)
        self._renewed = began
        return True

    def _lost(self) -> CannotVerify:
        url = self._backend.url
        said = f"expected {self.key} in {url} to be renewed in time, but it was not; nothing done so far is lost"
        return CannotVerify(said, next_command=Command("karat", "ls", "--store", url))

    def _beat(self) -> None:
        while not self._over.wait(self._every):
            try:
                # What somebody took away must not come back.
                if self._backend.head(self.key) is None or not self._write():
                    return
            except KaratError:
                continue  # `check` notices if it stays so


def lease(
    backend: Backend, kind: str, times: LeaseTimes | None = None, *, objects: Digests = (), snapshots: Digests = ()
) -> HeldLease:
    """What a push, a pin or a collector (`gc`) holds while it runs."""
    identifier = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.urandom(8).hex()}"
    held = Lease(id=identifier, kind=kind, process=this_process(), objects=objects, snapshots=snapshots)
    times = times or LeaseTimes()
    if kind == "gc":
        # A quarter: the request that follows a look at it may be tried again for a while.
        return HeldLease(backend, held, COLLECTORS, every=times.beat, longest=times.collector / 4)
    return HeldLease(backend, held, LEASES, every=times.renewal, longest=times.lease / 2)


def wait_for_collectors(
    backend: Backend, held: HeldLease, times: LeaseTimes, notice: Callable[[str], None] | None = None
) -> None:
    """Return once no collector is running that may not have seen what is held."""
    until = time.monotonic() + times.patience
    while busy := other_collectors(backend, held, times):
        if notice is not None:
            notice(f"waiting for `karat gc`, which is running in {backend.url}")
            notice = None  # once
        if time.monotonic() > until:
            raise store_busy(backend, busy[0])
        time.sleep(times.poll)
        held.renew()


def other_collectors(backend: Backend, held: HeldLease, times: LeaseTimes) -> list[StoredObject]:
    """Markers that are not ours, of processes that may be alive."""
    markers = [one for one in backend.list(COLLECTORS) if one.key != held.key]
    now = held.now() if markers else 0.0
    return [one for one in markers if not _is_over(backend, one, now, times.collector)]


def abandoned(backend: Backend, held: HeldLease, times: LeaseTimes) -> list[str]:
    """Markers and leases that nobody renews any more."""
    now, kinds = held.now(), {COLLECTORS: times.collector, LEASES: times.lease}
    found = [(one, longest) for prefix, longest in kinds.items() for one in backend.list(prefix)]
    return [one.key for one, longest in found if one.key != held.key and _is_over(backend, one, now, longest)]


def live_leases(backend: Backend, now: float, times: LeaseTimes) -> list[Lease]:
    """What those who are at work need; a lease that cannot be read stops whoever must know."""
    found = []
    for one in backend.list(LEASES):
        if now - one.modified >= times.lease:
            continue
        try:
            lease = msgspec.json.decode(backend.get(one.key), type=Lease)
        except Absent:
            continue  # done meanwhile; what it made stands in the references, which are read later
        except (ValueError, RecursionError) as error:
            raise unreadable(backend, one.key, f"a lease ({SCHEMA})", str(error)) from error
        if not _has_ended(lease.process):
            found.append(lease)
    return found


def store_busy(backend: Backend, busy: StoredObject) -> StoreProblem:
    said = f"expected no other `karat gc` in {backend.url}, found {busy.key}, which did not end in time"
    return StoreProblem("store-busy", said, next_command=backend.look(busy.key), path=busy.key)


def _is_over(backend: Backend, one: StoredObject, now: float, longest: float) -> bool:
    """Whether it was not renewed for so long, or belonged to a process of this machine that has ended."""
    try:
        return now - one.modified >= longest or _has_ended(
            msgspec.json.decode(backend.get(one.key), type=Lease).process
        )
    except (Absent, ValueError, RecursionError):
        return False


def _has_ended(process: str) -> bool:
    machine, _, rest = process.rpartition("/")
    if not machine or machine != this_process().rpartition("/")[0]:
        return False
    number, _, began = rest.partition("-")
    if not number.isdecimal():
        return False
    found = process_of(int(number))
    if found is not None:
        return str(found.started) != began
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # one of another user may be hidden, and still exist
        return False
    return True  # our own are never hidden; a zombie has ended


def _clock() -> float:
    """Monotonic seconds that include those in which the machine slept."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@cache
def this_process() -> str:
    """Boot, namespace, number and start of this process; empty where Linux is not there to ask."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
    own = process_of(os.getpid())
    return f"{boot}/{space}/{os.getpid()}-{own.started if own else None}"
