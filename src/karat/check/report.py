"""Report: what a check found, golden by golden, and the exit code that it deserves."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from karat.compare.gate_result import ROWS, MetricResult, Outcome
from karat.findings import ExitCode, Finding, Severity
from karat.goldens.shapes import Shape


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One result against its golden."""

    actual: str
    """As the user wrote it, or below the folder that the user named; empty if there is none."""
    golden: str | None
    outcome: Outcome
    shape: Shape | None = None
    results: tuple[MetricResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    refresh: str | None = None
    """The command that takes this result as the new golden."""

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


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was asked for, gravest first."""

    checks: tuple[Checked, ...]
    findings: tuple[Finding, ...] = ()
    """About the whole rather than one golden."""

    def all_findings(self) -> Iterator[Finding]:
        """Every finding, the whole's first, then golden by golden."""
        yield from self.findings
        for checked in self.checks:
            yield from checked.findings

    @property
    def compared(self) -> int:
        """Values that were compared and could have failed."""
        judged = (r for c in self.checks for r in c.results if r.outcome is not Outcome.INFO)
        return sum(r.compared for r in judged if r.metric != ROWS)

    @property
    def outcome(self) -> Outcome:
        """The gravest outcome of those that the options do not wave through."""
        counted = [c.outcome for c in self.checks if not _waved_through(c)]
        if not counted or any(f.severity is Severity.FAIL for f in self.findings):
            counted.append(Outcome.NOTHING_COMPARED)
        return min(counted, key=lambda outcome: outcome.rank)

    @property
    def exit_code(self) -> ExitCode:
        """1 if anything certainly failed, else 3 if anything could not be verified, else 0."""
        if any(f.severity is Severity.FAIL for f in self.findings):
            return ExitCode.FAIL
        failed = [c for c in self.checks if c.severity is Severity.FAIL]
        if any(c.outcome is not Outcome.CANNOT_VERIFY for c in failed):
            return ExitCode.FAIL
        return ExitCode.CANNOT_VERIFY if failed else ExitCode.OK


def _waved_through(checked: Checked) -> bool:
    return checked.outcome is Outcome.MISSING_GOLDEN and checked.severity is not Severity.FAIL
