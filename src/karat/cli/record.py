"""`karat record`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from karat.cli.output import deliver, json_option, one_report_each, quiet_option, typed
from karat.findings import UsageError

_EXAMPLES = """
\b
Examples:
  karat record logs/tensorboard -o golden_values.json --steps 50
  karat record run1 run2 run3 -o golden_values.json       repeats: their samples are kept
  karat record train.jsonl -o golden_values.json --metric 'mem-*'
  karat record out.csv -o golden.json --manifest karat-manifest.json --identity case=bert_tp2
"""


@click.command(epilog=_EXAMPLES)
@click.argument("actual", nargs=-1, required=True)
@click.option("-o", "--output", "golden", required=True, metavar="GOLDEN", help="The golden to make or update.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="GLOB",
    help="Take only these metrics; the rest of the golden stays as it was. Repeatable.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="GLOB",
    help="Take only these names from the run, as they are before any renaming. Repeatable.",
)
@click.option("--steps", type=click.IntRange(min=0), metavar="N", help="The last step of a complete run.")
@click.option("--precision", type=click.IntRange(0, 17), metavar="N", help="Decimals to round to.")
@click.option("--start", type=click.IntRange(-(2**63), 2**63 - 1), metavar="N", help="The first step to keep.")
@click.option(
    "--interval",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the first step and the multiples of N; a step without a sample becomes NaN.",
)
@click.option("--format", metavar="NAME", help="The golden's format; by default the one it has, or series-json.")
@click.option(
    "--combine",
    type=click.Choice(["first", "median", "mean"]),
    default="first",
    show_default=True,
    help="How to combine several runs into one golden.",
)
@click.option("--replace-samples", is_flag=True, help="Forget the samples of earlier runs.")
@click.option("--accept-incomplete", is_flag=True, help="Take a run even if it ended early or lacks something.")
@click.option("--dry-run", is_flag=True, help="Judge and report, write nothing.")
@json_option("karat.record/1")
@click.option("--manifest", "manifest_file", metavar="F", help="Write a manifest of the CI job for `karat refresh`.")
@click.option(
    "--identity",
    "identities",
    multiple=True,
    metavar="KEY=VALUE",
    help="A fact about the case for the manifest: case, platform, … Repeatable.",
)
@click.option("--preset", metavar="NAME", help="megatron-lm or pytorch-dynamo; overrides karat.toml.")
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *,
    actual: tuple[str, ...],
    golden: str,
    tags: tuple[str, ...],
    steps: int | None,
    precision: int | None,
    start: int | None,
    interval: int | None,
    dry_run: bool,
    json_file: str | None,
    manifest_file: str | None,
    identities: tuple[str, ...],
    preset: str | None,
    quiet: bool,
    **others: Any,
) -> int:
    """Create or update a golden from the output of a run.

    ACTUAL is a TensorBoard event file or a folder of them, JSON Lines, CSV with a step column, a log
    (with patterns in karat.toml), or any golden format. Several are repeats of one test. A run that
    is short, or lacks what the golden has, is refused: the golden stays as it was.
    """
    from karat.config import load
    from karat.goldens.paths import SAMPLES
    from karat.report.terminal import say
    from karat.runs.record import RecordOptions, manifest, parse_identity, record

    one_report_each({"--json": json_file, "--manifest": manifest_file, "-o": golden})
    if golden == "-" or golden.endswith(SAMPLES):
        said = f"-o: expected the path of a golden, found {golden}; a golden is a file, and no samples"
        raise UsageError(said, next_command="karat record --help")
    identity = parse_identity(identities)
    if identity and manifest_file is None:
        raise UsageError("--identity needs --manifest F", next_command="karat record --help")
    config = load(Path.cwd(), preset=preset)
    asked = {"tags": tags or None, "steps": steps, "precision": precision, "start": start, "interval": interval}
    options = RecordOptions(
        settings=config.record,
        asked={k: v for k, v in asked.items() if v is not None},
        dry_run=dry_run,
        globs=config.paths,
        exclude=config.exclude,
        rules=config.rule_book(),
        status=config.status,
        columns=config.check.columns,
        command=typed(),
        **others,
    )
    recorded, code = record(Path(golden), actual, options)
    if manifest_file is not None and not dry_run:
        deliver(manifest_file, manifest(os.environ, identity))
    if json_file is not None:
        deliver(json_file, recorded.document())
    if not quiet and "-" not in {json_file, manifest_file}:
        for line in recorded.lines():
            say(line)
    if not quiet and recorded.next:
        say(f"next: {recorded.next}", sys.stderr)
    return int(code)
