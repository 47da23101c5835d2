"""`karat hunt`: a verb of several parts, each imported when it is called."""

from __future__ import annotations

from importlib import import_module

import click

PARTS = {
    "run": "Hunt for every regression, dip and crash on a timeline.",
    "init": "Write a commented hunt.toml.",
    "resume": "Go on with a hunt that was stopped or killed.",
    "status": "Say how far a hunt is.",
    "report": "Write down what a hunt found: terminal, JSON, Markdown, HTML.",
    "show": "Show one point of a hunt: its attempts, identity and logs.",
}
_EXAMPLES = """
\b
Examples:
  karat hunt init --preset git && karat hunt
  karat hunt --strategy sweep --jobs 4
  karat hunt status
  karat hunt report --html hunt.html --markdown issue.md
  karat hunt show 2023-08-25
"""


class Parts(click.Group):
    """A group that imports a part only when it is used; without a part's name it is `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`karat hunt my.toml --strategy sweep` is `karat hunt run my.toml --strategy sweep`."""
        if not args or (args[0] not in PARTS and args[0] not in {"-h", "--help"}):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Every part."""
        return list(PARTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The part's command, or None for an unknown one."""
        if cmd_name not in PARTS:
            return None
        command: click.Command = import_module(f"karat.cli.hunt_{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the parts without importing them."""
        with formatter.section("Parts"):
            formatter.write_dl(list(PARTS.items()))


@click.group(cls=Parts, epilog=_EXAMPLES)
def command() -> None:
    """Find every regression, dip and crash, down to the commit.

    A hunt puts the points of a timeline (nightly images, checkouts by the hour, commits, released packages) under test,
    as few as it takes, and looks closer where something changed. hunt.toml says what and how.
    """
