"""`karat check`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from glob import escape
from pathlib import Path
from typing import Any

import click

from karat.cli.output import (
    Reports,
    complain,
    history_option,
    jobs_option,
    preset_option,
    repeatable,
    report_options,
    typed,
)
from karat.findings import CannotVerify, ExitCode, UsageError

_EXAMPLES = """
  karat check results/golden_values.json --identity platform=dgx_h100
  karat check out.csv --golden ci_expected_accuracy/inductor_timm_training.csv
  karat check results/ --golden goldens/ --junit check.xml
  karat check shards/1/out.csv shards/2/out.csv --golden table.csv
  karat check runs/tensorboard --golden golden.json --exact 'lm loss'
"""


@click.command(epilog=_EXAMPLES)
@click.argument("actual", nargs=-1, required=True)
@click.option(
    "--golden",
    default="auto",
    show_default=True,
    metavar="PATH|auto",
    help="The golden, a folder of them, or REV:path; auto finds it by identity, then by file name.",
)
@repeatable("--identity", "KEY=VALUE", "State an identity that the path of ACTUAL does not give: platform=dgx_h100.")
@repeatable("--exact", "GLOB", "Require these metrics to be equal, for deterministic tests.")
@click.option(
    "--improved",
    type=click.Choice(["fail", "warn"]),
    help="How to treat a result that is better than its golden; warn by default.",
)
@repeatable("--rows", "GLOB", "ACTUAL is one shard of a table: require only these rows, and check all it has.")
@repeatable("--rows-from", "F", "The same for the rows named in this file, one per line, up to a comma or a space.")
@repeatable("--only", "GLOB", "Check only goldens whose path matches.")
@report_options("karat.check/1", "html", "junit")
@history_option
@jobs_option
@preset_option
def command(*, identity: tuple[str, ...], rows_from: tuple[str, ...], out: Reports, **given: Any) -> int:
    """Check a run against its golden; the gate for CI.

    ACTUAL is a result in any golden format, a TensorBoard event file or folder, JSON Lines, a log,
    or a folder of results. Anything missing fails, and so does a check that compared nothing.
    """
    from karat.api import check
    from karat.system.foreign.limits import read_plain

    given["rows"] = [*given["rows"]]
    for file in rows_from:  # The rows that a shard's list names, as globs that fit these very names.
        try:
            lines = read_plain(Path(file)).decode("utf-8", "replace").splitlines()
        except OSError as error:
            said = f"expected to read {file}, but: {error.strerror}"
            raise UsageError(said, next_command="karat check --help") from error
        names = [re.split(r"[,\s]", line.strip(), maxsplit=1)[0] for line in lines]
        if not (found := [escape(name) for name in names if name and not name.startswith("#")]):
            raise UsageError(f"expected names of rows in {file}, found none", next_command="karat check --help")
        given["rows"] += found
    report = check(**given, identity=identity_of(identity))
    from karat.checks import text

    out.show(lambda: text.lines(report))
    try:
        out.write(
            json=report.to_json, junit=lambda: text.render_junit(report), html=lambda: report.to_html(str(typed()))
        )
        told = list(report.all_findings())
        out.tell_ci(
            "karat check", report.headline(), told, own_junit=True, summary=lambda room: text.summary(report, room)
        )
    except CannotVerify as error:
        if report.exit_code is not ExitCode.FAIL:
            raise
        # What failed is certain, also where a report of it could not be written.
        complain(str(error), error.next_command)
    if report.exit_code:
        out.end(report.all_findings())
    return int(report.exit_code)


def identity_of(words: Iterable[str]) -> dict[str, str]:
    """What `--identity KEY=VALUE` says, once for each key."""
    found: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        if not key.isidentifier() or not value or found.setdefault(key, value) != value:
            said = f"expected --identity KEY=VALUE, and each key once, found {word!r}"
            raise UsageError(said, next_command="karat check --help")
    return found
