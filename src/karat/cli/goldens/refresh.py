"""`karat refresh`, and its downloads on a terminal: a bar per artifact, and a line for what takes long."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import click

from karat.cli.output import Reports, preset_option, repeatable, report_options, typed, with_exit_code
from karat.findings import UsageError, exit_code
from karat.report.terminal import say
from karat.report.words import printable

if TYPE_CHECKING:
    from karat.sources.source import Artifact, Progress

_BARS = 8  # Bars at once; more would scroll away.


@contextmanager
def watch(stream: IO[str], *, quiet: bool) -> Iterator[tuple[Progress | None, Callable[[str], None] | None]]:
    """Someone who shows downloads, and a way to say something meanwhile; neither when quiet."""
    if quiet:
        yield None, None
        return
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield None, _say
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress as Bars, TextColumn, TransferSpeedColumn

    console = Console(file=stream)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        yield _Bars(bars), lambda text: console.print(printable(text), markup=False, highlight=False)


def _say(text: str) -> None:
    say(f"karat: {text}", sys.stderr)


class _Bars:
    """`sources.source.Progress` on rich's bars."""

    def __init__(self, bars: Any) -> None:
        self._bars = bars
        self._tasks: dict[str, Any] = {}
        self._all = bars.add_task("artifacts", total=None)

    def begin(self, artifact: Artifact, total: int | None) -> None:
        """Show a bar, as long as there is room for one."""
        if len(self._tasks) < _BARS:
            name = printable(artifact.name)
            short = name if len(name) <= 48 else f"{name[:20]}…{name[-27:]}"
            self._tasks[artifact.id] = self._bars.add_task(short, total=total)

    def advance(self, artifact: Artifact, received: int) -> None:
        self._bars.advance(self._all, received)
        if (task := self._tasks.get(artifact.id)) is not None:
            self._bars.advance(task, received)

    def end(self, artifact: Artifact) -> None:
        if (task := self._tasks.pop(artifact.id, None)) is not None:
            self._bars.remove_task(task)


_EXAMPLES = """
  karat refresh --source github --repo NVIDIA/Megatron-LM --run-id 25341543542 --scope only-failing
  karat refresh --source github --sha 1bb5e6c076 --scope all --preset pytorch-dynamo
  karat refresh --source gitlab --pipeline-id 4711 --scope all --platform '*h100*'
  karat refresh --source folder results/ --scope all --dry-run
  karat refresh --source s3://bucket/ci/4711 --scope all --metric 'lm loss'
  karat refresh --reset                        put goldens back, and stop there
"""

Scope = Literal["only-failing", "all"]
SCOPES: tuple[Scope, ...] = ("only-failing", "all")


@click.command(epilog=_EXAMPLES)
@click.argument("path", required=False)
@click.option(
    "--source", metavar="KIND|URL", help="github, gitlab, folder (with PATH), or s3://…, gs://…, az://…, file://…."
)
@click.option("--repo", metavar="OWNER/NAME", help="GitHub: the repository.")
@click.option("--run-id", metavar="N", help="GitHub: the workflow run.")
@click.option("--sha", metavar="SHA", help="GitHub: every completed run of this commit.")
@click.option("--workflow", metavar="NAME", help="GitHub: only runs of this workflow (name, file or id).")
@click.option("--project", metavar="ID|PATH", help="GitLab: the project; CI_PROJECT_ID by default.")
@click.option("--pipeline-id", metavar="N", help="GitLab: the pipeline, with its child pipelines.")
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    help="Required: jobs that failed, were cancelled or timed out, or all of them.",
)
@click.option("--dry-run", is_flag=True, help="Judge and report as usual, but write nothing.")
@click.option("--write", is_flag=True, help="Required in CI (where CI is set) to rewrite goldens.")
@click.option("--reset", is_flag=True, help="First restore tracked goldens and delete untracked ones.")
@repeatable("--only", "GLOB", "Only goldens whose path matches.")
@repeatable("--platform", "GLOB", "Only these platforms.", to="platforms")
@repeatable("--metric", "GLOB", "Take only these metrics (or columns); the rest of the file stays.", to="metrics")
@click.option("--attempt", type=click.IntRange(min=1), metavar="N", help="The run as it was after attempt N.")
@click.option("--accept-incomplete", is_flag=True, help="Take incomplete goldens as well; this is recorded.")
@click.option("--prune", is_flag=True, help="Remove table rows that are not in the new results.")
@click.option("--keep-going", is_flag=True, help="Write the files that arrived even if some transfers failed.")
@report_options("karat.refresh-report/1")
@preset_option
def command(*, scope: Scope | None, out: Reports, **given: Any) -> int:
    """Download golden values from CI and check them.

    A file that is truncated, newly NaN, or lacks metrics, rows or shards is refused, and the old
    golden kept. Values that moved are taken; review them with `karat diff`.
    """
    from karat.api import refresh
    from karat.refreshes.report import lines, with_options
    from karat.sources.open import SourceOptions, check_options

    where = SourceOptions(**{name: given[name] for name in SourceOptions.__struct_fields__})
    if given["reset"] and where == SourceOptions(source=None):
        if out.wants("json"):
            said = "--json needs a source: --reset alone says on stderr what it put back"
            raise UsageError(said, next_command=typed().without({"--json"}, flags=()))
        from karat.config import load
        from karat.goldens.paths import PathFilter
        from karat.refreshes.worktree import ensure_may_write, reset_goldens

        config = load(Path.cwd(), preset=given["preset"])
        dry_run, only = given["dry_run"], given["only"]
        ensure_may_write(typed(), dry_run=dry_run, write=given["write"])
        is_golden = PathFilter(config.paths, config.exclude, only)
        told: dict[str, Any] = {"narrowed": bool(only), "dry_run": dry_run, "notice": None if out.quiet else _say}
        reset_goldens(Path.cwd(), is_golden, config.paths, **told)
        return 0
    check_options(where)
    source = where.source or ""
    if scope is None and (source == "folder" or "://" in source):
        raise UsageError(
            "expected --scope all: a folder or bucket holds results and no jobs, so none is known to have failed",
            next_command=typed().plus("--scope", "all"),
        )
    if scope is None and not (sys.stdin.isatty() and sys.stderr.isatty()):  # never a silent default
        raise UsageError(
            "expected --scope only-failing (jobs that failed, were cancelled or timed out)"
            " or --scope all (every job); there is no default",
            next_command=typed().plus("--scope", "only-failing"),
        )
    question = "Refresh goldens of jobs that failed (only-failing), or of all jobs (all)?"
    chosen: Scope = scope if scope is not None else click.prompt(question, type=click.Choice(SCOPES), err=True)
    with watch(sys.stderr, quiet=out.quiet) as (progress, notice):
        again = typed() if scope else with_options(typed(), "--scope", chosen)
        result = refresh(**given, scope=chosen, command=again, progress=progress, notice=notice)
    code = exit_code(result.all_findings())
    out.write(json=lambda: with_exit_code(result.to_json(), code))
    out.show(lambda: lines(result))
    if code:
        out.end(result.all_findings(), otherwise="karat refresh --help")
    return int(code)
