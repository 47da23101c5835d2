"""Claims: a file that came in, and the golden it wants to become.

In: what was fetched, with the jobs it may be of. Out: claims, and findings for files that were refused
before anyone looked at their values. Where several files claim one golden, they must be attempts of one
job, and the newest wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import structs

from karat.findings import Finding, Severity, fail, warn
from karat.goldens.paths import identity_text
from karat.refreshes.identity import (
    DERIVED,
    MANIFEST,
    ArtifactManifest,
    Identity,
    Targets,
    agreed,
    clashes,
    is_wanted,
    lasting,
    manifest_for,
    read_identity,
    read_manifest,
    renamed,
)
from karat.refreshes.jobs import FAILING, JobBook, JobGroup, Match, RefreshOptions, ambiguous, is_platform
from karat.sources.source import Artifact, Fetched
from karat.system.command import Command
from karat.system.foreign.limits import GOLDEN, read_plain

_MANIFEST = "karat schema karat.artifact/1"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One incoming file and the golden it wants to become."""

    target: str
    member: str
    file: Path
    artifact: Artifact
    identity: Identity
    job: JobGroup | None = None
    attempt: int | None = None
    conclusion: str | None = None
    manifest: ArtifactManifest = ArtifactManifest()
    findings: tuple[Finding, ...] = ()

    @property
    def same_job(self) -> tuple[object, ...] | None:
        """What all attempts of its job have in common; None where nothing tells.

        A bucket lists no jobs, but names or a manifest may tell run and attempt; then whatever else
        they tell must be the same.
        """
        if self.job is not None:
            return self.job.key
        run = self.manifest.run_id or self.artifact.run_id or self.identity.get("run_id")
        rest = sorted(lasting(self.identity).items())
        if run is None or self.attempt is None or not (rest or self.manifest.job):
            return None
        return str(run), self.manifest.job, *rest

    @property
    def where(self) -> str:
        return f"{self.member} of artifact {self.artifact.name}"


