"""`karat policy`: a group of commands, each imported when it is used."""

from __future__ import annotations

import click

from karat.cli.group import LazyGroup

COMMANDS = {
    "gate": "Check the evidence of test runs against the rule and its exemptions.",
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


@click.group(cls=LazyGroup, summaries=COMMANDS, package=__name__, epilog=_EXAMPLES)
def command() -> None:
    """Check that op tests follow the gradient policy.

    Every op test has gradient evidence in float64 for every differentiable input, or an exemption that is
    verified, approved, owned, and ends.
    """
