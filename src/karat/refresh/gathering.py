"""Gathering: from a source to claims, with everything that was left out, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from karat.findings import Finding, Severity, UsageError
from karat.goldens.paths import narrow
from karat.refresh.attempts import JobGroup, group_jobs
from karat.refresh.claims import Claim, Claimant
from karat.refresh.matching import Choice, Match, Wish, choose, match_artifacts
from karat.refresh.settings import RefreshSettings
from karat.refresh.targets import Targets
from karat.report.words import count
from karat.sources.listing import Fetched, Listing, Progress, Source


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What came in."""

    listing: Listing
    groups: tuple[JobGroup, ...]
    choice: Choice
    claims: tuple[Claim, ...]
    findings: tuple[Finding, ...]
    unmatched: tuple[str, ...]
    out_of_scope: int
    received: int
    told: frozenset[str] = frozenset()
    """Artifacts of which a finding says why they gave nothing."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to gather."""

    settings: RefreshSettings
    wish: Wish
    attempt: int | None = None
    only: tuple[str, ...] = ()


def gather(
    source: Source,
    plan: Plan,
    targets: Targets,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
) -> Gathered:
    """Everything wanted that the source has, as files on this disk."""
    listing = source.listing()
    _ensure_attempt(listing, plan.attempt)
    groups = group_jobs(listing.jobs, listing.runs, plan.settings, plan.attempt)
    matches, unmatched = match_artifacts(listing, groups, plan.settings)
    tables = plan.settings.tables is not None
    choice = choose(matches, groups, plan.wish, tables=tables)
    if notice is not None:
        jobs = f"{count(len(listing.jobs), 'job')}, " if listing.jobs else ""
        found = count(len(listing.artifacts), "artifact")
        notice(f"{listing.origin}: {jobs}{found}, {len(choice.matches):,} to look into")
    claimant = Claimant(plan.settings, targets, plan.wish, groups)
    by_id = {match.artifact.id: match for match in choice.matches}
    fetched = source.fetch([m.artifact for m in choice.matches], claimant.wants, progress)
    claims, findings, told, skipped, received = _claimed(fetched, by_id, claimant, plan.only)
    return Gathered(
        listing=listing,
        groups=tuple(groups),
        choice=choice,
        claims=tuple(claims),
        findings=(*listing.findings, *choice.findings, *findings),
        unmatched=tuple(unmatched),
        out_of_scope=choice.out_of_scope + skipped,
        received=received,
        told=frozenset(told),
    )


def _ensure_attempt(listing: Listing, pinned: int | None) -> None:
    """An attempt that never was must not mean the last one that was."""
    numbers = [run.attempt for run in listing.runs] + [job.attempt for job in listing.jobs]
    last = max(numbers, default=1)
    if pinned is not None and pinned > last:
        raise UsageError(
            f"expected --attempt from 1 to {last}, found {pinned}: {listing.origin} has no more",
            next_command=f"karat refresh --attempt {last}",
        )


def _claimed(
    fetched: Iterable[Fetched], by_id: dict[str, Match], claimant: Claimant, only: Sequence[str]
) -> tuple[list[Claim], list[Finding], set[str], int, int]:
    claims: list[Claim] = []
    findings: list[Finding] = []
    told: set[str] = set()
    skipped = received = 0
    for item in fetched:
        made = claimant.claims_of(item, by_id[item.artifact.id])
        claims += [claim for claim in made.claims if narrow(claim.target, only)]
        findings += made.findings
        if any(finding.severity is Severity.FAIL for finding in made.findings):
            told.add(item.artifact.id)
        skipped += made.out_of_scope
        received += item.received
    # Artifacts arrive in any order; what is told about them must not depend on it.
    claims.sort(key=lambda c: (c.target, c.artifact.name, c.artifact.id, c.member))
    findings.sort(key=lambda f: (f.severity.rank, f.path, f.kind, f.message))
    return claims, findings, told, skipped, received
