"""Shards: one table from the parts that several jobs made of it.

All shards of a table or none: a missing one would silently drop its rows. Pure: readings in,
a reading of the whole table out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import structs

from karat.compare.rules import RuleBook
from karat.diffs.advice import quoted
from karat.findings import Finding, KaratError, Severity
from karat.goldens import formats
from karat.goldens.provenance import Entry, Provenance
from karat.goldens.shapes import Reading, RowKey, Table
from karat.goldens.table_csv import read_table
from karat.refreshes.acceptance import Incoming, Judged, Policy, judge_many
from karat.refreshes.claims import Claim, by_target, settle
from karat.refreshes.report import Outcome, State
from karat.refreshes.settings import RefreshSettings, TableSettings
from karat.refreshes.worktree import (
    Locks,
    Standing,
    ensure_inside,
    keep_edits,
    put,
    rendered,
)
from karat.system.hashes import sha256_hex

_SHOWN = 5


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a table."""

    number: int
    of: int
    reading: Reading
    where: str
    """Which artifact it came from, for people."""


def missing_shards(shards: Sequence[Shard], path: str) -> list[Finding]:
    """What speaks against putting these shards together; empty if all are there."""
    totals = {shard.of for shard in shards}
    if len(totals) > 1:
        counts = ", ".join(map(str, sorted(totals)))
        return [_finding("missing-shard", path, f"shards disagree on how many there are: {counts}")]
    total = totals.pop()
    numbers = [shard.number for shard in shards]
    found = []
    # Counted rather than listed: the total is a name's word, and may be anything.
    absent = total - len({n for n in numbers if 1 <= n <= total})
    if absent:
        some = islice((n for n in range(1, total + 1) if n not in numbers), _SHOWN)
        which = ", ".join(map(str, some)) + (" …" if absent > _SHOWN else "")
        message = f"{absent:,} of {total:,} shards did not come in ({which}), so their rows would be dropped"
        found.append(_finding("missing-shard", path, message))
    for shard in shards:
        if not 1 <= shard.number <= total:
            message = f"{shard.where} says it is shard {shard.number} of {total}"
            found.append(_finding("missing-shard", path, message))
    for number in sorted({n for n in numbers if numbers.count(n) > 1}):
        names = ", ".join(s.where for s in shards if s.number == number)
        found.append(_finding("claimed-twice", path, f"shard {number} came in twice: {names}"))
    return found


def assemble(shards: Sequence[Shard], settings: TableSettings, path: str) -> Reading:
    """The whole table; a row that two shards have is a `duplicate-row`."""
    ordered = sorted(shards, key=lambda shard: shard.number)
    findings: list[Finding] = []
    tables: list[tuple[Shard, Table]] = []
    for shard in ordered:
        findings += [_placed(f, shard) for f in shard.reading.findings]
        golden = shard.reading.golden
        if isinstance(golden, Table):
            tables.append((shard, golden))
        elif golden is not None:
            message = f"expected a table in {shard.where}, found a {golden.shape}"
            findings.append(_finding("unreadable", path, message))
    if len(tables) < len(ordered):
        return Reading(None, tuple(findings))
    columns = settings.columns or tables[0][1].columns
    findings += _lacking(tables, columns, path)
    if any(f.kind == "lost-metric" for f in findings):
        return Reading(None, tuple(findings))
    rows: dict[RowKey, tuple[str, ...]] = {}
    origin: dict[RowKey, str] = {}
    for shard, table in tables:
        for key, cells in table.rows.items():
            row = _row(dict(zip(table.columns, cells, strict=False)), columns, settings)
            if key in rows:
                findings.append(_twice(key, rows[key] == row, origin[key], shard.where, path))
            else:
                rows[key], origin[key] = row, shard.where
    key_columns = tables[0][1].key
    return Reading(Table(tuple(columns), key_columns, rows), tuple(findings), "table-csv")


def _row(
    cells: Mapping[str, str], columns: Sequence[str], settings: TableSettings
) -> tuple[str, ...]:
    return tuple(_cell(name, cells.get(name, ""), settings) for name in columns)


