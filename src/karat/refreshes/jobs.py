"""Jobs: the attempt of each that counts, and which job left an artifact. Pure.

Servers list attempts in any order, and a re-run may cover only some jobs; those that were not run again
keep their earlier attempt. Artifacts are matched twice: before the download, by names, to leave out what
surely is not wanted; and after it, by what is inside. Where several jobs remain possible, that is reported;
nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from urllib.parse import quote

import msgspec
from msgspec import structs

from karat.compare.rules import STATUS_ORDER, RuleBook
from karat.findings import Finding, fail
from karat.goldens.paths import DEFAULT_GLOBS
from karat.refreshes.identity import Identity, Lookup, is_wanted, placeholders, platform_of, read_identity, renamed
from karat.settings import RefreshSettings
from karat.sources.source import Artifact, CiJob, Listing, Progress, Run
from karat.system.command import Command

FAILING = frozenset({"failure", "cancelled", "timed_out"})  # Conclusions that `--scope only-failing` means.

UNFINISHED = frozenset({"cancelled", "timed_out"})  # Conclusions of jobs that were stopped from outside.

JobKey = tuple[str, str, str]  # Run, name and platform: what all attempts of one job have in common.

_SHARD = frozenset({"shard", "machine", "job_id", "run_id", "attempt", "uuid", "config", "rest", "restart"})
"""What tells the shards of one table apart."""


class RefreshOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to refresh, and how."""

    scope: str  # `only-failing` or `all`; there is no default.
    settings: RefreshSettings = RefreshSettings()
    globs: Sequence[str] = DEFAULT_GLOBS
    exclude: Sequence[str] = ()
    cases: Sequence[str] = ()
    rules: RuleBook = msgspec.field(default_factory=RuleBook)
    status: Sequence[str] = STATUS_ORDER
    only: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    attempt: int | None = None
    accept_incomplete: bool = False
    prune: bool = False
    keep_going: bool = False
    dry_run: bool = False
    date: str = ""  # UTC, ISO 8601; goes into the lock.
    command: Command = Command("karat", "refresh")  # As typed, for the record and for what to run next.
    progress: Progress | None = None
    notice: Callable[[str], None] | None = None

    @property
    def only_failing(self) -> bool:
        """Whether only goldens of jobs that did not succeed are wanted."""
        return self.scope == "only-failing"


class JobGroup(msgspec.Struct, frozen=True, kw_only=True):
    """All attempts of one job, and the one that counts."""

    key: JobKey
    identity: Identity
    attempts: tuple[CiJob, ...]  # Oldest first.
    current: CiJob | None  # The newest finished attempt, or None while there is none.
    twins: bool = False  # Two jobs of one attempt that nothing tells apart.

    @property
    def name(self) -> str:
        _, name, platform = self.key
        return f"{name} [{platform}]" if platform else name

    @property
    def conclusions(self) -> frozenset[str]:
        """How the attempt that counts ended; of twins, both ends."""
        number = self.current.attempt if self.current else None
        return frozenset(j.conclusion for j in self.attempts if j.attempt == number and j.conclusion)

    @property
    def failing(self) -> bool:
        """Whether the attempt that counts did not succeed; of twins, whether either did not."""
        return bool(self.conclusions & FAILING)

    @property
    def table(self) -> tuple[tuple[str, str], ...]:
        """What all jobs that make shards of one table have in common."""
        return tuple(sorted((k, v.casefold()) for k, v in self.identity.items() if k not in _SHARD))

    def attempt_of(self, artifact: Artifact) -> int | None:
        """Which attempt of this job left the artifact: told, or the last to begin before it was made."""
        if artifact.attempt is not None:
            return artifact.attempt
        numbers = {job.attempt for job in self.attempts if artifact.job_id in {None, job.id}}
        if len(numbers) == 1:
            return numbers.pop()
        if artifact.created is None or any(job.started is None for job in self.attempts):
            return None
        begun = [j for j in self.attempts if (j.started or 0.0) <= artifact.created]
        # Attempts that were carried over unchanged begin at the same moment: the newest stands for all.
        return max(begun, key=lambda j: (j.started or 0.0, j.attempt)).attempt if begun else None

    def supersedes(self, artifact: Artifact) -> bool:
        """Whether an artifact is surely of another attempt of this job than the one that counts."""
        if self.current is None:
            return True  # no attempt counts yet: what a job leaves on its way is not its result
        return self.attempt_of(artifact) not in {None, self.current.attempt}


