"""Options: how to check, as the command line and karat.toml say it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Literal

import msgspec

from karat.checks.advice import edit_command, look_command, quoted, refresh_command
from karat.checks.exemptions import Exemptions
from karat.checks.lookup import Actual, GoldenAt, Pairing, Where, pair_up
from karat.checks.report import Checked, CheckReport, absent, finding
from karat.checks.settings import Exemption
from karat.compare.gate.result import ROWS, SHUT, UNKNOWN, Judging, MetricResult, Outcome, names
from karat.compare.gate.series import gate_series
from karat.compare.gate.table import gate_table, like_golden
from karat.compare.gate.values import gate_document
from karat.compare.rules import STATUS_ORDER, RuleBook
from karat.findings import CannotVerify, Finding, Severity, suggest
from karat.goldens import formats
from karat.goldens.paths import PathFilter
from karat.goldens.shapes import Document, Reading, Series, Table
from karat.runs.read import read_run
from karat.runs.settings import RecordSettings
from karat.system import git


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to check."""

    where: Where
    today: date
    rules: RuleBook = msgspec.field(default_factory=RuleBook)
    status: tuple[str, ...] = STATUS_ORDER
    record: RecordSettings = msgspec.field(default_factory=RecordSettings)
    exemptions: tuple[Exemption, ...] = ()
    fill: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Column → what an empty cell of a result stands for."""
    exact: tuple[str, ...] = ()
    improved: Literal["fail", "warn"] = "warn"
    unknown: Literal["fail", "warn", "ignore"] = "warn"
    strict: bool = False
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Where the CI says who it is; nothing else of it is read."""


# DOC-HERE comparing: Comparing: one result against one golden that is there.
#
# In: where both are, the golden's reading, options. Out: a `Checked`, with the command that helps on
# every finding. Whether a result is fit to become the golden is decided here, too: advice that would
# spoil a golden is worse than none.

_ALWAYS_FAIL = frozenset({"duplicate-key", "duplicate-row", "ragged-row", "short-run", "truncated"})
"""Defects of a result that a golden may have as a warning, but that no gate lets through."""
_EVIDENCE = frozenset({Outcome.PASS, Outcome.IMPROVED, Outcome.EXEMPTED, Outcome.FAIL})


class _Commands(msgspec.Struct, frozen=True):
    """What a person can do next: take the result as the golden, and look closer."""

    take: str | None
    look: str | None


def compare_one(actual: Actual, at: GoldenAt, expected: Reading, options: Options) -> Checked:
    """The outcome of one check."""
    exemptions = Exemptions(options.exemptions, at.name, options.today)
    judging = Judging(
        book=options.rules,
        path=at.name,
        exact=options.exact,
        status=options.status,
        exempt=exemptions.covering,
    )
    plain = read_run(
        actual.path, options.record, shape=expected.golden.shape if expected.golden else None
    )
    got = _in_its_terms(plain, actual, expected, judging, options)
    results, findings = _judge(expected, got, judging, options)
    results = exemptions.apply(_known(results, options))
    told = [*_defects(expected, got), *_uncovered(findings, results)]
    told += exemptions.findings(results, strict=options.strict)
    fails = _fails(results, told, options)
    commands = _commands(actual, at, results, options, fits=_fits(plain, expected), fails=fails)
    if not _sound(got, results):
        commands = _Commands(None, commands.look)
    told += _told(results, commands, options)
    outcome = _outcome(results, told, got, options)
    told += _no_evidence(outcome, told, results)
    return Checked(
        actual=actual.name,
        golden=at.name,
        outcome=outcome,
        shape=got.golden.shape if got.golden else None,
        results=tuple(sorted(results, key=lambda r: (r.outcome.rank, r.metric))),
        findings=_placed(told, at, commands),
        refresh=commands.take,
    )


def _in_its_terms(
    plain: Reading, actual: Actual, expected: Reading, judging: Judging, options: Options
) -> Reading:
    """The result as its golden would have written it."""
    golden = expected.golden
    if not isinstance(golden, Table) or not isinstance(plain.golden, Table):
        return plain
    if not actual.path.is_file():
        return plain
    columns = options.where.settings.columns
    return like_golden(actual.path.read_bytes(), plain, golden, judging, columns)


