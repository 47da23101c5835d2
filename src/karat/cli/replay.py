"""`karat replay`."""

from __future__ import annotations

import sys
from math import isfinite
from pathlib import Path

import click

from karat.cli.output import deliver, last_line, one_report_each, progress_line, quiet_option
from karat.findings import UsageError

_EXAMPLES = """
\b
Examples:
  karat replay golden_artifacts_26111500.zip --run runner:run
  karat replay captured/ --command './runner {program} {inputs} {outputs}' -j 4
  karat replay store:models/nightly --run runner:run --flow xnnpack --junit replay.xml
  karat replay captured/ --run runner:run --pytest -- -x -k mobilenet
"""


@click.command(epilog=_EXAMPLES)
@click.argument("bundle")
@click.argument("pytest_args", nargs=-1, metavar="[-- PYTEST-ARGS]")
@click.option("--run", metavar="M:F", help="Call function F of module M: F(program, inputs) -> outputs.")
@click.option(
    "--command",
    "command_line",
    metavar="CMD",
    help="Run a command; {program}, {inputs}, {outputs}, {expected} and {manifest} become paths.",
)
@click.option("--only", multiple=True, metavar="GLOB", help="Only cases whose path or test id matches. Repeatable.")
@click.option("--suite", multiple=True, metavar="GLOB", help="Only cases of this suite. Repeatable.")
@click.option("--flow", multiple=True, metavar="GLOB", help="Only cases of this flow. Repeatable.")
@click.option(
    "--framework",
    type=click.Choice(["torch", "jax", "numpy"]),
    help="Convert inputs to this framework (default: as captured).",
)
@click.option(
    "--rtol", type=click.FloatRange(min=0), metavar="X", help="Override the recorded tolerance; the report says so."
)
@click.option(
    "--atol", type=click.FloatRange(min=0), metavar="X", help="Override the recorded tolerance; the report says so."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    metavar="S",
    help="Seconds for one case; 0 = no limit.",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Cases at a time, each in a process of its own.",
)
@click.option("--isolated", is_flag=True, help="A fresh process for every case of --run.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep what each case was given and left, in a new or empty folder.",
)
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Check digests while loading; a damaged case is never run.",
)
@click.option("--store", metavar="URL", help="The store of store:REF; overrides karat.toml.")
@click.option(
    "--pytest",
    "as_pytest",
    is_flag=True,
    help="Run as a pytest session, one item per case; arguments after -- go to pytest.",
)
@click.option("--json", "json_file", metavar="F", help="Write the full report, schema karat.replay/1; - is stdout.")
@click.option("--junit", metavar="F", help="Write JUnit XML; - is stdout.")
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *,
    bundle: str,
    pytest_args: tuple[str, ...],
    run: str | None,
    command_line: str | None,
    only: tuple[str, ...],
    suite: tuple[str, ...],
    flow: tuple[str, ...],
    framework: str | None,
    rtol: float | None,
    atol: float | None,
    timeout: float,
    jobs: int,
    isolated: bool,
    keep: Path | None,
    verify: bool,
    store: str | None,
    as_pytest: bool,
    json_file: str | None,
    junit: str | None,
    quiet: bool,
) -> int:
    """Run captured programs, and compare their outputs with the captured ones.

    BUNDLE is a folder, a zip, or a reference into a store (store:REF, URL#REF). A program that crashes or
    hangs affects only its own case. A case whose bytes are damaged is never run.
    """
    from karat.api import replay_options

    one_report_each({"--json": json_file, "--junit": junit})
    for option, given in (("--rtol", rtol), ("--atol", atol)):
        if given is not None and not isfinite(given):
            said = f"{option}: expected a finite number >= 0, found {given}"
            raise UsageError(said, next_command="karat replay --help")
    options = replay_options(
        run,
        command=command_line,
        only=only,
        suites=suite,
        flows=flow,
        framework=framework,  # type: ignore[arg-type]
        rtol=rtol,
        atol=atol,
        verify=verify,
        store=store,
        timeout=timeout or None,
        jobs=jobs,
        isolated=isolated,
        keep=keep,
    )
    if as_pytest:
        from karat.replays.replay import run_pytest

        if json_file is not None:
            said = "expected --json without --pytest, found both: a pytest session has reports of its own"
            raise UsageError(said, next_command="karat replay --help")
        extra = [f"--junit-xml={junit}"] if junit is not None else []
        return run_pytest(bundle, options, [*extra, *pytest_args])
    if pytest_args:
        said = f"expected one BUNDLE, found {pytest_args[0]!r} as well: words after -- are for --pytest"
        raise UsageError(said, next_command="karat replay --help")
    from karat.replays import report
    from karat.replays.replay import replay

    counter = progress_line(sys.stderr, "replaying cases {done}/{total}", least=1, every=1)
    done = replay(bundle, options, None if quiet else counter)
    if not quiet and "-" not in {json_file, junit}:
        report.print_report(done, sys.stdout)
    if json_file is not None:
        deliver(json_file, report.render_json(done))
    if junit is not None:
        deliver(junit, report.render_junit(done))
    if done.exit_code and not quiet:
        last_line(done.all_findings())
    return int(done.exit_code)
