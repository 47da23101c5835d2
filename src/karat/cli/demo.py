"""`karat demo`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from karat.findings import UsageError

_STEPS = (
    ["diff", "--html", "report.html", "--csv", "reldiff.csv"],
    ["summary", "--run-id", "25341543542", "--scope", "only-failing", "-o", "pr.md"],
)


@click.command(epilog="\b\nExample:\n  karat demo /tmp/karat-demo")
@click.argument("folder", default="demo")
def command(*, folder: str) -> int:
    """Run the main job on an embedded sample.

    Makes a git repository in FOLDER (default: ./demo), refreshes its goldens from a made-up CI run
    and shows what karat says. Needs git; no network, no account, no server.
    """
    from karat.cli import run  # noqa: PLC0415 - the group imports this module
    from karat.demo.sample import build  # noqa: PLC0415

    path = Path(folder).absolute()
    if path.exists():
        raise UsageError(
            f"expected to make {path}, found it already there",
            next_command=f"rm -r {shlex.quote(folder)}",
        )
    build(path)
    os.chdir(path)
    click.secho(
        f"A repository of goldens in {path}; a CI run has just overwritten them.\n", bold=True
    )
    for words in _STEPS:
        click.secho(f"$ karat {shlex.join(words)}", fg="cyan", bold=True)
        code = run(list(words))
        click.secho(f"(exit {code})\n", dim=True)
    click.echo(
        f"The page: {path / 'report.html'}\nThe PR text: {path / 'pr.md'}\nThe CSV: {path / 'reldiff.csv'}"
    )
    return 0
