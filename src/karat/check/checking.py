"""Check: what a run left, against its goldens. The front door of this room.

In: the words of a command line and `Options`. Out: a `Report`. Completeness is judged before values,
and nothing is ever skipped in silence: a result without a golden, a golden without a result, and a
check that compared nothing each have an outcome of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Literal

import msgspec

from karat.check.advice import look_command, quoted, refresh_command
from karat.check.exemptions import Exemptions
from karat.check.matching import GoldenAt, Pairing, Where, pair_up
from karat.check.report import Checked, Report
from karat.check.sentences import absent, finding
from karat.check.settings import Exemption
from karat.check.tables import like_golden
from karat.compare.gate_document import gate_document
from karat.compare.gate_judging import Judging
from karat.compare.gate_result import ROWS, SHUT, UNKNOWN, MetricResult, Outcome
from karat.compare.gate_series import gate_series
from karat.compare.gate_table import gate_table
from karat.compare.rules import STATUS_ORDER, RuleBook
from karat.findings import CannotVerify, Finding, Severity
from karat.goldens import formats, git
from karat.goldens.shapes import Document, Reading, Series, Table
from karat.runs.reading import read_run
from karat.runs.settings import RecordSettings

_ALWAYS_FAIL = frozenset({"duplicate-key", "duplicate-row", "ragged-row", "short-run", "truncated"})
"""Defects of a result that a golden may have as a warning, but that no gate lets through."""


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


def check(words: Sequence[str], golden: str, options: Options) -> Report:
    """All results against their goldens, gravest first."""
    pairings = pair_up(words, golden, options.where)
    checks = [_check(pairing, options) for pairing in pairings]
    shown = [c for c in checks if c.outcome is not Outcome.MISSING_GOLDEN or c.findings]
    shown.sort(key=lambda c: (c.outcome.rank, c.name))
    report = Report(checks=tuple(shown))
    if report.outcome is Outcome.NOTHING_COMPARED and report.exit_code == 0:
        return msgspec.structs.replace(report, findings=(_nothing(words, options),))
    return report


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
    return _compare(pairing, at, expected, options)


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
        next=f"ls -l {quoted(name)}" if name else "karat check --help",
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
    command = refresh_command(name, golden, options.environment)
    found = Finding(
        kind="missing-golden",
        severity=severity,
        path=golden or name,
        message=f"expected a golden for {name}, found none: {sought}",
        next=command,
    )
    return Checked(actual=name, golden=golden, outcome=outcome, findings=(found,), refresh=command)


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


def _compare(pairing: Pairing, at: GoldenAt, expected: Reading, options: Options) -> Checked:
    exemptions = Exemptions(options.exemptions, at.name, options.today)
    judging = Judging(
        book=options.rules,
        path=at.name,
        exact=options.exact,
        status=options.status,
        exempt=exemptions.covering,
    )
    got = _actual(pairing, expected, judging, options)
    results, findings = _judge(expected, got, judging, options)
    if options.unknown == "ignore":
        results = [result for result in results if result.metric not in UNKNOWN.values()]
    results = exemptions.apply(results)
    if not any(absent(result) and result.outcome in SHUT for result in results):
        # Whatever the run lacks, an exemption covers it.
        findings = [f for f in findings if f.kind != "truncated"]
    told = [*_defects(expected, got), *findings]
    told += exemptions.findings(results, strict=options.strict)
    told += _told(pairing, at, results, exemptions, options)
    return _checked(pairing, at, results, told, got, options)


def _actual(pairing: Pairing, expected: Reading, judging: Judging, options: Options) -> Reading:
    assert pairing.actual is not None  # noqa: S101 - whoever calls has looked
    path, golden = pairing.actual.path, expected.golden
    shape = None if golden is None else golden.shape
    reading = read_run(path, options.record, shape=shape)
    if isinstance(golden, Table) and isinstance(reading.golden, Table) and path.is_file():
        columns = options.where.settings.columns
        return like_golden(path.read_bytes(), reading, golden, judging, columns)
    return reading


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


def _defects(expected: Reading, got: Reading) -> list[Finding]:
    """What the files themselves have to say; a result's defects are never less than the golden's."""
    ours = [
        replace(f, severity=Severity.FAIL) if f.kind in _ALWAYS_FAIL else f for f in got.findings
    ]
    theirs = [replace(f, message=f"in the golden: {f.message}") for f in expected.findings]
    return [*ours, *theirs]


def _checked(
    pairing: Pairing,
    at: GoldenAt,
    results: Sequence[MetricResult],
    told: Iterable[Finding],
    got: Reading,
    options: Options,
) -> Checked:
    refresh, look = _commands(pairing, at, results, options)
    placed = (replace(f, path=f.path or at.name, next=f.next or look or refresh) for f in told)
    findings = sorted(placed, key=lambda f: f.severity.rank)
    return Checked(
        actual=pairing.actual.name if pairing.actual else "",
        golden=at.name,
        outcome=_outcome(results, findings, got, options),
        shape=got.golden.shape if got.golden else None,
        results=tuple(sorted(results, key=lambda r: (r.outcome.rank, r.metric))),
        findings=tuple(findings),
        refresh=refresh,
    )


def _commands(
    pairing: Pairing, at: GoldenAt, results: Iterable[MetricResult], options: Options
) -> tuple[str | None, str | None]:
    """The command that takes the result, if it is fit to be taken, and the one that looks closer."""
    name = pairing.actual.name if pairing.actual else ""
    golden = _from_here(at, options)
    plain = pairing.actual is not None and pairing.actual.path.is_file() and at.revision is None
    look = look_command(name, golden) if plain else None
    # A curve with holes is no new golden. A row that is gone may be: models are removed on purpose.
    unfit = any(absent(result) and result.metric != ROWS for result in results)
    return None if unfit else refresh_command(name, golden, options.environment), look


def _told(
    pairing: Pairing,
    at: GoldenAt,
    results: Sequence[MetricResult],
    exemptions: Exemptions,
    options: Options,
) -> Iterator[Finding]:
    """The findings of the results, each with the command that helps."""
    refresh, look = _commands(pairing, at, results, options)
    unknown = Severity.WARN if options.unknown == "ignore" else Severity(options.unknown)
    for result in results:
        told = finding(
            result,
            exemptions,
            improved=Severity(options.improved),
            unknown=unknown,
            next_command=(look or refresh) if absent(result) else (refresh or look),
        )
        if told is not None:
            yield told


def _from_here(at: GoldenAt, options: Options) -> str:
    """The golden's path as a command typed here would name it."""
    if at.revision is not None:
        return at.name
    below = os.path.relpath(at.path, options.where.cwd).replace(os.sep, "/")
    return min(below, str(at.path), key=len)


