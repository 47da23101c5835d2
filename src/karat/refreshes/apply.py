"""Apply: claims are put together, decided on, and written, some goldens at a time.

A table is put together from the shards that several jobs made of it: all of them or none, because a
missing one would silently drop its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from karat.findings import CannotVerify, Finding, KaratError, Severity, fail
from karat.goldens import formats
from karat.goldens.provenance import LockEntry, Provenance
from karat.goldens.saves import keep_edits
from karat.goldens.shapes import Reading, RowKey, Table
from karat.goldens.table_csv import read_table
from karat.refreshes.acceptance import Acceptance, Incoming, decide_all
from karat.refreshes.claims import Claim, by_target, settle, tell_apart
from karat.refreshes.identity import agreed
from karat.refreshes.jobs import UNFINISHED, JobGroup, RefreshOptions
from karat.refreshes.report import GoldenOutcome, State
from karat.refreshes.worktree import GoldenFiles, LockFiles, ensure_inside, read_golden, render, write_golden
from karat.settings import TableSettings
from karat.system.command import Command
from karat.system.foreign.limits import GOLDEN, read_plain
from karat.system.hashes import sha256_hex

_AT_A_TIME = 64
_SHOWN = 5
_NOT_MENDED = frozenset({"claimed-twice", "duplicate-row", "identity-incomplete", "type-changed"})
"""What running a job again does not change."""


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a table."""

    number: int
    of: int
    reading: Reading
    where: str  # Which artifact it came from, for people.


def missing_shards(shards: Sequence[Shard], path: str) -> list[Finding]:
    """What speaks against putting these shards together; empty if all are there."""
    totals = {shard.of for shard in shards}
    if len(totals) > 1:
        counts = ", ".join(map(str, sorted(totals)))
        return [fail("missing-shard", f"shards disagree on how many there are: {counts}", path=path)]
    total = totals.pop()
    numbers = [shard.number for shard in shards]
    found = []
    # Counted rather than listed: the total is a name's word, and may be anything.
    absent = total - len({n for n in numbers if 1 <= n <= total})
    if absent:
        some = islice((n for n in range(1, total + 1) if n not in numbers), _SHOWN)
        which = ", ".join(map(str, some)) + (" …" if absent > _SHOWN else "")
        lost = f"{absent:,} of {total:,} shards are missing from the new results ({which})"
        found.append(fail("missing-shard", f"{lost}, so their rows would be dropped", path=path))
    found += [
        fail("missing-shard", f"{shard.where} says it is shard {shard.number} of {total}", path=path)
        for shard in shards
        if not 1 <= shard.number <= total
    ]
    for number in sorted({n for n in numbers if numbers.count(n) > 1}):
        names = ", ".join(s.where for s in shards if s.number == number)
        found.append(fail("claimed-twice", f"shard {number} arrived twice: {names}", path=path))
    return found


def assemble(shards: Sequence[Shard], settings: TableSettings, path: str) -> Reading:
    """The whole table; a row that two shards have is a `duplicate-row`."""
    findings: list[Finding] = []
    tables: list[tuple[Shard, Table]] = []
    for shard in sorted(shards, key=lambda shard: shard.number):
        findings += [replace(f, message=f"{shard.where}: {f.message}") for f in shard.reading.findings]
        golden = shard.reading.golden
        if isinstance(golden, Table):
            tables.append((shard, golden))
        elif golden is not None:
            message = f"expected a table in {shard.where}, found a {golden.shape}"
            findings.append(fail("unreadable", message, path=path))
    if len(tables) < len(shards):
        return Reading(None, tuple(findings))
    columns = settings.columns or tables[0][1].columns
    for shard, table in tables:
        has = ", ".join(table.columns)
        absent = (name for name in columns if name not in table.columns)
        lacks = [f"column {name} is missing in {shard.where}; it has {has}" for name in absent]
        if not set(table.key) <= set(columns):
            names = ", ".join(table.key)
            lacks.append(f"the key of {shard.where} is {names}, which [refresh.tables] columns leaves out")
        findings += [fail("lost-metric", message, path=path) for message in lacks]
    if any(f.kind == "lost-metric" for f in findings):
        return Reading(None, tuple(findings))
    rows: dict[RowKey, tuple[str, ...]] = {}
    origin: dict[RowKey, str] = {}
    for shard, table in tables:
        for key, cells in table.rows.items():
            named = dict(zip(table.columns, cells, strict=False))
            row = tuple(_cell(name, named.get(name, ""), settings) for name in columns)
            if key not in rows:
                rows[key], origin[key] = row, shard.where
                continue
            how = "the same way" if rows[key] == row else "differently"
            message = f"row {' / '.join(key)} stands {how} in {origin[key]} and in {shard.where}"
            findings.append(fail("duplicate-row", message, path=path))
    return Reading(Table(tuple(columns), tables[0][1].key, rows), tuple(findings), "table-csv")


