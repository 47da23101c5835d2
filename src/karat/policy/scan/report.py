"""What a scan found: for people as text, for programs as schema karat.policy-scan/1."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from karat.findings import KINDS, ExitCode, Finding, Severity, exit_code, fail
from karat.report import sarif
from karat.report.json import encode, finding_json
from karat.report.terminal import Line, by_kind
from karat.report.words import count, line_of
from karat.system.command import Command

SCHEMA = "karat.policy-scan/1"
DEVICE = re.compile(r"is_compiled_with|support|fp16|cuda|CUDA|xpu|XPU|rocm|device|place|gpu|GPU|bf16|avx", re.ASCII)
"""A condition that asks for a machine rather than for a case."""

HELP = {
    "cannot-read": "Make the file readable; unreadable files are not verified.",
    "check-conditional": "Let a check run where no such device is: call check_grad on the CPU as well, or skip visibly.",
    "check-empty": "Let the test call self.check_grad, or remove it: an empty test reads as a check that passed.",
    "check-narrowed": "Check every differentiable input and mode, or say in exemptions.toml which one is left out and why.",
    "evidence-weak": "Drop user_defined_grads: a check against gradients of the same author cannot find their author's mistake.",
    "exempted": "Nothing to do: an entry of exemptions.toml covers it.",
    "exemption-invalid": "Complete the entry of exemptions.toml.",
    "flag-by-hand": "Remove the assignment. Only a completed comparison, or skip_check_grad_ci with a reason, may set it.",
    "grad-check-missing": (
        "Call self.check_grad in a test of the class; or inherit from unittest.TestCase if it is no op test; or use "
        "skip_check_grad_ci(reason=...) with an entry in exemptions.toml."
    ),
    "nothing-compared": "Name a folder that holds op tests, or their base class by --base-class.",
    "skip-without-exemption": "Add an entry to exemptions.toml: op, scope, kind, reason, owner, expiry.",
    "skip-without-reason": 'Write the reason where it can be read: skip_check_grad_ci(reason="...").',
    "tolerance-override": "Bring the tolerance back to the default of the dtype, or add a tolerance entry to exemptions.toml.",
    "unreadable": "Repair the file, or leave it out by --exclude.",
    "unresolved-base": "Scan the folder that holds the base as well, or name it by --base-class.",
}
"""Kind → what to do about it."""
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


class OpTestRow(msgspec.Struct, frozen=True, kw_only=True):
    """An op test, and whether it checks a gradient."""

    name: str
    path: str
    line: int
    op: str | None
    state: str  # checked, conditional, unchecked, skipped, exempt, integer, not-run, abstract.
    checked_at: str | None = None  # `file.py:12`: the first check that its tests reach.


class ScanReport(msgspec.Struct, frozen=True, kw_only=True):
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
        return exit_code(self.findings, fail_on=self.fail_on)

    @property
    def states(self) -> Mapping[str, int]:
        return Counter(row.state for row in self.op_tests)


def document(report: ScanReport) -> bytes:
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
            "op_tests": [msgspec.to_builtins(row) for row in report.op_tests],
            "findings": [finding_json(finding) for finding in report.findings],
        }
    )


def sarif_log(report: ScanReport, version: str) -> bytes:
    tool = sarif.Tool(
        name="karat policy scan",
        version=version,
        tags=("gradients", "tests"),
        help=HELP,
        titles={finding.kind: title(finding.kind) for finding in report.findings},
    )
    return sarif.render(
        report.findings,
        tool,
        exit_code=int(report.exit_code),
        properties={"states": dict(report.states), "files": report.files},
    )


def ordered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Gravest first, then by kind and place."""
    return tuple(sorted(findings, key=lambda f: (f.severity.rank, f.kind, f.path, line_of(f))))


def title(kind: str) -> str:
    """A kind of finding, in words that fit a source file."""
    return "the file cannot be understood as Python" if kind == "unreadable" else KINDS[kind].meaning


def finding(kind: str, severity: Severity, path: str, line: int, name: str, message: str) -> Finding:
    """A finding about a line of a file."""
    return Finding(
        kind=kind,
        severity=severity,
        message=message,
        path=path,
        where=f"line {line}" if line else None,
        numbers={"line": line, "class": name},
        next=Command("sed", "-n", f"{max(line, 1)},+9p", path),
    )


def cannot_read(path: str, why: str) -> Finding:
    """A file or folder whose bytes could not be had."""
    return fail("cannot-read", f"cannot be read: {why}", path=path, next=Command("ls", "-ld", path))


def lines(report: ScanReport, *, everything: bool = False) -> Iterator[Line]:
    yield from by_kind(report.findings, title, HELP, everything=everything)
    states = report.states
    each = [f"{states[state]:,} {words}" for state, words in _STATES.items() if states.get(state)]
    classes = f"{len(report.op_tests):,} op test class{'' if len(report.op_tests) == 1 else 'es'}"
    parts = [f"{count(report.files, 'file')}, {classes}{': ' if each else ''}{', '.join(each)}"]
    if report.excluded:
        parts.append(f"{count(report.excluded, 'file')} excluded")
    if report.left_out:
        parts.append(f"{count(report.left_out, 'folder')} left out (.git, build and the like)")
    yield ((" · ".join([*parts, f"{report.seconds:.1f} s"]), "bold"),)
