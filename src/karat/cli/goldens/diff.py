"""`karat diff`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karat.cli.output import (
    Reports,
    fail_on_option,
    history_option,
    jobs_option,
    preset_option,
    progress_line,
    repeatable,
    report_options,
    typed,
    with_exit_code,
)
from karat.findings import UsageError, exit_code

if TYPE_CHECKING:
    from karat.diffs.result import Diff

_EXAMPLES = """
  karat diff                                   HEAD against the working tree
  karat diff --cached                          HEAD against what is staged
  karat diff main HEAD --html report.html      two revisions, as a page
  karat diff before/ after/ --csv -            two folders, as CSV
  karat diff --only '*h100*' --fail-on warn    in CI, strict
  karat diff --history                         held against earlier refreshes, too
  karat diff store:models/nightly captured/    captured tensors, the nightly's against ours
"""


@click.command(epilog=_EXAMPLES)
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option("--cached", is_flag=True, help="Compare what is staged with OLD, by default HEAD.")
@click.option(
    "--top",
    default=10,
    show_default=True,
    type=click.IntRange(min=0),
    help="Show the N worst rows: by verdict, then by how far beyond the threshold.",
)
@report_options("karat.diff/1", "csv", "markdown", "html", "junit")
@repeatable("--only", "GLOB", "Compare only goldens whose path matches.")
@repeatable("--only-metric", "GLOB", "Compare only metrics that match.")
@fail_on_option
@click.option("--all", "everything", is_flag=True, help="Read unchanged goldens as well.")
@jobs_option
@preset_option
@history_option
@click.option("--store", metavar="URL", help="The store that store:REF refers to; overrides karat.toml.")
def command(*, top: int, fail_on: tuple[str, ...] | None, preset: str | None, out: Reports, **given: Any) -> int:
    """Compare goldens, old against new, and judge what changed.

    OLD and NEW are git revisions, folders or files; without them, HEAD and the working tree. Captured cases
    are found in folders, zips and stores (store:REF, URL#REF).
    Completeness is judged before drift: a run that died never looks clean.
    """
    from karat.api import diff
    from karat.config import load

    if given["cached"] and given["new"] is not None:
        said = f"expected at most one revision beside --cached, found {given['old']} and {given['new']}"
        raise UsageError(said, next_command="karat diff --help")
    fail = load(Path.cwd(), preset=preset).fail_on if fail_on is None else fail_on
    progress = progress_line(sys.stderr, "comparing goldens {done}/{total}")
    told = out.wants("json", "markdown", "html")  # what only these need is not even imported for a terminal
    result = diff(**given, preset=preset, keep_curves=out.wants("html"), provenance=told, progress=progress)
    code = int(exit_code(result.all_findings(), fail_on=fail))
    if told or out.wants("csv"):
        from karat.diffs.report import data, html, markdown

        out.write(
            csv=lambda: data.render_csv(result),
            json=lambda: with_exit_code(result.to_json(), code),
            markdown=lambda: markdown.render(result, top=top),
            html=lambda: html.render(result, command=str(typed())),
        )
    if out.shown:
        from karat.diffs.report import text

        text.show(result, sys.stdout, top=top)
    findings, paths = list(result.all_findings()), [change.path for change in result.changes]
    out.tell_ci("karat diff", "", findings, checked=paths, summary=lambda room: _summary(result, room))
    out.end(findings, fail)
    return code


def _summary(result: Diff, room: int) -> str:
    """The text that fits a comment, which is far less than a step's summary has room for unless that is full."""
    from karat.diffs.report.markdown import GITHUB_COMMENT, pull_request_text

    return pull_request_text(result, github=True) if room >= 4 * GITHUB_COMMENT else ""
