"""`karat policy`: a verb of several parts, each imported when it is called."""

from __future__ import annotations

from importlib import import_module

import click

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


class Parts(click.Group):
    """A group that imports a part only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every part."""
        return list(PARTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The part's command, or None for an unknown one."""
        if cmd_name not in PARTS:
            return None
        command: click.Command = import_module(f"karat.cli.policy_{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the parts without importing them."""
        with formatter.section("Parts"):
            formatter.write_dl(list(PARTS.items()))


@click.group(cls=Parts, epilog=_EXAMPLES)
def command() -> None:
    """Hold op tests to the gradient policy.

    Every op test has gradient evidence in float64 for every differentiable input, or an exemption that is
    verified, approved, owned, and ends.
    """
