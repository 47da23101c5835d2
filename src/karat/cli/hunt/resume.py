"""`karat hunt resume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from karat.cli.hunt import report_options, search_options
from karat.cli.output import leave_at_once

if TYPE_CHECKING:
    from karat.cli.hunt.session import Reports

_EXAMPLES = """
\b
Examples:
  karat hunt resume
  karat hunt resume .karat/hunt/slow.hunt --jobs 2
  karat hunt resume --max-runs 80 --markdown issue.md
"""


@click.command(epilog=_EXAMPLES)
@click.argument("journal_file", metavar="[JOURNAL]", required=False)
@search_options
@report_options
def command(*, journal_file: str | None, reports: Reports, **search: Any) -> int:
    """Continue a hunt that was stopped or killed.

    JOURNAL is its file, or its hunt.toml; by default the hunt of this folder. What the journal already has is not run again.
    The [search] and [engine] tables of hunt.toml may have changed since, but not what is measured, and where.
    """
    from karat.hunts.hunt import resume_hunt
    from karat.hunts.hunt_toml import Overrides, find_journal

    path, said = find_journal(journal_file), Overrides(**search)
    return reports.hunt(lambda shown: resume_hunt(path, said, shown, leave_at_once))