def _sound(got: Reading, results: Iterable[MetricResult]) -> bool:
    """Whether the result is fit to be a golden: nobody should be told to take what is damaged or empty."""
    grave = any(f.severity is Severity.FAIL or f.kind in _ALWAYS_FAIL for f in got.findings)
    emptied = any(r.metric == ROWS and r.missing == r.total for r in results)
    return got.golden is not None and not grave and not emptied


def _fits(plain: Reading, expected: Reading) -> bool:
    """Whether the result could stand where the golden stands: a table must have the very same form."""
    old, new = expected.golden, plain.golden
    if isinstance(old, Table) and isinstance(new, Table):
        return (old.columns, old.key, old.header) == (new.columns, new.key, new.header)
    return True


def _judge(
    expected: Reading, got: Reading, judging: Judging, options: Options
) -> tuple[list[MetricResult], list[Finding]]:
    golden, actual = expected.golden, got.golden
    if actual is None or golden is None:
        return [], []
    if isinstance(golden, Series) and isinstance(actual, Series):
        return gate_series(golden, actual, judging)
    if isinstance(golden, Table) and isinstance(actual, Table):
        return gate_table(golden, actual, judging, options.fill)
    if isinstance(golden, Document) and isinstance(actual, Document):
        return gate_document(golden.value, actual.value, judging), []
    message = f"expected a {golden.shape}, as the golden is, found a {actual.shape}"
    return [], [Finding(kind="type-changed", severity=Severity.FAIL, message=message)]


def _known(results: Iterable[MetricResult], options: Options) -> list[MetricResult]:
    ignored = UNKNOWN.values() if options.unknown == "ignore" else ()
    return [result for result in results if result.metric not in ignored]


def _uncovered(findings: Iterable[Finding], results: Iterable[MetricResult]) -> list[Finding]:
    """Without `truncated` where an exemption covers all that the run lacks."""
    lacking = any(absent(result) and result.outcome in SHUT for result in results)
    return [f for f in findings if lacking or f.kind != "truncated"]


def _defects(expected: Reading, got: Reading) -> list[Finding]:
    """What the files themselves have to say; a result's defects are never less than the golden's."""
    ours = [
        replace(f, severity=Severity.FAIL) if f.kind in _ALWAYS_FAIL else f for f in got.findings
    ]
    theirs = [replace(f, message=f"in the golden: {f.message}") for f in expected.findings]
    return [*ours, *theirs]


def _fails(results: Iterable[MetricResult], told: Iterable[Finding], options: Options) -> bool:
    shut = SHUT | ({Outcome.IMPROVED} if options.improved == "fail" else set())
    return any(r.outcome in shut for r in results) or any(f.severity is Severity.FAIL for f in told)


def _commands(
    actual: Actual,
    at: GoldenAt,
    results: Iterable[MetricResult],
    options: Options,
    *,
    fits: bool,
    fails: bool,
) -> _Commands:
    golden = _from_here(at, options)
    one_file = actual.path.is_file() and at.revision is None
    look = look_command(actual.name, golden) if one_file and fits else None
    # A curve with holes is no new golden. A row that is gone may be: models are removed on purpose.
    if any(absent(result) and result.metric != ROWS for result in results):
        return _Commands(None, look)
    take = refresh_command(
        actual.name,
        golden,
        options.environment,
        name=at.name,
        failing=fails,
        fewer=any(r.metric == ROWS and r.missing for r in results),
    )
    if not fits and take.startswith("karat record"):
        take = edit_command(golden)
    return _Commands(take, look)


def _told(
    results: Iterable[MetricResult], commands: _Commands, options: Options
) -> Iterator[Finding]:
    """The findings of the results, each with the command that helps."""
    unknown = Severity.WARN if options.unknown == "ignore" else Severity(options.unknown)
    for result in results:
        first, second = commands.take, commands.look
        told = finding(
            result,
            improved=Severity(options.improved),
            unknown=unknown,
            next_command=(second or first) if absent(result) else (first or second),
        )
        if told is not None:
            yield told


