"""`karat audit`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from karat.cli.output import (
    deliver,
    fail_on_option,
    jobs_option,
    json_option,
    last_line,
    one_report_each,
    progress_line,
    quiet_option,
    typed,
)
from karat.findings import Severity, UsageError, exit_code, parse_fail_on

if TYPE_CHECKING:
    from karat.audits.audit import AuditReport

_EXAMPLES = """
\b
Examples:
  karat audit                                       all goldens of the repository
  karat audit --preset megatron-lm --html audit.html
  karat audit tests/gpt --stale 6 --fail-on warn
  karat audit --baseline audit.json                 in CI: only what is new fails
"""


@click.command(epilog=_EXAMPLES)
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--stale",
    type=click.IntRange(min=0),
    metavar="MONTHS",
    help="Report goldens not refreshed for so many months; 0: none. Default: as in karat.toml, else 12.",
)
@click.option("--baseline", metavar="FILE", help="Let findings pass that this list names; only new ones fail.")
@click.option(
    "--update-baseline",
    is_flag=True,
    help="Remove from the list what is no longer wrong; without a list yet, write one of all that is (refused in CI).",
)
@fail_on_option
@click.option("--all", "everything", is_flag=True, help="List every finding, including info.")
@json_option("karat.audit/1")
@click.option("--sarif", "sarif_file", metavar="F", help="Write SARIF 2.1.0 for code scanning; - is stdout.")
@click.option("--html", metavar="F", help="Write one self-contained page; - is stdout.")
@click.option("--preset", metavar="NAME", help="megatron-lm or pytorch-dynamo; overrides karat.toml.")
@jobs_option
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *,
    paths: tuple[str, ...],
    stale: int | None,
    baseline: str | None,
    update_baseline: bool,
    fail_on: tuple[str, ...],
    everything: bool,
    json_file: str | None,
    sarif_file: str | None,
    html: str | None,
    preset: str | None,
    jobs: int | None,
    quiet: bool,
) -> int:
    """Find what is wrong with the goldens of a tree as it stands.

    Empty, truncated, unreadable and not finite goldens, copies, goldens that nobody refreshes, goldens that no test
    uses, and tests without a golden. A PATH is a folder, a glob, or the end of a path.
    """
    from msgspec.structs import replace

    from karat.api import diff_options
    from karat.audits import report as reports
    from karat.audits.audit import audit
    from karat.config import load
    from karat.report.json import encode_report
    from karat.report.terminal import print_lines
    from karat.system import git
    from karat.system.dates import day

    targets = {"--json": json_file, "--sarif": sarif_file, "--html": html}
    one_report_each(targets)
    if update_baseline and (paths or baseline is None):
        said = (
            "--update-baseline needs --baseline FILE, and no PATH: part of a tree does not show what is no longer wrong"
        )
        raise UsageError(said, next_command=typed().without(set(paths), flags=set(paths)))
    config = load(Path.cwd(), preset=preset)
    fail = parse_fail_on(fail_on, "--fail-on", "karat audit --help") if fail_on else tuple(config.fail_on)
    settings = config.audit if stale is None else replace(config.audit, stale_months=stale)
    progress = progress_line(sys.stderr, "reading goldens {done}/{total}")
    root = git.find_root(Path.cwd()) or Path.cwd()
    # A path that is there means that one; any other is looked for.
    here = [os.path.relpath(word, root) if os.path.lexists(word) else word for word in paths]
    only = [word for word in here if word != "."]
    narrowed = only if len(only) == len(here) else []
    options = diff_options(config, only=narrowed, jobs=jobs, progress=progress)
    report = audit(root, options, settings, today=day(None, os.environ))
    if baseline is not None:
        report = _held_against(baseline, report, update=update_baseline, whole=not narrowed)
    code = int(exit_code(report.findings, fail_on=fail))
    if json_file is not None:
        deliver(json_file, encode_report("karat.audit/1", report, fail_on=fail))
    if sarif_file is not None:
        from karat import __version__

        deliver(sarif_file, reports.render_sarif(report, __version__, code))
    if html is not None:
        deliver(html, reports.render_html(report, str(typed())))
    if not quiet and "-" not in targets.values():
        print_lines(reports.lines(report, everything=everything), sys.stdout)
    if code and not quiet:
        last_line(report.findings, fail)
    return code


def _held_against(baseline: str, report: AuditReport, *, update: bool, whole: bool) -> AuditReport:
    """The report with what the list forgives; with `update`, the list is shortened first, or made."""
    from karat.audits.audit import against_baseline, name_of
    from karat.goldens import saves
    from karat.report.baseline import BaselineFile
    from karat.system import ci

    file, place = BaselineFile("karat.audit-baseline/1", "findings"), Path(baseline)
    listed = file.read(place, baseline)
    if update:
        if not place.exists() and ci.in_ci():
            said = f"expected the list {baseline}, found none; a list that a robot makes guards nothing"
            raise UsageError(said, next_command="karat audit --help  # make it on your own machine, and commit it")
        wrong = {name_of(finding) for finding in report.findings if finding.severity is not Severity.INFO}
        # What was not looked at may be wrong still.
        gone = {name for name in listed if name.partition(" ")[0] not in report.unjudged} - wrong
        saves.update(place, lambda there: file.merged(there, baseline, wrong if there is None else (), gone))
        listed = file.read(place, baseline)
    again = typed().without({"--update-baseline"}, flags={"--update-baseline"})
    return against_baseline(report, listed, baseline, again, whole=whole)
