"""`karat hunt run`, `split` and `from-issue`, which begin a hunt, and `karat hunt init`, which writes its file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karat.cli.hunt import ProbeCommand, plan_options, probe_options, report_options, search_options
from karat.cli.output import deliver, repeatable
from karat.findings import UsageError
from karat.report.terminal import say
from karat.system.command import Command

if TYPE_CHECKING:
    from karat.cli.output import Reports
    from karat.hunts.given import Asked

_EXAMPLES = """
  karat hunt run                                     what hunt.toml says
  karat hunt run --dry-run                           points, runs, time, GPUs; runs nothing
  karat hunt run -- python -m pytest -q tests/a.py   which commit since the newest tag made it fail
  karat hunt run --releases numpy --seconds -- python sort.py
  karat hunt run slow.toml --strategy sweep --jobs 4
  karat hunt run --max-runs 40 --html hunt.html
  karat hunt run --fresh --stage commits
"""
_SPLIT = """
  karat hunt split --code v1.2..v1.3 --packages old.txt..new.txt -- python -m pytest -q tests/test_loss.py
  karat hunt split --code HEAD --packages main.uv.lock..uv.lock --value "loss:" -- python train.py
  karat hunt split --packages image:app:2026-11-01..image:app:2026-11-02 -- python check.py
  karat hunt split --packages numpy==1.26.4..numpy==2.0.0 --with pandas -- python check.py
  karat hunt split --code HEAD~20..HEAD --packages old.lock..new.lock --dry-run -- python bench.py
"""
_INIT = """
  karat hunt init                                   the commits of this repository
  karat hunt init --preset jax-nightly              nightly images, hourly checkouts, commits
  karat hunt init --preset pypi --output numpy.toml
  karat hunt init --preset pypi --output -          only show it
"""
_ISSUE = """
  karat hunt from-issue 2023-08-24=577.2 2023-08-26=536.7 --value "MLUPS:" -- python bench.py
  karat hunt from-issue v1.2=0.91 v1.3=0.84 --value "accuracy" -- python eval.py
  karat hunt from-issue 1.25.2=3.1 1.26.0=9.4 --releases numpy --seconds -- python sort.py
