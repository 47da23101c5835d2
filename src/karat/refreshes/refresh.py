"""Gathering: from a source to claims, with everything that was left out, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec

from karat.compare.rules import STATUS_ORDER, RuleBook
from karat.findings import Finding, KaratError, Severity, UsageError
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter, identity_of, narrow
from karat.goldens.provenance import RefreshRecord, write_lock, write_record
from karat.refreshes.acceptance import Policy, is_asked_for
from karat.refreshes.apply import Means, take
from karat.refreshes.claims import Claim, Claimant
from karat.refreshes.identity import Lookup, Targets, is_wanted, renamed
from karat.refreshes.jobs import (
    FAILING,
    Choice,
    JobGroup,
    Match,
    Wish,
    choose,
    group_jobs,
    is_platform,
    match_artifacts,
)
from karat.refreshes.report import Outcome, Result, Scope, State, completed, whole
from karat.refreshes.settings import RefreshSettings
from karat.refreshes.worktree import Locks, Standing, ensure_inside, only_writer, survey
from karat.report.words import count
from karat.sources.source import Fetched, Listing, Progress, Source
from karat.system import git


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


# DOC-HERE absent: What was asked for and did not come: jobs in scope that left no golden values.


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


# DOC-HERE refreshing: Refresh: source → match → judge → write.
#
# In: a `Source`, a work tree, `Options`. Out: a `Result`. Called by `karat refresh`, and from Python.
# Everything is fetched before anything is written; then each golden is judged and written by itself,
# so that a refresh which is killed leaves whole files, old or new, and a second one completes it.

TRANSIENT = frozenset({"transfer-failed", "artifact-corrupt", "artifact-truncated"})
"""What another try may mend: nothing is written then, unless --keep-going."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to refresh, and how."""

    scope: str
    """`only-failing` or `all`; there is no default."""
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
    date: str = ""
    """UTC, ISO 8601; stands in the lock."""
    command: str = "karat refresh"
    """As typed, for the record and for what to run next."""
    progress: Progress | None = None
    notice: Callable[[str], None] | None = None


def refresh(source: Source, cwd: Path, options: Options) -> Result:
    """Bring golden values from a source into the work tree around `cwd`."""
    root = git.ensure_repository(cwd)
    is_golden = PathFilter(options.globs, options.exclude)
    standing = survey(root, is_golden)
    targets = Targets(options.settings, is_golden, standing.paths, options.cases)
    plan = Plan(
        settings=options.settings,
        wish=Wish(only_failing=options.scope == "only-failing", platforms=options.platforms),
        attempt=options.attempt,
        only=options.only,
    )
    try:
        gathered = gather(source, plan, targets, options.progress, options.notice)
    except KaratError as error:
        error.next_command = whole(error.next_command, options.command, None)
        raise
    findings = [
        *gathered.findings,
        *jobs_without_goldens(gathered, plan, standing.paths, options.cases),
    ]
    halted = _halted(findings, options)
    outcomes: list[Outcome] = []
    locks = Locks(root, options.globs)
    if halted is None:
        means = _means(gathered, options, standing, locks)
        with nullcontext(None) if options.dry_run else only_writer(root) as workshop:
            means = msgspec.structs.replace(means, workshop=workshop)
            locks.read(claim.target for claim in gathered.claims)
            outcomes = [_advised(o, gathered, options) for o in take(gathered.claims, means)]
            written = [] if options.dry_run else _write_locks(root, locks, workshop)
    else:
        findings.append(halted)
        written = []
    findings += _untaken(outcomes, options)
    findings += _nothing(gathered, findings, outcomes, options)
    result = Result(
        source=gathered.listing.source,
        origin=gathered.listing.origin,
        scope=Scope(name=options.scope, jobs=_count(gathered.groups)),
        dry_run=options.dry_run,
        outcomes=tuple(outcomes),
        findings=tuple(completed(findings, options.command, gathered.listing.repo)),
        tests=len({_test(claim) for claim in gathered.claims}),
        found=len({claim.target for claim in gathered.claims}),
        superseded=len(gathered.choice.superseded),
        out_of_scope=gathered.out_of_scope,
        unmatched=gathered.unmatched,
        received=gathered.received,
        locks=tuple(written),
    )
    result = msgspec.structs.replace(result, record=_record(result, gathered, options))
    if not options.dry_run and result.record is not None and halted is None:
        write_record(root, result.record)
    return result


def _advised(outcome: Outcome, gathered: Gathered, options: Options) -> Outcome:
    findings = completed(outcome.findings, options.command, gathered.listing.repo)
    return msgspec.structs.replace(outcome, findings=tuple(findings))


