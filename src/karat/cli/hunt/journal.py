"""A hunt that was begun, by its journal: `karat hunt resume`, `status` and `report`; of one point `karat hunt show` and `try`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karat.cli.hunt import report_options, search_options
from karat.cli.output import deliver, leave_at_once, report_options as reports, together, with_exit_code

if TYPE_CHECKING:
    from karat.cli.output import Reports
    from karat.hunts.model import Attempt, Point
    from karat.report.terminal import Line

_RESUME = """
  karat hunt resume
  karat hunt resume .karat/hunt/slow.hunt --jobs 2
  karat hunt resume --max-runs 80 --markdown issue.md
"""
_STATUS = """
  karat hunt status
  karat hunt status .karat/hunt/slow.hunt
  karat hunt status --json - | jq .seconds_left
"""
_REPORT = """
  karat hunt report                                  the hunt of this folder
  karat hunt report --markdown issue.md --html hunt.html
  karat hunt report .karat/hunt/slow.hunt --json - | jq .culprits
"""


@click.command(epilog=_RESUME)
@click.argument("journal_file", metavar="[JOURNAL]", required=False)
@search_options
@report_options
def resume(*, journal_file: str | None, out: Reports, **search: Any) -> int:
    """Continue a hunt that was stopped or killed.

    JOURNAL is its file, or its hunt.toml; by default the hunt of this folder. What the journal already has is not run again.
    The [search] and [engine] tables of hunt.toml may have changed since, but not what is measured, and where.
    """
    from karat.cli.hunt import session
    from karat.hunts.hunt import resume_hunt
    from karat.hunts.hunt_toml import Overrides, find_journal

    path, said = find_journal(journal_file), Overrides(**search)
    return session.hunt_until(out, lambda shown: resume_hunt(path, said, shown, leave_at_once))


@click.command(epilog=_STATUS)
@click.argument("journal_file", metavar="[JOURNAL]", required=False)
@reports("karat.hunt/1")
def status(*, journal_file: str | None, out: Reports) -> int:
    """Show how far a hunt is.

    JOURNAL is its file, or its hunt.toml; by default the hunt of this folder. The hunt may be running. The exit
    code is 0 whatever it found: `karat hunt report` judges.
    """
    from karat.hunts.hunt_toml import find_journal
    from karat.hunts.journal import Journal
    from karat.hunts.model import json_text
    from karat.hunts.report.assemble import build_report
    from karat.hunts.report.terminal import status_lines
    from karat.report.terminal import room_of

    with Journal(find_journal(journal_file)) as journal:
        known = build_report(journal)
    out.write(json=lambda: with_exit_code(json_text(known), 0))
    out.show(lambda: status_lines(known, room_of(sys.stdout)))
    return 0


@click.command(epilog=_REPORT)
@click.argument("journal_file", metavar="[JOURNAL]", required=False)
@report_options
def report(*, journal_file: str | None, out: Reports) -> int:
    """Report what a hunt found: terminal, JSON, Markdown, HTML.

    JOURNAL is its file, or its hunt.toml; by default the hunt of this folder. The journal alone is read: a hunt that is
    still running, or was killed, has a report as well, which says so. The exit code is that of `karat hunt run`.
    """
    from karat.cli.hunt import session
    from karat.hunts.hunt_toml import find_journal
    from karat.hunts.journal import Journal
    from karat.hunts.report.assemble import build_report

    with Journal(find_journal(journal_file)) as journal:
        found = build_report(journal)
    return session.finish(out, found)


_SHOW = """
  karat hunt show 2023-08-25
  karat hunt show 2023-08-25 --log                    what it printed
  karat hunt show xla@1a2b3c4 --stage 0.2/1
  karat hunt show 1.26.0 --journal numpy.hunt --json -
"""
_TRY = """
  karat hunt try 2023-08-26                           run it once, and show what it prints
  karat hunt try 2023-08-26 --against parent          both, three times each, in turns
  karat hunt try xla@1a2b3c4 --against xla@9f8e7d6 --times 5
  karat hunt try 2.0.0 --script try.sh                a script that does not need karat
"""


def _of_a_point(schema: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    said = "The journal, or its hunt.toml; by default the hunt of this folder."
    return together(
        click.argument("point"),
        click.option("--stage", metavar="KEY", help="The stage, as named by `karat hunt status`: 0, 0.2/1."),
        click.option("--journal", "journal_file", metavar="F", help=said),
        reports(schema),
    )


@click.command(epilog=_SHOW)
@_of_a_point("karat.hunt-point/1 (logs with --log)")
@click.option("--log", is_flag=True, help="Print the output of its commands, attempt by attempt.")
def show(*, point: str, stage: str | None, journal_file: str | None, log: bool, out: Reports) -> int:
    """Show one point of a hunt: its attempts, identity and logs.

    POINT is a label or id, or the beginning of one if only one point begins so.
    """
    from karat.hunts.hunt_toml import find_journal
    from karat.hunts.journal import Journal
    from karat.hunts.model import json_text
    from karat.hunts.report.terminal import find_point, point_lines as lines, show_point

    with Journal(find_journal(journal_file)) as journal:
        found = show_point(journal, *find_point(journal, point, stage), logs=log)
    logs: list[Line | str] = []
    for one in found.attempts if log else ():
        logs += [(), ((f"log of attempt {one.attempt.number}:", "bold"),)]
        logs += [line.expandtabs() for line in (one.log or "").splitlines()]
    out.write(json=lambda: with_exit_code(json_text(found), 0))
    out.show(lambda: [*lines(found), *logs])
    return 0


@click.command("try", epilog=_TRY)
@_of_a_point("karat.hunt-try/1")
@click.option(
    "--against", metavar="POINT", help="Run this point as well, in turns, and compare; parent: the point before."
)
@click.option("--times", type=click.IntRange(min=1), metavar="N", help="Runs of each; default 1, with --against 3.")
@click.option("--script", metavar="F", help="Run nothing: write a script that does without karat; - is stdout.")
def try_point(
    *, point: str, script: str | None, stage: str | None, journal_file: str | None, out: Reports, **more: Any
) -> int:
    """Run one point by hand, or two side by side.

    POINT is named as for `karat hunt show`. It is prepared and run as the hunt would, in a work area of its own; the
    journal stays as it is. Exit code: 0 it works, or the two do not differ; 1 it fails, or they differ; 3 it cannot be run.
    """
    from karat.hunts import hunt as trying
    from karat.hunts.hunt_toml import find_journal
    from karat.hunts.journal import Journal
    from karat.hunts.model import json_text
    from karat.hunts.report.sentences import averages, duration
    from karat.report.terminal import say

    def tell(one: Point, attempt: Attempt, output: str) -> None:
        why = f"{attempt.outcome.value}: {attempt.signature or attempt.note}"
        came = averages(attempt.samples, {}) if attempt.outcome == "ok" else why
        say(f"{one.label}  {came} ({duration(attempt.seconds)})", sys.stderr)
        if more["against"] is None:
            out.show(lambda: (line.expandtabs() for line in output.splitlines()))

    with Journal(find_journal(journal_file)) as journal:
        if script is not None:
            deliver(script, trying.script_of(journal, point, stage))
            if script != "-":
                Path(script).chmod(0o755)
            return 0
        found = trying.try_point(journal, point, stage=stage, said=tell, **more)
    out.write(json=lambda: with_exit_code(json_text(found), found.code))
    words = {"differ": "they differ", "same": "they do not differ", "unsure": "unclear: more --times may tell"}
    out.show(lambda: (((f"{name}: {words[word]}", "bold"),) for name, word in found.verdicts.items()))
    return found.code