"""


@click.command(cls=ProbeCommand, epilog=_EXAMPLES)
@click.argument("hunt_toml", metavar="[HUNT.toml]", required=False)
@click.option("--commits", metavar="OLD..NEW", help="Of -- CMD: these commits; default: since the newest tag.")
@click.option("--releases", metavar="NAME[==A..B]", help="Of -- CMD: releases of a package.")
@click.option("--values", metavar="A,B,C", help="Of -- CMD: any texts; CMD finds its own in {value}.")
@probe_options(needed=False)
@search_options
@repeatable("--metric", "NAME", "Only look at this metric.", to="metrics")
@click.option("--stage", metavar="NAME", help="Start at this stage: its text, its timeline or its number from 0.")
@plan_options
@report_options
def command(*, hunt_toml: str | None, asked: Asked | None, out: Reports, **more: Any) -> int:
    """Hunt for every regression, dip and crash on a timeline.

    hunt.toml (karat hunt init) says which timeline, what to run at each point and what to read off it; or CMD is run at
    each commit since the newest tag, without a file. Every attempt is in the journal at once: a hunt that is stopped or
    killed continues with `karat hunt resume`.
    """
    from karat.cli.hunt import session

    over = {name: more.pop(name) for name in ("commits", "releases", "values")}
    if asked is None and not any(over.values()):
        return session.run(out, hunt_toml or "hunt.toml", **more)
    from karat.hunts.given import run_settings

    if asked is None or hunt_toml is not None:
        found = f"the file {hunt_toml}" if asked is not None else "no command after --"
        said = f"expected -- CMD with --commits, --releases or --values, and no file, found {found}"
        raise UsageError(said, next_command="karat hunt run --help")
    return session.run(out, run_settings(asked, Path.cwd(), **over), **more)


@click.command(cls=ProbeCommand, epilog=_SPLIT)
@click.option("--code", default="HEAD", metavar="OLD..NEW", help="Commits, tags or branches of this repository.")
@click.option(
    "--packages",
    required=True,
    metavar="OLD..NEW",
    help="Lock files (requirements.txt with pins, pip freeze, uv.lock, pylock.toml), images (image:NAME:TAG), or pins: "
    "a==1.0,b==2.0..a==1.1,b==2.0.",
)
@repeatable("--with", "REQ", "Install this as well, on both sides.", to="requires")
@click.option("--python", default="", metavar="P", help="The Python of both environments; default: this one.")
@click.option(
    "--index", default="", metavar="URL", help="Another package index; default: as uv and pip are configured."
)
@click.option("--no-deps", is_flag=True, help="Install exactly what is listed, even where versions conflict.")
@probe_options(needed=True)
@plan_options
@search_options
@report_options
def split(*, code: str, packages: str, asked: Asked, out: Reports, **more: Any) -> int:
    """Tell whether code or environment made the change, then which commit or package.

    CMD runs with old and new code in old and new packages, each as often as it takes. Then the guilty half is searched:
    commits of the code; or the packages that moved, in groups, and at last the releases of the one that is to blame.
    """
    from karat.cli.hunt import session
    from karat.hunts.given import split_settings

    names = ("requires", "python", "index", "no_deps")
    said = {"code": code, "packages": packages, **{name: more.pop(name) for name in names}}
    return session.run(out, split_settings(asked, Path.cwd(), **said), **more)


@click.command("from-issue", cls=ProbeCommand, epilog=_ISSUE)
@click.argument("said", metavar="WHEN=VALUE...", nargs=-1, required=True)
@click.option("--releases", metavar="NAME", help="WHEN are versions of this package.")
@probe_options(needed=True)
@plan_options
@search_options
@report_options
def from_issue(*, said: tuple[str, ...], releases: str | None, asked: Asked, out: Reports, **more: Any) -> int:
    """Hunt between the dates and values that an issue names.

    WHEN is a day, a commit or tag of this repository, or a version, oldest first; VALUE is what CMD printed then. The
    hunt looks between the two neighbours that differ most, and takes the newer value for the worse one.
    """
    from karat.cli.hunt import session
    from karat.hunts.given import issue_settings

    return session.run(out, issue_settings(asked, Path.cwd(), said, releases), **more)


@click.command(epilog=_INIT)
@click.option(
    "--preset", default="git", show_default=True, metavar="NAME", help="The kind of hunt: git, jax-nightly or pypi."
)
@click.option("--output", default="hunt.toml", show_default=True, metavar="F", help="Where to write; - is stdout.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(*, preset: str, output: str, force: bool) -> int:
    """Write a commented hunt.toml.

    It runs as it is once its probe is filled in: the command to run at each point, and what to read off its output.
    Scripts that a preset runs are written beside it, unless they are there.
    """
    from karat.hunts.hunt_toml import preset_scripts, preset_text

    if output != "-" and not force and Path(output).exists():
        raise UsageError(
            f"{output} already exists and was not changed; use --force to overwrite it",
            next_command=Command("karat", "hunt", "init", "--preset", preset, "--output", f"other-{Path(output).name}"),
        )
    deliver(output, preset_text(preset, Path.cwd()))
    scripts = {} if output == "-" else preset_scripts(preset)
    beside = {Path(output).parent / name: text for name, text in scripts.items()}
    written = [path for path in beside if force or not path.exists()]
    for path in written:
        deliver(str(path), beside[path])
    if output != "-":
        more = f" and {', '.join(map(str, written))}" if written else ""
        say(f"wrote {output}{more}: fill in the probe's command and metrics, then see what would be run")
        named = () if output == "hunt.toml" else (output,)
        say(f"next: {Command('karat', 'hunt', 'run', *named, '--dry-run')}", sys.stderr)
    return 0
