"""`karat tolerance`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from karat.cli.output import deliver, json_option, one_report_each
from karat.findings import exit_code
from karat.system.command import quoted

_EXAMPLES = """
\b
Examples:
  karat tolerance run1 run2 run3 run4 run5
  karat tolerance --golden golden_values.json       from the samples that `karat record` kept
  karat tolerance --golden golden_values.json --rate 0.01 --json -
"""


@click.command(epilog=_EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--golden", metavar="G", help="The golden; its samples count as runs. Default: the first RUN.")
@click.option(
    "--rate",
    type=click.FloatRange(0, 0.5, min_open=True),
    default=0.01,
    show_default=True,
    metavar="P",
    help="The rate of false alarms per checked run that you accept.",
)
@click.option(
    "--outliers",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="K",
    help="Steps per run that may be out of tolerance.",
)
@click.option("--metric", "metrics", multiple=True, metavar="GLOB", help="Only these metrics. Repeatable.")
@json_option("karat.tolerance/1")
@click.option("--toml", "toml_file", metavar="F", help="Write only the rules for karat.toml; - is stdout.")
@click.option("--preset", metavar="NAME", help="megatron-lm or pytorch-dynamo; overrides karat.toml.")
def command(  # noqa: PLR0913 - one parameter per option
    *,
    runs: tuple[str, ...],
    golden: str | None,
    rate: float,
    outliers: int,
    metrics: tuple[str, ...],
    json_file: str | None,
    toml_file: str | None,
    preset: str | None,
) -> int:
    """Recommend tolerances from repeated runs.

    RUNs are repeats of one test, in any form that `karat record` reads. Prints a rule per metric,
    how often it would raise a false alarm, and the smallest change it would still catch.
    """
    from karat.config import load
    from karat.report.terminal import say
    from karat.runs.tolerance import document, lines, runs_needed, snippet, tolerances

    one_report_each({"--json": json_file, "--toml": toml_file})
    config = load(Path.cwd(), preset=preset)
    found = tolerances(
        runs, golden, rate=rate, outliers=outliers, metrics=metrics, settings=config.record, rules=config.rule_book()
    )
    if json_file is not None:
        deliver(json_file, document(found))
    if toml_file is not None:
        deliver(toml_file, snippet(found))
    if "-" not in {json_file, toml_file}:
        for line in [*lines(found), "", "# for karat.toml", *snippet(found).splitlines()]:
            say(line)
    code = exit_code(found.findings)
    again = f"karat record RUN… -o {quoted(golden or 'GOLDEN')}"
    if code:
        say(f"next: {again}  # run the test again; the repeats must be whole", sys.stderr)
    elif not found.shown:
        more = runs_needed(rate) - len(found.runs)
        say(f"next: {again}  # {more:,} more runs", sys.stderr)
    return int(code)
