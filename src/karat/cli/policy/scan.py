"""`karat policy scan`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from karat.cli.output import deliver, last_line, one_report_each, progress_line, quiet_option
from karat.findings import UsageError, parse_fail_on

if TYPE_CHECKING:
    from karat.policy.exemptions import Exemptions
    from karat.policy.scan.report import ScanReport

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
    "--base-class", "base_classes", multiple=True, metavar="NAME",
    help="Another class whose children are op tests, besides OpTest and its like. Repeatable.",
)  # fmt: skip
@click.option(
    "--exclude", multiple=True, metavar="GLOB", help="Leave out files and folders. Repeatable."
)
@click.option(
    "--exemptions", metavar="F",
    help="Hold skips against these exemptions; by default karat.toml's file, where it exists.",
)  # fmt: skip
@click.option("--today", metavar="DAY", help="The day for expiries, YYYY-MM-DD; also KARAT_TODAY.")
@click.option(
    "--fail-on", multiple=True, metavar="WHAT",
    help="What makes exit code 1: fail (default), warn, info, none, or a kind of finding. Repeatable.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="List every finding, also info.")
@click.option(
    "--json",
    "json_file",
    metavar="F",
    help="Write everything, schema karat.policy-scan/1; - is stdout.",
)
@click.option(
    "--sarif", "sarif_file", metavar="F", help="Write SARIF 2.1.0 for code scanning; - is stdout."
)
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Processes; by default as many as help."
)
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *, paths: tuple[str, ...], base_classes: tuple[str, ...], exclude: tuple[str, ...], exemptions: str | None,
    today: str | None, fail_on: tuple[str, ...], everything: bool, json_file: str | None, sarif_file: str | None,
    jobs: int | None, quiet: bool,
) -> int:  # fmt: skip
    """Read op tests without importing them, and report what is not checked.

    A PATH is a folder or a Python file. Classes are followed through imports, aliases, factories and inheritance;
    nothing is run. Reported are op tests without a gradient check, empty checks, flags set by hand, skips without
    a reason or an exemption, and widened tolerances.
    """
    from karat.policy.scan.scanner import ScanOptions, scan  # noqa: PLC0415
    from karat.system.dates import day  # noqa: PLC0415 - help must be quick

    one_report_each({"--json": json_file, "--sarif": sarif_file})
    options = ScanOptions(
        base_classes=_class_names(base_classes), exclude=exclude, jobs=jobs, exemptions=_exemptions(exemptions),
        today=day(today, os.environ), fail_on=parse_fail_on(fail_on, "--fail-on", "karat policy scan --help") if fail_on else ("fail",),
    )  # fmt: skip
    report = scan(
        paths,
        options,
        progress=None
        if quiet
        else progress_line(sys.stderr, "reading {done}/{total} files", least=500),
    )
    _write(report, json_file, sarif_file)
    if not quiet:
        _show(report, everything=everything, text="-" not in {json_file, sarif_file})
    return int(report.exit_code)


def _class_names(words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if not all(part.isidentifier() for part in word.split(".")):
            raise UsageError(
                f"expected --base-class to name a class (OpTest, or mylib.testing.OpTest), found {word!r}",
                next_command="karat policy scan --help",
            )
    return words


def _exemptions(named: str | None) -> Exemptions | None:
    """The exemptions that skips are held against; None where the project has no such file."""
    from karat.config import load  # noqa: PLC0415 - help must be quick
    from karat.policy.exemptions import read  # noqa: PLC0415

    if named is not None and not Path(named).is_file():
        raise UsageError(
            f"expected --exemptions {named} to be a file, found none",
            next_command="karat policy scan --help",
        )
    path = named if named is not None else load(Path.cwd()).policy.exemptions
    return read(Path(path), path) if Path(path).is_file() else None


def _write(report: ScanReport, json_file: str | None, sarif_file: str | None) -> None:
    if json_file is not None:
        from karat.policy.scan.report import document  # noqa: PLC0415 - only for those who asked

        deliver(json_file, document(report))
    if sarif_file is not None:
        from karat import __version__  # noqa: PLC0415
        from karat.policy.scan import sarif  # noqa: PLC0415

        deliver(sarif_file, sarif.render(report, __version__))


def _show(report: ScanReport, *, everything: bool, text: bool) -> None:
    from karat.policy.scan.report import lines  # noqa: PLC0415 - help must be quick
    from karat.report.terminal import print_lines  # noqa: PLC0415

    if text:
        print_lines(lines(report, everything=everything), sys.stdout)
    last_line(report.findings, report.fail_on)
