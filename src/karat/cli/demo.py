"""`karat demo`."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import click

from karat.findings import UsageError

_DIFF = ("diff", "--html", "report.html", "--csv", "reldiff.csv")
_SUMMARY = ("summary", "-o", "pr.md")
_TABLE = "tables/inductor_training.csv"
_LIFE = (
    ("refresh", "--source", "folder", "ci-run", "--scope", "all", "--write"),
    _DIFF,
    ("check", f"ci-run/{_TABLE}", "--golden", f"goldens/{_TABLE}"),
    ("stage", "--dry-run"),
    _SUMMARY,
)


@click.command(epilog="\b\nExample:\n  karat demo /tmp/karat-demo")
@click.argument("folder", default="demo")
def command(*, folder: str) -> int:
    """Run the main job on an embedded sample.

    Makes a git repository in FOLDER (default: ./demo), refreshes its goldens from a made-up CI run,
    compares, checks, stages and sums up. Without git, two folders. No network, account or server.
    """
    from karat.cli import run  # noqa: PLC0415 - the group imports this module
    from karat.demo.sample import build, build_folders  # noqa: PLC0415

    path = Path(folder).absolute()
    if path.exists():
        raise UsageError(
            f"expected to make {path}, found it already there",
            next_command=f"karat demo {shlex.quote(folder)}-2",
        )
    life: tuple[tuple[str, ...], ...] = _LIFE
    if shutil.which("git"):
        build(path)
        said = "ci-run/ holds what a CI run left"
    else:
        build_folders(path)
        life = tuple((words[0], "before", "after", *words[1:]) for words in (_DIFF, _SUMMARY))
        said = "before/ and after/ a CI run"
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]  # see karat.demo.sample
    os.chdir(path)
    click.secho(f"Goldens in {path}; {said}.\n", bold=True)
    for words in life:
        click.secho(f"$ karat {shlex.join(words)}", fg="cyan", bold=True)
        code = run(list(words))
        click.secho(f"(exit {code})\n", dim=True)
    made = {"The page": "report.html", "The PR text": "pr.md", "The CSV": "reldiff.csv"}
    for what, name in made.items():
        click.echo(f"{what}: {path / name}")
    return 0
