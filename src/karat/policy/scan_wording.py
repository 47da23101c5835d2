"""The sentences of a scan, and what each kind of finding asks for."""

from __future__ import annotations

import re
import shlex

from karat.findings import KINDS, Finding, Severity

DEVICE = re.compile(
    r"is_compiled_with|support|fp16|cuda|CUDA|xpu|XPU|rocm|device|place|gpu|GPU|bf16|avx",
    re.ASCII,
)
"""A condition that asks for a machine rather than for a case."""

HELP = {
    "cannot-read": "Make the file readable for whoever scans; what cannot be read is not verified.",
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
}  # fmt: skip
"""Kind → what to do about it."""


def title(kind: str) -> str:
    """A kind of finding, in words that fit a source file."""
    return "the file cannot be understood as Python" if kind == "unreadable" else KINDS[kind]


def finding(  # noqa: PLR0913 - all of one finding
    kind: str, severity: Severity, path: str, line: int, name: str, message: str, *, next: str | None = None,  # noqa: A002
) -> Finding:  # fmt: skip
    """A finding about a line of a file."""
    return Finding(
        kind=kind,
        severity=severity,
        message=message,
        path=path,
        where=f"line {line}" if line else None,
        numbers={"line": line, "class": name},
        next=next or f"sed -n {max(line, 1)},+9p {shlex.quote(path)}",
    )