def group_jobs(
    jobs: Iterable[CiJob], runs: Sequence[Run], settings: RefreshSettings, pinned: int | None = None
) -> list[JobGroup]:
    """Every job of ours once, with its attempts; `pinned` looks at the run as it was after that attempt."""
    by_id = {run.id: run for run in runs}
    found: dict[JobKey, tuple[Identity, list[CiJob]]] = {}
    for job in jobs:
        identity = None if settings.skips(job.name) else _job_identity(job, by_id.get(job.run_id), settings)
        if identity is not None:
            key = (job.run_id, job.name, identity.get("platform", ""))
            found.setdefault(key, (identity, []))[1].append(job)
    groups = []
    for key, (identity, attempts) in sorted(found.items()):
        attempts.sort(key=lambda job: (job.attempt, job.id))
        # Later attempts stay known: an artifact of theirs must not pass for the pinned one's.
        finished = [job for job in attempts if job.conclusion is not None and (pinned is None or job.attempt <= pinned)]
        current, twins = finished[-1] if finished else None, len(attempts) != len({job.attempt for job in attempts})
        groups.append(JobGroup(key=key, identity=identity, attempts=tuple(attempts), current=current, twins=twins))
    return groups


def _job_identity(job: CiJob, run: Run | None, settings: RefreshSettings) -> Identity | None:
    """What a job's name and labels tell; None for a job that is none of ours."""
    texts = [job.name]
    if job.stage:
        texts.append(f"{job.stage}/{job.name}")
        if run is not None and run.name:
            texts.append(f"{run.name}/{job.stage}/{job.name}")
    read = read_identity(texts, settings.jobs)
    if read is None and settings.jobs:
        return None
    named = {name: value.strip() for name, value in (read or {}).items()}
    platform = platform_of(settings, job.labels, [job.name], [run.name if run else ""])
    return {**platform, **renamed(named, settings.rename)}


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact, what its name tells, and the jobs it may be of."""

    artifact: Artifact
    identity: Identity
    jobs: tuple[JobGroup, ...] = ()


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What is worth downloading, and what was left out."""

    matches: tuple[Match, ...]
    out_of_scope: int = 0
    skipped: int = 0  # Jobs and artifacts that the configuration says make no goldens.
    superseded: int = 0  # Artifacts of attempts that do not count: earlier ones, or not finished.
    unmatched: tuple[str, ...] = ()  # Names of artifacts that no pattern knows.


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


