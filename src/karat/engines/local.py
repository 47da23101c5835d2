"""GPUs: which ones this process may use."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from karat.engines.job import Job, JobResult
from karat.engines.runner import Slot, run_job
from karat.findings import CannotVerify, UsageError
from karat.system.locks import take, users_folder

_LISTED = re.compile(r"GPU (\d+): .*\(UUID: (GPU-[0-9a-fA-F-]+)\)")
_LISTING = ("nvidia-smi", "-L")


class Gpu(msgspec.Struct, frozen=True):
    """One GPU."""

    name: str
    """As CUDA_VISIBLE_DEVICES has it."""
    id: str
    """The same for everybody on this machine."""


def visible_gpus() -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES names, or all there are; CannotVerify where nobody can say."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    listed = _listed(required=said is None)
    if said is None:
        return tuple(Gpu(index, uuid) for index, uuid in listed.items())
    names = [name.strip() for name in said.split(",") if name.strip() and name.strip() != "-1"]
    # One that is named twice is one.
    once: dict[str, Gpu] = {}
    for name in names:
        once.setdefault(_id(name, listed), Gpu(name, _id(name, listed)))
    return tuple(once.values())


def _id(name: str, listed: dict[str, str]) -> str:
    """A GPU may be named by its number, by its id, or by the beginning of that."""
    if name in listed:
        return listed[name]
    return next((uuid for uuid in listed.values() if uuid.startswith(name)), name)


def _listed(*, required: bool) -> dict[str, str]:
    try:
        done = subprocess.run(
            _LISTING, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        if not required:
            return {}
        raise CannotVerify(
            "expected `nvidia-smi -L` to list the GPUs of this machine, since each probe is to have some for itself, "
            f"found: {getattr(error, 'strerror', None) or error}",
            next_command="export CUDA_VISIBLE_DEVICES=0  # or gpus = 0 under [engine]",
        ) from error
    return dict(_LISTED.findall(done.stdout.decode("utf-8", "replace")))


# DOC-HERE claiming: Claiming slots of this machine: areas, cores and GPUs that nobody else uses, also no other hunt.

_LOOK_AGAIN = 1.0
_EDIT = "edit [engine] in hunt.toml"


class SlotRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How many slots, and what each is to have."""

    slots: int
    cores: int
    gpus: int


class SlotsTaken(Exception):  # noqa: N818 - what became of it
    """Somebody else has too many of them."""


class SlotClaim:
    """Slots that this process has for itself until it lets go of them, or dies."""

    def __init__(self, wanted: SlotRequest, work: Path) -> None:
        """All of them or none: whoever waits for the rest must not keep what another waits for."""
        self._handles: list[int] = []
        try:
            cores = self._grouped(_cores(wanted), wanted.slots, wanted.cores)
            gpus = self._grouped(_gpus(wanted), wanted.slots, wanted.gpus)
            self.slots = tuple(
                self._slot(work, cores[index], gpus[index]) for index in range(wanted.slots)
            )
        except BaseException:
            self.release()
            raise

    def _grouped(
        self, locks: Mapping[str, Path], slots: int, each: int
    ) -> list[list[tuple[str, int]]]:
        """Names with the handles of their locks, `each` for every slot."""
        found: list[tuple[str, int]] = []
        for name, path in locks.items():
            if len(found) < slots * each and (handle := take(path)) is not None:
                self._handles.append(handle)
                found.append((name, handle))
        if len(found) < slots * each:
            raise SlotsTaken
        return [found[index * each : (index + 1) * each] for index in range(slots)]

    def _slot(self, work: Path, cores: list[tuple[str, int]], gpus: list[tuple[str, int]]) -> Slot:
        number = 0
        # Another area costs a folder, so there is always a free one.
        while (handle := take(work / f"slot-{number}.lock")) is None:
            number += 1
        self._handles.append(handle)
        return Slot(
            number=number,
            area=work / f"slot-{number}",
            cores=tuple(int(name) for name, _ in cores),
            gpus=tuple(name for name, _ in gpus),
            held=(handle, *(lock for _, lock in (*cores, *gpus))),
        )

    def release(self) -> None:
        """Others may have them; what a warden still holds stays held until it has ended."""
        while self._handles:
            os.close(self._handles.pop())


def claim_slots(
    wanted: SlotRequest, work: Path, notice: Callable[[str], None] | None = None
) -> SlotClaim:
    """Slots, as soon as all of them can be had; who has to wait is told so."""
    say, said = notice or _say, False
    while True:
        try:
            return SlotClaim(wanted, work)
        except SlotsTaken:
            if not said:
                say(f"waiting for {_needs(wanted)}: another hunt on this machine has them")
                said = True
            time.sleep(_LOOK_AGAIN)


