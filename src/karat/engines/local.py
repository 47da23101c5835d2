"""The local engine: jobs as processes of this machine, in slots whose folders, cores and GPUs no other hunt uses."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from karat.engines.job import EDIT, EngineSettings, Job, JobResult
from karat.engines.runner import Slot, free_slot, run_job
from karat.findings import CannotVerify, UsageError
from karat.report.words import count
from karat.system.locks import take, users_folder

_LISTED = re.compile(r"GPU (\d+): .*\(UUID: (GPU-[0-9a-fA-F-]+)\)")
_LOOK_AGAIN = 1.0


class SlotsTaken(Exception):  # noqa: N818 - what became of it
    """Other processes hold too many of them."""


class SlotClaim:
    """Slots that this process holds until it releases them, or dies."""

    def __init__(self, wanted: EngineSettings, work: Path) -> None:
        """All of them or none: whoever waits for the rest must not keep what another waits for."""
        self._handles: list[int] = []
        try:
            slots = wanted.slots or 1
            lots = ((locks, int(each)) for locks, each in zip(_locks(wanted), (wanted.cores, wanted.gpus), strict=True))
            cores, gpus = (self._grouped(locks, slots, each) for locks, each in lots)
            self.slots = tuple(self._slot(work, *owned) for owned in zip(cores, gpus, strict=True))
        except BaseException:
            self.release()
            raise

    def _grouped(self, locks: Mapping[str, Path], slots: int, each: int) -> list[list[tuple[str, int]]]:
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
        slot = free_slot(work, cores=tuple(int(name) for name, _ in cores), gpus=tuple(name for name, _ in gpus))
        self._handles += slot.held
        return msgspec.structs.replace(slot, held=(*slot.held, *(lock for _, lock in (*cores, *gpus))))

    def release(self) -> None:
        """Let others have them; what a supervisor still holds stays locked until it has ended."""
        while self._handles:
            os.close(self._handles.pop())


def claim_slots(wanted: EngineSettings, work: Path, notice: Callable[[str], None]) -> SlotClaim:
    """Slots, as soon as all of them are free; says once that it waits."""
    told = False
    while True:
        try:
            return SlotClaim(wanted, work)
        except SlotsTaken:
            if not told:
                each = {"core": int(wanted.cores), "GPU": int(wanted.gpus)}
                needs = " and ".join(count((wanted.slots or 1) * n, what) for what, n in each.items() if n)
                notice(f"waiting for {needs}: another hunt on this machine has them")
            told = True
            time.sleep(_LOOK_AGAIN)


def _locks(wanted: EngineSettings) -> tuple[dict[str, Path], dict[str, Path]]:
    """Cores and GPUs that this process may use, by name, each with the file that locks it."""
    if wanted.cores and not hasattr(os, "sched_getaffinity"):
        said = "expected a system that pins processes to cores (Linux), found another; cores = 0 does without"
        raise UsageError(said, next_command=EDIT)
    cores = sorted(os.sched_getaffinity(0)) if wanted.cores else []
    gpus = visible_gpus() if wanted.gpus else {}
    slots = wanted.slots or 1
    for what, each, there in (("cores", int(wanted.cores), len(cores)), ("GPUs", int(wanted.gpus), len(gpus))):
        if slots * each > there:
            found = f"{slots} slots with {each} each, which makes {slots * each}"
            said = f"expected no more {what} than the {there} that this process may use, found {found}"
            raise UsageError(said, next_command=EDIT)
    files = {name: re.sub(r"[^\w-]", "_", uuid) for name, uuid in gpus.items()}
    core_locks = {str(core): users_folder() / f"core-{core}.lock" for core in cores}
    return core_locks, {name: users_folder() / f"gpu-{file}.lock" for name, file in files.items()}


def visible_gpus() -> dict[str, str]:
    """Those in CUDA_VISIBLE_DEVICES, or all there are; CannotVerify where nothing lists them.

    A name as that variable has it → an id that is the same for every process of this machine.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        nothing = subprocess.DEVNULL
        done = subprocess.run(["nvidia-smi", "-L"], stdin=nothing, capture_output=True, timeout=60, check=True)
        listed = dict(_LISTED.findall(done.stdout.decode("utf-8", "replace")))
    except (OSError, subprocess.SubprocessError) as error:
        if visible is None:
            found = getattr(error, "strerror", None) or error
            said = f"expected `nvidia-smi -L` to list the GPUs, of which each probe gets its own, found: {found}"
            following = "export CUDA_VISIBLE_DEVICES=0  # or gpus = 0 under [engine]"
            raise CannotVerify(said, next_command=following) from error
        listed = {}
    if visible is None:
        return listed
    # A GPU may be named by its number, its id, or the beginning of that; one that is named twice is one.
    once: dict[str, str] = {}
    for name in map(str.strip, visible.split(",")):
        if name and name != "-1":
            starts = (uuid for uuid in listed.values() if uuid.startswith(name))
            uuid = listed.get(name) or next(starts, name)
            once.setdefault(uuid, name)
    return {name: uuid for uuid, name in once.items()}


class _Ticket(msgspec.Struct):
    job: Job
    cancelled: bool = False


class LocalEngine:
    """Runs jobs in slots of this machine. Its methods are for one thread."""

    abandoned = False

    def __init__(self, claim: SlotClaim) -> None:
        self._claim = claim
        self._waiting: list[_Ticket] = []
        self._homes: dict[str, int] = {}  # Jobs that belong together, or a job by itself → the slot they run in.
        self._changed, self._closed = threading.Condition(), False
        self._tickets: dict[str, _Ticket] = {}  # Jobs in flight, by key.
        self._done: queue.SimpleQueue[tuple[_Ticket, JobResult | Exception]] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, args=(slot,), daemon=True, name=f"slot {index}")
            for index, slot in enumerate(claim.slots)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def slots(self) -> int:
        return len(self._claim.slots)

    def submit(self, job: Job) -> None:
        self._tickets[job.key] = _Ticket(job)
        with self._changed:
            self._waiting.append(self._tickets[job.key])
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> Sequence[JobResult]:
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
        ticket = self._tickets.pop(key, None)
        if ticket is not None:
            ticket.cancelled = True

    def close(self) -> None:
        for key in list(self._tickets):
            self.cancel(key)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._claim.release()

    def _serve(self, slot: Slot) -> None:
        while (ticket := self._next(slot)) is not None:
            if not ticket.cancelled:
                self._done.put((ticket, _result(ticket, slot)))

    def _next(self, slot: Slot) -> _Ticket | None:
        with self._changed:
            while not self._closed:
                for ticket in self._waiting:
                    if self._homes.setdefault(ticket.job.beside or ticket.job.key, slot.number) == slot.number:
                        self._waiting.remove(ticket)
                        return ticket
                self._changed.wait()
        return None


def _result(ticket: _Ticket, slot: Slot) -> JobResult | Exception:
    started = time.time()
    try:
        return run_job(ticket.job, slot, lambda: ticket.cancelled)
    except OSError as error:
        # A full disk, a folder that may not be written: the point is not to blame.
        return JobResult(key=ticket.job.key, started=started, where=slot.where, lost=str(error))
    except Exception as error:  # noqa: BLE001 - raised again by `wait`
        return error
