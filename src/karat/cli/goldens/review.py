"""`karat review`, and its decisions without a terminal: `karat accept` and `karat reject`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karat.cli.output import (
    Reports,
    history_option,
    preset_option,
    progress_line,
    repeatable,
    report_options,
    together,
    typed,
)
from karat.findings import ExitCode, UsageError, exit_code

if TYPE_CHECKING:
    from karat.report.terminal import Line
    from karat.reviews.review import Decision, Review


def _opened(only: Sequence[str] = (), *, preset: str | None, history: bool | None = None) -> Review:
    from karat.api import diff_options
    from karat.config import load
    from karat.reviews.review import Review

    progress = progress_line(sys.stderr, "comparing goldens {done}/{total}")
    config = load(Path.cwd(), preset=preset)
    options = diff_options(
        config, only=only, preset=preset, history=history, provenance=True, jobs=None, progress=progress
    )
    return Review(Path.cwd(), config, options)


@click.command(
    epilog="""
  karat review                        decide in the terminal, worst first
  karat review --only '*h100*'        some of the goldens
  karat review --web                  decide in the browser
  karat review | less                 what there is to decide, and the commands
"""
)
@repeatable("--only", "GLOB", "Only goldens whose path matches.")
@click.option("--web", is_flag=True, help="Decide in the browser, on a page that only this machine can reach.")
@history_option
@report_options("karat.review/1")
@preset_option
def review(*, only: tuple[str, ...], web: bool, history: bool | None, preset: str | None, out: Reports) -> int:
    """Decide what becomes of each changed golden: accept, reject or skip.

    The worst come first; changes with one cause are one decision. To accept is to stage with git, to reject is to restore HEAD's
    values; leave at any moment, and nothing is lost. Into a pipe, it prints what there is to decide.
    """
    from karat.report.json import encode_report
    from karat.report.terminal import print_lines, say
    from karat.reviews import report

    if web and out.wants("json"):
        said = "expected --web or --json, found both: the page decides, the report only tells"
        raise UsageError(said, next_command="karat review --help")
    under_way = _opened(only, preset=preset, history=history)
    at_a_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if web:
        from karat.reviews.server import ReviewServer, shown

        # Until Ctrl-C; what is decided by then stands in git.
        with ReviewServer(under_way) as server, suppress(KeyboardInterrupt):
            if not out.quiet:
                said = "the address works once, and only on this machine; Ctrl-C ends the review, and what was decided stays"
                say(said, sys.stderr)
            sys.stdout.write(f"{server.address()}\n")
            sys.stdout.flush()
            if sys.stdout.isatty():
                shown(server.address())
            server.serve_forever()
    elif out.wants("json"):
        out.write(json=lambda: encode_report("karat.review/1", report.report_of(under_way)))
    elif at_a_terminal and under_way.causes():
        from karat.reviews.terminal import decide

        decide(under_way, sys.stdout)
    elif not out.quiet:
        print_lines(report.lines(under_way), sys.stdout)
    left = report.report_of(under_way).findings
    code = exit_code(left)
    if code is ExitCode.CANNOT_VERIFY and not out.quiet:
        say(f"next: {next((f.next for f in left if f.next), 'karat diff')}", sys.stderr)
    return int(code)


_deciding = together(
    click.argument("globs", nargs=-1, metavar="[GLOB]..."),
    click.option("--group", "groups", multiple=True, metavar="N", help="A group, as karat review shows it."),
    repeatable("--exclude", "GLOB", "Leave these out."),
    click.option("--metric", metavar="NAME", help="One metric or column of one golden."),
    click.option("--dry-run", is_flag=True, help="List the goldens, and change nothing."),
    report_options("karat.decision/1"),
    preset_option,
)
"""What accept and reject have in common."""


@click.command(
    epilog="""
  karat accept '*h100*'                          those goldens
  karat accept --group 2 --exclude '*moe*'       a group of karat review, without some
  karat accept --group 1 --reason "see #42"      despite a fail finding
  karat accept a/golden_values.json --metric "lm loss"
"""
)
@_deciding
@click.option("--reason", metavar="TEXT", help="Why, despite a fail finding; it goes into goldens.lock.json.")
def accept(*, reason: str | None, **given: Any) -> int:
    """Accept changed goldens: stage them with their lock lines and samples.

    GLOB is a path, a pattern or a folder. Goldens with a fail finding need --reason.
    """
    return _decide(lambda review, paths, metric: review.accept(paths, metric=metric, reason=reason), **given)


@click.command(
    epilog="""
  karat reject --group 1                         HEAD's values again, in the whole group
  karat reject '*iteration*' --dry-run           say which goldens that are
  karat reject a/golden_values.json --metric num-zeros
"""
)
@_deciding
def reject(**given: Any) -> int:
    """Reject changed goldens: restore HEAD's values, lock lines and samples.

    GLOB is a path, a pattern or a folder. Git keeps what was there, and karat says how to have it back.
    """
    return _decide(lambda review, paths, metric: review.reject(paths, metric=metric), **given)


def _decide(  # noqa: PLR0913 - the options of both
    deed: Callable[[Review, Sequence[str], str | None], Decision],
    *,
    globs: tuple[str, ...],
    groups: tuple[str, ...],
    exclude: tuple[str, ...],
    metric: str | None,
    dry_run: bool,
    preset: str | None,
    out: Reports,
) -> int:
    from karat.report.json import encode_report
    from karat.report.words import count
    from karat.reviews import report
    from karat.reviews.causes import meant
    from karat.reviews.review import Decision, NeedsReason

    verb = typed().words[1]
    under_way = _opened(preset=preset)
    if not globs and not groups:
        raise UsageError(f"expected goldens to {verb}: a path, a GLOB or --group N", next_command="karat review")
    paths = meant(under_way.causes(), globs, groups, exclude)
    lines: Iterable[Line | str]
    try:
        if dry_run:
            made = Decision(verb=f"would {verb}", paths=tuple(paths), metric=metric)  # type: ignore[arg-type]
            lines = (f"would {verb} {count(len(paths), 'golden')}", *(f"  {path}" for path in paths))
        else:
            made = deed(under_way, paths, metric)
            lines = report.decision_lines(made)
    except NeedsReason as refused:
        made = Decision(verb="accepted", paths=(), metric=metric, findings=refused.failing)
        lines = report.refused_lines(refused.failing)
    out.write(json=lambda: encode_report("karat.decision/1", made))
    out.show(lambda: lines)
    return int(exit_code(made.findings))
