"""`karat hunt`: a group of commands, each imported when it is used."""

from __future__ import annotations

import click

from karat.cli.group import LazyGroup

COMMANDS = {
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


@click.group(cls=LazyGroup, summaries=COMMANDS, package=__name__, otherwise="run", epilog=_EXAMPLES)
def command() -> None:
    """Find every regression, dip and crash, down to the commit.

    A hunt puts the points of a timeline (nightly images, checkouts by the hour, commits, released packages) under test,
    as few as it takes, and looks closer where something changed. hunt.toml says what and how.
    """
