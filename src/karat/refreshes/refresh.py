"""Refresh: source → match → decide → write.

In: a `Source`, a work tree, `RefreshOptions`. Out: a `RefreshReport`. Called by `karat refresh`, and from Python.
Everything is fetched before anything is written; then each golden is decided on and written by itself,
so that a refresh which is killed leaves whole files, old or new, and a second one completes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec
from msgspec.structs import replace

from karat.diffs.result import groups_of
from karat.findings import Finding, KaratError, Severity, UsageError, fail, info, warn
from karat.goldens.paths import PathFilter, narrow
from karat.goldens.provenance import RefreshRecord, write_record
from karat.refreshes.acceptance import is_asked_for
from karat.refreshes.apply import Writer
from karat.refreshes.claims import Claim, Claimant
from karat.refreshes.identity import Targets, is_wanted, renamed
from karat.refreshes.jobs import (
    FAILING,
    Choice,
    JobGroup,
    RefreshOptions,
    choose,
    group_jobs,
    is_platform,
    match_artifacts,
)
from karat.refreshes.report import GoldenOutcome, RefreshReport, State, complete, complete_all, how_many
from karat.refreshes.worktree import LockFiles, list_goldens
from karat.report.words import count, few
from karat.sources.source import Artifact, Listing, Run, Source
from karat.system import git
from karat.system.command import Command

_JOBS_SHOWN = 3


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What came in, with everything that was left out, and why."""

    listing: Listing
    groups: tuple[JobGroup, ...]
    choice: Choice
    claims: tuple[Claim, ...]
    findings: tuple[Finding, ...]
    out_of_scope: int
    received: int
    explained: frozenset[str] = frozenset()  # Artifacts of which a finding says why they gave nothing.


def refresh(source: Source, cwd: Path, options: RefreshOptions) -> RefreshReport:
    """Bring golden values from a source into the work tree around `cwd`."""
    root = git.ensure_repository(cwd)
    is_golden = PathFilter(options.globs, options.exclude)
    goldens = list_goldens(root, is_golden)
    targets = Targets(options.settings, is_golden, goldens.paths, options.cases)
    try:
        gathered = gather(source, targets, options)
    except KaratError as error:
        error.next_command = complete(error.advice, options.command)
        raise
    listing = gathered.listing
    findings = [*gathered.findings, *_missing(gathered, targets, options)]
    # A transfer that may succeed next time; what an archive on the server lacks, it will lack then, too.
    cut = sum(how_many(f) for f in findings if f.kind == "transfer-failed")
    outcomes: list[GoldenOutcome] = []
    written: list[str] = []
    # That is no reason to write half a refresh.
    stopped = bool(cut) and not options.keep_going
    if stopped:
        whole = "1 artifact is" if cut == 1 else f"{cut} artifacts are"
        again = "run the same command again, or add --keep-going"
        message = f"{whole} not whole, so nothing was written; what arrived is kept: {again}"
        findings.append(fail("transfer-failed", message, next=Command("karat", "refresh", "--keep-going")))
    else:
        locks = LockFiles(root, options.globs)
        with nullcontext(None) if options.dry_run else git.only_writer(root) as temporary:
            writer = Writer(
                goldens=goldens,
                locks=locks,
                options=options,
                source=listing.source,
                commits={run.id: run.commit for run in listing.runs if run.commit},
                jobs=gathered.groups,
                temporary=temporary,
            )
            for claim in gathered.claims:
                locks.get(claim.target)  # a broken one must be known before anything is written
            try:
                for outcome in writer.apply(gathered.claims):
                    advised = complete_all(outcome.findings, options.command)
                    outcomes.append(replace(outcome, findings=tuple(advised)))
            finally:  # whatever ends it: what was written has its line
                written, unwritten = ([], []) if options.dry_run else locks.write(temporary)
                findings += unwritten
    taken = sorted({name for outcome in outcomes for name in outcome.metrics})
    for glob in options.metrics if taken else ():  # where none was taken, each golden says so itself
        if not any(is_asked_for(name, (glob,)) for name in taken):
            message = f"expected a metric that --metric {glob!r} means, found only {', '.join(taken)}"
            findings.append(fail("nothing-compared", message, next="karat refresh --help"))
    if not outcomes and not any(f.severity is Severity.FAIL for f in findings):
        findings.append(_nothing_found(gathered, options))
    jobs: dict[str, Counter[str]] = {}
    for group in gathered.groups:
        end = group.current.conclusion if group.current else None
        jobs.setdefault(group.identity.get("platform", ""), Counter())[end or "not finished"] += 1
    result = RefreshReport(
        source=listing.source,
        origin=listing.origin,
        scope=options.scope,
        jobs={p: dict(sorted(jobs[p].items())) for p in sorted(jobs)},
        dry_run=options.dry_run,
        outcomes=tuple(outcomes),
        findings=tuple(complete_all(findings, options.command)),
        command=options.command,
        # A test is a job, or a folder of goldens where no job is known.
        tests=len({c.job.key if c.job else (c.artifact.id, c.target.rpartition("/")[0]) for c in gathered.claims}),
        found=len({claim.target for claim in gathered.claims}),
        superseded=gathered.choice.superseded,
        out_of_scope=gathered.out_of_scope,
        skipped=gathered.choice.skipped,
        unmatched=gathered.choice.unmatched,
        received=gathered.received,
        locks=tuple(written),
        groups=groups_of([o.change for o in outcomes if o.change and o.state is not State.UNCHANGED], options.rules),
    )
    undone = [f.message for f in result.findings if f.severity is Severity.FAIL]
    undone += [f"{o.path}: {finding.message}" for o in result.in_state(State.REFUSED) for finding in o.findings[:1]]
    record = RefreshRecord(
        source=result.source,
        run_id=", ".join(run.id for run in listing.runs) or None,
        scope=options.scope,
        command=str(options.command),
        files=tuple(o.path for o in result.in_state(State.WRITTEN)),
        confirmed=tuple(o.path for o in result.in_state(State.UNCHANGED)),
        narrowed=bool(options.only or options.platforms or options.metrics),
        not_refreshed=tuple(undone),
        accepted=tuple(o.path for o in result.outcomes if o.provenance and o.provenance.accepted),
        commit=next((run.commit for run in listing.runs if run.commit), None),
        date=options.date or None,
        tests=result.tests,
        goldens=result.found,
    )
    if not options.dry_run and not stopped:
        write_record(root, record)
    return replace(result, record=record)


