"""`karat hunt show`."""

from __future__ import annotations

import sys

import click

_EXAMPLES = """
\b
Examples:
  karat hunt show 2023-08-25
  karat hunt show 2023-08-25 --log                    what it printed
  karat hunt show xla@1a2b3c4 --stage 0.2/1
  karat hunt show 1.26.0 --journal numpy.hunt --json -
"""


@click.command(epilog=_EXAMPLES)
@click.argument("point")
@click.option("--stage", metavar="KEY", help="The stage, as named by `karat hunt status`: 0, 0.2/1.")
@click.option(
    "--journal", "journal_file", metavar="F", help="The journal, or its hunt.toml; by default the hunt of this folder."
)
@click.option("--log", is_flag=True, help="Print the output of its commands, attempt by attempt.")
@click.option(
    "--json", "json_file", metavar="F", help="Write JSON, schema karat.hunt-point/1 (logs with --log); - is stdout."
)
def command(*, point: str, stage: str | None, journal_file: str | None, log: bool, json_file: str | None) -> int:
    """Show one point of a hunt: its attempts, identity and logs.

    POINT is its label or id, or as much of the beginning as only one point has; of a commit, the beginning of its id.
    """
    from karat.cli.output import deliver
    from karat.hunts.hunt_toml import find_journal
    from karat.hunts.journal.journal import Journal
    from karat.hunts.model import json_text
    from karat.hunts.report.terminal import find_point, point_lines as lines, show_point
    from karat.report.terminal import print_lines

    with Journal(find_journal(journal_file)) as journal:
        found = show_point(journal, *find_point(journal, point, stage), logs=log)
    if json_file is not None:
        deliver(json_file, json_text(found))
    if json_file != "-":
        print_lines(lines(found), sys.stdout)
        for one in found.attempts if log else ():
            print_lines([(), ((f"log of attempt {one.attempt.number}:", "bold"),)], sys.stdout)
            print_lines((((line.expandtabs(), ""),) for line in (one.log or "").splitlines()), sys.stdout)
    return 0
