"""`karat policy`: a verb of several parts, each imported when it is called."""

from __future__ import annotations

import click

from karat.cli.group import Parts

PARTS = {
    "gate": "Hold the evidence of test runs against the rule and its exemptions.",
    "coverage": "Show which gradients have evidence: op × dtype × device × mode.",
    "approvals": "Require an approving review for every exemption that was added or changed.",
    "scan": "Read op tests without importing them, and report what is not checked.",
}
_EXAMPLES = """
\b
Examples:
  pytest --karat-evidence=evidence && karat policy gate evidence
  karat policy coverage evidence --html coverage.html
  karat policy approvals --base origin/main
  karat policy scan test/legacy_test
"""


@click.group(cls=Parts, parts=PARTS, epilog=_EXAMPLES)
def command() -> None:
    """Hold op tests to the gradient policy.

    Every op test has gradient evidence in float64 for every differentiable input, or an exemption that is
    verified, approved, owned, and ends.
    """
