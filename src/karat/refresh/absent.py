"""What was asked for and did not come: jobs in scope that left no golden values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from karat.findings import Finding, Severity
from karat.goldens.paths import identity_of, narrow
from karat.refresh.attempts import FAILING, JobGroup
from karat.refresh.claims import Claim
from karat.refresh.gathering import Gathered, Plan
from karat.refresh.identity import is_wanted, renamed
from karat.refresh.lookup import Lookup
from karat.refresh.matching import is_platform


def jobs_without_goldens(
    gathered: Gathered, plan: Plan, known: Iterable[str], cases: Sequence[str]
) -> list[Finding]:
    """A finding for each job in scope that has a golden, and of which nothing came in."""
    if not plan.settings.jobs:
        return []  # nothing tells which jobs make goldens
    served = {group.key for claim in gathered.claims for group in _jobs_of(claim)}
    served |= {
        group.key
        for match in gathered.choice.matches
        if match.artifact.id in gathered.told
        for group in match.jobs
    }
    goldens = Lookup((identity_of(path, cases), path) for path in known if narrow(path, plan.only))
    going = {run.id for run in gathered.listing.runs if run.conclusion is None}
    found = []
    for group in gathered.groups:
        if group.key in served or not _is_asked_for(group, plan):
            continue
        # Without patterns for goldens' paths, nothing tells which jobs have one.
        if cases and not goldens.agreeing(group.identity):
            continue
        if _has_ended_so(group, plan):
            found.append(_absent(group))
        elif group.current is None and group.key[0] in going and plan.attempt is None:
            found.append(_unfinished(group, plan))
    return found


def _jobs_of(claim: Claim) -> tuple[JobGroup, ...]:
    return claim.may_be if claim.job is None else (claim.job,)


def _is_asked_for(group: JobGroup, plan: Plan) -> bool:
    identity = renamed(group.identity, plan.settings.rename)
    if not is_wanted(identity, plan.settings.values):
        return False
    platform = group.identity.get("platform", "")
    return not (plan.wish.platforms and platform and not is_platform(platform, plan.wish.platforms))


def _has_ended_so(group: JobGroup, plan: Plan) -> bool:
    """Whether a job ended in a way that is in scope; one that was skipped made no golden."""
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
        next=f"gh run rerun --job {job.id}" if job else None,
    )


def _unfinished(group: JobGroup, plan: Plan) -> Finding:
    """Of a job that may yet fail nothing was asked for; of one that was asked for, nothing can be had."""
    return Finding(
        kind="not-refreshed" if plan.wish.only_failing else "artifact-missing",
        severity=Severity.WARN if plan.wish.only_failing else Severity.FAIL,
        path=group.key[1],
        message=f"job {group.name} has not finished; its goldens stay as they were",
        next=f"gh run watch {group.key[0]}",
    )
