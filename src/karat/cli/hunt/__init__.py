"""`karat hunt`: a group of commands, each imported when it is used."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from karat.cli.group import LazyGroup
from karat.cli.output import report_options as reports, together
from karat.findings import UsageError

COMMANDS = {
    "run": "Hunt for every regression, dip and crash on a timeline.",
    "split": "Tell whether code or environment made the change, then which commit or package.",
    "from-issue": "Hunt between the dates and values that an issue names.",
    "init": "Write a commented hunt.toml.",
    "resume": "Continue a hunt that was stopped or killed.",
    "status": "Show how far a hunt is.",
    "report": "Report what a hunt found: terminal, JSON, Markdown, HTML.",
    "try": "Run one point by hand, or two side by side.",
    "show": "Show one point of a hunt: its attempts, identity and logs.",
}
_EXAMPLES = """
  karat hunt init --preset git && karat hunt
  karat hunt -- python -m pytest -q tests/test_loss.py
  karat hunt split --code v1.2..v1.3 --packages old.txt..new.txt -- python bench.py
  karat hunt --strategy sweep --jobs 4
  karat hunt status
  karat hunt report --html hunt.html --markdown issue.md
  karat hunt show 2023-08-25
"""


_HOMES = {
    "split": "run:split",
    "from-issue": "run:from_issue",
    "resume": "journal:resume",
    "status": "journal:status",
    "report": "journal:report",
    "try": "journal:try_point",
    "show": "journal:show",
    "init": "run:init",
}


@click.group(cls=LazyGroup, summaries=COMMANDS, package=__name__, homes=_HOMES, otherwise="run", epilog=_EXAMPLES)
def command() -> None:
    """Find every regression, dip and crash, down to the commit.

    A hunt puts the points of a timeline (nightly images, checkouts by the hour, commits, released packages) under test,
    as few as it takes, and looks closer where something changed. hunt.toml says what and how.
    """


class ProbeCommand(click.Command):
    """A command whose line may end with `-- CMD`: what is run at each point, word by word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what follows `--` from options and arguments."""
        cut = args.index("--") if "--" in args else len(args)
        left = super().parse_args(ctx, args[:cut])
        ctx.params["command_words"] = tuple(args[cut + 1 :])
        return left

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage line, with it."""
        return [*super().collect_usage_pieces(ctx), "[-- CMD...]"]


report_options = reports("karat.hunt/1", "html", "markdown")


def probe_options(*, needed: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What `-- CMD` is judged by; handed on as `asked`, which is None without a command."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(command_words: tuple[str, ...], **given: Any) -> int:
            from karat.hunts.given import Asked

            options = {name: given.pop(name) for name in Asked.__struct_fields__ if name != "command"}
            if needed and not command_words:
                said = "expected the command to run at each point after --, found none"
                raise UsageError(said, next_command="karat hunt --help")
            return int(function(asked=Asked(command=command_words, **options) if command_words else None, **given))

        return _PROBE(called)

    return decorate


_FROM_ONE = click.IntRange(min=1)
_PROBE = together(
    click.option("--value", metavar="PATTERN", help="The number that CMD prints after this, or its first group."),
    click.option("--seconds", is_flag=True, help="Look at how long CMD takes."),
    click.option("--crash", metavar="PATTERN", help="Hunt this error of CMD; others say nothing. Default: any."),
    click.option("--better", type=click.Choice(["lower", "higher", "equal"]), help="Which values are better."),
    click.option("--build", default="", metavar="WORDS", help="Run this in each checkout before CMD, unmeasured."),
    click.option("--timeout", default="30 min", metavar="T", help="CMD hangs if it takes longer: 90 s, 10 min."),
    click.option("--repeats", type=_FROM_ONE, default=1, metavar="N", help="Runs of CMD per attempt."),
)
search_options = together(
    click.option("--strategy", type=click.Choice(["adaptive", "sweep", "bisect"]), help="How to search."),
    click.option("--min-dip", type=_FROM_ONE, metavar="N", help="Find whatever lasts N points, a dip or crashes."),
    click.option(
        "--confidence", type=click.FloatRange(0.5, 1, max_open=True), metavar="P", help="How sure the search must be."
    ),
    click.option("--engine", type=click.Choice(["local", "ray", "slurm"]), help="Where probes run."),
    click.option("-j", "--jobs", type=_FROM_ONE, metavar="N", help="Probes at a time, each in a slot of its own."),
    click.option("--max-runs", type=_FROM_ONE, metavar="N", help="Stop after this many runs."),
    click.option("--max-time", metavar="T", help="Stop after this time at work: '90 s', '20 min', '8 h'."),
    click.option("--max-cost", type=float, metavar="X", help="Stop at this cost, by the prices of [cost]."),
    click.option("--priors/--no-priors", default=None, help="Whether what commits touch says where to look first."),
)
"""Of those who run a hunt: they override [search] and [engine]."""
plan_options = together(
    click.option("--journal", metavar="F", help="The journal; by default .karat/hunt/NAME.hunt."),
    click.option("--fresh", is_flag=True, help="Start over; an existing journal is archived, not deleted."),
    click.option("--dry-run", is_flag=True, help="Show points, runs, time and GPUs; run nothing."),
)
"""Of those who begin a hunt."""
