"""Engine: takes jobs, gives results back in the order in which they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from karat.engines.job import Job, JobResult


class Engine(Protocol):
    """Where jobs run. Jobs that were submitted and have not come back are in flight."""

    @property
    def name(self) -> str:
        """`local` or `ray`."""

    @property
    def slots(self) -> int:
        """How many jobs may run at once."""

    @property
    def abandoned(self) -> bool:
        """Whether what it ran on was lost, so that ending it in peace cannot be waited for."""

    def submit(self, job: Job) -> None:
        """Start a job as soon as a slot is free; returns at once."""

    def wait(self, seconds: float | None = None) -> Sequence[JobResult]:
        """Results that have come, at least one unless `seconds` passed or nothing is in flight."""

    def cancel(self, key: str) -> None:
        """Stop a job with all it started; no result comes of it."""

    def close(self) -> None:
        """Stop everything that is in flight, whole process trees, and give back what was held."""
