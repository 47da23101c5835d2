"""`karat audit`."""

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
    typed,
)
from karat.findings import Severity, UsageError, exit_code, parse_fail_on

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
@click.option("--today", metavar="DAY", help="The day from which ages are counted, YYYY-MM-DD; also KARAT_TODAY.")
@click.option("--preset", metavar="NAME", help="megatron-lm or pytorch-dynamo; overrides karat.toml.")
@click.option(
    "-j", "--jobs", type=click.IntRange(1, 64), metavar="N", help="Number of processes (default: chosen automatically)."
)
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
    today: str | None,
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
    from karat.audits.audit import against_baseline, audit, name_of
    from karat.config import load
    from karat.goldens.saves import update
    from karat.report.baseline import BaselineFile
    from karat.report.terminal import print_lines
    from karat.system import ci, git
    from karat.system.dates import day

    targets = {"--json": json_file, "--sarif": sarif_file, "--html": html}
    one_report_each(targets)
    if update_baseline and baseline is None:
        raise UsageError("--update-baseline needs --baseline FILE", next_command="karat audit --help")
    config = load(Path.cwd(), preset=preset)
    fail = parse_fail_on(fail_on, "--fail-on", "karat audit --help") if fail_on else tuple(config.fail_on)
    settings = config.audit if stale is None else replace(config.audit, stale_months=stale)
    progress = progress_line(sys.stderr, "reading goldens {done}/{total}")
    root = git.find_root(Path.cwd()) or Path.cwd()
    # A path that is there means that one; any other is looked for.
    here = [os.path.relpath(word, root) if os.path.lexists(word) else word for word in paths]
    only = [word for word in here if word != "."]
    options = diff_options(config, only=only if len(only) == len(here) else (), jobs=jobs, progress=progress)
    report = audit(root, options, settings, today=day(today, os.environ))
    if baseline is not None:
        file, place = BaselineFile("karat.audit-baseline/1", "findings"), Path(baseline)
        listed = file.read(place, baseline)
        if update_baseline:
            wrong = {name_of(finding) for finding in report.findings if finding.severity is not Severity.INFO}
            if not place.exists() and ci.in_ci():
                said = f"expected the list {baseline}, found none; a list that a robot makes guards nothing"
                raise UsageError(said, next_command="karat audit --help  # make it on your own machine, and commit it")
            update(
                place, lambda there: file.merged(there, baseline, wrong if there is None else (), set(listed) - wrong)
            )
            listed = file.read(place, baseline)
        again = typed().without({"--update-baseline"}, flags={"--update-baseline"})
        report = against_baseline(report, listed, baseline, again)
    code = int(exit_code(report.findings, fail_on=fail))
    if json_file is not None:
        deliver(json_file, reports.render_json(report, fail))
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