def _cell(name: str, text: str, settings: TableSettings) -> str:
    if name in settings.fill and text.casefold() in {"", "nan"}:
        return settings.fill[name]
    if name in settings.integers:
        whole, dot, rest = text.partition(".")
        return whole if dot and not rest.strip("0") and whole else text
    return text


def _lacking(
    tables: Sequence[tuple[Shard, Table]], columns: Sequence[str], path: str
) -> list[Finding]:
    found = []
    for shard, table in tables:
        for name in columns:
            if name not in table.columns:
                message = (
                    f"column {name} is missing in {shard.where}; it has {', '.join(table.columns)}"
                )
                found.append(_finding("lost-metric", path, message))
        if not set(table.key) <= set(columns):
            message = f"the key of {shard.where} is {', '.join(table.key)}, which [refresh.tables] columns leaves out"
            found.append(_finding("lost-metric", path, message))
    return found


def _twice(key: RowKey, same: bool, first: str, second: str, path: str) -> Finding:  # noqa: FBT001 - a fact, not a switch
    how = "the same way" if same else "differently"
    message = f"row {' / '.join(key)} stands {how} in {first} and in {second}"
    return _finding("duplicate-row", path, message)


def _placed(finding: Finding, shard: Shard) -> Finding:
    return replace(finding, message=f"{shard.where}: {finding.message}")


def _finding(kind: str, path: str, message: str) -> Finding:
    return Finding(kind=kind, severity=Severity.FAIL, path=path, message=message)


# DOC-HERE taking: Taking: claims are put together, judged, and written, some goldens at a time.

_AT_A_TIME = 64


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What judging and writing need."""

    settings: RefreshSettings
    policy: Policy
    rules: RuleBook
    status: tuple[str, ...]
    standing: Standing
    locks: Locks
    source: str
    date: str
    commits: dict[str, str]
    """Run → commit."""
    dry_run: bool = False
    workshop: Path | None = None
    """Where half-written files lie."""


class _Candidate(msgspec.Struct, frozen=True, kw_only=True):
    incoming: Incoming
    claims: tuple[Claim, ...]
    data: bytes | None
    """The incoming bytes, where one file is the whole golden."""
    like: bytes | None = None
    """The file whose style is kept."""


def take(claims: Sequence[Claim], means: Means) -> Iterator[Outcome]:
    """Judge every claimed golden, and write those that may be taken."""
    targets = list(by_target(claims).items())
    for i in range(0, len(targets), _AT_A_TIME):
        yield from _take_some(targets[i : i + _AT_A_TIME], means)


def _take_some(targets: Sequence[tuple[str, list[Claim]]], means: Means) -> Iterator[Outcome]:
    candidates: list[_Candidate] = []
    for path, claims in targets:
        made = _sharded(path, claims, means) if means.settings.tables else _plain(path, claims)
        if isinstance(made, Outcome):
            yield made
        else:
            candidates.append(made)
    olds = means.standing.old_bytes([c.incoming.path for c in candidates])
    candidates = [_based(c, old, means) for c, old in zip(candidates, olds, strict=True)]
    readings = [None if data is None else formats.read(data) for data in olds]
    judged = judge_many(
        [(c.incoming, old) for c, old in zip(candidates, readings, strict=True)],
        means.policy,
        means.rules,
        means.status,
    )
    for candidate, old, verdict in zip(candidates, olds, judged, strict=True):
        yield _outcome(candidate, old, verdict, means)


def _based(candidate: _Candidate, old: bytes | None, means: Means) -> _Candidate:
    """The candidate with the file that it goes into: HEAD's, or for --metric what lies there now."""
    current = means.standing.current(candidate.incoming.path) if means.policy.metrics else None
    base = None if current is None else formats.read(current)
    if base is None or base.golden is None:
        return structs.replace(candidate, like=old)
    incoming = structs.replace(candidate.incoming, base=base)
    return structs.replace(candidate, incoming=incoming, like=current)


