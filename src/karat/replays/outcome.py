"""What came of replaying a case, and of replaying all that was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec

from karat.bundles.manifest import Identity
from karat.findings import UNVERIFIED, ExitCode, Finding, Severity, exit_code
from karat.report.result import Result
from karat.tensors.comparison import Comparison


class Outcome(StrEnum):
    """What became of a case, gravest first."""

    DAMAGED = "damaged"
    """Its bytes are not what was captured; it was not run."""
    FAILED = "failed"
    """The program did not run to its end, or left no outputs."""
    MISMATCH = "mismatch"
    NOT_COMPARED = "not-compared"
    """It ran, and there was nothing to hold its outputs against."""
    MATCH = "match"

    @property
    def rank(self) -> int:
        """0 for the gravest, so that sorting puts it first."""
        return list(Outcome).index(self)


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """One case, replayed."""

    path: str
    identity: Identity
    outcome: Outcome
    comparisons: tuple[Comparison, ...] = ()
    findings: tuple[Finding, ...] = ()
    """All of them, those of the comparisons as well."""
    seconds: float = 0.0
    work: str | None = None
    """The folder it worked in, where it was kept."""

    @property
    def severity(self) -> Severity | None:
        """The gravest finding's severity, or None without findings."""
        return min((f.severity for f in self.findings), key=lambda s: s.rank, default=None)


class ReplayReport(Result, msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was asked for, in the order of the bundle."""

    bundle: str
    """As the user typed it."""
    runner: str
    """`module:function`, or the command."""
    cases: tuple[Replayed, ...]
    findings: tuple[Finding, ...] = ()
    """About the whole rather than one case."""

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
        from karat.replays.report import render  # noqa: PLC0415 - only for those who ask

        return render(self)

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
        outcomes = Counter(case.outcome for case in self.cases)
        counted = ", ".join(f"{outcomes[o]:,} {o.value}" for o in Outcome if outcomes[o])
        return f"{self.bundle} run by {self.runner}: {counted or 'no case was run'}"


def outcome_of(comparisons: tuple[Comparison, ...], findings: tuple[Finding, ...]) -> Outcome:
    """The outcome of a case whose program ran to its end."""
    if any(f.kind == "bundle-damaged" for f in findings):
        return Outcome.DAMAGED
    # An output that is missing is a mismatch, also where it is the only one; what is left is no match.
    if any(f.severity is Severity.FAIL and f.kind not in UNVERIFIED for f in findings):
        return Outcome.MISMATCH
    unknown = not comparisons or any(f.kind in UNVERIFIED for f in findings)
    return Outcome.NOT_COMPARED if unknown else Outcome.MATCH
