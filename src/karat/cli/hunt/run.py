"""`karat hunt run`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karat.cli.hunt import report_options, search_options
from karat.cli.output import deliver, leave_at_once

if TYPE_CHECKING:
    from karat.cli.hunt.session import Reports

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
def command(
    *,
    hunt_toml: str,
    journal_file: str | None,
    fresh: bool,
    resume: bool,
    dry_run: bool,
    reports: Reports,
    **search: Any,
) -> int:
    """Hunt for every regression, dip and crash on a timeline.

    hunt.toml (karat hunt init) says which timeline, what to run at each point and what to read off it. Every attempt is in
    the journal at once: a hunt that is stopped or killed continues with `karat hunt resume`.
    """
    from karat import api

    if dry_run and not resume:
        return _show(Path(hunt_toml), journal_file, search, reports.json)
    return reports.hunt(
        lambda shown: api.hunt(
            hunt_toml,
            journal=journal_file,
            fresh=fresh,
            resume=resume,
            progress=shown,
            abandoned=leave_at_once,
            **search,
        )
    )


def _show(file: Path, journal: str | None, search: Mapping[str, Any], json_file: str | None) -> int:
    """Print what a hunt would do; nothing is run, and no journal is made. Clones that it took are kept for the hunt."""
    from karat.hunts.hunt import plan, plan_lines
    from karat.hunts.hunt_toml import Overrides, apply_overrides, ignore_in_git, journal_path, read, workspace_of
    from karat.hunts.model import json_text
    from karat.report.terminal import print_lines

    plain = read(file)
    place = workspace_of(file, plain)
    try:
        found = plan(apply_overrides(plain, Overrides(**search)), place)
    finally:
        ignore_in_git(place)
    if json_file is not None:
        deliver(json_file, json_text(found))
    if json_file != "-":
        lines = (*plan_lines(found), f"journal: {journal or journal_path(file, plain)}")
        print_lines((((line, ""),) for line in lines), sys.stdout)
    return 0
