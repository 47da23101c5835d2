"""`karat hunt run`."""

from __future__ import annotations

from pathlib import Path

import click

from karat.cli.hunt import report_options, search_options

_EXAMPLES = """
\b
Examples:
  karat hunt run                                     what hunt.toml says
  karat hunt run --dry-run                           points, first commands, cost; runs nothing
  karat hunt run slow.toml --strategy sweep --jobs 4
  karat hunt run --max-runs 40 --html hunt.html
  karat hunt run --fresh --stage commits
"""


@click.command(epilog=_EXAMPLES)
@click.argument("hunt_toml", metavar="[HUNT.toml]", required=False, default="hunt.toml")
@search_options
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Only look at this metric. Repeatable.")
@click.option(
    "--max-runs", type=click.IntRange(min=1), metavar="N", help="Stop after this many runs, all stages together."
)
@click.option("--stage", metavar="NAME", help="Start at this stage: its text, its timeline or its number from 0.")
@click.option("--journal", "journal_file", metavar="F", help="The journal; by default .karat/hunt/NAME.hunt.")
@click.option("--fresh", is_flag=True, help="Start over; an existing journal is archived, not deleted.")
@click.option("--resume", is_flag=True, help="Continue the existing journal.")
@click.option("--dry-run", is_flag=True, help="Show points, the first commands and the cost; run nothing.")
@report_options
def command(  # noqa: PLR0913 - one parameter per option
    *,
    hunt_toml: str,
    strategy: str | None,
    metrics: tuple[str, ...],
    confidence: float | None,
    max_runs: int | None,
    stage: str | None,
    engine: str | None,
    jobs: int | None,
    journal_file: str | None,
    fresh: bool,
    resume: bool,
    dry_run: bool,
    json_file: str | None,
    html_file: str | None,
    markdown_file: str | None,
    quiet: bool,
) -> int:
    """Hunt for every regression, dip and crash on a timeline.

    hunt.toml (karat hunt init) says which timeline, what to run at each point and what to read off it. Every attempt is in
    the journal at once: a hunt that is stopped or killed continues with `karat hunt resume`.
    """
    from karat.cli.hunt.session import Reports, hunt
    from karat.hunts import hunt_toml as hunt_file
    from karat.hunts.hunt import new_journal, remember_overrides
    from karat.hunts.hunt_toml import Overrides, apply_overrides, journal_path, workspace_of

    reports = Reports(json=json_file, html=html_file, markdown=markdown_file, quiet=quiet)
    reports.check()
    file = Path(hunt_toml)
    said = Overrides(
        strategy=strategy,
        metrics=metrics,
        confidence=confidence,
        max_runs=max_runs,
        stage=stage,
        engine=engine,
        jobs=jobs,
    )
    plain = hunt_file.read(file)
    path = Path(journal_file) if journal_file else journal_path(file, plain)
    if resume:
        from karat.cli.hunt.resume import go_on

        return go_on(path, said, reports)
    settings = apply_overrides(plain, said)
    place = workspace_of(file, plain)
    if dry_run:
        from karat.cli.hunt.session import show

        return show(settings, place, path, json_file)
    with new_journal(path, file, settings, fresh=fresh) as journal:
        remember_overrides(journal, said)
        return hunt(settings, place, journal, reports)
