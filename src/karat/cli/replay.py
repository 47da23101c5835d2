"""`karat replay`."""

from __future__ import annotations

import sys
from math import isfinite
from pathlib import Path
from typing import Any

import click

from karat.cli.output import Reports, progress_line, repeatable, report_options, typed
from karat.findings import UsageError

_EXAMPLES = """
  karat replay golden_artifacts_26111500.zip --run runner:run
  karat replay captured/ --command './runner {program} {inputs} {outputs}' -j 4
  karat replay store:models/nightly --run runner:run --only 'models/xnnpack' --junit replay.xml
  karat replay captured/ --run runner:run --pytest -- -x -k mobilenet
"""


_OVERRIDE = "Override the recorded tolerance; the report says so."


@click.command(epilog=_EXAMPLES)
@click.argument("bundle")
@click.argument("pytest_args", nargs=-1, metavar="[-- PYTEST-ARGS]")
@click.option("--run", metavar="M:F", help="Call function F of module M: F(program, inputs) -> outputs.")
@click.option(
    "--command", metavar="CMD", help="Run this; {program}, {inputs}, {outputs}, {expected} and {manifest} become paths."
)
@repeatable("--only", "GLOB", "Only cases whose path or test id matches.")
@click.option("--framework", type=click.Choice(["torch", "jax", "numpy"]), help="Convert inputs; default: as captured.")
@click.option("--rtol", type=click.FloatRange(min=0), metavar="X", help=_OVERRIDE)
@click.option("--atol", type=click.FloatRange(min=0), metavar="X", help=_OVERRIDE)
@click.option(
    "--timeout", type=click.FloatRange(min=0), default=600, metavar="S", help="Seconds per case (600); 0 = no limit."
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    help="Cases at a time, one process each; default: 1.",
)
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep each case's files, in a new or empty folder."
)
@repeatable("--env-pass", "NAME", "Let the program see this secret variable.")
@click.option("--store", metavar="URL", help="The store of store:REF; overrides karat.toml.")
@click.option(
    "--pytest", "as_pytest", is_flag=True, help="Run as a pytest session, one item per case; words after -- go to it."
)
@report_options("karat.replay/1", "junit", "html")
def command(*, bundle: str, pytest_args: tuple[str, ...], as_pytest: bool, out: Reports, **given: Any) -> int:
    """Run captured programs, and compare their outputs with the captured ones.

    BUNDLE is a folder, a zip, or a reference into a store (store:REF, URL#REF). A program that crashes or
    hangs affects only its own case. A case whose bytes are damaged is never run.
    """
    from karat.api import replay, replay_options
    from karat.replays import report
    from karat.replays.replay import run_pytest
    from karat.report.terminal import print_lines, room_of

    for name in ("rtol", "atol"):
        if given[name] is not None and not isfinite(given[name]):
            said = f"--{name}: expected a finite number >= 0, found {given[name]}"
            raise UsageError(said, next_command="karat replay --help")
    given["timeout"] = given["timeout"] or None
    if as_pytest:
        if out.wants("json", "html"):
            which = "--html" if out.wants("html") else "--json"
            said = f"expected {which} without --pytest, found both: a pytest session has reports of its own"
            raise UsageError(said, next_command="karat replay --help")
        extra = [f"--junit-xml={out.targets['junit']}"] if out.wants("junit") else []
        return run_pytest(bundle, replay_options(**given), [*extra, *pytest_args])
    if pytest_args:
        said = f"expected one BUNDLE, found {pytest_args[0]!r} as well: words after -- are for --pytest"
        raise UsageError(said, next_command="karat replay --help")
    counter = progress_line(sys.stderr, "replaying cases {done}/{total}", least=1, every=1)
    done = replay(bundle, progress=None if out.quiet else counter, **given)
    if out.shown:
        print_lines(report.text_lines(done, width=room_of(sys.stdout)), sys.stdout)
    out.write(
        json=lambda: report.render_json(done),
        junit=lambda: report.render_junit(done),
        html=lambda: report.render_html(done, str(typed())),
    )
    out.tell_ci("karat replay", done.headline(), list(done.all_findings()), own_junit=True)
    if done.exit_code:
        out.end(done.all_findings())
    return int(done.exit_code)