def gather(source: Source, targets: Targets, options: RefreshOptions) -> Gathered:
    """Everything wanted that the source has, as files on this disk."""
    listing = source.listing()
    attempts = [run.attempt for run in listing.runs] + [job.attempt for job in listing.jobs]
    last = max(attempts, default=1)
    if options.attempt is not None and options.attempt > last:
        # An attempt that never was must not mean the last one that was.
        said = f"expected --attempt from 1 to {last}, found {options.attempt}: {listing.origin} has no more"
        raise UsageError(said, next_command=Command("karat", "refresh", "--attempt", str(last)))
    groups = group_jobs(listing.jobs, listing.runs, options.settings, options.attempt)
    choice = choose(match_artifacts(listing, groups, options.settings), groups, options)
    if options.notice is not None:
        jobs = f"{count(len(listing.jobs), 'job')}, " if listing.jobs else ""
        found = count(len(listing.artifacts), "artifact")
        options.notice(f"{listing.origin}: {jobs}{found}, {len(choice.matches):,} to look into")
    claimant = Claimant(options, targets, groups)
    by_id = {match.artifact.id: match for match in choice.matches}
    claims: list[Claim] = []
    told: list[tuple[Artifact, Finding]] = []
    explained: set[str] = set()
    received, out_of_scope = 0, choice.out_of_scope
    wanted = [m.artifact for m in choice.matches]
    for fetched in source.fetch(wanted, claimant.wants, options.progress):
        made, noted, beside = claimant.claims_of(fetched, by_id[fetched.artifact.id])
        claims += [claim for claim in made if narrow(claim.target, options.only)]
        told += [(fetched.artifact, finding) for finding in noted]
        if any(finding.severity is Severity.FAIL for finding in noted):
            explained.add(fetched.artifact.id)
        out_of_scope += beside
        received += fetched.received
    # Artifacts arrive in any order; the report must not depend on it.
    claims.sort(key=lambda c: (c.target, c.artifact.name, c.artifact.id, c.member))
    findings = sorted(_by_cause(told), key=lambda f: (f.severity.rank, f.path, f.kind, f.message))
    return Gathered(
        listing=listing,
        groups=tuple(groups),
        choice=choice,
        claims=tuple(claims),
        findings=(*listing.findings, *findings),
        out_of_scope=out_of_scope,
        received=received,
        explained=frozenset(explained),
    )


