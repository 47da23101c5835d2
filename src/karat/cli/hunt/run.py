"""`karat hunt run`, `karat hunt split` and `karat hunt from-issue`: hunts of a file, or of what is said after `--`."""

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
_SPLIT = """
\b
Examples:
  karat hunt split --code v1.2..v1.3 --packages old.txt..new.txt -- python -m pytest -q tests/test_loss.py
  karat hunt split --code HEAD --packages main.uv.lock..uv.lock --value "loss:" -- python train.py
  karat hunt split --packages numpy==1.26.4..numpy==2.0.0 --with pandas -- python check.py
  karat hunt split --code HEAD~20..HEAD --packages old.lock..new.lock --dry-run -- python bench.py
"""
_ISSUE = """
\b
Examples:
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


@click.command(cls=ProbeCommand, epilog=_SPLIT)
@click.option("--code", default="HEAD", metavar="OLD..NEW", help="Commits, tags or branches of this repository.")
@click.option(
    "--packages",
    required=True,
    metavar="OLD..NEW",
    help="Lock files (requirements.txt with pins, pip freeze, uv.lock, pylock.toml), or pins: a==1.0,b==2.0..a==1.1,b==2.0.",
)
@click.option(
    "--with", "requires", multiple=True, metavar="REQ", help="Install this as well, on both sides. Repeatable."
)
@click.option("--python", default="", metavar="P", help="The Python of both environments; default: this one.")
@click.option(
    "--index", default="", metavar="URL", help="Another package index; default: as uv and pip are configured."
)
@click.option("--no-deps", is_flag=True, help="Install just what is listed, also where it does not fit together.")
@probe_options(needed=True)
@plan_options
@search_options
@report_options
def split(*, code: str, packages: str, asked: Asked, reports: Reports, **more: Any) -> int:
    """Tell whether code or environment made the change, then which commit or package.

    CMD runs with old and new code in old and new packages, each as often as it takes. Then the guilty half is searched:
    commits of the code; or the packages that moved, in groups, and at last the releases of the one that is to blame.
    """
    from karat.hunts.given import split_settings

    names = ("requires", "python", "index", "no_deps")
    said = {"code": code, "packages": packages, **{name: more.pop(name) for name in names}}
    return reports.run(split_settings(asked, Path.cwd(), **said), **more)


@click.command("from-issue", cls=ProbeCommand, epilog=_ISSUE)
@click.argument("said", metavar="WHEN=VALUE...", nargs=-1, required=True)
@click.option("--releases", metavar="NAME", help="WHEN are versions of this package.")
@probe_options(needed=True)
@plan_options
@search_options
@report_options
def from_issue(*, said: tuple[str, ...], releases: str | None, asked: Asked, reports: Reports, **more: Any) -> int:
    """Hunt between the dates and values that an issue names.

    WHEN is a day, a commit or tag of this repository, or a version, oldest first; VALUE is what CMD printed then. The
    hunt looks between the two neighbours that differ most, and takes the newer value for the worse one.
    """
    from karat.hunts.given import issue_settings

    return reports.run(issue_settings(asked, Path.cwd(), said, releases), **more)