class Claimant:
    """Turns fetched artifacts into claims."""

    def __init__(self, options: RefreshOptions, targets: Targets, groups: Sequence[JobGroup]) -> None:
        self._options = options
        self._settings = options.settings
        self._targets = targets
        self._book = JobBook(groups)

    def wants(self, member: str) -> bool:
        """Whether a file inside an artifact may be a golden, or tells about them."""
        if member.rpartition("/")[2] == MANIFEST:
            return True
        if self._settings.members:
            return read_identity([member], self._settings.members) is not None
        return self._targets.may_be_golden(member)

    def claims_of(self, fetched: Fetched, match: Match) -> tuple[list[Claim], list[Finding], int]:
        """What an artifact wants to become, what is wrong with it, and how many of its files are out of scope."""
        findings = list(fetched.findings)
        if any(f.severity is Severity.FAIL for f in findings):
            return [], findings, 0
        manifests: dict[str, ArtifactManifest] = {}
        contradicted: list[ArtifactManifest] = []
        files: dict[str, Path] = {}
        for name, file in sorted(fetched.members.items()):
            folder, _, last = name.rpartition("/")
            if last != MANIFEST:
                files[name] = file
                continue
            told = read_manifest(file, match.artifact.name)
            if isinstance(told, Finding):
                return [], [*findings, told], 0
            manifests[folder] = told
            declared = renamed(told.as_identity(), self._settings.rename)
            whole = match.artifact.name
            if wrong := _contradiction(f"artifact {whole}", whole, declared, match.identity):
                findings.append(wrong)
                contradicted.append(told)
        claims: list[Claim] = []
        skipped = 0
        of_jobs = agreed([job.identity for job in match.jobs])
        # What the suite's name says of its tables; a file that says otherwise is another table beside them.
        derived = {k: v for k, v in {**of_jobs, **match.identity}.items() if k in DERIVED}
        for name, file in files.items():
            read = read_identity([name], self._settings.members, derived)
            if read is None and self._settings.members:
                continue
            manifest = manifest_for(name, manifests)
            if manifest is None:
                said = (
                    f"{name} of artifact {match.artifact.name}: {len(manifests)} manifests say different things,"
                    " and none of them lies in a folder around it; it was not taken"
                )
                findings.append(fail("identity-conflict", said, path=name, next=_MANIFEST))
                continue
            if manifest in contradicted:
                continue
            made = self._claim(name, file, match, manifest, renamed(read or {}, self._settings.rename))
            if isinstance(made, Claim):
                claims.append(made)
            elif isinstance(made, Finding):
                findings.append(made)
            else:
                skipped += 1
        return list(_one_each(claims)), findings, skipped

    def _claim(
        self, name: str, file: Path, match: Match, manifest: ArtifactManifest, own: Identity
    ) -> Claim | Finding | None:
        """The claim of a file, the finding that speaks against it, or None if it is not wanted; `own` is its name's."""
        declared = renamed(manifest.as_identity(), self._settings.rename)
        if wrong := _contradiction(f"{name} of artifact {match.artifact.name}", name, declared, own):
            return wrong
        outside = {**match.identity, **own, **declared}
        # The jobs that agree with what is inside.
        jobs: Sequence[JobGroup] = [g for g in match.jobs if not clashes(own, g.identity)]
        if declared:
            jobs = self._book.possible(match.artifact, outside)
            if not jobs and "job_id" in declared:  # of a server that this listing does not know
                jobs = self._book.possible(match.artifact, {k: v for k, v in outside.items() if k != "job_id"})
            jobs = [job for job in jobs if not clashes(declared, job.identity)]
        if match.jobs and not jobs:
            return _conflict(name, match, outside)
        of_jobs = {**match.identity, **agreed([job.identity for job in jobs])}
        identity = {**of_jobs, **own, **declared}
        platform = identity.get("platform", "")
        if not is_wanted(identity, self._settings.values) or not is_platform(platform, self._options.platforms):
            return None
        if clashes(of_jobs, own):
            return _conflict(name, match, outside)
        target = self._targets.find(name, match.artifact.name, identity)
        if isinstance(target, Finding):
            return target
        claim = Claim(
            target=target, member=name, file=file, artifact=match.artifact, identity=identity, manifest=manifest
        )
        return self._with_job(claim, match, jobs) if jobs else self._without_job(claim)

    def _with_job(self, claim: Claim, match: Match, jobs: Sequence[JobGroup]) -> Claim | Finding | None:
        """The claim with its job, if that can be told; None if it is not in scope."""
        artifact = match.artifact
        if claim.manifest.attempt is not None:
            artifact = structs.replace(artifact, attempt=claim.manifest.attempt)
        # Whether a table is in scope was decided for the whole of it, when artifacts were chosen.
        in_scope = not self._options.only_failing or self._settings.tables is not None
        counting = [group for group in jobs if not group.supersedes(artifact) and (in_scope or group.failing)]
        if not counting:
            return None
        named = artifact.job_id is not None or "job_id" in claim.identity
        if len(jobs) > 1 or (jobs[0].twins and not named):
            return ambiguous(match, jobs)
        job = jobs[0]
        attempt = job.attempt_of(artifact)
        if attempt is None:
            said = f"job {job.name} has {len(job.attempts)} attempts, and nothing tells of which artifact {artifact.name} is; it was not taken"
            return fail("ambiguous-job", said, path=artifact.name, next=artifact.look)
        by_id = {one.id: one.conclusion for one in job.attempts}
        conclusion = by_id.get(artifact.job_id or "", job.current.conclusion if job.current else None)
        if not in_scope and conclusion not in FAILING:
            return None
        return structs.replace(claim, artifact=artifact, job=job, attempt=attempt, conclusion=conclusion)

    def _without_job(self, claim: Claim) -> Claim | Finding | None:
        end = claim.manifest.conclusion
        if self._options.only_failing and end not in FAILING:
            if end is not None:
                return None
            said = f"artifact {claim.artifact.name}: not taken: no job is known, so nothing tells whether it failed"
            every = Command("karat", "refresh", "--scope", "all")
            return fail("ambiguous-job", said, path=claim.artifact.name, next=every)
        named = claim.identity.get("attempt", "")
        attempt = claim.manifest.attempt or (int(named) if named.isdecimal() else None)
        return structs.replace(claim, conclusion=end, attempt=attempt)


