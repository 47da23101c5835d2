"""`karat hunt init`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from karat.cli.output import deliver
from karat.findings import UsageError
from karat.report.terminal import say
from karat.system.command import Command

_EXAMPLES = """
\b
Examples:
  karat hunt init                                   the commits of this repository
  karat hunt init --preset jax-nightly              nightly images, hourly checkouts, commits
  karat hunt init --preset pypi --output numpy.toml
  karat hunt init --preset pypi --output -          only show it
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--preset", default="git", show_default=True, metavar="NAME", help="The kind of hunt: git, jax-nightly or pypi."
)
@click.option("--output", default="hunt.toml", show_default=True, metavar="F", help="Where to write; - is stdout.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("-q", "--quiet", is_flag=True, help="Do not print the next step.")
def command(*, preset: str, output: str, force: bool, quiet: bool) -> int:
    """Write a commented hunt.toml.

    It runs as it is once its probe is filled in: the command to run at each point, and what to read off its output.
    Scripts that a preset runs are written beside it, unless they are there.
    """
    from karat.hunts.hunt_toml import preset_scripts, preset_text

    if output != "-" and not force and Path(output).exists():
        raise UsageError(
            f"{output} already exists and was not changed; use --force to overwrite it",
            next_command=Command("karat", "hunt", "init", "--preset", preset, "--output", output, "--force"),
        )
    deliver(output, preset_text(preset, Path.cwd()))
    beside = (
        {} if output == "-" else {Path(output).parent / name: text for name, text in preset_scripts(preset).items()}
    )
    written = [path for path in beside if force or not path.exists()]
    for path in written:
        deliver(str(path), beside[path])
    if not quiet and output != "-":
        scripts = f" and {', '.join(map(str, written))}" if written else ""
        say(f"wrote {output}{scripts}: fill in the probe's command and metrics, then see what would be run")
        named = () if output == "hunt.toml" else (output,)
        say(f"next: {Command('karat', 'hunt', 'run', *named, '--dry-run')}", sys.stderr)
    return 0