def _placed(told: Iterable[Finding], at: GoldenAt, commands: _Commands) -> tuple[Finding, ...]:
    """The findings, gravest first, each with its golden and a command."""
    hint = commands.look or commands.take or f"git log --oneline -- {quoted(at.name)}"
    placed = (replace(f, path=f.path or at.name, next=f.next or hint) for f in told)
    return tuple(sorted(placed, key=lambda f: f.severity.rank))


def _no_evidence(
    outcome: Outcome, told: Iterable[Finding], results: Iterable[MetricResult]
) -> list[Finding]:
    failed = any(f.severity is Severity.FAIL for f in told)
    if failed or outcome is not Outcome.NOTHING_COMPARED:
        return []
    message = (
        "not one value was compared that could have failed: every metric is only shown;"
        ' a rule with check = "approx" or an rtol makes one count'
    )
    shown = next((r.metric for r in results if r.metric != ROWS and r.check), "NAME")
    command = f"karat config --metric {quoted(shown)}"
    return [Finding(kind="nothing-compared", severity=Severity.FAIL, message=message, next=command)]


def _from_here(at: GoldenAt, options: Options) -> str:
    """The golden's path as a command typed here would name it."""
    if at.revision is not None:
        return at.name
    return options.where.from_here(at.path)


def _outcome(
    results: Sequence[MetricResult], told: Iterable[Finding], got: Reading, options: Options
) -> Outcome:
    """The gravest outcome; what is unknown counts only where it is to fail."""
    if got.golden is None:
        # Bytes that could not be had say nothing; bytes that make no sense are a failed run.
        unread = any(f.kind == "cannot-read" for f in got.findings)
        return Outcome.CANNOT_VERIFY if unread else Outcome.FAIL
    outcomes = {r.outcome for r in results} - {Outcome.MISSING_GOLDEN}
    if options.unknown == "fail" and any(r.outcome is Outcome.MISSING_GOLDEN for r in results):
        outcomes.add(Outcome.MISSING_GOLDEN)
    graver = {f.kind for f in told if f.severity is Severity.FAIL} - {"missing-golden", "improved"}
    if graver and not SHUT & outcomes:
        outcomes.add(Outcome.FAIL)
    # That all rows are there proves little while not one of their values was compared.
    values = {r.outcome for r in results if r.metric != ROWS} or outcomes
    if not _EVIDENCE & values and not SHUT & outcomes:
        outcomes.add(Outcome.NOTHING_COMPARED)
    return min(outcomes, key=lambda outcome: outcome.rank)


# DOC-HERE checking: Check: what a run left, against its goldens. The front door of this room.
#
# In: the words of a command line and `Options`. Out: a `Report`. Completeness is judged before values,
# and nothing is ever skipped in silence: a result without a golden, a golden without a result, and a
# check that compared nothing each have an outcome of their own.

__all__ = ["Options", "check"]
_NAMES_SHOWN = 8


def check(words: Sequence[str], golden: str, options: Options) -> CheckReport:
    """All results against their goldens, gravest first."""
    pairings = pair_up(words, golden, options.where)
    checks = [_check(pairing, options) for pairing in pairings]
    shown = [c for c in checks if c.outcome is not Outcome.MISSING_GOLDEN or c.findings]
    shown.sort(key=lambda c: (c.outcome.rank, c.name))
    report = CheckReport(checks=tuple(shown), findings=tuple(_not_exact(shown, options)))
    if report.outcome is Outcome.NOTHING_COMPARED and report.exit_code == 0:
        return msgspec.structs.replace(report, findings=(_nothing(words, options),))
    return report


def _not_exact(checks: Sequence[Checked], options: Options) -> Iterator[Finding]:
    """What --exact asked for and got nowhere: a misspelt name would pass as if it had been exact."""
    results = [result for checked in checks for result in checked.results]
    for glob in options.exact:
        if results and not any(r.check == "exact" and names(glob, r.metric) for r in results):
            metrics = sorted({r.metric for r in results if r.check not in {"", "rows"}})
            approximate = sorted({r.metric for r in results if r.check == "approx"})
            there = ", ".join((approximate or metrics)[:_NAMES_SHOWN])
            yield Finding(
                kind="nothing-compared",
                severity=Severity.FAIL,
                message=f"expected a metric that --exact {glob!r} makes exact, found"
                f" {there or 'none'}{suggest(glob, metrics)}",
                next=f"karat config --metric {quoted(glob)}",
            )


