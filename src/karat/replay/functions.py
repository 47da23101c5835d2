"""A station that calls a function, in a process of its own that a new one replaces when it is gone."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from karat.bundles.cases import Case
from karat.replay.crew import Lost, Worker, tail
from karat.replay.outcome import Replayed
from karat.replay.telling import failed
from karat.replay.wire import Hello, Job
from karat.replay.worker import LOG
from karat.replay.workplaces import Workplaces


class FunctionStation:
    """Hands cases to a worker; one that crashed or hung is replaced for the next case."""

    def __init__(
        self, hello: Hello, workplaces: Workplaces, *, timeout: float | None, isolated: bool
    ) -> None:
        self._hello, self._workplaces = hello, workplaces
        self._timeout, self._isolated = timeout, isolated
        self._worker: Worker | None = None

    def prepare(self) -> None:
        """Start the worker; `UsageError` if the function cannot be had."""
        if self._worker is None:
            self._worker = Worker(self._hello)

    def replay(self, case: Case) -> Replayed:
        """What became of the case, also if the worker did not live to tell."""
        work = self._workplaces.folder(case.path)
        started = time.monotonic()
        self.prepare()
        job = Job(path=case.path, work=str(work), keep=self._workplaces.kept)
        try:
            replayed = self._tried(case, job)
        finally:
            kept = self._workplaces.done(work)
        took = time.monotonic() - started
        return msgspec.structs.replace(replayed, seconds=replayed.seconds or took, work=kept)

    def _tried(self, case: Case, job: Job) -> Replayed:
        if self._worker is None:
            raise RuntimeError("a worker was prepared and is not there")
        try:
            replayed = self._worker.replay(job, self._timeout)
        except Lost as lost:
            self._drop()
            printed = tail(Path(job.work) / LOG)
            return failed(case, f"expected {self._hello.function} to return, but {lost}{printed}")
        if self._isolated:
            self._drop()
        return replayed

    def _drop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def stop(self) -> None:
        """End the worker; whoever waits for it is told that it is gone."""
        worker = self._worker
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        """Let go of the worker."""
        self._drop()
