"""`karat diff`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from karat.cli.output import (
    deliver,
    fail_on_option,
    history_option,
    jobs_option,
    last_line,
    one_report_each,
    progress_line,
    quiet_option,
    typed,
)
from karat.findings import exit_code, parse_fail_on

_EXAMPLES = """
\b
Examples:
  karat diff                                   HEAD against the working tree
  karat diff main HEAD --html report.html      two revisions, as a page
  karat diff before/ after/ --csv -            two folders, as CSV
  karat diff --only '*h100*' --fail-on warn    in CI, strict
  karat diff --history                         held against earlier refreshes, too
  karat diff store:models/nightly captured/    captured tensors, the nightly's against ours
"""


@click.command(epilog=_EXAMPLES)
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option(
    "--top",
    default=10,
    show_default=True,
    type=click.IntRange(min=0),
    help="Show the N gravest rows: by verdict, then by how far beyond the threshold.",
)
@click.option("--csv", "csv_file", metavar="F", help="Write file,metric,n_steps,avg_rel_diff; - is stdout.")
@click.option("--json", "json_file", metavar="F", help="Write the full report, schema karat.diff/1; - is stdout.")
@click.option("--markdown", metavar="F", help="Write a Markdown report; - is stdout.")
@click.option("--html", metavar="F", help="Write one self-contained page; - is stdout.")
@click.option("--only", multiple=True, metavar="GLOB", help="Compare only goldens whose path matches. Repeatable.")
@click.option("--only-metric", multiple=True, metavar="GLOB", help="Compare only metrics that match. Repeatable.")
@fail_on_option
@click.option("--all", "everything", is_flag=True, help="Read unchanged goldens as well.")
@jobs_option
@click.option("--preset", metavar="NAME", help="megatron-lm or pytorch-dynamo; overrides karat.toml.")
@history_option
@click.option("--store", metavar="URL", help="The store that store:REF refers to; overrides karat.toml.")
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *,
    top: int,
    csv_file: str | None,
    json_file: str | None,
    markdown: str | None,
    html: str | None,
    fail_on: tuple[str, ...],
    preset: str | None,
    quiet: bool,
    **given: Any,  # as karat.diff names them
) -> int:
    """Compare goldens, old against new, and judge what changed.

    OLD and NEW are git revisions, folders or files; without them, HEAD and the working tree. Captured cases
    are found in folders, zips and stores (store:REF, URL#REF).
    Completeness is judged before drift: a run that died never looks clean.
    """
    from karat.api import diff
    from karat.config import load

    targets = {"--csv": csv_file, "--json": json_file, "--markdown": markdown, "--html": html}
    one_report_each(targets)
    fail = load(Path.cwd(), preset=preset).fail_on
    if fail_on:
        fail = parse_fail_on(fail_on, "--fail-on", "karat diff --help")
    progress = progress_line(sys.stderr, "comparing goldens {done}/{total}")
    told = any(target is not None for target in (json_file, markdown, html))
    result = diff(**given, preset=preset, keep_curves=html is not None, provenance=told, progress=progress)
    if csv_file is not None:
        from karat.diffs.report.data import render_csv

        deliver(csv_file, render_csv(result))
    if json_file is not None:
        deliver(json_file, result.to_json())
    if markdown is not None:
        from karat.diffs.report import markdown as markdown_report

        deliver(markdown, markdown_report.render(result, top=top))
    if html is not None:
        from karat.diffs.report import html as html_report

        deliver(html, html_report.render(result, command=str(typed())))
    if not quiet and "-" not in targets.values():
        from karat.diffs.report import text

        text.show(result, sys.stdout, top=top)
    code = exit_code(result.all_findings(), fail_on=fail)
    if code and not quiet:
        last_line(result.all_findings(), fail)
    return int(code)