def _means(gathered: Gathered, options: Options, standing: Standing, locks: Locks) -> Means:
    return Means(
        settings=options.settings,
        policy=Policy(
            accept_incomplete=options.accept_incomplete,
            prune=options.prune,
            metrics=options.metrics,
        ),
        rules=options.rules,
        status=tuple(options.status),
        standing=standing,
        locks=locks,
        source=gathered.listing.source,
        date=options.date,
        commits={run.id: run.commit for run in gathered.listing.runs if run.commit},
        dry_run=options.dry_run,
    )


def _halted(findings: Sequence[Finding], options: Options) -> Finding | None:
    """A transfer that may succeed next time is no reason to write half a refresh."""
    failed = [f for f in findings if f.kind in TRANSIENT and f.severity is Severity.FAIL]
    if not failed or options.keep_going:
        return None
    return Finding(
        kind="transfer-failed",
        severity=Severity.FAIL,
        message=(
            f"{len(failed)} artifact(s) did not come in whole, so nothing was written;"
            " what arrived is kept, run the same command again, or add --keep-going"
        ),
        next="karat refresh --keep-going",
    )


def _nothing(
    gathered: Gathered,
    findings: Sequence[Finding],
    outcomes: Sequence[Outcome],
    options: Options,
) -> list[Finding]:
    """Doing nothing must not look like having nothing to do."""
    if outcomes or any(f.severity is Severity.FAIL for f in findings):
        return []
    asked = [group for group in gathered.groups if _on_platform(group, options.platforms)]
    if options.scope == "only-failing" and asked and not any(group.failing for group in asked):
        message = f"no job failed, so there is nothing to refresh ({count(len(asked), 'job')})"
        return [Finding(kind="not-refreshed", severity=Severity.INFO, message=message)]
    listing = gathered.listing
    narrowed = [f"--only {glob}" for glob in options.only]
    narrowed += [f"--platform {glob}" for glob in options.platforms]
    which = f" for {', '.join(narrowed)}" if narrowed else ""
    message = (
        f"expected golden values{which} in {listing.origin}, found none: {len(listing.artifacts)} artifacts,"
        f" {len(gathered.unmatched)} of unknown name, {len(gathered.choice.superseded)} superseded,"
        f" {gathered.out_of_scope} out of scope"
    )
    return [
        Finding(
            kind="nothing-compared",
            severity=Severity.FAIL,
            message=message,
            next="karat refresh --help" if narrowed else "karat config --show-origin",
        )
    ]


def _on_platform(group: JobGroup, wanted: Sequence[str]) -> bool:
    return not wanted or is_platform(group.identity.get("platform", ""), wanted)


def _untaken(outcomes: Sequence[Outcome], options: Options) -> list[Finding]:
    """A finding for each --metric of which no golden has any; where none was taken, each says so itself."""
    names = sorted({name for outcome in outcomes for name in outcome.metrics})
    return [
        Finding(
            kind="nothing-compared",
            severity=Severity.FAIL,
            message=f"expected a metric that --metric {glob!r} means, found only {', '.join(names)}",
            next="karat refresh --help",
        )
        for glob in options.metrics
        if names and not any(is_asked_for(name, (glob,)) for name in names)
    ]


def _write_locks(root: Path, locks: Locks, workshop: Path | None) -> list[str]:
    written = []
    for name, entries in locks.entries.items():
        if entries:
            ensure_inside(root, root / name)
            if write_lock(root / name, entries, workshop):
                written.append(name)
    return written


def _count(groups: Sequence[JobGroup]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for group in groups:
        end = group.current.conclusion if group.current else None
        platform = group.identity.get("platform", "")
        counts.setdefault(platform, Counter())[end or "not finished"] += 1
    return {platform: dict(sorted(found.items())) for platform, found in sorted(counts.items())}


def _test(claim: Claim) -> tuple[str, ...]:
    """What the seed counts as one test: a job, or a folder of goldens where no job is known."""
    return claim.job.key if claim.job else (claim.artifact.id, claim.target.rpartition("/")[0])


def _record(result: Result, gathered: Gathered, options: Options) -> RefreshRecord:
    runs = gathered.listing.runs
    undone = [f.message for f in result.findings if f.severity is Severity.FAIL]
    undone += [
        f"{outcome.path}: {finding.message}"
        for outcome in result.in_state(State.REFUSED)
        for finding in outcome.findings[:1]
    ]
    return RefreshRecord(
        source=result.source,
        run_id=", ".join(run.id for run in runs) or None,
        scope=options.scope,
        command=options.command,
        files=tuple(o.path for o in result.in_state(State.WRITTEN)),
        confirmed=tuple(o.path for o in result.in_state(State.UNCHANGED)),
        narrowed=bool(options.only or options.platforms or options.metrics),
        not_refreshed=tuple(undone),
        accepted=tuple(o.path for o in result.outcomes if o.provenance and o.provenance.accepted),
        commit=next((run.commit for run in runs if run.commit), None),
        date=options.date or None,
        tests=result.tests,
        goldens=result.found,
    )
