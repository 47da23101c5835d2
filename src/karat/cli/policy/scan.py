"""`karat policy scan`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from karat.cli.output import (
    deliver,
    fail_on_option,
    json_option,
    last_line,
    one_report_each,
    progress_line,
    quiet_option,
)
from karat.findings import UsageError, parse_fail_on

_EXAMPLES = """
\b
Examples:
  karat policy scan test/legacy_test
  karat policy scan tests --base-class MyOpTest --exclude 'tests/third_party/**'
  karat policy scan tests --sarif scan.sarif --json scan.json
  karat policy scan tests --fail-on none               only look
  karat policy scan tests --fail-on tolerance-override
"""


@click.command(epilog=_EXAMPLES)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--base-class",
    "base_classes",
    multiple=True,
    metavar="NAME",
    help="Another class whose subclasses are op tests, besides OpTest and the like. Repeatable.",
)
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out files and folders. Repeatable.")
@click.option(
    "--exemptions",
    metavar="F",
    help="Check skips against these exemptions; default: the file that karat.toml names, if it exists.",
)
@click.option("--today", metavar="DAY", help="The day for expiries, YYYY-MM-DD; also KARAT_TODAY.")
@fail_on_option
@click.option("--all", "everything", is_flag=True, help="List every finding, including info.")
@json_option("karat.policy-scan/1")
@click.option("--sarif", "sarif_file", metavar="F", help="Write SARIF 2.1.0 for code scanning; - is stdout.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Number of processes (default: chosen automatically)."
)
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *,
    paths: tuple[str, ...],
    base_classes: tuple[str, ...],
    exclude: tuple[str, ...],
    exemptions: str | None,
    today: str | None,
    fail_on: tuple[str, ...],
    everything: bool,
    json_file: str | None,
    sarif_file: str | None,
    jobs: int | None,
    quiet: bool,
) -> int:
    """Read op tests without importing them, and report what is not checked.

    A PATH is a folder or a Python file. Classes are followed through imports, aliases, factories and inheritance;
    nothing is run. Reported are op tests without a gradient check, empty checks, flags set by hand, skips without
    a reason or an exemption, and widened tolerances.
    """
    from karat.config import load
    from karat.policy.exemptions import read, read_named
    from karat.policy.scan.scanner import ScanOptions, scan
    from karat.system.command import Command
    from karat.system.dates import day

    one_report_each({"--json": json_file, "--sarif": sarif_file})
    for name in base_classes:
        if not all(part.isidentifier() for part in name.split(".")):
            said = f"expected --base-class to name a class (OpTest, or mylib.testing.OpTest), found {name!r}"
            raise UsageError(said, next_command="karat policy scan --help")
    file = None
    if exemptions is not None:
        file = read_named(exemptions, command=Command("karat", "policy", "scan"))
    elif Path(path := load(Path.cwd()).policy.exemptions).is_file():
        file = read(Path(path), path)
    options = ScanOptions(
        base_classes=base_classes,
        exclude=exclude,
        jobs=jobs,
        exemptions=file,
        today=day(today, os.environ),
        fail_on=parse_fail_on(fail_on, "--fail-on", "karat policy scan --help") if fail_on else ("fail",),
    )
    progress = progress_line(sys.stderr, "reading {done}/{total} files", least=500)
    report = scan(paths, options, progress=None if quiet else progress)
    if json_file is not None:
        from karat.policy.scan.report import document

        deliver(json_file, document(report))
    if sarif_file is not None:
        from karat import __version__
        from karat.policy.scan.report import sarif_log

        deliver(sarif_file, sarif_log(report, __version__))
    if not quiet:
        from karat.policy.scan.report import lines
        from karat.report.terminal import print_lines

        if "-" not in {json_file, sarif_file}:
            print_lines(lines(report, everything=everything), sys.stdout)
        last_line(report.findings, report.fail_on)
    return int(report.exit_code)
