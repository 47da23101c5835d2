"""Attempts: of each job, the newest one that has finished counts.

Servers list attempts in any order, and a re-run may cover only some jobs; those that were not run
again keep their earlier attempt. Pure: listings in, `JobGroup`s out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from karat.findings import Finding, Severity
from karat.refreshes.identity import (
    Identity,
    Lookup,
    is_wanted,
    placeholders,
    read_identity,
    renamed,
)
from karat.refreshes.settings import RefreshSettings
from karat.sources.source import Artifact, Job, Listing, Run

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


# DOC-HERE matching: Matching: which job left an artifact, and whether it is wanted at all.
#
# Asked twice: before the download, with what names tell, to leave out what surely is not wanted; and
# after it, with what the artifact's inside tells. Where several jobs remain possible, that is said;
# nothing is guessed. Pure.

_SHARD = frozenset({"shard", "machine", "job_id", "run_id", "attempt", "uuid", "config", "restart"})
"""What tells the shards of one table apart."""


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact, what its name tells, and the jobs it may be of."""

    artifact: Artifact
    identity: Identity
    jobs: tuple[JobGroup, ...] = ()


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is worth downloading, and what was left out, and why."""

    matches: tuple[Match, ...]
    findings: tuple[Finding, ...] = ()
    out_of_scope: int = 0
    superseded: tuple[str, ...] = ()
    """Names of artifacts of attempts that do not count: earlier ones, or not finished."""
    unmatched: tuple[str, ...] = ()
    """Names of artifacts that no pattern knows."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    only_failing: bool
    platforms: tuple[str, ...] = ()


def match_artifacts(
    listing: Listing, groups: Sequence[JobGroup], settings: RefreshSettings
) -> tuple[list[Match], list[str]]:
    """Every artifact with the jobs it may be of, and the names of those that no pattern knows."""
    matches, unmatched = [], []
    book = JobBook(groups)
    found = [*listing.artifacts, *_by_url(groups, settings, listing)]
    for artifact in found:
        known = {"run_id": artifact.run_id} if artifact.run_id else {}
        read = read_identity([artifact.name], settings.artifacts, known)
        if read is None and settings.artifacts and artifact.job_id is None:
            unmatched.append(artifact.name)
            continue
        identity = renamed(read or {}, settings.rename)
        if is_wanted(identity, settings.values):
            jobs = book.possible(artifact, identity)
            matches.append(Match(artifact=artifact, identity=identity, jobs=jobs))
    return matches, unmatched


class JobBook:
    """The jobs of a listing, to be asked which of them may have left an artifact."""

    def __init__(self, groups: Sequence[JobGroup]) -> None:
        self._agreeing = Lookup((group.identity, group) for group in groups)
        self._by_id: dict[str, list[JobGroup]] = {}
        for group in groups:
            for job_id in dict.fromkeys(job.id for job in group.attempts):
                self._by_id.setdefault(job_id, []).append(group)

    def possible(self, artifact: Artifact, identity: Identity) -> tuple[JobGroup, ...]:
        """The jobs that may have left an artifact: the one it names, or all that agree with it."""
        job_id = artifact.job_id or identity.get("job_id")
        if job_id is not None:
            return tuple(self._by_id.get(job_id, ()))
        run_id = artifact.run_id or identity.get("run_id")
        found = self._agreeing.agreeing(identity)
        return tuple(g for g in found if run_id is None or g.key[0] == run_id)


def choose(
    matches: Sequence[Match], groups: Sequence[JobGroup], wish: Wish, *, tables: bool
) -> Choice:
    """The artifacts to download: those that may be wanted, as far as names can tell."""
    failing = {_table(g.identity) for g in groups if g.failing} if tables else set()
    chosen: list[Match] = []
    superseded: list[str] = []
    out_of_scope = 0
    for match in matches:
        if not _on_platform(match, wish.platforms):
            continue
        if match.jobs and all(is_superseded(match.artifact, g) for g in match.jobs):
            superseded.append(match.artifact.name)
            continue
        in_scope = not wish.only_failing or not match.jobs or any(g.failing for g in match.jobs)
        # A table needs all of its shards, also those of jobs that passed.
        if not in_scope and not (tables and any(_table(g.identity) in failing for g in match.jobs)):
            out_of_scope += 1
            continue
        chosen.append(match)
    return Choice(matches=tuple(chosen), out_of_scope=out_of_scope, superseded=tuple(superseded))


def _table(identity: Identity) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((k, v.casefold()) for k, v in identity.items() if k not in _SHARD))


def is_superseded(artifact: Artifact, group: JobGroup) -> bool:
    """Whether an artifact is surely of another attempt of this job than the one that counts."""
    if group.current is None:
        return True  # no attempt counts yet: what a job leaves on its way is not its result
    attempt = group.attempt_of(artifact)
    return attempt is not None and attempt != group.current.attempt


def _on_platform(match: Match, wanted: Sequence[str]) -> bool:
    """Whether an artifact may be of a wanted platform; its inside may tell more."""
    if not wanted:
        return True
    told = {match.identity["platform"]} if "platform" in match.identity else set()
    if not told:
        told = {g.identity.get("platform", "") for g in match.jobs}
    return not told or "" in told or any(is_platform(name, wanted) for name in told)


def is_platform(name: str, wanted: Sequence[str]) -> bool:
    """Whether a platform is one of those asked for."""
    return any(fnmatchcase(name.casefold(), glob.casefold()) for glob in wanted)


def _by_url(
    groups: Sequence[JobGroup], settings: RefreshSettings, listing: Listing
) -> list[Artifact]:
    """One artifact per job at the address the configuration gives, for CIs that keep them elsewhere."""
    template = settings.artifact_url
    if template is None:
        return []
    found = []
    for group in groups:
        job = group.current
        if job is None or not is_wanted(group.identity, settings.values):
            continue
        facts = {
            **group.identity,
            "run_id": job.run_id,
            "job_id": job.id,
            "attempt": str(job.attempt),
            **({"repo": listing.repo} if listing.repo else {}),
        }
        scheme, _, rest = template.partition("://")
        filled = {name: facts.get(name, "") for name in placeholders(rest)}
        if all(filled.values()):
            url = f"{scheme}://{_url(rest, filled)}"
            found.append(_elsewhere(job, url))
    return found


def _elsewhere(job: Job, url: str) -> Artifact:
    return Artifact(
        id=f"url-{job.id}",
        name=url.rpartition("/")[2],
        run_id=job.run_id,
        job_id=job.id,
        attempt=job.attempt,
        url=url,
    )


def _url(template: str, values: Identity) -> str:
    from urllib.parse import quote  # noqa: PLC0415 - only for artifacts kept elsewhere

    for name, value in values.items():
        # A repository is OWNER/NAME: its slash is part of the path, no other value's is.
        template = template.replace(f"{{{name}}}", quote(value, safe="/" if name == "repo" else ""))
    return template


def ambiguous(match: Match, jobs: Sequence[JobGroup]) -> Finding:
    """The finding that nothing tells which of several jobs left an artifact."""
    names = ", ".join(sorted({g.name for g in jobs}))
    conclusions = ", ".join(sorted({str(g.current.conclusion) for g in jobs if g.current}))
    return Finding(
        kind="ambiguous-job",
        severity=Severity.FAIL,
        path=match.artifact.name,
        message=(
            f"artifact {match.artifact.name} may be of {len(jobs)} jobs ({names}; {conclusions}),"
            " and neither a name nor a manifest inside tells which; nothing was taken from it"
        ),
        next="karat refresh --scope all",
    )