def _say(message: str) -> None:
    print(f"karat: {message}", file=sys.stderr, flush=True)


def _needs(wanted: SlotRequest) -> str:
    each = {"cores": wanted.cores, "GPUs": wanted.gpus}
    many = {what: wanted.slots * number for what, number in each.items() if number}
    return " and ".join(f"{n} {what if n > 1 else what[:-1]}" for what, n in many.items())


def _cores(wanted: SlotRequest) -> dict[str, Path]:
    if not wanted.cores:
        return {}
    if not hasattr(os, "sched_getaffinity"):
        raise UsageError(
            "expected a system that pins processes to cores (Linux), found another; cores = 0 does without",
            next_command=_EDIT,
        )
    there = sorted(os.sched_getaffinity(0))
    _enough("cores", wanted.slots, wanted.cores, len(there))
    return {str(core): users_folder() / f"core-{core}.lock" for core in there}


def _gpus(wanted: SlotRequest) -> dict[str, Path]:
    if not wanted.gpus:
        return {}
    there: tuple[Gpu, ...] = visible_gpus()
    _enough("GPUs", wanted.slots, wanted.gpus, len(there))
    return {gpu.name: users_folder() / f"{_file_name(gpu.id)}.lock" for gpu in there}


def _file_name(text: str) -> str:
    safe = "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in text)
    return f"gpu-{safe}"


def _enough(what: str, slots: int, each: int, there: int) -> None:
    if slots * each > there:
        raise UsageError(
            f"expected no more {what} to be asked for than this process may use, which is {there}; "
            f"found {slots} slots with {each} each, which makes {slots * each}",
            next_command=_EDIT,
        )


# DOC-HERE local: The local engine: jobs as processes of this machine, one thread per slot to attend to them.


class _Ticket(msgspec.Struct):
    """A job on its way."""

    job: Job
    cancelled: bool = False


class LocalEngine:
    """Runs jobs in slots of this machine. Its methods are for one thread."""

    name = "local"
    abandoned = False

    def __init__(self, claim: SlotClaim) -> None:
        self._claim = claim
        self._turn = threading.Condition()
        self._waiting: deque[_Ticket] = deque()
        self._tickets: dict[str, _Ticket] = {}
        """Jobs in flight, by key."""
        self._done: queue.SimpleQueue[tuple[_Ticket, JobResult | Exception]] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, args=(slot,), daemon=True, name=f"slot {index}")
            for index, slot in enumerate(claim.slots)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def slots(self) -> int:
        """How many jobs may run at once."""
        return len(self._claim.slots)

    def submit(self, job: Job) -> None:
        """Start a job as soon as a slot is free; returns at once."""
        if job.key in self._tickets:
            raise ValueError(f"a job with the key {job.key!r} is in flight already")
        ticket = self._tickets[job.key] = _Ticket(job)
        with self._turn:
            self._waiting.append(ticket)
            self._turn.notify()

    def wait(self, seconds: float | None = None) -> Sequence[JobResult]:
        """Results that have come, at least one unless `seconds` passed or nothing is in flight."""
        until = None if seconds is None else time.monotonic() + seconds
        results: list[JobResult] = []
        while self._tickets:
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                ticket, result = self._done.get(timeout=0 if results else left)
            except queue.Empty:
                break
            if ticket.cancelled:
                continue
            del self._tickets[ticket.job.key]
            if isinstance(result, Exception):
                raise result
            results.append(result)
        return results

    def cancel(self, key: str) -> None:
        """Stop a job with all it started; no result comes of it."""
        ticket = self._tickets.pop(key, None)
        if ticket is not None:
            ticket.cancelled = True

    def close(self) -> None:
        """Stop everything that is in flight, whole process trees, and give back what was held."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        for key in list(self._tickets):
            self.cancel(key)
        for thread in self._threads:
            thread.join()
        self._claim.release()

    def _serve(self, slot: Slot) -> None:
        while (ticket := self._next()) is not None:
            self._done.put((ticket, _outcome(ticket, slot)))

    def _next(self) -> _Ticket | None:
        with self._turn:
            while not self._closed:
                while self._waiting:
                    ticket = self._waiting.popleft()
                    if not ticket.cancelled:
                        return ticket
                self._turn.wait()
            return None


def _outcome(ticket: _Ticket, slot: Slot) -> JobResult | Exception:
    job, started = ticket.job, time.time()
    try:
        return run_job(job, slot, lambda: ticket.cancelled)
    except OSError as error:
        # A full disk, a folder that may not be written: nothing that the point is to blame for.
        return JobResult(
            key=job.key, ran=(), started=started, seconds=0.0, where=slot.where, lost=str(error)
        )
    except Exception as error:  # noqa: BLE001 - raised again where the engine is asked
        return error
