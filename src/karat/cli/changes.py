"""`karat changes`."""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatchcase
from typing import Any, cast

import click

from karat.changepoints.series import Better, wrong_usage
from karat.cli.output import Reports, fail_on_option, repeatable, report_options, typed

_EXAMPLES = """
  karat changes speed.csv --better higher
  karat changes results.json --metric load_accepted --since 2023-03-01
  karat changes --logs 'OUT-*' --metric 'MLUPS: ([0-9.]+)' --better higher
  grep MLUPS OUT-* | karat changes - --metric 'MLUPS: ([0-9.]+)'
  karat changes hunt.sqlite --stage 0
  karat changes --golden golden_values.json --metric 'lm loss' --step last
  karat changes speed.csv --better higher --online     is the newest point a change?
"""


@click.command(epilog=_EXAMPLES)
@click.argument("sources", nargs=-1, metavar="[SERIES]...")
@repeatable("--logs", "GLOB", "Logs, one per point; the date or commit is in their names. A glob or a folder.")
@repeatable("--golden", "PATH", "The history of a golden, in git.", to="goldens")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="WHAT",
    help="A column, or a metric of a golden; for logs a regular expression with a group. Repeatable; by default all.",
)
@click.option("--x", default="", metavar="COL", help="The column of labels; by default it is guessed.")
@click.option(
    "--time", default="", metavar="COL", help="The column that rows are ordered by; by default it is guessed."
)
@click.option("--step", default="last", show_default=True, metavar="last|mean|N", help="The value of a golden's curve.")
@click.option("--table", default="", metavar="NAME", help="The table of an SQLite database.")
@click.option("--stage", default="", metavar="KEY", help="One stage of a hunt; by default all.")
@repeatable("--better", "[NAME=]higher|lower|equal", "Which direction is better, of all metrics or of one.")
@click.option("--smallest", default="0", metavar="SIZE", help="Leave out smaller changes: 1%, or 0.01.")
@click.option(
    "--false-alarms",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=0.01,
    show_default=True,
    metavar="P",
    help="The false-alarm rate: the chance of reporting a change in a series that has none.",
)
@click.option("--since", default="", metavar="WHEN", help="From this label or moment on.")
@click.option("--online", is_flag=True, help="Only say whether the newest point is a change.")
@fail_on_option
@click.option("--all", "everything", is_flag=True, help="List everything, also series without a change.")
@report_options("karat.changes/1", "html", "junit")
def command(
    *, sources: tuple[str, ...], better: tuple[str, ...], smallest: str, everything: bool, out: Reports, **given: Any
) -> int:
    """Find level changes, crashes and gaps in a series.

    A SERIES is a file: CSV, JSON, JSON Lines, an SQLite database, the journal of a hunt, what grep printed of logs, or -
    for stdin. For each change: its kind (regression, improvement, dip that recovered, crash range, gap), size, levels,
    last good and first bad point, range and chance. Points without a value are never filled in.
    """
    from karat.api import changes
    from karat.changepoints.report import text_lines, to_html
    from karat.report.terminal import room_of

    logs, goldens, step, fail_on = (given[name] for name in ("logs", "goldens", "step", "fail_on"))
    if not sources and not logs and not goldens:
        raise wrong_usage("expected a SERIES, --logs or --golden, found none")
    if step not in {"last", "mean"} and not re.fullmatch(r"[0-9]{1,18}", step):
        raise wrong_usage(f"expected --step to be last, mean or a step's number, found {step!r}")
    directions: dict[str, Better] = {}  # Metric → direction; the empty name is for all others.
    for word in better:
        name, _, direction = word.rpartition("=")
        if direction not in {"higher", "lower", "equal"}:
            raise wrong_usage(f"expected --better to be higher, lower or equal, or NAME=higher, found {word!r}")
        directions[name] = cast("Better", direction)
    # An option that nothing would come of is a mistake, and not passed over.
    for option, value, what, there in (
        ("--x", given["x"], "a table", sources and not logs),
        ("--time", given["time"], "a table", sources and not logs),
        ("--step", step.removeprefix("last"), "--golden", goldens),
    ):
        if value and not there:
            raise wrong_usage(f"expected {what} for {option}, found none")
    given |= {"fail_on": ("fail",) if fail_on is None else fail_on, "metric": given.pop("metrics")}
    try:  # `1%` and `0.01` are the same
        size = float(smallest.strip().removesuffix("%")) / (100 if smallest.strip().endswith("%") else 1)
    except ValueError:
        size = -1.0
    if not 0 <= size < float("inf"):
        raise wrong_usage(f"expected --smallest to be a size such as 1% or 0.01, found {smallest!r}")
    report = changes(sources, better=directions, smallest=size, **given)
    metrics_there = {entry.series.metric for entry in report.entries}
    for name in filter(None, directions):
        # A name that no metric has is a mistake that would turn a failure into a warning.
        if not any(fnmatchcase(metric, name) or metric == name for metric in metrics_there):
            there = ", ".join(sorted(metrics_there)[:20])
            raise wrong_usage(f"expected --better to name a metric of the series, found {name!r}; there are {there}")
    out.write(json=report.to_json, html=lambda: to_html(report, str(typed())))
    out.tell_ci("karat changes", report.headline(), report.findings)
    out.show(lambda: text_lines(report, everything=everything, width=room_of(sys.stdout)))
    out.end(report.findings, report.fail_on, otherwise="karat changes --help" if report.exit_code else "")
    return int(report.exit_code)
