"""What came of replaying a case, and of replaying all that was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec

from karat.bundles.manifest import Identity
from karat.findings import ExitCode, Finding, Severity, exit_code
from karat.report.result import Result
from karat.tensors.comparison import Comparison


class ReplayOutcome(StrEnum):
    """What became of a case, worst first."""

    DAMAGED = "damaged"  # Its bytes are not what was captured; it was not run.
    FAILED = "failed"  # The program did not run to its end, or left no outputs.
    MISMATCH = "mismatch"
    NOT_COMPARED = "not-compared"  # It ran, and there was nothing to hold its outputs against.
    MATCH = "match"

    @property
    def rank(self) -> int:
        """0 for the worst, so that sorting puts it first."""
        return list(ReplayOutcome).index(self)


class ReplayedCase(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    identity: Identity
    outcome: ReplayOutcome
    comparisons: tuple[Comparison, ...] = ()
    findings: tuple[Finding, ...] = ()  # All of them, those of the comparisons as well.
    seconds: float = 0.0
    work: str | None = None  # The folder it worked in, where it was kept.

    @property
    def severity(self) -> Severity | None:
        return min((f.severity for f in self.findings), key=lambda s: s.rank, default=None)


class ReplayReport(Result, msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was asked for, in the order of the bundle."""

    bundle: str  # As the user typed it.
    runner: str  # `module:function`, or the command.
    cases: tuple[ReplayedCase, ...]
    findings: tuple[Finding, ...] = ()  # About the whole rather than one case.

    def all_findings(self) -> Iterator[Finding]:
        """Every finding, the whole's first, then case by case."""
        yield from self.findings
        for case in self.cases:
            yield from case.findings

    @property
    def exit_code(self) -> ExitCode:
        """1 if anything certainly failed, else 3 if anything could not be verified, else 0."""
        return exit_code(self.all_findings())

    def to_json(self) -> bytes:
        """Schema karat.replay/1."""
        from karat.replays.report import render_json

        return render_json(self)

    def rows(self) -> list[dict[str, Any]]:
        """One row per case."""
        return [
            {
                "case": case.path,
                "outcome": case.outcome.value,
                "values": len(case.comparisons),
                "seconds": case.seconds,
                "because": "; ".join(f.message for f in case.findings),
            }
            for case in self.cases
        ]

    def headline(self) -> str:
        """How many cases, by outcome."""
        return f"{self.bundle} run by {self.runner}: {self.outcomes() or 'no case was run'}"

    def outcomes(self) -> str:
        """`1 mismatch, 3 match`."""
        tally = Counter(case.outcome for case in self.cases)
        return ", ".join(f"{tally[o]:,} {o.value}" for o in ReplayOutcome if tally[o])
