"""`karat policy coverage`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from karat.cli.output import deliver, last_line, one_report_each, quiet_option
from karat.findings import CannotVerify, UsageError, exit_code

if TYPE_CHECKING:
    from karat.policy.coverage import Coverage

_EXAMPLES = """
\b
Examples:
  karat policy coverage evidence
  karat policy coverage evidence --op 'conv*' --all
  karat policy coverage shard-1 shard-2 gpu --html coverage.html --json coverage.json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("places", metavar="[DIR]...", nargs=-1)
@click.option("--op", "ops", multiple=True, metavar="GLOB", help="Only these ops. Repeatable.")
@click.option("--all", "every", is_flag=True, help="A line per op, however many there are.")
@click.option(
    "--namespaces/--no-namespaces", default=True,
    help="Also the operators of karat.toml's namespaces, which are imported for it.",
)  # fmt: skip
@click.option("--html", metavar="F", help="Write a self-contained page; - is stdout.")
@click.option(
    "--json", "json_file", metavar="F",
    help="Write the matrix, schema karat.policy-coverage/1; - is stdout.",
)  # fmt: skip
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *, places: tuple[str, ...], ops: tuple[str, ...], every: bool, namespaces: bool,
    html: str | None, json_file: str | None, quiet: bool,
) -> int:  # fmt: skip
    """Show which gradients have evidence: op × dtype × device × mode.

    A DIR holds journals that `pytest --karat-evidence=DIR` left. It judges nothing: that is `karat policy gate`.
    """
    one_report_each({"--json": json_file, "--html": html})
    found = _coverage(places, ops, namespaces=namespaces)
    if json_file is not None:
        from karat.policy.coverage import document  # noqa: PLC0415 - only for those who asked

        deliver(json_file, document(found))
    if html is not None:
        from karat.policy.coverage import page  # noqa: PLC0415

        deliver(html, page(found))
    if not quiet:
        if "-" not in {json_file, html}:
            _show(found, every=every)
        last_line(found.findings)
    return int(exit_code(found.findings))


def _coverage(places: tuple[str, ...], ops: tuple[str, ...], *, namespaces: bool) -> Coverage:
    import msgspec  # noqa: PLC0415 - help must be quick

    from karat.config import load  # noqa: PLC0415
    from karat.policy.coverage import coverage  # noqa: PLC0415
    from karat.policy.evidence import merge  # noqa: PLC0415
    from karat.policy.gate.project import places as journal_places, project  # noqa: PLC0415
    from karat.policy.journal import run_of  # noqa: PLC0415
    from karat.system.dates import day  # noqa: PLC0415

    config = load(Path.cwd())
    merged = merge(journal_places(places, config), run=run_of(os.environ))
    today = day(None, os.environ)
    asked = project(config, Path.cwd(), today=today, complete=namespaces).asked
    active = [one for one in asked.exemptions.entries if not one.has_expired(today)]
    held = asked.ratchet
    found = coverage(
        merged, entries=active, devices=asked.devices, ops=held.ops, aliases=held.aliases, only=ops
    )
    if ops and not found.rows and merged.tests:
        raise UsageError(
            f"expected --op {' '.join(ops)} to name ops with tests, found none",
            next_command="karat policy coverage --all",
        )
    if not found.rows and not found.findings:
        raise CannotVerify(
            f"expected evidence in {merged.journals} journals, found none",
            next_command="pytest --karat-evidence=DIR",
        )
    said = (*found.findings, *asked.findings, *asked.exemptions.findings)
    return msgspec.structs.replace(found, findings=said)


def _show(found: Coverage, *, every: bool) -> None:
    from karat.policy.coverage import lines  # noqa: PLC0415 - help must be quick
    from karat.report.words import printable  # noqa: PLC0415

    for finding in found.findings:
        print(f"{finding.severity.value:4}  {finding.kind}: {printable(finding.message)}")
    width = shutil.get_terminal_size((100, 24)).columns
    told = lines(found, width=max(width, 60), every=every)
    if not sys.stdout.isatty() and not os.environ.get("FORCE_COLOR"):
        for line in told:
            print("".join(text for text, _ in line).rstrip())
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal is worth the wait
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    for line in told:
        console.print(Text.assemble(*line), soft_wrap=True)
