"""Check: what a run left, against its goldens. The front door of this room.

In: the words of a command line and `Options`. Out: a `Report`. Completeness is judged before values,
and nothing is ever skipped in silence: a result without a golden, a golden without a result, and a
check that compared nothing each have an outcome of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from karat.check.actuals import Actual
from karat.check.advice import quoted, refresh_command
from karat.check.comparing import compare_one
from karat.check.matching import GoldenAt, Pairing, pair_up
from karat.check.options import Options
from karat.check.report import Checked, Report
from karat.compare.gate_judging import names
from karat.compare.gate_result import Outcome
from karat.findings import CannotVerify, Finding, Severity, suggest
from karat.goldens import formats, git
from karat.goldens.paths import PathFilter
from karat.goldens.shapes import Reading

__all__ = ["Options", "check"]
_NAMES_SHOWN = 8


def check(words: Sequence[str], golden: str, options: Options) -> Report:
    """All results against their goldens, gravest first."""
    pairings = pair_up(words, golden, options.where)
    checks = [_check(pairing, options) for pairing in pairings]
    shown = [c for c in checks if c.outcome is not Outcome.MISSING_GOLDEN or c.findings]
    shown.sort(key=lambda c: (c.outcome.rank, c.name))
    report = Report(checks=tuple(shown), findings=tuple(_not_exact(shown, options)))
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
