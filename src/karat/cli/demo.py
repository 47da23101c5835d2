"""`karat demo`."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import click

from karat.findings import UsageError

_DIFF = ("--html", "report.html", "--csv", "reldiff.csv")
_SUMMARY = ("--run-id", "25341543542", "--scope", "only-failing", "-o", "pr.md")


@click.command(epilog="\b\nExample:\n  karat demo /tmp/karat-demo")
@click.argument("folder", default="demo")
def command(*, folder: str) -> int:
    """Run the main job on an embedded sample.

    Makes a git repository in FOLDER (default: ./demo), refreshes its goldens from a made-up CI run
    and shows what karat says. Without git, two folders. No network, no account, no server.
    """
    from karat.cli import run  # noqa: PLC0415 - the group imports this module
    from karat.demo.sample import build, build_folders  # noqa: PLC0415

    path = Path(folder).absolute()
    if path.exists():
        raise UsageError(
            f"expected to make {path}, found it already there",
            next_command=f"karat demo {shlex.quote(folder)}-2",
        )
    sides: tuple[str, ...] = ()
    if shutil.which("git"):
        build(path)
    else:
        build_folders(path)
        sides = ("before", "after")
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]  # see karat.demo.sample
    os.chdir(path)
    click.secho(f"Goldens in {path}; a CI run has just overwritten them.\n", bold=True)
    for words in (("diff", *sides, *_DIFF), ("summary", *sides, *_SUMMARY)):
        click.secho(f"$ karat {shlex.join(words)}", fg="cyan", bold=True)
        code = run(list(words))
        click.secho(f"(exit {code})\n", dim=True)
    made = {"The page": "report.html", "The PR text": "pr.md", "The CSV": "reldiff.csv"}
    for what, name in made.items():
        click.echo(f"{what}: {path / name}")
    return 0
