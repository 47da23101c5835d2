"""`karat hunt try`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from karat.hunts.model import Attempt, Point

_EXAMPLES = """
\b
Examples:
  karat hunt try 2023-08-26                           run it once, and show what it prints
  karat hunt try 2023-08-26 --against parent          both, three times each, in turns
  karat hunt try xla@1a2b3c4 --against xla@9f8e7d6 --times 5
  karat hunt try 2.0.0 --script try.sh                a script that does not need karat
"""


@click.command("try", epilog=_EXAMPLES)
@click.argument("point")
@click.option(
    "--against", metavar="POINT", help="Run this one as well, in turns, and compare; parent: the point before."
)
@click.option(
    "--times", type=click.IntRange(min=1), metavar="N", help="Runs of each point; default 1, with --against 3."
)
@click.option(
    "--script", metavar="F", help="Run nothing: write a script that runs the point without karat; - is stdout."
)
@click.option("--stage", metavar="KEY", help="The stage, as named by `karat hunt status`: 0, 0.2/1.")
@click.option(
    "--journal", "journal_file", metavar="F", help="The journal, or its hunt.toml; by default the hunt of this folder."
)
@click.option("--json", "json_file", metavar="F", help="Write JSON, schema karat.hunt-try/1; - is stdout.")
def command(  # noqa: PLR0913 - one parameter per option
    *,
    point: str,
    against: str | None,
    times: int | None,
    script: str | None,
    stage: str | None,
    journal_file: str | None,
    json_file: str | None,
) -> int:
    """Run one point by hand, or two side by side.

    POINT is named as for `karat hunt show`. It is prepared and run as the hunt would, in a work area of its own; the
    journal stays as it is. Exit code: 0 it works, or the two do not differ; 1 it fails, or they differ; 3 it cannot be run.
    """
    from karat.cli.output import deliver
    from karat.hunts.hunt_toml import find_journal
    from karat.hunts.journal.journal import Journal
    from karat.hunts.model import json_text
    from karat.hunts.report.sentences import averages, duration
    from karat.hunts.try_point import script_of, try_point
    from karat.report.terminal import print_lines, say

    def show(one: Point, attempt: Attempt, output: str) -> None:
        why = f"{attempt.outcome.value}: {attempt.signature or attempt.note}"
        came = averages(attempt.samples, {}) if attempt.outcome == "ok" else why
        say(f"{one.label}  {came} ({duration(attempt.seconds)})", sys.stderr)
        if against is None and json_file != "-":
            print_lines((((line.expandtabs(), ""),) for line in output.splitlines()), sys.stdout)

    with Journal(find_journal(journal_file)) as journal:
        if script is not None:
            deliver(script, script_of(journal, point, stage))
            if script != "-":
                Path(script).chmod(0o755)
            return 0
        found = try_point(journal, point, stage=stage, against=against, times=times, said=show)
    if json_file is not None:
        deliver(json_file, json_text(found))
    if json_file != "-":
        words = {
            "differ": "they differ",
            "same": "they do not differ",
            "unsure": "unclear: more runs (--times) may tell",
        }
        print_lines((((f"{name}: {words[word]}", "bold"),) for name, word in found.verdicts.items()), sys.stdout)
    return found.code
