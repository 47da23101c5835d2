"""`karat record` and `karat tolerance`: what runs of a test say its golden is, and how far it may be off."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from karat.cli.output import Reports, one_report_each, preset_option, repeatable, report_options, typed
from karat.findings import UsageError, exit_code

_EXAMPLES = """
  karat record logs/tensorboard -o golden_values.json --steps 50
  karat record run1 run2 run3 -o golden_values.json       repeats: their samples are kept
  karat record train.jsonl -o golden_values.json --metric 'mem-*'
"""


@click.command(epilog=_EXAMPLES)
@click.argument("actual", nargs=-1, required=True)
@click.option("-o", "--output", "golden", required=True, metavar="GOLDEN", help="The golden to make or update.")
@repeatable("--metric", "GLOB", "Take only these metrics; the rest of the golden stays as it was.", to="metrics")
@click.option("--steps", type=click.IntRange(min=0), metavar="N", help="The last step of a complete run.")
@click.option("--format", metavar="NAME", help="The golden's format; by default the one it has, or series-json.")
@click.option("--replace-samples", is_flag=True, help="Forget the samples of earlier runs.")
@click.option("--accept-incomplete", is_flag=True, help="Take a run even if it ended early or lacks something.")
@click.option("--dry-run", is_flag=True, help="Judge and report, write nothing.")
@report_options("karat.record/1")
@preset_option
def command(*, actual: tuple[str, ...], golden: str, out: Reports, preset: str | None, **others: Any) -> int:
    """Create or update a golden from the output of a run.

    ACTUAL is a TensorBoard event file or a folder of them, JSON Lines, CSV with a step column, a log
    (with patterns in karat.toml), or any golden format. Several are repeats of one test; the first one
    is the golden. A run that is short, or lacks what the golden has, is refused: the golden stays as it was.
    """
    from msgspec.structs import replace

    from karat.config import load
    from karat.goldens.paths import SAMPLES
    from karat.report.json import encode_report
    from karat.report.terminal import say
    from karat.runs.record import RecordOptions, record

    one_report_each({"--json": out.targets["json"], "-o": golden})
    if golden == "-" or golden.endswith(SAMPLES):
        said = f"-o: expected the path of a golden, found {golden}; a golden is a file, and no samples"
        raise UsageError(said, next_command="karat record --help")
    config = load(Path.cwd(), preset=preset)
    steps = others.pop("steps")
    options = RecordOptions(
        settings=config.record if steps is None else replace(config.record, steps=steps),
        globs=config.paths,
        exclude=config.exclude,
        rules=config.rule_book(),
        status=config.status,
        columns=config.check.columns,
        command=typed(),
        **others,
    )
    recorded, code = record(Path(golden), actual, options)
    out.write(json=lambda: encode_report("karat.record/1", recorded, code=code))
    out.show(recorded.lines)
    if not out.quiet and recorded.next:
        say(f"next: {recorded.next}", sys.stderr)
    if not out.quiet and recorded.take:
        say(f"to take it: {recorded.take}", sys.stderr)
    return int(code)


_TOLERANCE_EXAMPLES = """
  karat tolerance run1 run2 run3 run4 run5
  karat tolerance --golden golden_values.json       from the samples that `karat record` kept
  karat tolerance --golden golden_values.json --rate 0.01 --json -
"""


@click.command(epilog=_TOLERANCE_EXAMPLES)
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
@repeatable("--metric", "GLOB", "Only these metrics.", to="metrics")
@report_options("karat.tolerance/1")
@preset_option
def tolerance(*, rate: float, out: Reports, preset: str | None, **given: Any) -> int:
    """Recommend tolerances from repeated runs.

    RUNs are repeats of one test, in any form that `karat record` reads. Prints a rule per metric,
    how often it would raise a false alarm, and the smallest change it would still catch.
    """
    from karat.config import load
    from karat.report.terminal import say
    from karat.runs.tolerance import document, lines, runs_needed, snippet, tolerances

    config = load(Path.cwd(), preset=preset)
    found = tolerances(rate=rate, settings=config.record, rules=config.rule_book(), **given)
    code = exit_code(found.findings)
    out.write(json=lambda: document(found))
    out.show(lambda: [*lines(found), "", "# for karat.toml", *snippet(found).splitlines()])
    again = typed()
    if code:
        say(f"next: {again}  # run the test again; the repeats must be whole", sys.stderr)
    elif not found.shown:
        more = runs_needed(rate) - len(found.runs)
        say(f"next: {again}  # {more:,} more runs", sys.stderr)
    return int(code)
