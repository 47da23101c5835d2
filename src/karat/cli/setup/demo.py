"""`karat demo`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from karat.findings import UsageError
from karat.report.terminal import print_lines, say
from karat.system.command import Command

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


@click.command(epilog="  karat demo /tmp/karat-demo")
@click.argument("folder", default="demo")
def command(*, folder: str) -> int:
    """Run the main commands on an embedded sample.

    Makes a git repository in FOLDER (default: ./demo), refreshes its goldens from a made-up CI run,
    compares, checks, stages and sums up. Without git, compares two folders. Needs no network, account or server.
    """
    path = Path(folder).absolute()
    if path.exists():
        said = f"expected to make {path}, found it already there"
        raise UsageError(said, next_command=Command("karat", "demo", f"{folder}-2"))
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]  # see karat.sample
    from karat.sample import build, build_folders

    life: tuple[tuple[str, ...], ...] = _LIFE
    if shutil.which("git"):
        build(path)
        said = "ci-run/ holds what a CI run left"
    else:
        build_folders(path)
        life = tuple((words[0], "before", "after", *words[1:]) for words in (_DIFF, _SUMMARY))
        said = "before/ and after/ a CI run"
    os.chdir(path)
    _show(f"Goldens in {path}; {said}.\n", "bold")
    from karat.cli import run

    for words in life:
        _show(f"$ {Command('karat', *words)}", "bold cyan")
        _show(f"(exit {run(list(words))})\n", "dim")
    made = {"The page": "report.html", "The PR text": "pr.md", "The CSV": "reldiff.csv"}
    for what, name in made.items():
        say(f"{what}: {path / name}")
    return 0


def _show(text: str, style: str = "") -> None:
    print_lines((((line, style),) for line in text.split("\n")), sys.stdout)
    sys.stdout.flush()  # what is started next writes to the same place
