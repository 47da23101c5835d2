"""Check: what a run left, against its goldens. The front door of this room.

In: the words of a command line and `Options`. Out: a `CheckReport`. Completeness is judged before values, and nothing is
ever skipped in silence: a result without a golden, a golden without a result, and a check that compared nothing each
have an outcome of their own. Whether a result is fit to become the golden is decided here, too: advice that would
spoil a golden is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import date
from fnmatch import fnmatchcase
from glob import escape
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from karat.checks.lookup import Actual, GoldenAt, Pairing, Where, pair_up
from karat.checks.report import Checked, CheckReport, absent, finding
from karat.compare.gate.result import ROWS, SHUT, UNKNOWN, CheckOutcome, Judging, MetricResult, names
from karat.compare.gate.series import gate_series
from karat.compare.gate.table import gate_table, join_shards, like_golden
from karat.compare.gate.values import gate_document
from karat.compare.rules import STATUS_ORDER, RuleBook
from karat.findings import CannotVerify, Finding, Severity, fail, suggest
from karat.goldens import formats
from karat.goldens.paths import PathFilter, identity_of, narrow
from karat.goldens.shapes import Document, Reading, Series, Table
from karat.runs.read import read_run
from karat.settings import CheckExemption, CheckSettings, RecordSettings, Unknown
from karat.system import git
from karat.system.ci import facts
from karat.system.command import Command
from karat.system.foreign.limits import GOLDEN, TooLong, read_plain
from karat.system.forks import chunks_of, helpers_for, spread

if TYPE_CHECKING:
    from karat.compare.history import Past

_ALWAYS_FAIL = frozenset({"duplicate-key", "duplicate-row", "ragged-row", "short-run", "truncated"})
"""Defects of a result that a golden may have as a warning, but that no gate lets through."""
_EVIDENCE = frozenset({CheckOutcome.PASS, CheckOutcome.IMPROVED, CheckOutcome.EXEMPTED, CheckOutcome.FAIL})
_NAMES_SHOWN = 8
_REPOSITORY = re.compile(r"[\w.\-/]+")


class CheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to check, as the command line and karat.toml say it."""

    where: Where
    today: date
    rules: RuleBook = msgspec.field(default_factory=RuleBook)
    status: tuple[str, ...] = STATUS_ORDER
    record: RecordSettings = msgspec.field(default_factory=RecordSettings)
    exemptions: tuple[CheckExemption, ...] = ()
    flaky: Callable[[str], Iterable[tuple[str, str, str]]] = lambda _path: ()
    """Path of a golden → column, row and origin of what its suite never fails."""
    fill: Mapping[str, str] = msgspec.field(default_factory=dict)  # Column → what an empty cell of a result stands for.
    exact: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()  # Globs of the rows that this shard of a table has; none: it is the whole table.
    jobs: int | None = 1  # Processes to check with; None for as many as there are cores and work for.
    past: Callable[[], Past | None] = lambda: None  # The moves of earlier refreshes; asked when something failed.
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Where the CI says who it is; nothing else of it is read."""

    @property
    def settings(self) -> CheckSettings:
        return self.where.settings

    def on_unknown(self, metric: str) -> Unknown:
        """What it means that a golden does not know this."""
        rows = self.settings.unknown_rows if metric == UNKNOWN["row"] else None
        return rows or self.settings.unknown


def check(words: Sequence[str], golden: str, options: CheckOptions) -> CheckReport:
    pairings = pair_up(words, golden, options.where)
    chunks, helpers = chunks_of(pairings), helpers_for(len(pairings), options.jobs)
    work = nullcontext(lambda number: [_check(pairing, options) for pairing in chunks[number]])
    checks = [c for part in spread(len(chunks), lambda: work, list[Checked], helpers=helpers) for c in part]
    shown = [c for c in checks if c.outcome is not CheckOutcome.MISSING_GOLDEN or c.findings]
    shown.sort(key=lambda c: (c.outcome.rank, c.name))
    report = CheckReport(checks=tuple(shown), findings=tuple(_not_exact(shown, options)))
    if report.outcome is not CheckOutcome.NOTHING_COMPARED or report.exit_code != 0:
        return report
    only = f" with --only {' '.join(options.where.only)}" if options.where.only else ""
    nothing = fail(
        "nothing-compared",
        f"expected results with a golden in {', '.join(words)}{only}, found none:"
        " nothing was compared, so nothing passed",
        next="karat check --help",
    )
    return replace(report, findings=(nothing,))


def _not_exact(checks: Sequence[Checked], options: CheckOptions) -> Iterator[Finding]:
    """What --exact asked for and got nowhere: a misspelt name would pass as if it had been exact."""
    results = [result for checked in checks for result in checked.results]
    for glob in options.exact:
        if results and not any(r.check == "exact" and names(glob, r.metric) for r in results):
            metrics = sorted({r.metric for r in results if r.check not in {"", "rows"}})
            approximate = sorted({r.metric for r in results if r.check == "approx"})
            there = ", ".join((approximate or metrics)[:_NAMES_SHOWN])
            yield fail(
                "nothing-compared",
                f"expected a metric that --exact {glob!r} makes exact, found {there or 'none'}{suggest(glob, metrics)}",
                next=Command("karat", "config", "--metric", glob),
            )


def _check(pairing: Pairing, options: CheckOptions) -> Checked:
    actual, at = pairing.actual, pairing.golden
    if actual is None or not actual.path.exists():
        name = actual.name if actual else ""
        golden = at.name if at else None
        where = f"at {name}" if name else f"for the golden {golden}"
        missing = fail(
            "missing-actual",
            f"expected a result {where}, found none: the run left nothing, so nothing was checked",
            path=golden or name,
            next=Command("ls", "-l", name) if name else Command("ls", "-lR", *pairing.looked),
        )
        return Checked(actual=name, golden=golden, outcome=CheckOutcome.MISSING_ACTUAL, findings=(missing,))
    expected = _read_golden(at) if at is not None else None
    if at is None or expected is None:
        return _no_golden(actual, pairing, options)
    if expected.golden is not None:
        return _compare(pairing, actual, at, expected, options)
    findings = tuple(
        replace(
            f,
            path=at.name,
            message=f"the golden cannot be used: {f.message}",
            severity=Severity.FAIL,
            next=f.next or Command("git", "log", "--oneline", "--", at.name),
        )
        for f in expected.findings
    )
    return Checked(actual=actual.name, golden=at.name, outcome=CheckOutcome.CANNOT_VERIFY, findings=findings)


def _no_golden(actual: Actual, pairing: Pairing, options: CheckOptions) -> Checked:
    """A result that was named needs a golden; one that merely lay in a folder is unknown."""
    golden = pairing.golden.name if pairing.golden else None
    outcome = CheckOutcome.MISSING_GOLDEN
    if actual.inside is not None and options.settings.unknown == "ignore":
        return Checked(actual=actual.name, golden=golden, outcome=outcome)
    # Where the next check would find this golden.
    proposed = f"goldens/{actual.inside or actual.path.name}"
    found_there = PathFilter(options.where.globs, options.where.exclude)(proposed)
    usual = actual.path.is_file() and found_there
    take = _take(actual.name, golden or (proposed if usual else None), options)
    found = Finding(
        kind="missing-golden",
        severity=Severity.FAIL if actual.inside is None else Severity(options.settings.unknown),
        path=golden or actual.name,
        message=f"expected a golden for {actual.name}, found none: {pairing.why or f'there is no {golden}'}",
        next=take,
    )
    return Checked(actual=actual.name, golden=golden, outcome=outcome, findings=(found,), refresh=take)


def _read_golden(at: GoldenAt) -> Reading | None:
    """The golden, or the findings that say why it cannot be had; None where there is none."""
    try:
        if at.revision is not None:
            data = git.read_blob(git.ensure_repository(at.path), at.revision, GOLDEN)
        else:
            data = read_plain(at.path, GOLDEN)
    except TooLong as error:
        return Reading(None, (formats.too_long(error.size, at.name),))
    except (OSError, CannotVerify) as error:
        if at.revision is None and not at.path.exists():
            return None
        why = (error.strerror if isinstance(error, OSError) else None) or error
        return Reading(None, (fail("cannot-read", f"expected to read the golden {at.name}, but: {why}"),))
    return formats.read(data, at.name)


def _compare(pairing: Pairing, actual: Actual, at: GoldenAt, expected: Reading, options: CheckOptions) -> Checked:
    """One result, or the shards of one, against one golden that is there."""
    exemptions = CheckExemptions(options.exemptions, at.name, options.today, options.flaky(at.name))
    golden = expected.golden
    judging = Judging(
        book=options.rules,
        path=at.name,
        shape=golden.shape if golden else "*",
        exact=options.exact,
        status=options.status,
        requests=options.settings.requests,
        exempt=exemptions.covering,
    )
    shards = []
    for shard in (actual, *pairing.more):
        got = read_run(shard.path, options.record, shape=golden.shape if golden else None)
        if isinstance(golden, Table) and isinstance(got.golden, Table) and shard.path.is_file():
            got = like_golden(read_plain(shard.path), got, golden, judging, options.settings.columns)
        shards.append((shard.name, got))
    got = join_shards(shards) if pairing.more else shards[0][1]
    results, findings = _gate(expected, got, judging, options)
    unknown = UNKNOWN.values()
    results = [r for r in results if r.metric not in unknown or options.on_unknown(r.metric) != "ignore"]
    results = [*_against_past(exemptions.apply(results), at.name, expected, got, options)]
    # A result's defects are never less grave than the golden's.
    told = [replace(f, severity=Severity.FAIL) if f.kind in _ALWAYS_FAIL else f for f in got.findings]
    told += [replace(f, message=f"in the golden: {f.message}") for f in expected.findings]
    # Without `truncated` where an exemption covers all that the run lacks.
    lacking = any(absent(result) and result.outcome in SHUT for result in results)
    told += [f for f in findings if lacking or f.kind != "truncated"]
    told += exemptions.findings(results)
    whole = not (pairing.more or (options.rows and isinstance(golden, Table)))
    take, look = _commands(actual, at, results, told, options, whole=whole)
    # Nobody should be told to take what is damaged or empty.
    grave = any(f.severity is Severity.FAIL or f.kind in _ALWAYS_FAIL for f in got.findings)
    if got.golden is None or grave or any(r.metric == ROWS and r.missing == r.total for r in results):
        take = None
    for result in results:
        improved, severity = Severity(options.settings.improved), Severity.WARN
        if result.metric in unknown:
            severity = Severity(options.on_unknown(result.metric))
        if found := finding(result, improved=improved, unknown=severity, next_command=look):
            told.append(found)
    outcome = _outcome(results, told, got, options)
    if outcome is CheckOutcome.NOTHING_COMPARED and all(f.severity is not Severity.FAIL for f in told):
        message = (
            "nothing was compared that could have failed: every metric is only shown;"
            ' a rule with check = "approx" or an rtol makes one count'
        )
        shown = next((r.metric for r in results if r.metric != ROWS and r.check), "NAME")
        told.append(fail("nothing-compared", message, next=Command("karat", "config", "--metric", shown)))
    hint = look or Command("git", "log", "--oneline", "--", at.name)
    placed = (replace(f, path=f.path or at.name, next=f.next or hint) for f in told)
    return Checked(
        actual=", ".join(name for name, _ in shards),
        golden=at.name,
        outcome=outcome,
        shape=got.golden.shape if got.golden else None,
        results=tuple(sorted(results, key=lambda r: (r.outcome.rank, -(r.used or 0) * (r.outcome in SHUT), r.metric))),
        findings=tuple(sorted(placed, key=lambda f: f.severity.rank)),
        refresh=take,
    )


def _gate(
    expected: Reading, got: Reading, judging: Judging, options: CheckOptions
) -> tuple[list[MetricResult], list[Finding]]:
    golden, actual = expected.golden, got.golden
    if actual is None or golden is None:
        return [], []
    if isinstance(golden, Series) and isinstance(actual, Series):
        return gate_series(golden, actual, judging)
    if isinstance(golden, Table) and isinstance(actual, Table):
        return gate_table(golden, actual, judging, options.fill, options.rows)
    if isinstance(golden, Document) and isinstance(actual, Document):
        return gate_document(golden.value, actual.value, judging)
    return [], [fail("type-changed", f"expected a {golden.shape}, as the golden is, found a {actual.shape}")]


def _against_past(
    results: Sequence[MetricResult], path: str, expected: Reading, got: Reading, options: CheckOptions
) -> Iterator[MetricResult]:
    """The results; those out of tolerance with how far earlier refreshes moved the metric."""
    moved = {result.metric for result in results if result.outcome in SHUT and not absent(result)}
    past = options.past() if moved else None
    if past is None:
        yield from results
        return
    from karat.compare.pairs import GoldenPair, compare

    pair = GoldenPair(path=path, old=expected, new=got)
    sizes = {row.metric: row.size for row in compare(pair, options.rules, status=options.status).metrics}
    platform = identity_of(path, options.where.cases).get("platform", "")
    for result in results:
        size = sizes.get(result.metric) if result.metric in moved else None
        found = past.about(size, result.metric, path, platform) if size else None
        yield replace(result, history=found)


def _commands(
    actual: Actual,
    at: GoldenAt,
    results: Sequence[MetricResult],
    told: Iterable[Finding],
    options: CheckOptions,
    *,
    whole: bool,
) -> tuple[str | None, str | None]:
    """What a person can do next: take the result as the golden, and look closer."""
    golden = at.name if at.revision is not None else options.where.from_here(at.path)
    look = None
    if actual.path.is_file() and at.revision is None and whole:
        look = str(Command("karat", "diff", golden, actual.name, "--html", "report.html"))
    # A curve with holes is no new golden. A row that is gone may be: models are removed on purpose.
    if any(absent(result) and result.metric != ROWS for result in results):
        return None, look
    shut = SHUT | ({CheckOutcome.IMPROVED} if options.settings.improved == "fail" else set())
    take = _take(
        actual.name,
        golden,
        options,
        name=at.name,
        failing=any(r.outcome in shut for r in results) or any(f.severity is Severity.FAIL for f in told),
        fewer=any(r.metric == ROWS and r.missing for r in results),
    )
    # No command takes a table in pieces from this disk.
    return (take if whole or not take.startswith("karat record") else None), look


def _take(
    actual: str,
    golden: str | None,
    options: CheckOptions,
    *,
    name: str | None = None,
    failing: bool = True,
    fewer: bool = False,
) -> str:
    """The command that makes this result the golden: in CI it is an artifact of this run, elsewhere it lies on this disk.

    `name`: the golden's path from the root of the repository, where CI finds it. `failing`: the job that runs the
    check will fail, so it is among those that failed. `fewer`: rows of the golden are gone, which has to be said to
    be meant.
    """
    ci = facts(options.environment)
    run, repo = ci.get("run", ""), ci.get("repository", "")
    if ci.get("provider") == "github" and run.isdecimal() and _REPOSITORY.fullmatch(repo):
        source: tuple[str, ...] = ("--source", "github", "--repo", repo, "--run-id", run)
    elif ci.get("provider") == "gitlab" and run.isdecimal():
        source = ("--source", "gitlab", "--pipeline-id", run)
    else:
        record = Command("karat", "record", actual, "-o", golden or "GOLDEN")
        return str(record.plus("--accept-incomplete") if fewer else record)
    command = Command("karat", "refresh", *source, "--scope", "only-failing" if failing else "all")
    if known := name or golden:
        command = command.plus("--only", known)
    return str(command.plus("--prune") if fewer else command)


def _outcome(
    results: Sequence[MetricResult], told: Iterable[Finding], got: Reading, options: CheckOptions
) -> CheckOutcome:
    """The gravest outcome; what is unknown counts only where it is to fail."""
    if got.golden is None:
        # Bytes that could not be had say nothing; bytes that make no sense are a failed run.
        unread = any(f.kind == "cannot-read" for f in got.findings)
        return CheckOutcome.CANNOT_VERIFY if unread else CheckOutcome.FAIL
    outcomes = {r.outcome for r in results} - {CheckOutcome.MISSING_GOLDEN}
    if any(r.outcome is CheckOutcome.MISSING_GOLDEN and options.on_unknown(r.metric) == "fail" for r in results):
        outcomes.add(CheckOutcome.MISSING_GOLDEN)
    graver = {f.kind for f in told if f.severity is Severity.FAIL} - {"missing-golden", "improved"}
    if graver and not SHUT & outcomes:
        outcomes.add(CheckOutcome.FAIL)
    # That all rows are there proves little while not one of their values was compared.
    values = {r.outcome for r in results if r.metric != ROWS} or outcomes
    if not _EVIDENCE & values and not SHUT & outcomes:
        outcomes.add(CheckOutcome.NOTHING_COMPARED)
    return min(outcomes, key=lambda outcome: outcome.rank)


class CheckExemptions:
    """The entries of [[exempt]] that speak of one golden on one day.

    One never hides that something is missing unless it says `covers = "missing"`. One that has expired covers nothing
    and fails on its own; one that covers nothing is said to be unused.
    """

    def __init__(
        self, entries: Sequence[CheckExemption], path: str, today: date, suite: Iterable[tuple[str, str, str]] = ()
    ) -> None:
        here = [entry for entry in entries if entry.path == "*" or narrow(path, [entry.path])]
        self._own = [entry for entry in here if entry.expires >= today]
        flaky = {"kind": "flaky", "owner": "suite", "reason": "the suite never fails it", "expires": date.max}
        theirs = [
            msgspec.convert({**flaky, "link": w, "metric": m, "row": escape(r)}, CheckExemption) for m, r, w in suite
        ]
        self._active = [*self._own, *theirs]
        self._expired = [entry for entry in here if entry.expires < today]

    def covering(self, metric: str, row: str | None) -> int | None:
        """The index of the entry that speaks of this metric, or of this row of it."""
        return next((i for i, e in enumerate(self._active) if _speaks_of(e, metric, row)), None)

    def apply(self, results: Iterable[MetricResult]) -> list[MetricResult]:
        """The results, with those that are covered marked as exempted."""
        applied = []
        for result in results:
            entry = None if result.exemption is None else self._active[result.exemption]
            values = {CheckOutcome.FAIL, CheckOutcome.IMPROVED}
            incomplete = bool(result.missing or result.broken) or result.outcome not in values
            shut = result.outcome in SHUT or (result.outcome in values and entry is not None and entry.kind == "flaky")
            if entry is not None and shut and (not incomplete or entry.covers == "missing"):
                until = "" if entry.expires == date.max else f" until {entry.expires}"
                because = f"{entry.kind}{until}: {entry.reason} ({entry.owner}, {entry.link})"
                change = {"outcome": CheckOutcome.EXEMPTED, "exempted": result.outcome, "kind": "exempted"}
                applied.append(replace(result, **change, because=because))
            else:
                applied.append(result)
        return applied

    def findings(self, results: Sequence[MetricResult]) -> Iterator[Finding]:
        """What there is to say about the entries themselves."""
        for entry in self._expired:
            if any(fnmatchcase(result.metric, entry.metric) for result in results):
                what = f"expired on {entry.expires}; fix the cause, or renew it with a reason"
                yield _about(entry, "exemption-expired", Severity.FAIL, what)
        for index, entry in enumerate(self._own):
            mine = [result for result in results if result.exemption == index]
            if not mine:
                # An entry for all goldens need not speak of each of them.
                severity = Severity.INFO if entry.path == "*" else Severity.WARN
                yield _about(entry, "exemption-unused", severity, "nothing in this golden is called so")
            elif entry.kind == "expected-failure" and not any(
                r.outcome is CheckOutcome.EXEMPTED or r.outcome in SHUT for r in mine
            ):
                what = "expected to fail, but now passes; narrow it or remove it"
                yield _about(entry, "exemption-unused", Severity.WARN, what)


def _speaks_of(entry: CheckExemption, metric: str, row: str | None) -> bool:
    inside = entry.row is not None and row is not None and fnmatchcase(row, entry.row)
    if metric == ROWS:
        # That a row is there at all is not a matter of values.
        inside = entry.covers == "missing" and (inside or entry.row is None)
    else:
        inside = inside or (entry.row is None and row is None)
    return inside and fnmatchcase(metric, entry.metric)


def _about(entry: CheckExemption, kind: str, severity: Severity, what: str) -> Finding:
    where = entry.metric if entry.row is None else f"{entry.metric}, {entry.row}"
    label = f"exemption of {where} ({entry.kind}, {entry.owner}: {entry.reason}; {entry.link})"
    return Finding(
        kind=kind,
        severity=severity,
        metric=entry.metric,
        where=entry.row,
        message=f"{label}: {what}",
        numbers={"expires": entry.expires.isoformat(), "owner": entry.owner},
        next="edit karat.toml  # [[exempt]]",
    )
