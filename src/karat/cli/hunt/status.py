"""`karat hunt status`."""

from __future__ import annotations

import sys

import click

_EXAMPLES = """
\b
Examples:
  karat hunt status
  karat hunt status .karat/hunt/slow.hunt
  karat hunt status --json - | jq .seconds_left
"""


@click.command(epilog=_EXAMPLES)
@click.argument("journal_file", metavar="[JOURNAL]", required=False)
@click.option("--json", "json_file", metavar="F", help="Write JSON, schema karat.hunt-status/1; - is stdout.")
def command(*, journal_file: str | None, json_file: str | None) -> int:
    """Show how far a hunt is.

    JOURNAL is its file, or its hunt.toml; by default the hunt of this folder. The hunt may be running. The exit
    code is 0 whatever it found: `karat hunt report` judges.
    """
    from karat.cli.output import deliver
    from karat.hunts.hunt_toml import find_journal
    from karat.hunts.journal.journal import Journal
    from karat.hunts.model import json_text
    from karat.hunts.report.terminal import status_lines as lines, status_of
    from karat.report.terminal import print_lines, room_of

    with Journal(find_journal(journal_file)) as journal:
        status, report = status_of(journal)
    if json_file is not None:
        deliver(json_file, json_text(status))
    if json_file != "-":
        print_lines(lines(status, report, room_of(sys.stdout)), sys.stdout)
    return 0