def _one_each(claims: Sequence[Claim]) -> Iterator[Claim]:
    """Of several files of one artifact that claim one golden: the one at the top, else the last restart.

    Other doubles stay, and are found out.
    """
    by_golden: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims:
        by_golden.setdefault((claim.target, claim.identity.get("shard", "")), []).append(claim)
    for found in by_golden.values():
        last = max((c for c in found if "restart" in c.identity), key=_restart, default=None)
        rest = [claim for claim in found if claim is last or "restart" not in claim.identity]
        tops = [claim for claim in rest if "/" not in claim.member]
        if len(tops) != 1 or len(rest) == 1:
            yield from rest
            continue
        (top,) = tops
        others = []
        for claim in rest:
            with suppress(OSError):  # said of whichever is taken
                if claim is top or read_plain(claim.file, GOLDEN) == read_plain(top.file, GOLDEN):
                    continue
            others.append(claim.member)
        if others:
            names = f"{', '.join(others[:3])}, which {'differs' if len(others) == 1 else 'differ'} from it"
            said = f"{top.member} at the top of artifact {top.artifact.name} was taken, not {names}"
            top = structs.replace(top, findings=(*top.findings, warn("claimed-twice", said, path=top.target)))
        yield top


def _restart(claim: Claim) -> list[tuple[int, str]]:
    """Restart 10 comes after restart 9."""
    parts = re.findall(r"[0-9]+|[^0-9]+", claim.identity["restart"])
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _contradiction(what: str, path: str, declared: Identity, named: Identity) -> Finding | None:
    """What a manifest and a name say differently, if anything."""
    wrong = clashes(named, declared)
    theirs, ours = (identity_text({name: side[name] for name in wrong}) for side in (declared, named))
    said = f"{what}: its manifest says {theirs}, its name {ours}; it was not taken"
    return fail("identity-conflict", said, path=path, next=_MANIFEST) if wrong else None


def _conflict(name: str, match: Match, inside: Identity) -> Finding:
    names = ", ".join(sorted({g.name for g in match.jobs})) or match.artifact.name
    said = f"its own name says {identity_text(inside)}, but it is of {names}; it was not taken"
    message = f"{name} of artifact {match.artifact.name}: {said}"
    return fail("identity-conflict", message, path=name, next="karat config --show-origin")


def by_target(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.target, []).append(claim)
    return dict(sorted(found.items()))


def settle(claims: Sequence[Claim], source: str = "github") -> tuple[Claim | None, list[Finding]]:
    """The claim that wins, or none and why."""
    if len(claims) == 1:
        return claims[0], []
    jobs = {claim.same_job for claim in claims}
    attempts = {claim.attempt for claim in claims}
    if len(jobs) == 1 and len(attempts) == len(claims) and None not in jobs | attempts:
        return max(claims, key=lambda claim: claim.attempt or 0), []
    names = " and ".join(c.where + (f" (job {c.job.name}, attempt {c.attempt})" if c.job else "") for c in claims[:4])
    more = f" and {len(claims) - 4} more" if len(claims) > 4 else ""
    said = f"refused, the old golden is kept: {names}{more} claim this golden, and they are not attempts of one job"
    return None, [fail("claimed-twice", said, path=claims[0].target, next=tell_apart(claims, source))]


def tell_apart(claims: Sequence[Claim], source: str) -> Command:
    """One of several runs can be chosen; within one run, the report tells the files apart."""
    runs = sorted({claim.artifact.run_id for claim in claims if claim.artifact.run_id})
    which = ("--run-id", runs[-1]) if len(runs) > 1 and source == "github" else ("--dry-run", "--json", "-")
    return Command("karat", "refresh", *which, "--only", claims[0].target)