def _cell(name: str, text: str, settings: TableSettings) -> str:
    if name in settings.fill and text.casefold() in {"", "nan"}:
        return settings.fill[name]
    if name in settings.integers:
        whole, dot, rest = text.partition(".")
        return whole if dot and not rest.strip("0") and whole else text
    return text


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """Decides on claimed goldens, and writes those that may be taken."""

    goldens: GoldenFiles
    locks: LockFiles
    options: RefreshOptions
    source: str
    commits: dict[str, str]  # Run → commit.
    jobs: Sequence[JobGroup] = ()
    temporary: Path | None = None  # The folder for half-written files.

    def apply(self, everything: Sequence[Claim]) -> Iterator[GoldenOutcome]:
        """What becomes of each golden; some are compared together."""
        claimed = list(by_target(everything).items())
        tables = self.options.settings.tables
        for i in range(0, len(claimed), _AT_A_TIME):
            found: list[Incoming] = []
            for path, claims in claimed[i : i + _AT_A_TIME]:
                made = self._table(path, claims, tables) if tables else self._file(path, claims)
                if isinstance(made, GoldenOutcome):
                    yield made
                    continue
                try:
                    current = read_golden(self.goldens.root, path)
                except CannotVerify as error:
                    # What cannot be read may hold anything, so it is not overwritten.
                    yield _refused(path, claims, [_not_written(self.goldens.root / path, path, error, "cannot-read")])
                    continue
                # --metric puts some metrics into the file that is there now.
                base = formats.read(current) if current is not None and self.options.metrics else None
                found.append(replace(made, seen=current, base=base if base is not None and base.golden else None))
            long = self.goldens.too_long([new.path for new in found])
            yield from (_refused(new.path, new.claims, [long[new.path]]) for new in found if new.path in long)
            found = [new for new in found if new.path not in long]
            olds = self.goldens.old_bytes([new.path for new in found])
            pairs = [(new, None if old is None else formats.read(old)) for new, old in zip(found, olds, strict=True)]
            for new, old, decision in zip(found, olds, decide_all(pairs, self.options), strict=True):
                yield self._outcome(new, old, decision)

    def _file(self, path: str, claims: Sequence[Claim]) -> Incoming | GoldenOutcome:
        winner, findings = settle(claims, self.source)
        if winner is None:
            return _refused(path, claims, findings)
        data = _read(winner)
        if isinstance(data, Finding):
            return _refused(path, claims, [data])
        return Incoming(
            path=path,
            reading=formats.read(data),
            identity=winner.identity,
            conclusion=winner.conclusion,
            findings=winner.findings,
            claims=(winner,),
            data=data,
        )

    def _table(self, path: str, claims: Sequence[Claim], settings: TableSettings) -> Incoming | GoldenOutcome:
        by_shard: dict[str, list[Claim]] = {}
        for claim in claims:
            number, total = (claim.identity.get(name, "") for name in ("shard", "num_shards"))
            # A manifest may say anything.
            if not all(t.isascii() and t.isdigit() and len(t) < 10 for t in (number, total)):
                message = "refused, the old golden is kept: nothing tells which shard of the table some files are"
                finding = fail("identity-incomplete", message, path=path)
                return _refused(path, claims, [self._with_advice(finding, claims[0])])
            by_shard.setdefault(number, []).append(claim)
        winners, noted, shards = [], [], []
        for number, found in by_shard.items():
            newest, complaints = settle(found, self.source)
            winner = newest or found[0]
            winners.append(winner)
            noted += complaints
            data = _read(winner)
            if isinstance(data, Finding):
                return _refused(path, claims, [data])
            refused, of = formats.refusal(data, path), int(winner.identity["num_shards"])
            reading = Reading(None, (refused,)) if refused else read_table(data, settings.key or None)
            shards.append(Shard(number=int(number), of=of, reading=reading, where=winner.artifact.name))
        # The job to run again is the one whose shard did not come.
        of_job = winners[0].job
        others = [g for g in self.jobs if of_job and g.table == of_job.table and g.key[0] == of_job.key[0]]
        late = next((g for g in others if g.identity.get("shard") not in by_shard), None)
        noted += [self._with_advice(f, winners[0], late) for f in missing_shards(shards, path)]
        # Shards of several runs or configurations are parts of several tables.
        runs = {c.artifact.run_id or "" for c in winners}
        builds = {c.identity["config"] for c in winners if "config" in c.identity}
        for what, names in (("runs", runs), ("configurations", builds)):
            if len(names) > 1:
                message = f"its shards come from {len(names)} {what} ({', '.join(sorted(names))})"
                noted.append(fail("claimed-twice", message, path=path, next=tell_apart(winners, self.source)))
        unfinished = UNFINISHED & {c.conclusion for c in winners}
        return Incoming(
            path=path,
            reading=assemble(shards, settings, path),
            identity=agreed([c.identity for c in winners]),
            conclusion=min(unfinished, default=None),
            findings=tuple(noted) + tuple(f for c in winners for f in c.findings),
            claims=tuple(winners),
        )

    def _outcome(self, new: Incoming, old: bytes | None, decision: Acceptance) -> GoldenOutcome:
        path, claims = new.path, new.claims
        findings, state = [self._with_advice(f, claims[0]) for f in decision.findings], State.REFUSED
        first = claims[0]
        run = str(first.manifest.run_id or first.artifact.run_id or "") or None
        jobs = [c.job.key[1] if c.job else c.manifest.job or "" for c in claims]
        origin = Provenance(
            source=self.source,
            run=run,
            attempt=max((c.attempt for c in claims if c.attempt is not None), default=None),
            commit=first.manifest.commit or self.commits.get(run or ""),
            job=", ".join(filter(None, dict.fromkeys(jobs))) or None,
            platform=first.identity.get("platform"),
            image=first.manifest.image,
            date=self.options.date,
            accepted="--accept-incomplete" if decision.accepted else None,
        )
        if decision.golden is not None:
            try:
                state, kept = self._write(new, old, decision, origin)
                findings += kept
            except (KaratError, OSError) as error:
                # One place that cannot be written must not keep the others from being refreshed.
                findings = [_not_written(self.goldens.root / path, path, error, "not-refreshed")]
        made = replace(_refused(path, claims, findings), state=state, provenance=origin)
        return replace(made, change=decision.change, metrics=decision.metrics)

    def _write(
        self, new: Incoming, old: bytes | None, decision: Acceptance, origin: Provenance
    ) -> tuple[State, list[Finding]]:
        """Put a golden that may be taken into the work tree, and its line into the lock."""
        assert decision.golden is not None  # noqa: S101 - the caller asked
        path, root = new.path, self.goldens.root
        tables, dry_run = self.options.settings.tables, self.options.dry_run
        like, padding = old if new.base is None else new.seen, tables.padding if tables else 0
        incoming = new.data if decision.golden is new.reading.golden else None
        data = render(decision.golden, old=like, incoming=incoming, padding=padding)
        current = new.seen
        locked = self.locks.get(path)
        kept = []
        if current != data:
            ensure_inside(root, root / path)
            committed = old if path in self.goldens.head else None
            ours = None if locked is None else locked.sha256
            if current is not None and current != committed and sha256_hex(current) != ours:
                kept.append(keep_edits(root, path, current, dry_run=dry_run))
            if not dry_run:
                kept += write_golden(root, path, data, current, self.temporary)
        digest = sha256_hex(data)
        if locked is None or locked.sha256 != digest:
            self.locks.set(path, LockEntry.of(origin, digest, locked, decision.metrics))
        return State.UNCHANGED if current == data else State.WRITTEN, kept

    def _with_advice(self, finding: Finding, claim: Claim, group: JobGroup | None = None) -> Finding:
        """The finding with the command that helps: run the job again, for what is incomplete."""
        if finding.next or finding.severity is not Severity.FAIL:
            return finding
        group = group or claim.job
        job = group.current if group else None
        if finding.kind not in _NOT_MENDED and job is not None and job.rerun is not None:
            return replace(finding, next=job.rerun)
        return replace(finding, next=tell_apart([claim], self.source))


def _refused(path: str, claims: Sequence[Claim], findings: Sequence[Finding]) -> GoldenOutcome:
    names, members = zip(*((c.artifact.name, c.member) for c in claims), strict=True)
    found = tuple(findings)
    return GoldenOutcome(path=path, state=State.REFUSED, findings=found, artifacts=names, members=members)


def _read(claim: Claim) -> bytes | Finding:
    try:
        return read_plain(claim.file, GOLDEN)
    except OSError as error:
        said = f"expected to read {claim.where}, but: {error.strerror}"
        return fail("cannot-read", said, path=claim.target, next=Command("ls", "-l", str(claim.file)))


def _not_written(target: Path, path: str, error: KaratError | OSError, kind: str) -> Finding:
    then = error.advice if isinstance(error, KaratError) else Command("ls", "-ld", str(target))
    return fail(kind, f"not written, the old golden is kept: {error}", path=path, next=then)
