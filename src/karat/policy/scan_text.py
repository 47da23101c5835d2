"""A scan for people: findings by kind, each with its place, then the counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from karat.findings import Finding, Severity
from karat.policy.scan_report import ScanReport, line_of
from karat.policy.scan_wording import HELP, title
from karat.report.terminal import Line
from karat.report.words import count

_SHOWN = {Severity.FAIL: 20, Severity.WARN: 8, Severity.INFO: 0}
"""Findings of one kind that are listed without --all."""
_STYLE = {Severity.FAIL: "bold red", Severity.WARN: "yellow", Severity.INFO: "dim"}
_STATES = {
    "checked": "with a gradient check",
    "conditional": "with one under a condition",
    "unchecked": "without",
    "skipped": "skipped",
    "exempt": "exempt",
    "integer": "of integers",
    "not-run": "that never run",
    "abstract": "bases without tests",
}


def lines(report: ScanReport, *, everything: bool = False) -> Iterator[Line]:
    """The whole report."""
    groups: dict[tuple[Severity, str], list[Finding]] = {}
    for finding in report.findings:
        groups.setdefault((finding.severity, finding.kind), []).append(finding)
    for (severity, kind), found in groups.items():
        yield from _group(severity, kind, found, everything=everything)
    yield ((_summary(report), "bold"),)


def _group(
    severity: Severity, kind: str, found: Sequence[Finding], *, everything: bool
) -> Iterator[Line]:
    yield (
        (f"{severity.value:<4} ", _STYLE[severity]),
        (kind, "bold"),
        (f"  {len(found):,}: {title(kind)}", ""),
    )
    shown = found if everything else found[: _SHOWN[severity]]
    width = max((len(_place(f)) for f in shown), default=0)
    for finding in shown:
        yield ((f"     {_place(finding):<{min(width, 60)}}  ", "cyan"), (finding.message, ""))
    if len(found) > len(shown):
        more = (
            f"… and {len(found) - len(shown):,} more (--all lists them)"
            if shown
            else "--all lists them"
        )
        yield ((f"     {more}", "dim"),)
    if kind in HELP and severity is not Severity.INFO:
        yield ((f"     → {HELP[kind]}", "dim"),)
    yield ()


def _place(finding: Finding) -> str:
    line = line_of(finding)
    return f"{finding.path}:{line}" if line else finding.path


def _summary(report: ScanReport) -> str:
    states = report.states
    told = ", ".join(
        f"{states[state]:,} {words}" for state, words in _STATES.items() if states.get(state)
    )
    parts = [
        f"{count(report.files, 'file')}, {len(report.op_tests):,} op test {'class' if len(report.op_tests) == 1 else 'classes'}"
        + (f": {told}" if told else ""),
    ]
    if report.excluded:
        parts.append(f"{count(report.excluded, 'file')} excluded")
    if report.left_out:
        parts.append(f"{count(report.left_out, 'folder')} left out (.git, build and the like)")
    parts.append(f"{report.seconds:.1f} s")
    return " · ".join(parts)
