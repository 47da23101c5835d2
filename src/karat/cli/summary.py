"""`karat summary`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from karat.cli.output import complain, deliver, history_option, progress_line
from karat.findings import UNVERIFIED, exit_code

_EXAMPLES = """
\b
Examples:
  karat summary                                  of what is in the working tree
  karat summary --format github -o body.md       fits a comment and a step summary
  karat summary --run-id 25341543542 --scope only-failing
"""


@click.command(epilog=_EXAMPLES)
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "github", "json"]),
    default="markdown",
    show_default=True,
    help="github: cut at a section to fit 65,536 characters. json: the diff itself, schema karat.diff/1.",
)
@click.option("-o", "--output", default="-", show_default=True, metavar="F", help="Where to write; - is stdout.")
@click.option("--run-id", metavar="ID", help="The CI run the values came from, if karat did not fetch them.")
@click.option(
    "--scope", type=click.Choice(["only-failing", "all"]), help="What was refreshed, if karat did not fetch it."
)
@click.option("--source", type=click.Choice(["github", "gitlab"]), help="Where that run was; github by default.")
@click.option("--refresh-command", metavar="TEXT", help="The command that fetched the values, for the text.")
@history_option
@click.option("--preset", metavar="NAME", help="megatron-lm or pytorch-dynamo; overrides karat.toml.")
def command(  # noqa: PLR0913 - one parameter per option
    *,
    old: str | None,
    new: str | None,
    form: str,
    output: str,
    run_id: str | None,
    scope: str | None,
    source: str | None,
    refresh_command: str | None,
    history: bool | None,
    preset: str | None,
) -> int:
    """Write the pull request description for a golden refresh.

    The answer and a summary come first; then what a reviewer must look at, and how far values moved. Where they
    came from is in goldens.lock.json and in the record of the last `karat refresh`, or in the options.
    """
    from karat.api import diff_options
    from karat.config import load
    from karat.diffs.diff import diff_sides
    from karat.diffs.report.markdown import current, pull_request_text
    from karat.diffs.sides import WorkTree, resolve_sides
    from karat.goldens.provenance import RefreshRecord, read_record

    config = load(Path.cwd(), preset=preset)
    left, right = resolve_sides(old, new, Path.cwd())
    progress = progress_line(sys.stderr, "comparing goldens {done}/{total}")
    known = read_record(right.root) if isinstance(right, WorkTree) else None
    result = diff_sides(left, right, diff_options(config, history=history, progress=progress, provenance=True))
    record = current(result, known)
    if run_id or scope or source or refresh_command:
        record = RefreshRecord(source=source or "github", run_id=run_id, scope=scope, command=refresh_command)
    if form == "json":
        deliver(output, result.to_json())
    else:
        deliver(output, pull_request_text(result, record, github=form == "github"))
    # The text is written in any case; that nothing stands behind it must not be overlooked.
    code = exit_code(result.all_findings(), fail_on=())
    if code:
        unverified = next(f for f in result.all_findings() if f.kind in UNVERIFIED)
        complain(unverified.message, unverified.next or "karat diff")
    return int(code)
