"""`karat policy gate`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from karat.cli.output import deliver, last_line, one_report_each, quiet_option, typed
from karat.findings import Finding, UsageError

if TYPE_CHECKING:
    from karat.policy.evidence import Merged
    from karat.policy.gate.project import Project

_EXAMPLES = """
\b
Examples:
  pytest --karat-evidence=evidence && karat policy gate evidence
  karat policy gate shard-1 shard-2 gpu --complete         all jobs of a CI run
  karat policy gate evidence --json gate.json
  karat policy gate evidence --complete --update-baseline
"""


@click.command(epilog=_EXAMPLES)
@click.argument("places", metavar="[DIR]...", nargs=-1)
@click.option(
    "--complete/--partial", default=None,
    help="These journals are the whole suite: what is not in them was not run. By default as karat.toml says, or partial.",
)  # fmt: skip
@click.option("--exemptions", metavar="FILE", help="The file of exemptions; overrules karat.toml.")
@click.option(
    "--device", "devices", multiple=True, metavar="NAME",
    help="Evidence must exist on this device; overrules karat.toml. Repeatable.",
)  # fmt: skip
@click.option("--update-baseline", is_flag=True, help="Take operators off the baseline that need not be there.")  # fmt: skip
@click.option(
    "--add-to-baseline", "added", multiple=True, metavar="OP",
    help="Let an operator without evidence wait (a glob); never in CI. Repeatable.",
)  # fmt: skip
@click.option("--today", metavar="DAY", help="The day for expiries, YYYY-MM-DD; also KARAT_TODAY.")
@click.option(
    "--json", "json_file", metavar="F",
    help="Write everything, schema karat.policy-gate/1; - is stdout.",
)  # fmt: skip
@click.option("--github/--no-github", default=None, help="Annotations; by default where GITHUB_ACTIONS is true.")  # fmt: skip
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *, places: tuple[str, ...], complete: bool | None, exemptions: str | None, devices: tuple[str, ...],
    update_baseline: bool, added: tuple[str, ...], today: str | None, json_file: str | None,
    github: bool | None, quiet: bool,
) -> int:  # fmt: skip
    """Hold the evidence of test runs against the rule and its exemptions.

    A DIR holds journals that `pytest --karat-evidence=DIR` left, of one run or of many: workers, shards and CI
    jobs are merged. What was not selected is not judged, unless --complete says that this is all there is.
    """
    from karat.config import load  # noqa: PLC0415 - help must be quick
    from karat.policy.evidence import merge  # noqa: PLC0415
    from karat.policy.gate.decision import (  # noqa: PLC0415
        document,
        gate,
        lines,
    )
    from karat.policy.gate.project import places as journal_places  # noqa: PLC0415
    from karat.policy.journal import run_of  # noqa: PLC0415
    from karat.report.words import printable  # noqa: PLC0415

    one_report_each({"--json": json_file})
    _refuse_in_ci(added, os.environ)
    config = load(Path.cwd())
    merged = merge(journal_places(places, config), run=run_of(os.environ))
    held = _project(exemptions=exemptions, devices=devices, complete=complete, today=today)
    if update_baseline or added:
        held = _rewritten(held, merged, added, shorten=update_baseline)
    gated = gate(merged, held.asked)
    if json_file is not None:
        deliver(json_file, document(gated))
    if not quiet:
        for line in lines(gated, today=held.asked.today) if json_file != "-" else ():
            print(printable(line))
        last_line(gated.findings)
    from karat.system.ci import provider_of  # noqa: PLC0415 - help must be quick

    if github or (github is None and provider_of() == "github"):
        _annotate(gated.findings, sys.stderr if json_file == "-" else sys.stdout)
    return int(gated.exit_code)


def _annotate(findings: Iterable[Finding], stream: TextIO) -> None:
    from karat.report.github import workflow_commands  # noqa: PLC0415 - only in GitHub's own runners

    stream.write(workflow_commands(findings, "karat policy gate"))


def _project(
    *, exemptions: str | None, devices: tuple[str, ...], complete: bool | None, today: str | None
) -> Project:
    import msgspec  # noqa: PLC0415 - help must be quick

    from karat.config import load  # noqa: PLC0415
    from karat.policy.exemptions import read  # noqa: PLC0415
    from karat.policy.gate.project import project  # noqa: PLC0415
    from karat.system.dates import day  # noqa: PLC0415

    config = load(Path.cwd())
    held = project(
        config,
        Path.cwd(),
        today=day(today, os.environ),
        complete=config.policy.complete if complete is None else complete,
        again=_again(),
    )
    asked = held.asked
    if exemptions is not None:
        _require_file(exemptions)
        asked = msgspec.structs.replace(asked, exemptions=read(Path(exemptions), exemptions))
    if devices:
        asked = msgspec.structs.replace(asked, devices=devices)
    return msgspec.structs.replace(held, asked=asked)


def _require_file(path: str) -> None:
    """A file that was named is there; the default one need not be."""
    if not Path(path).is_file():
        raise UsageError(
            f"expected --exemptions {path} to be a file, found none",
            next_command="karat policy gate --help",
        )


def _again() -> str:
    """The command as it was typed, without what rewrites the baseline."""
    rewriting = {"--update-baseline", "--add-to-baseline"}
    return str(typed().without(rewriting, flags={"--update-baseline"}))


def _refuse_in_ci(added: tuple[str, ...], environment: Mapping[str, str]) -> None:
    from karat.system.ci import in_ci  # noqa: PLC0415 - help must be quick

    if added and in_ci(environment):
        raise UsageError(
            "--add-to-baseline is refused where CI is set: a list that a robot makes longer guards nothing",
            next_command="karat policy gate --help  # add it on your own machine, and commit it",
        )


def _rewritten(held: Project, merged: Merged, added: tuple[str, ...], *, shorten: bool) -> Project:
    """The same project with another baseline, which has been written."""
    import msgspec  # noqa: PLC0415 - help must be quick

    from karat.policy.gate.baseline import additions, judge_ops, shortened, write  # noqa: PLC0415

    asked, ratchet = held.asked, held.asked.ratchet
    if added and not asked.complete:
        raise UsageError(
            "--add-to-baseline needs --complete: in part of a suite nobody knows what lacks evidence",
            next_command=f"{ratchet.again} --complete --add-to-baseline OP",
        )
    active = [one for one in asked.exemptions.entries if not one.has_expired(asked.today)]
    ops = ratchet.baseline
    if shorten:
        ops = shortened(merged, active, ratchet, complete=asked.complete)
    found = judge_ops(merged, active, ratchet, complete=asked.complete)
    lacking = [one.metric for one in found if one.kind == "new-op" and one.metric]
    ops = (*ops, *additions(ratchet, added, lacking))
    if set(ops) != set(ratchet.baseline):
        write(held.baseline, ops)
    changed = msgspec.structs.replace(ratchet, baseline=tuple(sorted(set(ops))))
    return msgspec.structs.replace(held, asked=msgspec.structs.replace(asked, ratchet=changed))
