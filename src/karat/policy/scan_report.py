"""What a scan found: op tests with their state, findings, counts; and the words of SARIF and JSON for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from karat.findings import ExitCode, Finding, exit_code
from karat.report.plain import encode, finding_json

SCHEMA = "karat.policy-scan/1"


class OpTestRow(msgspec.Struct, frozen=True, kw_only=True):
    """An op test, and whether it checks a gradient."""

    name: str
    path: str
    line: int
    op: str | None
    state: str
    """checked, conditional, unchecked, skipped, exempt, integer, not-run, abstract."""
    checked_at: str | None = None
    """`file.py:12`: the first check that its tests come to."""


class ScanReport(msgspec.Struct, frozen=True, kw_only=True):
    """One scan."""

    paths: tuple[str, ...]
    files: int
    parsed: int
    left_out: int
    excluded: int
    op_tests: tuple[OpTestRow, ...]
    findings: tuple[Finding, ...]
    seconds: float
    fail_on: tuple[str, ...] = ("fail",)

    @property
    def exit_code(self) -> ExitCode:
        """As findings say."""
        return exit_code(self.findings, fail_on=self.fail_on)

    @property
    def states(self) -> Mapping[str, int]:
        """State → how many op tests."""
        return Counter(row.state for row in self.op_tests)

    @property
    def kinds(self) -> Mapping[str, int]:
        """Kind of finding → how many."""
        return Counter(finding.kind for finding in self.findings)


def line_of(finding: Finding) -> int:
    """The line that a finding is about; 0 for the whole file."""
    line = finding.numbers.get("line")
    if isinstance(line, int):
        return line
    words = (finding.where or "").split()
    return int(words[1]) if len(words) == 2 and words[0] == "line" and words[1].isdecimal() else 0


def document(report: ScanReport) -> bytes:
    """The report as schema karat.policy-scan/1."""
    return encode(
        {
            "schema": SCHEMA,
            "exit_code": int(report.exit_code),
            "seconds": round(report.seconds, 3),
            "paths": list(report.paths),
            "files": {
                "found": report.files,
                "parsed": report.parsed,
                "excluded": report.excluded,
                "folders_left_out": report.left_out,
            },
            "states": dict(sorted(report.states.items())),
            "op_tests": [_row(row) for row in report.op_tests],
            "findings": [finding_json(finding) for finding in report.findings],
        }
    )


def _row(row: OpTestRow) -> dict[str, Any]:
    return dict(msgspec.to_builtins(row))


def ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Gravest first, then by kind and place."""
    return tuple(sorted(findings, key=lambda f: (f.severity.rank, f.kind, f.path, line_of(f))))
