"""`karat hunt report`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from karat.cli.hunt import report_options

if TYPE_CHECKING:
    from karat.cli.hunt.session import Reports

_EXAMPLES = """
\b
Examples:
  karat hunt report                                  the hunt of this folder
  karat hunt report --markdown issue.md --html hunt.html
  karat hunt report .karat/hunt/slow.hunt --json - | jq .culprits
"""


@click.command(epilog=_EXAMPLES)
@click.argument("journal_file", metavar="[JOURNAL]", required=False)
@report_options
def command(*, journal_file: str | None, reports: Reports) -> int:
    """Report what a hunt found: terminal, JSON, Markdown, HTML.

    JOURNAL is its file, or its hunt.toml; by default the hunt of this folder. The journal alone is read: a hunt that is
    still running, or was killed, has a report as well, which says so. The exit code is that of `karat hunt run`.
    """
    from karat.hunts.hunt_toml import find_journal
    from karat.hunts.journal.journal import Journal
    from karat.hunts.report.assemble import build_report

    with Journal(find_journal(journal_file)) as journal:
        report = build_report(journal)
    return reports.finish(report)
