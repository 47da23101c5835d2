"""`karat hunt`: a group of commands, each imported when it is used."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from karat.cli.group import LazyGroup
from karat.cli.output import quiet_option

COMMANDS = {
    "run": "Hunt for every regression, dip and crash on a timeline.",
    "init": "Write a commented hunt.toml.",
    "resume": "Continue a hunt that was stopped or killed.",
    "status": "Show how far a hunt is.",
    "report": "Report what a hunt found: terminal, JSON, Markdown, HTML.",
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


def search_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--strategy, --confidence, --engine and --jobs, of those who run a hunt."""
    for option in (
        click.option(
            "-j", "--jobs", type=click.IntRange(min=1), metavar="N", help="Probes at a time, each in a slot of its own."
        ),
        click.option(
            "--engine", type=click.Choice(["local", "ray", "slurm"]), help="Where probes run; overrides [engine]."
        ),
        click.option(
            "--confidence",
            type=click.FloatRange(0.5, 1, max_open=True),
            metavar="P",
            help="How sure the search must be; overrides [search].",
        ),
        click.option(
            "--strategy", type=click.Choice(["adaptive", "sweep", "bisect"]), help="How to search; overrides [search]."
        ),
    ):
        function = option(function)
    return function


def report_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--json, --html, --markdown and --quiet, of those who report a hunt; handed on as `reports`."""

    @functools.wraps(function)
    def command(
        *, json_file: str | None, html_file: str | None, markdown_file: str | None, quiet: bool, **more: Any
    ) -> int:
        from karat.cli.hunt.session import Reports

        reports = Reports(json=json_file, html=html_file, markdown=markdown_file, quiet=quiet)
        return int(function(reports=reports, **more))

    wrapped = quiet_option(command)
    for name, what in (
        ("markdown", "Write the text of an issue"),
        ("html", "Write a self-contained page"),
        ("json", "Write the report, schema karat.hunt/1"),
    ):
        file = click.option(f"--{name}", f"{name}_file", metavar="F", help=f"{what}; - is stdout.")
        wrapped = file(wrapped)
    return wrapped
