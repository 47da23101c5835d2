"""`karat hunt run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karat.cli.hunt import ProbeCommand, plan_options, probe_options, report_options, search_options
from karat.findings import UsageError

if TYPE_CHECKING:
    from karat.cli.hunt.session import Reports
    from karat.hunts.given import Asked

_EXAMPLES = """
\b
Examples:
  karat hunt run                                     what hunt.toml says
  karat hunt run --dry-run                           points, runs, time, GPUs; runs nothing
  karat hunt run -- python -m pytest -q tests/a.py   which commit since the newest tag made it fail
  karat hunt run --releases numpy --seconds -- python sort.py
  karat hunt run slow.toml --strategy sweep --jobs 4
  karat hunt run --max-runs 40 --html hunt.html
  karat hunt run --fresh --stage commits
"""


@click.command(cls=ProbeCommand, epilog=_EXAMPLES)
@click.argument("hunt_toml", metavar="[HUNT.toml]", required=False)
@click.option("--commits", metavar="OLD..NEW", help="Of -- CMD: these commits; default: since the newest tag.")
@click.option("--releases", metavar="NAME[==A..B]", help="Of -- CMD: releases of a package.")
@click.option("--values", metavar="A,B,C", help="Of -- CMD: any texts; CMD finds its own in {value}.")
@probe_options
@search_options
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Only look at this metric. Repeatable.")
@click.option("--stage", metavar="NAME", help="Start at this stage: its text, its timeline or its number from 0.")
@plan_options
@report_options
def command(*, hunt_toml: str | None, asked: Asked | None, reports: Reports, **more: Any) -> int:
    """Hunt for every regression, dip and crash on a timeline.

    hunt.toml (karat hunt init) says which timeline, what to run at each point and what to read off it; or CMD is run at
    each commit since the newest tag, without a file. Every attempt is in the journal at once: a hunt that is stopped or
    killed continues with `karat hunt resume`.
    """
    over = {name: more.pop(name) for name in ("commits", "releases", "values")}
    if asked is None and not any(over.values()):
        return reports.run(hunt_toml or "hunt.toml", **more)
    from karat.hunts.given import run_settings

    if asked is None or hunt_toml is not None:
        found = f"the file {hunt_toml}" if asked is not None else "no command after --"
        said = f"expected -- CMD with --commits, --releases or --values, and no file, found {found}"
        raise UsageError(said, next_command="karat hunt run --help")
    return reports.run(run_settings(asked, Path.cwd(), **over), **more)