def _plain(path: str, claims: Sequence[Claim]) -> _Candidate | Outcome:
    winner, findings = settle(claims)
    if winner is None:
        return _refused(path, claims, findings)
    try:
        data = winner.file.read_bytes()
    except OSError as error:
        return _refused(path, claims, [_cannot_read(winner, error)])
    incoming = Incoming(
        path=path,
        reading=formats.read(data),
        identity=winner.identity,
        conclusion=winner.conclusion,
        findings=winner.findings,
    )
    return _Candidate(incoming=incoming, claims=(winner,), data=data)


def _cannot_read(claim: Claim, error: OSError) -> Finding:
    return Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        path=claim.target,
        message=f"expected to read {claim.where}, but: {error.strerror}",
        next=f"ls -l {quoted(str(claim.file))}",
    )


def _sharded(path: str, claims: Sequence[Claim], means: Means) -> _Candidate | Outcome:
    settings = means.settings.tables
    assert settings is not None  # noqa: S101 - the caller asked
    if not all(_numbered(claim) for claim in claims):
        message = (
            "refused, the old golden is kept: nothing tells which shard of the table some files are"
        )
        kind = "identity-incomplete"
        finding = Finding(kind=kind, severity=Severity.FAIL, path=path, message=message)
        return _refused(path, claims, [_advised(finding, claims[0], means)])
    winners, contested = _newest_of_each(claims)
    try:
        shards = [_shard(claim, settings) for claim in winners]
    except OSError as error:
        return _refused(path, claims, [_cannot_read(winners[0], error)])
    noted = [*contested, *missing_shards(shards, path), *_of_one_table(winners, path)]
    ends = {c.conclusion for c in winners if c.conclusion}
    unfinished = ends & {"cancelled", "timed_out"}
    incoming = Incoming(
        path=path,
        reading=assemble(shards, settings, path),
        identity=_alike(winners),
        conclusion=min(unfinished, default=None),
        findings=tuple(noted) + tuple(f for c in winners for f in c.findings),
    )
    return _Candidate(incoming=incoming, claims=tuple(winners), data=None)


def _numbered(claim: Claim) -> bool:
    """Whether a claim says which shard it is; a manifest may say anything."""
    told = (claim.identity.get("shard", ""), claim.identity.get("num_shards", ""))
    return all(text.isascii() and text.isdigit() and len(text) < 10 for text in told)


def _shard(claim: Claim, settings: TableSettings) -> Shard:
    return Shard(
        number=int(claim.identity["shard"]),
        of=int(claim.identity["num_shards"]),
        reading=read_table(claim.file.read_bytes(), settings.key or None),
        where=claim.artifact.name,
    )


def _of_one_table(claims: Sequence[Claim], path: str) -> list[Finding]:
    """Shards of several runs or configurations are parts of several tables."""
    found = []
    runs = {c.artifact.run_id or "" for c in claims}
    builds = {c.identity["config"] for c in claims if "config" in c.identity}
    for what, names in (("runs", runs), ("configurations", builds)):
        if len(names) > 1:
            message = f"its shards come from {len(names)} {what} ({', '.join(sorted(names))})"
            found.append(
                Finding(kind="claimed-twice", severity=Severity.FAIL, path=path, message=message)
            )
    return found


def _newest_of_each(claims: Sequence[Claim]) -> tuple[list[Claim], list[Finding]]:
    """One claim per shard; doubles that are not attempts of one job are contested."""
    by_shard: dict[str, list[Claim]] = {}
    for claim in claims:
        by_shard.setdefault(claim.identity["shard"], []).append(claim)
    winners, findings = [], []
    for found in by_shard.values():
        winner, complaints = settle(found)
        winners.append(winner or found[0])
        findings += complaints
    return winners, findings


def _alike(claims: Sequence[Claim]) -> dict[str, str]:
    first = claims[0].identity
    return {k: v for k, v in first.items() if all(c.identity.get(k) == v for c in claims)}


def _refused(path: str, claims: Sequence[Claim], findings: Sequence[Finding]) -> Outcome:
    return Outcome(
        path=path,
        state=State.REFUSED,
        findings=tuple(findings),
        artifacts=tuple(c.artifact.name for c in claims),
        members=tuple(c.member for c in claims),
    )