_EVIDENCE = frozenset({Outcome.PASS, Outcome.IMPROVED, Outcome.EXEMPTED, Outcome.FAIL})


def _outcome(
    results: Sequence[MetricResult],
    findings: Sequence[Finding],
    got: Reading,
    options: Options,
) -> Outcome:
    """The gravest outcome; what is unknown counts only where it is to fail."""
    if got.golden is None:
        # Bytes that could not be had say nothing; bytes that make no sense are a failed run.
        unread = any(f.kind == "cannot-read" for f in got.findings)
        return Outcome.CANNOT_VERIFY if unread else Outcome.FAIL
    outcomes: list[Outcome] = [
        r.outcome for r in results if r.outcome is not Outcome.MISSING_GOLDEN
    ]
    if len(outcomes) < len(results) and options.unknown == "fail":
        outcomes.append(Outcome.MISSING_GOLDEN)
    plain = {f.kind for f in findings if f.severity is Severity.FAIL} - {
        "missing-golden",
        "improved",
    }
    if plain and not any(o.rank <= Outcome.NOTHING_COMPARED.rank for o in outcomes):
        outcomes.append(Outcome.FAIL)
    # That all rows are there proves little while not one of their values was compared.
    values = [r.outcome for r in results if r.metric != ROWS] or outcomes
    if not _EVIDENCE.intersection(values) and not SHUT.intersection(outcomes):
        outcomes.append(Outcome.NOTHING_COMPARED)
    return min(outcomes, key=lambda outcome: outcome.rank)
