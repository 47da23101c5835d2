"""`karat stage`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from karat.cli.output import deliver, progress_line, quiet_option
from karat.findings import CannotVerify, ExitCode, Severity, UsageError

_EXAMPLES = """
\b
Examples:
  karat stage                                       every changed golden, and its lock
  karat stage --csv reldiff.csv --only '*h100*'     some of them, with the CSV
  karat stage --force --reason "new cuDNN, see #42" despite a fail finding
"""


@click.command(epilog=_EXAMPLES)
@click.option("--csv", "csv_file", metavar="F", help="Stage this file as well: the CSV of `karat diff`.")
@click.option("--only", multiple=True, metavar="GLOB", help="Only goldens whose path matches. Repeatable.")
@click.option("--force", is_flag=True, help="Stage despite a fail finding; needs --reason.")
@click.option("--reason", metavar="TEXT", help="Why; it goes into goldens.lock.json.")
@click.option("--dry-run", is_flag=True, help="Say what would be staged, and stage nothing.")
@click.option("--json", "json_file", metavar="F", help="Write the outcome, schema karat.stage/1; - is stdout.")
@click.option("--preset", metavar="NAME", help="megatron-lm or pytorch-dynamo; overrides karat.toml.")
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *,
    csv_file: str | None,
    only: tuple[str, ...],
    force: bool,
    reason: str | None,
    dry_run: bool,
    json_file: str | None,
    preset: str | None,
    quiet: bool,
) -> int:
    """Stage exactly the changed goldens.

    The goldens that differ from HEAD, their samples and goldens.lock.json, and the CSV if named;
    never anything else. Refused while a finding says fail.
    """
    from karat.api import diff_options
    from karat.config import load
    from karat.diffs.diff import diff_sides
    from karat.diffs.sides import WorkTree, resolve_sides
    from karat.goldens.paths import PathFilter
    from karat.refreshes.stage import stage
    from karat.report.terminal import print_lines, say

    if force != bool(reason and reason.strip()):
        said = "--force needs --reason TEXT, and --reason needs --force"
        raise UsageError(said, next_command='karat stage --force --reason "…"')
    config = load(Path.cwd(), preset=preset)
    left, right = resolve_sides(None, None, Path.cwd())
    assert isinstance(right, WorkTree)  # noqa: S101 - the sides by default
    progress = progress_line(sys.stderr, "comparing goldens {done}/{total}")
    diff = diff_sides(left, right, diff_options(config, only=only, preset=preset, progress=progress))
    staged = stage(
        diff,
        right.root,
        config.paths,
        csv=csv_file,
        reason=reason,
        dry_run=dry_run,
        wanted=PathFilter(config.paths, config.exclude, only),
        narrowed=bool(only),
    )
    missed = next((f for f in diff.findings if f.severity is Severity.FAIL), None)
    if missed is not None and not (staged.goldens or staged.beside):
        raise CannotVerify(missed.message, next_command=missed.next or "karat diff")
    if json_file is not None:
        from karat.report.json import encode

        deliver(json_file, encode(staged.document()))
    if not quiet and json_file != "-":
        print_lines(staged.lines(dry_run=dry_run, force=force), sys.stdout)
    if staged.unresolved and staged.forced is None:
        if not quiet:
            say(f"next: {staged.unresolved[0].next or 'karat diff'}", sys.stderr)
        return int(ExitCode.FAIL)
    return 0