def _outcome(candidate: _Candidate, old: bytes | None, verdict: Judged, means: Means) -> Outcome:
    path, claims = candidate.incoming.path, candidate.claims
    findings = [_advised(f, claims[0], means) for f in verdict.findings]
    state = State.REFUSED
    origin = _provenance(claims, verdict, means)
    if verdict.golden is not None:
        try:
            state, kept = _placed_taking(candidate, old, verdict, origin, means)
            findings += kept
        except KaratError as error:
            # One place that cannot be written must not keep the others from being refreshed.
            findings = [_not_written(path, error)]
    return Outcome(
        path=path,
        state=state,
        change=verdict.change,
        findings=tuple(findings),
        artifacts=tuple(c.artifact.name for c in claims),
        members=tuple(c.member for c in claims),
        provenance=origin,
        metrics=verdict.metrics,
    )


def _placed_taking(
    candidate: _Candidate, old: bytes | None, verdict: Judged, origin: Provenance, means: Means
) -> tuple[State, list[Finding]]:
    """Put a golden that may be taken into the work tree, and its line into the lock."""
    assert verdict.golden is not None  # noqa: S101 - the caller asked
    path, root = candidate.incoming.path, means.standing.root
    padding = means.settings.tables.padding if means.settings.tables else 0
    incoming = candidate.data if verdict.verbatim else None
    data = rendered(verdict.golden, old=candidate.like, incoming=incoming, padding=padding)
    current = means.standing.current(path)
    locked = means.locks.get(path)
    kept = []
    if current != data:
        ensure_inside(root, root / path)
        committed = old if path in means.standing.head else None
        if current is not None and current != committed and not _ours(current, locked):
            kept.append(keep_edits(root, path, current, dry_run=means.dry_run))
        if not means.dry_run:
            put(root, path, data, means.workshop)
    digest = sha256_hex(data)
    if locked is None or locked.sha256 != digest:
        means.locks.set(path, _entry(origin, digest, locked, verdict.metrics))
    return State.UNCHANGED if current == data else State.WRITTEN, kept


def _not_written(path: str, error: KaratError) -> Finding:
    return Finding(
        kind="not-refreshed",
        severity=Severity.FAIL,
        path=path,
        message=f"not written, what stands is kept: {error}",
        next=error.next_command,
    )


def _ours(current: bytes, locked: Entry | None) -> bool:
    return locked is not None and locked.sha256 == sha256_hex(current)


def _entry(origin: Provenance, digest: str, locked: Entry | None, metrics: Sequence[str]) -> Entry:
    fields = msgspec.structs.asdict(origin)
    if not metrics:
        return Entry(**fields, sha256=digest)
    # The rest of the file keeps its own provenance; only these metrics have a new one.
    base = (
        {n: getattr(locked, n) for n in fields}
        if locked
        else {**dict.fromkeys(fields), "source": "unknown"}
    )
    earlier = dict(locked.metrics) if locked else {}
    return Entry(**base, sha256=digest, metrics={**earlier, **dict.fromkeys(metrics, origin)})


def _provenance(claims: Sequence[Claim], verdict: Judged, means: Means) -> Provenance:
    first = claims[0]
    run = str(first.manifest.run_id or first.artifact.run_id or "") or None
    jobs = [c.job.key[1] if c.job else c.manifest.job or "" for c in claims]
    attempts = [c.attempt for c in claims if c.attempt is not None]
    return Provenance(
        source=means.source,
        run=run,
        attempt=max(attempts, default=None),
        commit=first.manifest.commit or means.commits.get(run or ""),
        job=", ".join(filter(None, dict.fromkeys(jobs))) or None,
        platform=first.identity.get("platform"),
        image=first.manifest.image,
        date=means.date,
        accepted="--accept-incomplete" if verdict.accepted else None,
    )


def _advised(finding: Finding, claim: Claim, means: Means) -> Finding:
    """The finding with the command that helps: run the job again, for what is incomplete."""
    if finding.next or finding.severity is not Severity.FAIL:
        return finding
    job = claim.job.current if claim.job else None
    if means.source == "github" and job is not None:
        return replace(finding, next=f"gh run rerun --job {job.id}")
    return replace(finding, next=f"karat refresh --dry-run --only {quoted(claim.target)}")
