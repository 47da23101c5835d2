"""`karat hunt resume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from karat.cli.hunt import report_options, search_options
from karat.findings import UsageError
from karat.system.command import Command

if TYPE_CHECKING:
    from karat.cli.hunt.session import Reports
    from karat.hunts.hunt_toml import Overrides

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
@click.option(
    "--max-runs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Stop after this many runs, including those that are done.",
)
@report_options
def command(  # noqa: PLR0913 - one parameter per option
    *,
    journal_file: str | None,
    strategy: str | None,
    confidence: float | None,
    max_runs: int | None,
    engine: str | None,
    jobs: int | None,
    json_file: str | None,
    html_file: str | None,
    markdown_file: str | None,
    quiet: bool,
) -> int:
    """Continue a hunt that was stopped or killed.

    JOURNAL is its file, or its hunt.toml; by default the hunt of this folder. Nothing that is in the journal is run again.
    What hunt.toml says of the search and the engine may have changed meanwhile, but not what is measured, and where.
    """
    from karat.cli.hunt.session import Reports
    from karat.hunts.hunt_toml import Overrides, find_journal

    reports = Reports(json=json_file, html=html_file, markdown=markdown_file, quiet=quiet)
    reports.check()
    said = Overrides(strategy=strategy, confidence=confidence, max_runs=max_runs, engine=engine, jobs=jobs)
    return go_on(find_journal(journal_file), said, reports)


def go_on(path: Path, said: Overrides, reports: Reports) -> int:
    """Resume a journal with what the command line says now."""
    from karat.cli.hunt.session import hunt
    from karat.hunts import hunt_toml
    from karat.hunts.hunt import remember_overrides, remembered_overrides
    from karat.hunts.hunt_toml import apply_overrides, workspace_of
    from karat.hunts.journal.journal import Journal
    from karat.hunts.journal.records import changed_settings, settings_json

    with Journal.resume(path) as journal:
        facts = journal.facts()
        # Where it was when the hunt began; in this folder, if the whole folder has moved.
        file = Path(facts["file"])
        file = Path(file.name) if not file.exists() and Path(file.name).is_file() else file
        plain = hunt_toml.read(file)
        together = said.over(remembered_overrides(journal))
        settings = apply_overrides(plain, together)
        changed = changed_settings(facts["settings"], settings_json(settings))
        if changed:
            raise UsageError(
                f"expected {file.name} as it was when the hunt began, found other values of {', '.join(changed)}: what was "
                "measured before and after would not compare",
                next_command=Command("karat", "hunt", "run", str(file), "--journal", str(path), "--fresh"),
            )
        journal.set_fact("settings", settings_json(settings))
        remember_overrides(journal, together)
        return hunt(settings, workspace_of(file, plain), journal, reports)