def _nothing(words: Sequence[str], options: Options) -> Finding:
    only = f" with --only {' '.join(options.where.only)}" if options.where.only else ""
    return Finding(
        kind="nothing-compared",
        severity=Severity.FAIL,
        message=f"expected results with a golden in {', '.join(words)}{only}, found none:"
        " nothing was compared, so nothing passed",
        next="karat check --help",
    )


def _check(pairing: Pairing, options: Options) -> Checked:
    actual, at = pairing.actual, pairing.golden
    if actual is None or not actual.path.exists():
        return _no_actual(pairing)
    if at is None or (at.revision is None and not at.path.exists()):
        return _no_golden(pairing, options)
    expected = _golden(at)
    if expected.golden is None:
        return _cannot_verify(pairing, expected.findings)
    return compare_one(actual, at, expected, options)


def _golden(at: GoldenAt) -> Reading:
    """The golden, or the findings that say why it cannot be had."""
    try:
        if at.revision is not None:
            root = git.ensure_repository(at.path)
            data = git.run_git(root, "cat-file", "blob", at.revision)
        else:
            data = at.path.read_bytes()
    except (OSError, CannotVerify) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        message = f"expected to read the golden {at.name}, but: {said or error}"
        found = Finding(kind="cannot-read", severity=Severity.FAIL, message=message)
        return Reading(None, (found,))
    return formats.read(data, at.name)


def _no_actual(pairing: Pairing) -> Checked:
    name = pairing.actual.name if pairing.actual else ""
    golden = pairing.golden.name if pairing.golden else None
    where = f"at {name}" if name else f"for the golden {golden}"
    missing = Finding(
        kind="missing-actual",
        severity=Severity.FAIL,
        path=golden or name,
        message=f"expected a result {where}, found none: the run left nothing, so nothing was checked",
        next=f"ls -l {quoted(name)}" if name else f"ls -lR {pairing.why}",
    )
    return Checked(actual=name, golden=golden, outcome=Outcome.MISSING_ACTUAL, findings=(missing,))


def _no_golden(pairing: Pairing, options: Options) -> Checked:
    """A result that was named needs a golden; one that merely lay in a folder is unknown."""
    actual = pairing.actual
    name = actual.name if actual else ""
    golden = pairing.golden.name if pairing.golden else None
    inside = actual is not None and actual.inside is not None
    outcome = Outcome.MISSING_GOLDEN
    if inside and options.unknown == "ignore":
        return Checked(actual=name, golden=golden, outcome=outcome)
    severity = Severity(options.unknown) if inside else Severity.FAIL
    sought = pairing.why or f"there is no {golden}"
    command = refresh_command(name, golden or _proposed(actual, options), options.environment)
    found = Finding(
        kind="missing-golden",
        severity=severity,
        path=golden or name,
        message=f"expected a golden for {name}, found none: {sought}",
        next=command,
    )
    return Checked(actual=name, golden=golden, outcome=outcome, findings=(found,), refresh=command)


def _proposed(actual: Actual | None, options: Options) -> str | None:
    """A path where the next check would find this golden; None where karat.toml has other places."""
    if actual is None or not actual.path.is_file():
        return None
    path = f"goldens/{actual.inside or actual.path.name}"
    wanted = PathFilter(options.where.globs, options.where.exclude)
    return path if wanted(path) and options.where.settings.golden is None else None


def _cannot_verify(pairing: Pairing, findings: Iterable[Finding]) -> Checked:
    name = pairing.golden.name if pairing.golden else None
    told = tuple(
        replace(
            f,
            path=name or "",
            message=f"the golden cannot be used: {f.message}",
            severity=Severity.FAIL,
            next=f.next or f"git log --oneline -- {quoted(name or '.')}",
        )
        for f in findings
    )
    actual = pairing.actual.name if pairing.actual else ""
    return Checked(actual=actual, golden=name, outcome=Outcome.CANNOT_VERIFY, findings=told)
