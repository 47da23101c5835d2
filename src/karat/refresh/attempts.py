"""Attempts: of each job, the newest one that has finished counts.

Servers list attempts in any order, and a re-run may cover only some jobs; those that were not run
again keep their earlier attempt. Pure: listings in, `JobGroup`s out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from karat.refresh.identity import Identity, read_identity, renamed
from karat.refresh.settings import RefreshSettings
from karat.sources.listing import Artifact, Job, Run

FAILING = ("failure", "cancelled", "timed_out")
"""Conclusions that `--scope only-failing` means."""

UNFINISHED = ("cancelled", "timed_out")
"""Conclusions of jobs that were stopped from outside."""

JobKey = tuple[str, str, str]
"""Run, name and platform: what all attempts of one job have in common."""


class JobGroup(msgspec.Struct, frozen=True, kw_only=True):
    """All attempts of one job, and the one that counts."""

    key: JobKey
    identity: Identity
    attempts: tuple[Job, ...]
    """Oldest first."""
    current: Job | None
    """The newest finished attempt, or None while there is none."""
    twins: bool = False
    """Two jobs of one attempt that nothing tells apart."""

    @property
    def name(self) -> str:
        """The job's name, with its platform where that is known."""
        platform = self.key[2]
        return f"{self.key[1]} [{platform}]" if platform else self.key[1]

    @property
    def conclusions(self) -> frozenset[str]:
        """How the attempt that counts ended; of twins, both ends."""
        if self.current is None:
            return frozenset()
        number = self.current.attempt
        return frozenset(
            j.conclusion for j in self.attempts if j.attempt == number and j.conclusion
        )

    @property
    def failing(self) -> bool:
        """Whether the attempt that counts did not succeed; of twins, whether either did not."""
        return bool(self.conclusions & set(FAILING))

    def attempt_of(self, artifact: Artifact) -> int | None:
        """Which attempt of this job left the artifact: told, or the last to begin before it was made."""
        if artifact.attempt is not None:
            return artifact.attempt
        numbers = {job.attempt for job in self.attempts}
        if len(numbers) == 1:
            return numbers.pop()
        if artifact.created is None or any(job.started is None for job in self.attempts):
            return None
        begun = [j for j in self.attempts if (j.started or 0.0) <= artifact.created]
        # Attempts that were carried over unchanged begin at the same moment: the newest stands for all.
        return max(begun, key=lambda j: (j.started or 0.0, j.attempt)).attempt if begun else None


def platform_of(job: Job, run: Run | None, platforms: Mapping[str, str]) -> str | None:
    """The platform that a job's labels, name or workflow stand for, if they agree on one."""
    texts = (*job.labels, job.name, run.name if run else "")
    found = {
        name
        for glob, name in platforms.items()
        for text in texts
        if fnmatchcase(text.casefold(), glob.casefold())
    }
    return found.pop() if len(found) == 1 else None


def job_identity(job: Job, run: Run | None, settings: RefreshSettings) -> Identity | None:
    """What a job's name and labels tell; None for a job that is none of ours."""
    texts = [job.name]
    if job.stage:
        texts.append(f"{job.stage}/{job.name}")
        if run is not None and run.name:
            texts.append(f"{run.name}/{job.stage}/{job.name}")
    read = read_identity(texts, settings.jobs)
    if read is None:
        if settings.jobs:
            return None
        read = {}
    identity = dict(renamed(read, settings.rename))
    platform = platform_of(job, run, settings.platforms)
    if platform is not None:
        identity.setdefault("platform", platform)
    return identity


def group_jobs(
    jobs: Iterable[Job], runs: Sequence[Run], settings: RefreshSettings, pinned: int | None = None
) -> list[JobGroup]:
    """Every job of ours once, with its attempts; `pinned` looks at the run as it stood after that attempt."""
    by_id = {run.id: run for run in runs}
    groups: dict[JobKey, tuple[Identity, list[Job]]] = {}
    for job in jobs:
        identity = job_identity(job, by_id.get(job.run_id), settings)
        if identity is None:
            continue
        key = (job.run_id, job.name, identity.get("platform", ""))
        groups.setdefault(key, (identity, []))[1].append(job)
    return [_group(key, *groups[key], pinned) for key in sorted(groups)]


def _group(key: JobKey, identity: Identity, jobs: list[Job], pinned: int | None) -> JobGroup:
    ordered = tuple(sorted(jobs, key=lambda job: (job.attempt, job.id)))
    # Later attempts stay known: an artifact of theirs must not pass for the pinned one's.
    finished = [
        job
        for job in ordered
        if job.conclusion is not None and (pinned is None or job.attempt <= pinned)
    ]
    current = max(finished, key=lambda job: (job.attempt, job.id), default=None)
    numbers = [job.attempt for job in ordered]
    return JobGroup(
        key=key,
        identity=identity,
        attempts=ordered,
        current=current,
        twins=len(numbers) != len(set(numbers)),
    )
