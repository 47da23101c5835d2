"""The contest: every golden is claimed by one artifact, or by attempts of one job, the newest of which wins."""

from __future__ import annotations

from collections.abc import Sequence

from karat.diff.advice import quoted
from karat.findings import Finding, Severity
from karat.refresh.claims import Claim


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