def match_artifacts(listing: Listing, groups: Sequence[JobGroup], settings: RefreshSettings) -> Choice:
    """Every artifact with the jobs it may be of, by their names."""
    matches: list[Match] = []
    unmatched: list[str] = []
    book = JobBook(groups)
    others = ((job, _job_identity(job, None, settings)) for job in listing.jobs if settings.skips(job.name))
    skipped = {job.id: job.name for job, read in others if read is not None and is_wanted(read, settings.values)}

    def match(artifact: Artifact) -> None:
        known = {"run_id": artifact.run_id} if artifact.run_id else {}
        read = read_identity([artifact.name], settings.artifacts, known)
        if read is None and settings.artifacts and artifact.job_id is None:
            unmatched.append(artifact.name)
            return
        identity = renamed(read or {}, settings.rename)
        job_id, attempt = artifact.job_id or identity.get("job_id"), identity.get("attempt")
        if settings.skips(artifact.name):
            skipped.setdefault(job_id or artifact.id, artifact.name)
        elif is_wanted(identity, settings.values) and job_id not in skipped:
            number = artifact.attempt or (int(attempt) if attempt else None)
            told = structs.replace(artifact, job_id=job_id, attempt=number)
            jobs = book.possible(told, identity)
            if not jobs and "machine" in identity:
                identity = {**platform_of(settings, [identity["machine"]], [artifact.name]), **identity}
            matches.append(Match(artifact=told, identity=identity, jobs=jobs))

    for artifact in listing.artifacts:
        match(artifact)
    listed = {one.artifact.job_id for one in matches}
    for artifact in _artifacts_by_url(groups, settings, listing):
        if artifact.job_id not in listed:
            match(artifact)
    return Choice(matches=tuple(matches), unmatched=tuple(unmatched), skipped=len(set(skipped.values())))


def _artifacts_by_url(groups: Sequence[JobGroup], settings: RefreshSettings, listing: Listing) -> list[Artifact]:
    """One artifact per job at the address the configuration gives, for CIs that keep them elsewhere."""
    address, found = settings.artifact_url or "", []
    for group in groups if address else ():
        job = group.current
        if job is None or not is_wanted(group.identity, settings.values):
            continue
        own = {"run_id": job.run_id, "job_id": job.id, "attempt": str(job.attempt), "repo": listing.repo or ""}
        facts = {name: {**group.identity, **own}.get(name, "") for name in placeholders(address)}
        # A repository is OWNER/NAME: its slash is part of the path, no other value's is.
        safe = {name: quote(value, safe="/" if name == "repo" else "") for name, value in facts.items()}
        if all(safe.values()):
            url = re.sub(r"{([a-z_]+)}", lambda m: safe[m[1]], address)  # noqa: B023 - called at once
            known = Artifact(id=f"url-{job.id}", name=url.rpartition("/")[2], run_id=job.run_id, job_id=job.id)
            found.append(structs.replace(known, attempt=job.attempt, url=url))
    return found


def choose(matched: Choice, groups: Sequence[JobGroup], options: RefreshOptions) -> Choice:
    """The artifacts to download: those that may be wanted, as far as names can tell."""
    # A table needs all of its shards, also those of jobs that passed.
    tables = options.settings.tables is not None
    failing = {g.table for g in groups if g.failing} if tables else set()
    chosen: list[Match] = []
    superseded = out_of_scope = 0
    for match in matched.matches:
        # An artifact may be of a wanted platform if nothing tells; its inside may tell more.
        known = {match.identity.get("platform", "")}
        if known == {""}:
            known = {g.identity.get("platform", "") for g in match.jobs}
        if known and "" not in known and not any(is_platform(name, options.platforms) for name in known):
            continue
        if match.jobs and all(group.supersedes(match.artifact) for group in match.jobs):
            superseded += 1
        elif not options.only_failing or not match.jobs or any(g.failing or g.table in failing for g in match.jobs):
            chosen.append(match)
        else:
            out_of_scope += 1
    return structs.replace(matched, matches=tuple(chosen), out_of_scope=out_of_scope, superseded=superseded)


def is_platform(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or any(fnmatchcase(name.casefold(), glob.casefold()) for glob in wanted)


def ambiguous(match: Match, jobs: Sequence[JobGroup]) -> Finding:
    """The finding that nothing tells which of several jobs left an artifact."""
    names = ", ".join(sorted({g.name for g in jobs}))
    conclusions = ", ".join(sorted({str(g.current.conclusion) for g in jobs if g.current}))
    said = (
        f"artifact {match.artifact.name} may be of {len(jobs)} jobs ({names}; {conclusions}),"
        " and neither a name nor a manifest inside tells which; nothing was taken from it"
    )
    return fail("ambiguous-job", said, path=match.artifact.name, next=match.artifact.look)
