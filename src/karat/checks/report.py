"""What a check found, golden by golden: the exit code that it deserves, and the sentences that every report uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import isfinite
from typing import Any

import msgspec

from karat.compare.gate.result import ROWS, SHUT, UNKNOWN, CheckOutcome, Deviation, MetricResult, Value
from karat.findings import ExitCode, Finding, Severity
from karat.goldens.shapes import Shape
from karat.report.json import encode, finding_json
from karat.report.result import Result
from karat.report.words import count, cut, few

_NAMES_SHOWN = 8
_LONGEST_TEXT = 60
_FAILS = SHUT | {CheckOutcome.CANNOT_VERIFY}
_CALM = {"pass": "good", "info": "info", "exempted": "info"}


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One result against its golden."""

    actual: str  # As the user wrote it, or below the folder that the user named; empty if there is none.
    golden: str | None
    outcome: CheckOutcome
    shape: Shape | None = None
    results: tuple[MetricResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    refresh: str | None = None  # The command that takes this result as the new golden.

    @property
    def name(self) -> str:
        """The golden's path; without a golden, the result's."""
        return self.golden or self.actual

    @property
    def severity(self) -> Severity | None:
        """The gravest finding's severity, or None without findings."""
        return min((f.severity for f in self.findings), key=lambda s: s.rank, default=None)

    def about_file(self) -> list[Finding]:
        """The findings that no metric's result speaks of."""
        spoken = {(result.metric, result.kind) for result in self.results}
        return [f for f in self.findings if (f.metric, f.kind) not in spoken]


class CheckReport(Result, msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was asked for, gravest first."""

    checks: tuple[Checked, ...]
    findings: tuple[Finding, ...] = ()  # About the whole rather than one golden.

    def all_findings(self) -> Iterator[Finding]:
        yield from self.findings
        for checked in self.checks:
            yield from checked.findings

    @property
    def compared(self) -> int:
        """Values that were compared and could have failed."""
        judged = (r for c in self.checks for r in c.results if r.outcome is not CheckOutcome.INFO)
        return sum(r.compared for r in judged if r.metric != ROWS)

    @property
    def outcome(self) -> CheckOutcome:
        """The gravest outcome of those that the options do not wave through."""
        unknown = CheckOutcome.MISSING_GOLDEN
        counted = [c.outcome for c in self.checks if c.outcome is not unknown or c.severity is Severity.FAIL]
        if not counted or any(f.severity is Severity.FAIL for f in self.findings):
            counted.append(CheckOutcome.NOTHING_COMPARED)
        return min(counted, key=lambda outcome: outcome.rank)

    @property
    def exit_code(self) -> ExitCode:
        """1 if anything certainly failed, else 3 if anything could not be verified, else 0."""
        if any(f.severity is Severity.FAIL for f in self.findings):
            return ExitCode.FAIL
        failed = [c for c in self.checks if c.severity is Severity.FAIL]
        if any(c.outcome is not CheckOutcome.CANNOT_VERIFY for c in failed):
            return ExitCode.FAIL
        return ExitCode.CANNOT_VERIFY if failed else ExitCode.OK

    def to_json(self) -> bytes:
        """Schema karat.check/1. NaN and infinities, which JSON has no word for, become texts."""
        outcomes = Counter(c.outcome for c in self.checks)
        severities = Counter(f.severity for f in self.all_findings())
        document = {
            "schema": "karat.check/1",
            "outcome": self.outcome.value,
            "exit_code": int(self.exit_code),
            "totals": {
                "goldens": len(self.checks),
                "compared": self.compared,
                "outcomes": {o.value: outcomes[o] for o in CheckOutcome},
                "findings": {s.value: severities[s] for s in Severity},
            },
            "findings": [finding_json(f) for f in self.findings],
            "checks": [
                {
                    "actual": c.actual,
                    "golden": c.golden,
                    "outcome": c.outcome.value,
                    "shape": c.shape,
                    "refresh": c.refresh,
                    "findings": [finding_json(f) for f in c.findings],
                    "metrics": [_result_json(r) for r in c.results],
                }
                for c in self.checks
            ],
        }
        return encode(document, odd_numbers_as_text=True)

    def rows(self) -> list[dict[str, Any]]:
        """One row per golden and metric; a golden of which no metric was checked has one row."""
        nothing = MetricResult(metric="", outcome=CheckOutcome.NOTHING_COMPARED)
        return [
            {
                "golden": checked.name,
                "outcome": (result.outcome if result.metric else checked.outcome).value,
                "metric": result.metric,
                "compared": result.compared,
                "failed": result.failed,
                "tolerance": result.tolerance,
                "because": headline(result) if result.metric else "; ".join(f.message for f in checked.findings),
            }
            for checked in self.checks
            for result in checked.results or (nothing,)
        ]

    def to_html(self, command: str) -> str:
        """The page: findings, and a row per golden and metric."""
        from karat.report import html

        told = [*self.all_findings()]
        tones = {o.value: "grave" if o in _FAILS else "warn" for o in CheckOutcome} | _CALM
        about = "Check against goldens"
        return html.result_page(self, told, about=about, noun="checks", state="outcome", tones=tones, command=command)

    def headline(self) -> str:
        """The gravest outcome, and how much was compared."""
        failed = sum(checked.severity is Severity.FAIL for checked in self.checks)
        of = f"{failed:,} of " if failed else ""
        return (
            f"{self.outcome.value}: {of}{count(len(self.checks), 'golden')}, {count(self.compared, 'value')} compared"
        )


def _result_json(result: MetricResult) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(result)
    del plain["exemption"]
    plain["history"] = None if result.history is None else result.history.data()
    for name in ("kind", "check", "tolerance"):
        plain[name] = plain[name] or None
    plain["not_finite"] = plain.pop("broken")
    plain["median"] = plain.pop("medians")
    return plain


def value(item: Value) -> str:
    """A value as people read it: all digits that matter, no more."""
    if item is None:
        return "nothing"
    if isinstance(item, str):
        return cut(item, _LONGEST_TEXT)
    if item.is_integer() and abs(item) < 1e15:
        return str(int(item))
    return f"{item:.7g}"


def headline(result: MetricResult) -> str:
    """One line: what became of the metric."""
    if result.metric in UNKNOWN.values():
        return f"{count(result.total, result.noun)} without a golden: {names(result)}"
    if result.metric == ROWS:
        if result.missing:
            gone = f"{result.missing} of {count(result.total, 'row')}"
            return f"{gone} {'is' if result.missing == 1 else 'are'} gone: {names(result)}"
        return f"all {count(result.total, 'row')} are there" if result.total else "the golden has no rows"
    if result.outcome is CheckOutcome.MISSING_ACTUAL:
        return f"the result has no such {'column' if result.noun == 'row' else 'metric'}"
    if result.outcome is CheckOutcome.NOTHING_COMPARED:
        return "nothing to compare: the golden has no finite value where the rule looks"
    return _counted(result)


def _counted(result: MetricResult) -> str:
    total = count(result.total, result.noun)
    # Rows have names; steps do not.
    named = "" if result.noun == "step" else f": {names(result)}"
    if result.missing or result.broken:
        absent = result.missing + result.broken
        what = "no value" if result.missing else "no finite value"
        return f"{absent:,} of {total} {'has' if absent == 1 else 'have'} {what}"
    if (pair := result.medians) is not None:
        moved = f"{value(pair.expected)} → {value(pair.got)}"
        change = f" ({pair.got / pair.expected - 1:+.1%})" if pair.expected else ""
        return f"median of steps {pair.first}–{pair.last}: {moved}{change}"
    if result.failed and (result.outcome in SHUT or result.exempted or result.outcome is CheckOutcome.INFO):
        allowed = f" ({result.allowed:,} allowed)" if result.allowed else ""
        moved = "out of bounds" if result.check == "range" else "out of tolerance"
        if result.kind in {"status-regressed", "status-changed", "type-changed"}:
            moved = "worse" if result.kind == "status-regressed" else "changed"
        elif result.check == "exact" or result.kind == "text-changed":
            moved = "differs" if result.failed == 1 else "differ"
        return f"{result.failed:,} of {total} {moved}{allowed}{named}"
    if result.outcome is CheckOutcome.IMPROVED:
        return f"{result.better:,} of {total} better than the golden{named}"
    held = "as expected" if result.used is None else "within tolerance"
    held = "within bounds" if result.check == "range" else held
    if result.failed:
        held += f", {result.failed:,} out of tolerance of {result.allowed:,} allowed"
    used = f" ({result.used:.0%} of it used)" if result.used else ""
    return f"{total} {held}{used}"


def names(result: MetricResult) -> str:
    """The places that deviate, each with its two values; the first few of them."""
    improved = result.outcome is CheckOutcome.IMPROVED
    chosen = [d for d in result.deviations if improved or d.how != "better"]
    pairs = [
        str(d.place) if d.expected is None and d.got is None else f"{d.place} {value(d.expected)} → {value(d.got)}"
        for d in chosen
    ]
    return few(pairs, _NAMES_SHOWN)


def at(deviation: Deviation) -> str:
    """One deviation in full: where, expected, got, how far off, and how far is allowed."""
    text = f"{_place(deviation)}: expected {value(deviation.expected)}, got {value(deviation.got)}"
    if deviation.error is None:
        return text
    limit, relative = deviation.tolerance, ""
    allowed = f" of {limit:.3g} allowed" if limit is not None and isfinite(limit) else ""
    if (size := deviation.relative) is not None:  # in percent where that reads well
        relative = f", rel {size:.2%}" if 1e-4 <= size < 100 else f", rel {size:.2e}"
    return f"{text} (abs {abs(deviation.error):.3g}{allowed}{relative})"


def _place(deviation: Deviation) -> str:
    return f"step {deviation.place}" if isinstance(deviation.place, int) else deviation.place


def absent(result: MetricResult) -> bool:
    """Whether what is wrong is that something is not there, which no tolerance is about."""
    gone = bool(result.missing or result.broken)
    return gone or result.outcome in {CheckOutcome.MISSING_ACTUAL, CheckOutcome.NOTHING_COMPARED}


def details(result: MetricResult) -> Iterator[tuple[str, str]]:
    """(label, sentence) lines below the headline of a result that deviates."""
    if result.because:
        yield "exempt", result.because
    if result.first is not None and result.metric != ROWS and result.medians is None:
        yield "first", at(result.first)
        if result.worst is not None and result.worst.place != result.first.place:
            yield "worst", at(result.worst)
    if result.likely:
        yield "likely", result.likely
    texts = result.first is not None and isinstance(result.first.expected, str)
    if result.tolerance and not absent(result) and not (texts and result.noun != "row"):
        how = "outcomes in the order of status" if texts else result.tolerance
        yield "rule", f"{how} [{result.rule}, {result.origin}]"
    if result.history is not None:
        yield "before", result.history.sentence


def finding(result: MetricResult, *, improved: Severity, unknown: Severity, next_command: str | None) -> Finding | None:
    if not result.kind:
        return None
    severity = {
        CheckOutcome.IMPROVED: improved,
        CheckOutcome.MISSING_GOLDEN: unknown,
        CheckOutcome.EXEMPTED: Severity.INFO,
        CheckOutcome.INFO: Severity.WARN if absent(result) else Severity.INFO,
    }.get(result.outcome, Severity.FAIL)
    first = result.first
    message = f"{result.metric}: {headline(result)}"
    if first is not None and result.noun == "step" and result.medians is None:
        message += f"; first at {at(first)}"
    if result.likely:
        message += f"; likely: {result.likely}"
    if result.because:
        message += f"; {result.because}"
    if result.history is not None and result.history.compared_with:
        message += f"; {result.history.sentence}"
    fields = ("expected", "got", "error", "relative", "tolerance") if first is not None else ()
    counts = {"total": result.total, "failed": result.failed, "allowed": result.allowed}
    return Finding(
        kind=result.kind,
        severity=severity,
        metric=result.metric,
        where=None if first is None else _place(first),
        message=message,
        numbers={**counts, **{name: getattr(first, name) for name in fields}, "origin": result.origin},
        next=next_command,
    )
