"""`karat hunt resume`, `karat hunt status` and `karat hunt report`: a hunt that was begun, by its journal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from karat.cli.hunt import report_options, search_options
from karat.cli.output import deliver, leave_at_once

if TYPE_CHECKING:
    from karat.cli.hunt.session import Reports

_RESUME = """
\b
Examples:
  karat hunt resume
  karat hunt resume .karat/hunt/slow.hunt --jobs 2
  karat hunt resume --max-runs 80 --markdown issue.md
"""
_STATUS = """
\b
Examples:
  karat hunt status
  karat hunt status .karat/hunt/slow.hunt
  karat hunt status --json - | jq .seconds_left
"""
_REPORT = """
\b
Examples:
  karat hunt report                                  the hunt of this folder
  karat hunt report --markdown issue.md --html hunt.html
  karat hunt report .karat/hunt/slow.hunt --json - | jq .culprits
"""


@click.command(epilog=_RESUME)
@click.argument("journal_file", metavar="[JOURNAL]", required=False)
@search_options
@report_options
def resume(*, journal_file: str | None, reports: Reports, **search: Any) -> int:
    """Continue a hunt that was stopped or killed.

    JOURNAL is its file, or its hunt.toml; by default the hunt of this folder. What the journal already has is not run again.
    The [search] and [engine] tables of hunt.toml may have changed since, but not what is measured, and where.
    """
    from karat.hunts.hunt import resume_hunt
    from karat.hunts.hunt_toml import Overrides, find_journal

    path, said = find_journal(journal_file), Overrides(**search)
    return reports.hunt(lambda shown: resume_hunt(path, said, shown, leave_at_once))


@click.command(epilog=_STATUS)
@click.argument("journal_file", metavar="[JOURNAL]", required=False)
@click.option("--json", "json_file", metavar="F", help="Write JSON, schema karat.hunt-status/1; - is stdout.")
def status(*, journal_file: str | None, json_file: str | None) -> int:
    """Show how far a hunt is.

    JOURNAL is its file, or its hunt.toml; by default the hunt of this folder. The hunt may be running. The exit
    code is 0 whatever it found: `karat hunt report` judges.
    """
    from karat.hunts.hunt_toml import find_journal
    from karat.hunts.journal.journal import Journal
    from karat.hunts.model import json_text
    from karat.hunts.report.terminal import status_lines as lines, status_of
    from karat.report.terminal import print_lines, room_of

    with Journal(find_journal(journal_file)) as journal:
        known, so_far = status_of(journal)
    if json_file is not None:
        deliver(json_file, json_text(known))
    if json_file != "-":
        print_lines(lines(known, so_far, room_of(sys.stdout)), sys.stdout)
    return 0


@click.command(epilog=_REPORT)
@click.argument("journal_file", metavar="[JOURNAL]", required=False)
@report_options
def report(*, journal_file: str | None, reports: Reports) -> int:
    """Report what a hunt found: terminal, JSON, Markdown, HTML.

    JOURNAL is its file, or its hunt.toml; by default the hunt of this folder. The journal alone is read: a hunt that is
    still running, or was killed, has a report as well, which says so. The exit code is that of `karat hunt run`.
    """
    from karat.hunts.hunt_toml import find_journal
    from karat.hunts.journal.journal import Journal
    from karat.hunts.report.assemble import build_report

    with Journal(find_journal(journal_file)) as journal:
        found = build_report(journal)
    return reports.finish(found)
