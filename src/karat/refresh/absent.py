"""What was asked for and did not come: jobs in scope that left no golden values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from karat.findings import Finding, Severity
from karat.goldens.paths import identity_of, narrow
from karat.refresh.attempts import FAILING, JobGroup
from karat.refresh.gathering import Gathered, Plan
from karat.refresh.identity import clashes, in_common, is_wanted, renamed
from karat.refresh.matching import is_platform


def jobs_without_goldens(
    gathered: Gathered, plan: Plan, known: Iterable[str], cases: Sequence[str]
) -> list[Finding]:
    """A finding for each job in scope that has a golden, and of which nothing came in."""
    if not plan.settings.jobs:
        return []  # nothing tells which jobs make goldens
    served = {claim.job.key for claim in gathered.claims if claim.job is not None}
    told = _told(gathered)
    goldens = [(path, identity_of(path, cases)) for path in known if narrow(path, plan.only)]
    found = []
    for group in gathered.groups:
        if group.key in served or group.key in told or not _in_scope(group, plan):
            continue
        expected = any(
            in_common(identity, group.identity) and not clashes(identity, group.identity)
            for _, identity in goldens
        )
        # Without patterns for goldens' paths, nothing tells which jobs have one.
        if expected or not cases:
            found.append(_absent(group))
    return found


def _told(gathered: Gathered) -> set[tuple[str, str, str]]:
    """Jobs whose artifact has a finding of its own."""
    named = {finding.path for finding in gathered.findings}
    return {
        group.key
        for match in gathered.choice.matches
        for group in match.jobs
        if match.artifact.name in named
        or any(match.artifact.name in f.message for f in gathered.findings)
    }


def _in_scope(group: JobGroup, plan: Plan) -> bool:
    identity = renamed(group.identity, plan.settings.rename)
    if not is_wanted(identity, plan.settings.values):
        return False
    platform = group.identity.get("platform", "")
    if plan.wish.platforms and platform and not is_platform(platform, plan.wish.platforms):
        return False
    ends = group.conclusions
    return (
        bool(ends & set(FAILING)) if plan.wish.only_failing else "success" in ends or group.failing
    )


def _absent(group: JobGroup) -> Finding:
    job = group.current
    ended = f" ({job.conclusion}, attempt {job.attempt})" if job else ""
    return Finding(
        kind="artifact-missing",
        severity=Severity.FAIL,
        path=group.key[1],
        message=f"job {group.name}{ended} left no golden values; its goldens stay as they were",
        next=f"gh run rerun {group.key[0]} --job {job.id}" if job else None,
    )