def _by_cause(told: Sequence[tuple[Artifact, Finding]]) -> Iterator[Finding]:
    """The findings, but one for all artifacts of which the same is said: they have one cause."""
    causes: dict[tuple[str, ...], list[tuple[str, Finding]]] = {}
    for artifact, finding in sorted(told, key=lambda one: (one[0].name, one[0].id)):
        said = finding.message
        for own in filter(None, (artifact.url, artifact.name, artifact.id)):
            said = said.replace(own, "")
        about_it = finding.message.startswith(f"artifact {artifact.name}: ")
        key = (finding.kind, said) if about_it else (finding.kind, said, artifact.id, finding.path)
        causes.setdefault(key, []).append((artifact.name, finding))
    for found in causes.values():
        (first, finding), names = found[0], [name for name, _ in found]
        if len(found) > 1:
            said = finding.message.removeprefix(f"artifact {first}: ")
            message, numbers = f"{len(found)} artifacts ({few(names, 3)}): {said}", {"artifacts": len(found)}
            finding = replace(finding, message=message, path="", numbers=numbers | {"names": ", ".join(names)})
        yield finding


def _missing(gathered: Gathered, targets: Targets, options: RefreshOptions) -> Iterator[Finding]:
    """What to say of the jobs in scope that have a golden, and of which nothing came in."""
    settings = options.settings
    if not settings.jobs:
        return  # nothing tells which jobs make goldens
    served = {claim.job.key for claim in gathered.claims if claim.job}
    matches = gathered.choice.matches
    served |= {g.key for match in matches if match.artifact.id in gathered.explained for g in match.jobs}
    runs = {run.id: run for run in gathered.listing.runs}
    # A job that was skipped made no golden.
    wanted = FAILING if options.only_failing else FAILING | {"success"}
    without: dict[tuple[str, bool], list[JobGroup]] = {}
    for group in gathered.groups:
        run_id, platform = group.key[0], group.identity.get("platform", "")
        going = run_id in runs and runs[run_id].conclusion is None and options.attempt is None
        over = bool(group.conclusions & wanted)
        if (
            (over or (going and group.current is None))
            and group.key not in served
            and is_wanted(renamed(group.identity, settings.rename), settings.values)
            and (not platform or is_platform(platform, options.platforms))
            # Without patterns for goldens' paths, nothing tells which jobs have one.
            and (
                not (settings.target or options.cases)
                or any(narrow(path, options.only) for _, path in targets.goldens(platform).agreeing(group.identity))
            )
        ):
            without.setdefault((run_id, over), []).append(group)
    for (run_id, over), groups in without.items():
        # Many jobs of a run that left nothing have one cause, and one answer.
        for some in [groups] if len(groups) > _JOBS_SHOWN else [[group] for group in groups]:
            yield _left_nothing(some, runs.get(run_id), over=over, asked_for=over or not options.only_failing)


def _left_nothing(groups: Sequence[JobGroup], run: Run | None, *, over: bool, asked_for: bool) -> Finding:
    """Of a job that may yet fail nothing was asked for; of one that was asked for, nothing can be had."""
    job, n = groups[0].current, len(groups)
    ended = f" ({job.conclusion}, attempt {job.attempt})" if job else ""
    who = f"job {groups[0].name}{ended}" if n == 1 else f"{n} jobs ({few([g.name for g in groups], _JOBS_SHOWN)})"
    did = "left no golden values" if over else "has not finished" if n == 1 else "have not finished"
    of_job = job is not None and (n == 1 or not all(group.failing for group in groups))
    again = job.rerun if job and of_job else run.rerun if run else None
    return (fail if asked_for else warn)(
        "artifact-missing" if asked_for else "not-refreshed",
        f"{who} {did}; {'its' if n == 1 else 'their'} goldens stay as they were",
        path=groups[0].key[1] if n == 1 else "",
        numbers={} if n == 1 else {"jobs": n, "names": ", ".join(g.name for g in groups)},
        next=again or Command("karat", "refresh"),
    )


def _nothing_found(gathered: Gathered, options: RefreshOptions) -> Finding:
    """Doing nothing must not look like having nothing to do."""
    groups = [group for group in gathered.groups if is_platform(group.identity.get("platform", ""), options.platforms)]
    if options.only_failing and groups and not any(group.failing for group in groups):
        return info("not-refreshed", f"no job failed, so there is nothing to refresh ({count(len(groups), 'job')})")
    listing = gathered.listing
    narrowed = [f"--only {glob}" for glob in options.only]
    narrowed += [f"--platform {glob}" for glob in options.platforms]
    which = f" for {', '.join(narrowed)}" if narrowed else ""
    return fail(
        "nothing-compared",
        f"expected golden values{which} in {listing.origin}, found none: {len(listing.artifacts)} artifacts,"
        f" {len(gathered.choice.unmatched)} of unknown name, {gathered.choice.superseded} superseded,"
        f" {gathered.out_of_scope} out of scope",
        next="karat refresh --help" if narrowed else "karat config --show-origin",
    )
