"""`karat check`."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

from karat.cli.output import complain, deliver, history_option, jobs_option, last_line, one_report_each, quiet_option
from karat.findings import CannotVerify, ExitCode, UsageError

_EXAMPLES = """
\b
Examples:
  karat check results/golden_values.json --identity platform=dgx_h100
  karat check out.csv --golden ci_expected_accuracy/inductor_timm_training.csv
  karat check results/ --golden goldens/ --junit check.xml
  karat check shards/1/out.csv shards/2/out.csv --golden table.csv
  karat check runs/tensorboard --golden golden.json --exact 'lm loss'
"""


@click.command(epilog=_EXAMPLES)
@click.argument("actual", nargs=-1, required=True)
@click.option(
    "--golden",
    default="auto",
    show_default=True,
    metavar="PATH|auto",
    help="The golden, a folder of them, or REV:path; auto finds it by identity, then by file name.",
)
@click.option(
    "--identity",
    multiple=True,
    metavar="KEY=VALUE",
    help="State an identity that the path of ACTUAL does not: platform=dgx_h100. Repeatable.",
)
@click.option(
    "--exact",
    multiple=True,
    metavar="GLOB",
    help="Require these metrics to be equal, for deterministic tests. Repeatable.",
)
@click.option(
    "--improved",
    type=click.Choice(["fail", "warn"]),
    help="How to treat a result that is better than its golden; warn by default.",
)
@click.option(
    "--unknown",
    type=click.Choice(["fail", "warn", "ignore"]),
    help="How to treat metrics, rows, files and later steps without a golden; warn by default.",
)
@click.option(
    "--rows",
    multiple=True,
    metavar="GLOB",
    help="ACTUAL is one shard of a table: require only these rows, and check all it has. Repeatable.",
)
@click.option(
    "--rows-from",
    multiple=True,
    metavar="F",
    help="The same for the rows named in this file, one per line; what follows a comma or a space is left out. Repeatable.",
)
@click.option("--strict", is_flag=True, help="Fail on exemptions that cover nothing.")
@click.option("--only", multiple=True, metavar="GLOB", help="Check only goldens whose path matches. Repeatable.")
@click.option("--json", "json_file", metavar="F", help="Write the full report, schema karat.check/1; - is stdout.")
@click.option("--junit", metavar="F", help="Write JUnit XML; - is stdout.")
@click.option(
    "--github/--no-github",
    default=None,
    help="Write annotations and a step summary; by default where GITHUB_ACTIONS is true.",
)
@history_option
@jobs_option
@click.option("--preset", metavar="NAME", help="megatron-lm or pytorch-dynamo; overrides karat.toml.")
@quiet_option
def command(
    *,
    identity: tuple[str, ...],
    rows_from: tuple[str, ...],
    json_file: str | None,
    junit: str | None,
    github: bool | None,
    quiet: bool,
    **given: Any,  # as karat.check names them
) -> int:
    """Check a run against its golden; the gate for CI.

    ACTUAL is a result in any golden format, a TensorBoard event file or folder, JSON Lines, a log,
    or a folder of results. Anything missing fails, and so does a check that compared nothing.
    """
    from karat.api import check

    one_report_each({"--json": json_file, "--junit": junit})
    known = {}
    for word in identity:
        key, _, value = word.partition("=")
        if not key or not value:
            raise UsageError(f"expected --identity KEY=VALUE, found {word!r}", next_command="karat check --help")
        known[key] = value
    given["rows"] = [*given["rows"], *(row for file in rows_from for row in _names_in(file))]
    report = check(**given, identity=known)
    if not quiet and "-" not in {json_file, junit}:
        from karat.checks import text

        text.show(report, sys.stdout)
    from karat.system.ci import provider_of

    wanted = github or (github is None and provider_of() == "github")
    try:
        if json_file is not None:
            deliver(json_file, report.to_json())
        if junit is not None:
            from karat.checks import ci

            deliver(junit, ci.render_junit(report))
        if wanted:
            from karat.checks import ci
            from karat.report.github import add_step_summary, workflow_commands

            stream = sys.stderr if "-" in {json_file, junit} else sys.stdout
            stream.write(workflow_commands(report.all_findings(), "karat check"))
            add_step_summary(lambda room: ci.summary(report, room))
    except CannotVerify as error:
        if report.exit_code is not ExitCode.FAIL:
            raise
        # What failed is certain, also where a report of it could not be written.
        complain(str(error), error.next_command)
    if report.exit_code and not quiet:
        last_line(report.all_findings())
    return int(report.exit_code)


def _names_in(file: str) -> list[str]:
    """The rows that a shard's list names, as globs that fit these very names."""
    from glob import escape
    from pathlib import Path

    from karat.system.foreign.limits import read_plain

    try:
        lines = read_plain(Path(file)).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise UsageError(
            f"expected to read {file}, but: {error.strerror}", next_command="karat check --help"
        ) from error
    names = [re.split(r"[,\s]", line.strip(), maxsplit=1)[0] for line in lines]
    if not (found := [escape(name) for name in names if name and not name.startswith("#")]):
        raise UsageError(f"expected names of rows in {file}, found none", next_command="karat check --help")
    return found
