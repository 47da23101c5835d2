"""`karat stage` and `karat summary`: the files and the text of a pull request."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from karat.cli.output import (
    Reports,
    complain,
    deliver,
    history_option,
    preset_option,
    progress_line,
    repeatable,
    report_options,
)
from karat.findings import UNVERIFIED, CannotVerify, ExitCode, Severity, UsageError, exit_code

_EXAMPLES = """
  karat stage                                       every changed golden, and its lock
  karat stage --csv reldiff.csv --only '*h100*'     some of them, with the CSV
  karat stage --exclude '*moe*'                     all but some
  karat stage --force --reason "new cuDNN, see #42" despite a fail finding
"""


@click.command(epilog=_EXAMPLES)
@click.option("--csv", metavar="F", help="Stage this file as well: the CSV of `karat diff`.")
@repeatable("--only", "GLOB", "Only goldens whose path matches.")
@click.option("--group", "groups", multiple=True, metavar="N", help="Only a group, as karat review shows it.")
@repeatable("--exclude", "GLOB", "Leave these out.")
@click.option("--force", is_flag=True, help="Stage despite a fail finding; needs --reason.")
@click.option("--reason", metavar="TEXT", help="Why; it goes into goldens.lock.json.")
@click.option("--dry-run", is_flag=True, help="Say what would be staged, and stage nothing.")
@report_options("karat.stage/1")
@preset_option
def command(*, only: tuple[str, ...], force: bool, preset: str | None, out: Reports, **given: Any) -> int:
    """Stage exactly the changed goldens.

    The goldens that differ from HEAD, their samples and goldens.lock.json, and the CSV if named;
    never anything else. Refused while a finding says fail.
    """
    from msgspec import structs

    from karat.api import diff_options
    from karat.config import load
    from karat.diffs.diff import diff_sides
    from karat.diffs.sides import WorkTree, resolve_sides
    from karat.goldens.paths import PathFilter
    from karat.report.json import encode_report, finding_json
    from karat.report.terminal import say
    from karat.reviews.causes import causes_of, meant
    from karat.reviews.stage import stage

    groups, exclude = given.pop("groups"), given.pop("exclude")
    if force != bool((given["reason"] or "").strip()):
        said = "--force needs --reason TEXT, and --reason needs --force"
        raise UsageError(said, next_command="karat stage --help")
    config = load(Path.cwd(), preset=preset)
    left, right = resolve_sides(None, None, Path.cwd())
    assert isinstance(right, WorkTree)  # noqa: S101 - the sides by default
    progress = progress_line(sys.stderr, "comparing goldens {done}/{total}")
    diff = diff_sides(left, right, diff_options(config, only=only, preset=preset, progress=progress))
    wanted: Callable[[str], bool] = PathFilter(config.paths, config.exclude, only)
    if groups or exclude:
        chosen = frozenset(meant(causes_of(diff), (), groups, exclude))
        wanted = chosen.__contains__
        diff = structs.replace(diff, changes=tuple(change for change in diff.changes if wanted(change.path)))
    narrowed = bool(only or groups or exclude)
    staged = stage(diff, right.root, config.paths, wanted=wanted, narrowed=narrowed, **given)
    missed = next((f for f in diff.findings if f.severity is Severity.FAIL), None)
    if missed is not None and not (staged.goldens or staged.beside):
        raise CannotVerify(missed.message, next_command=missed.next or "karat diff")
    refused = bool(staged.unresolved and staged.forced is None)
    unresolved = [finding_json(finding) for finding in staged.unresolved]
    out.write(json=lambda: encode_report("karat.stage/1", staged, code=int(refused), unresolved=unresolved))
    out.show(lambda: staged.lines(dry_run=given["dry_run"], force=force))
    if refused:
        if not out.quiet:
            say(f"next: {staged.unresolved[0].next or 'karat diff'}", sys.stderr)
        return int(ExitCode.FAIL)
    return 0


_SUMMARY_EXAMPLES = """
  karat summary                                  of what is in the working tree
  karat summary --format github -o body.md       fits a comment and a step summary
"""


@click.command(epilog=_SUMMARY_EXAMPLES)
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "github"]),
    default="markdown",
    show_default=True,
    help="github: cut at a section to fit 65,536 characters.",
)
@click.option("-o", "--output", default="-", show_default=True, metavar="F", help="Where to write; - is stdout.")
@history_option
@preset_option
def summary(
    *, old: str | None, new: str | None, form: str, output: str, history: bool | None, preset: str | None
) -> int:
    """Write the pull request description for a golden refresh.

    The answer and a summary come first; then what a reviewer must look at, and how far values moved. Where they
    came from is in goldens.lock.json and in the record of the last `karat refresh`.
    """
    from karat.api import diff_options
    from karat.config import load
    from karat.diffs.diff import diff_sides
    from karat.diffs.report.markdown import current, pull_request_text
    from karat.diffs.sides import WorkTree, resolve_sides
    from karat.goldens.provenance import read_record

    config = load(Path.cwd(), preset=preset)
    left, right = resolve_sides(old, new, Path.cwd())
    progress = progress_line(sys.stderr, "comparing goldens {done}/{total}")
    known = read_record(right.root) if isinstance(right, WorkTree) else None
    result = diff_sides(left, right, diff_options(config, history=history, progress=progress, provenance=True))
    record = current(result, known)
    deliver(output, pull_request_text(result, record, github=form == "github"))
    # The text is written in any case; that nothing stands behind it must not be overlooked.
    code = exit_code(result.all_findings(), fail_on=())
    if code:
        unverified = next(f for f in result.all_findings() if f.kind in UNVERIFIED)
        complain(unverified.message, unverified.next or "karat diff")
    return int(code)
