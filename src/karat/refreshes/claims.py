"""Claims: a file that came in, and the golden it wants to become.

In: what was fetched, with the jobs it may be of. Out: claims, and findings for files that were
refused before anyone looked at their values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from karat.diffs.advice import quoted
from karat.findings import Finding, Severity
from karat.refreshes.identity import (
    Identity,
    Manifest,
    Targets,
    clashes,
    is_wanted,
    lasting,
    manifest_for,
    read_identity,
    read_manifest,
    renamed,
)
from karat.refreshes.jobs import (
    FAILING,
    JobBook,
    JobGroup,
    Match,
    Wish,
    ambiguous,
    is_platform,
    is_superseded,
)
from karat.refreshes.settings import RefreshSettings
from karat.sources.source import Artifact, Fetched


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One incoming file and the golden it wants to become."""

    target: str
    member: str
    file: Path
    artifact: Artifact
    identity: Identity
    job: JobGroup | None = None
    may_be: tuple[JobGroup, ...] = ()
    """The jobs it may be of, where nothing tells which."""
    attempt: int | None = None
    conclusion: str | None = None
    manifest: Manifest = Manifest()
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
        told = sorted(lasting(self.identity).items())
        if run is None or self.attempt is None or self.may_be or not (told or self.manifest.job):
            return None
        return str(run), self.manifest.job, *told

    @property
    def where(self) -> str:
        """Where it came from, for people."""
        return f"{self.member} of artifact {self.artifact.name}"


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What one artifact wants to become."""

    claims: tuple[Claim, ...] = ()
    findings: tuple[Finding, ...] = ()
    out_of_scope: int = 0


class Claimant:
    """Turns fetched artifacts into claims."""

    def __init__(
        self,
        settings: RefreshSettings,
        targets: Targets,
        wish: Wish,
        groups: Sequence[JobGroup] = (),
    ) -> None:
        self._settings = settings
        self._jobs_known = JobBook(groups)
        self._targets = targets
        self._wish = wish

    def wants(self, member: str) -> bool:
        """Whether a file inside an artifact may be a golden, or tells about them."""
        if member.rpartition("/")[2] == self._settings.manifest:
            return True
        if self._settings.members:
            return read_identity([member], self._settings.members) is not None
        return self._targets.may_be_golden(member)

    def claims_of(self, fetched: Fetched, match: Match) -> Claims:
        """The claims of one artifact."""
        if any(f.severity is Severity.FAIL for f in fetched.findings):
            return Claims(findings=fetched.findings)
        manifests = self._manifests(fetched, match.artifact.name)
        if isinstance(manifests, Finding):
            return Claims(findings=(*fetched.findings, manifests))
        claims: list[Claim] = []
        findings = list(fetched.findings)
        skipped = 0
        for name, file in sorted(fetched.members.items()):
            if name.rpartition("/")[2] == self._settings.manifest:
                continue
            manifest = manifest_for(name, manifests)
            if manifest is None:
                findings.append(_untold(name, match, manifests))
                continue
            made = self._claim(name, file, match, manifest)
            if isinstance(made, Claim):
                claims.append(made)
            elif isinstance(made, Finding):
                findings.append(made)
            else:
                skipped += 1
        return Claims(
            claims=tuple(_newest_restart(claims)), findings=tuple(findings), out_of_scope=skipped
        )

    def _manifests(self, fetched: Fetched, artifact: str) -> dict[str, Manifest] | Finding:
        """Folder → the manifest in it; one that cannot be read stops the artifact."""
        found = {}
        for name, file in sorted(fetched.members.items()):
            folder, _, last = name.rpartition("/")
            if last == self._settings.manifest:
                manifest = read_manifest(file, artifact)
                if isinstance(manifest, Finding):
                    return manifest
                found[folder] = manifest
        return found

    def _claim(
        self, name: str, file: Path, match: Match, manifest: Manifest
    ) -> Claim | Finding | None:
        own = renamed(read_identity([name], self._settings.members) or {}, self._settings.rename)
        told = manifest.as_identity()
        outside = {**match.identity, **own, **told}
        jobs = self._jobs(match, own, manifest)
        if match.jobs and not jobs:
            return _conflict(name, match, outside)
        spelling = jobs[0].identity if len(jobs) == 1 else _agreed(jobs)
        identity = {**match.identity, **spelling, **own, **told}
        if not is_wanted(identity, self._settings.values):
            return None
        wanted = self._wish.platforms
        if wanted and not is_platform(identity.get("platform", ""), wanted):
            return None
        if set(clashes({**match.identity, **spelling}, own)) - told.keys():
            return _conflict(name, match, outside)
        target = self._targets.find(name, match.artifact.name, identity)
        if isinstance(target, Finding):
            return target
        return self._tied(
            Claim(
                target=target, member=name, file=file, artifact=match.artifact,
                identity=identity, manifest=manifest,
            ),
            match,
            jobs,
        )  # fmt: skip

    def _jobs(self, match: Match, own: Identity, manifest: Manifest) -> list[JobGroup]:
        """The jobs that agree with what stands inside; a manifest is believed before any name."""
        told = manifest.as_identity()
        if not told:
            return [g for g in match.jobs if not clashes(own, g.identity)]
        inside = {**match.identity, **own, **told}
        named = self._jobs_known.possible(match.artifact, inside)
        if not named and "job_id" in told:
            inside.pop("job_id")  # of a server that this listing does not know
            named = self._jobs_known.possible(match.artifact, inside)
        return list(named)

    def _tied(self, claim: Claim, match: Match, jobs: Sequence[JobGroup]) -> Claim | Finding | None:
        """The claim with its job, if that can be told; None if it is not in scope."""
        artifact = match.artifact
        if claim.manifest.attempt is not None:
            artifact = msgspec.structs.replace(artifact, attempt=claim.manifest.attempt)
        if not jobs:
            return self._without_job(claim, match)
        stale = {is_superseded(artifact, group) for group in jobs}
        named = artifact.job_id is not None or "job_id" in claim.identity
        ends = {end for group in jobs for end in group.conclusions} or {""}
        in_scope = {not self._wish.only_failing or end in FAILING for end in ends}
        if self._settings.tables is not None:
            in_scope = {True}  # decided for the whole table, when artifacts were chosen
        if stale == {True} or in_scope == {False}:
            return None
        if len(stale) > 1 or len(in_scope) > 1:
            return ambiguous(match, jobs)
        one = jobs[0] if len(jobs) == 1 and (named or not jobs[0].twins) else None
        unsure = () if one else (_taken_all_the_same(match, jobs),)
        attempt = one.attempt_of(artifact) if one else artifact.attempt
        if one and attempt is None:
            return _attempt_unknown(match, one)
        return msgspec.structs.replace(
            claim,
            artifact=artifact,
            job=one,
            may_be=() if one else tuple(jobs),
            attempt=attempt,
            conclusion=_conclusion(one, claim, ends),
            findings=unsure,
        )

    def _without_job(self, claim: Claim, match: Match) -> Claim | Finding | None:
        end = claim.manifest.conclusion
        if self._wish.only_failing:
            if end is None:
                return _unknown_conclusion(match)
            if end not in FAILING:
                return None
        named = claim.identity.get("attempt", "")
        attempt = claim.manifest.attempt or (int(named) if named.isdecimal() else None)
        return msgspec.structs.replace(claim, conclusion=end, attempt=attempt)


def _conclusion(one: JobGroup | None, claim: Claim, ends: set[str]) -> str | None:
    if one is not None and claim.artifact.job_id is not None:
        for job in one.attempts:
            if job.id == claim.artifact.job_id:
                return job.conclusion
    return next(iter(ends)) or None if len(ends) == 1 else None


def _agreed(jobs: Sequence[JobGroup]) -> Identity:
    """What all of several jobs say alike."""
    if not jobs:
        return {}
    first = jobs[0].identity
    return {k: v for k, v in first.items() if all(g.identity.get(k) == v for g in jobs)}


def _newest_restart(claims: Sequence[Claim]) -> list[Claim]:
    """Of several restarts inside one artifact, the last; other doubles stay, and are found out."""
    best: dict[tuple[str, str], Claim] = {}
    others = []
    for claim in claims:
        if "restart" not in claim.identity:
            others.append(claim)
            continue
        key = (claim.target, claim.identity.get("shard", ""))
        if key not in best or _natural(claim) > _natural(best[key]):
            best[key] = claim
    return [*others, *best.values()]


def _natural(claim: Claim) -> list[tuple[int, str]]:
    """Restart 10 comes after restart 9."""
    parts = re.findall(r"[0-9]+|[^0-9]+", claim.identity["restart"])
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _conflict(name: str, match: Match, inside: Identity) -> Finding:
    names = ", ".join(sorted({g.name for g in match.jobs})) or match.artifact.name
    shown = ", ".join(f"{k}={v}" for k, v in sorted(inside.items()))
    return Finding(
        kind="identity-conflict",
        severity=Severity.FAIL,
        path=name,
        message=f"{name} of artifact {match.artifact.name}: its own name says {shown}, but it is of {names}; it was not taken",
        next="karat config --show-origin",
    )


def _untold(name: str, match: Match, manifests: Mapping[str, Manifest]) -> Finding:
    return Finding(
        kind="identity-conflict",
        severity=Severity.FAIL,
        path=name,
        message=(
            f"{name} of artifact {match.artifact.name}: {len(manifests)} manifests say different things,"
            " and none of them lies in a folder around it; it was not taken"
        ),
        next="karat schema karat.artifact/1",
    )


def _taken_all_the_same(match: Match, jobs: Sequence[JobGroup]) -> Finding:
    names = ", ".join(sorted({g.name for g in jobs}))
    return Finding(
        kind="ambiguous-job",
        severity=Severity.WARN,
        path=match.artifact.name,
        message=f"artifact {match.artifact.name} may be of several jobs ({names}); all of them are in scope, so it was taken, without a job",
    )


def _unknown_conclusion(match: Match) -> Finding:
    return Finding(
        kind="ambiguous-job",
        severity=Severity.FAIL,
        path=match.artifact.name,
        message=f"no job is known for artifact {match.artifact.name}, so nothing tells whether it failed; it was not taken",
        next="karat refresh --scope all",
    )


def _attempt_unknown(match: Match, job: JobGroup) -> Finding:
    return Finding(
        kind="ambiguous-job",
        severity=Severity.FAIL,
        path=match.artifact.name,
        message=f"job {job.name} has {len(job.attempts)} attempts, and nothing tells of which artifact {match.artifact.name} is; it was not taken",
        next=f"gh run download {job.key[0]} --name {quoted(match.artifact.name)}",
    )


# DOC-HERE contest: The contest: every golden is claimed by one artifact, or by attempts of one job, the newest of which wins.


def by_target(claims: Sequence[Claim]) -> dict[str, list[Claim]]:
    """The claims on each golden, in the order of paths."""
    found: dict[str, list[Claim]] = {}
    for claim in claims:
        found.setdefault(claim.target, []).append(claim)
    return dict(sorted(found.items()))


def settle(claims: Sequence[Claim]) -> tuple[Claim | None, list[Finding]]:
    """The claim that wins, or none and why."""
    if len(claims) == 1:
        return claims[0], []
    jobs = {claim.same_job for claim in claims}
    numbers = [claim.attempt for claim in claims]
    if (
        len(jobs) == 1
        and None not in jobs
        and None not in numbers
        and len(set(numbers)) == len(numbers)
    ):
        return max(claims, key=lambda claim: claim.attempt or 0), []
    return None, [_twice(claims)]


def _twice(claims: Sequence[Claim]) -> Finding:
    names = " and ".join(_named(claim) for claim in claims[:4])
    more = f" and {len(claims) - 4} more" if len(claims) > 4 else ""
    return Finding(
        kind="claimed-twice",
        severity=Severity.FAIL,
        path=claims[0].target,
        message=f"refused, the old golden is kept: {names}{more} claim this golden, and they are not attempts of one job",
        next=_which(claims),
    )


def _which(claims: Sequence[Claim]) -> str:
    """One of several runs can be chosen; within one run, the report tells the files apart."""
    runs = sorted({claim.artifact.run_id for claim in claims if claim.artifact.run_id})
    only = f"--only {quoted(claims[0].target)}"
    if len(runs) > 1:
        return f"karat refresh --run-id {runs[-1]} {only}"
    return f"karat refresh --dry-run --json - {only}"


def _named(claim: Claim) -> str:
    job = f" (job {claim.job.name}, attempt {claim.attempt})" if claim.job else ""
    return claim.where + job
