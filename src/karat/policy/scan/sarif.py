"""SARIF of a scan."""

from __future__ import annotations

from karat.policy.scan.report import HELP, ScanReport, title
from karat.report import sarif


def render(report: ScanReport, version: str) -> bytes:
    """The report as a SARIF log with one run."""
    tool = sarif.Tool(
        name="karat policy scan",
        version=version,
        tags=("gradients", "tests"),
        titles={finding.kind: title(finding.kind) for finding in report.findings},
        help=HELP,
    )
    return sarif.render(
        report.findings,
        tool,
        exit_code=int(report.exit_code),
        properties={"states": dict(report.states), "files": report.files},
    )
