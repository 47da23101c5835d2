"""The local engine: jobs as processes of this machine, one thread per slot to attend to them."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Sequence

import msgspec

from karat.engines.claiming import Claim
from karat.engines.job import Job, JobResult
from karat.engines.running import run_job
from karat.engines.slots import Slot


class _Ticket(msgspec.Struct):
    """A job on its way."""

    job: Job
    cancelled: bool = False


class LocalEngine:
    """Runs jobs in slots of this machine. Its methods are for one thread."""

    name = "local"
    abandoned = False

    def __init__(self, claim: Claim) -> None:
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
