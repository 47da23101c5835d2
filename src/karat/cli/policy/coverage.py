"""`karat policy coverage`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from karat.cli.output import deliver, json_option, last_line, one_report_each, quiet_option
from karat.findings import CannotVerify, UsageError, exit_code

_EXAMPLES = """
\b
Examples:
  karat policy coverage evidence
  karat policy coverage evidence --op 'conv*' --all
  karat policy coverage evidence --namespaces            also operators that no test is about
  karat policy coverage shard-1 shard-2 gpu --html coverage.html --json coverage.json
"""


@click.command(epilog=_EXAMPLES)
@click.argument("places", metavar="[DIR]...", nargs=-1)
@click.option("--op", "ops", multiple=True, metavar="GLOB", help="Only these ops. Repeatable.")
@click.option("--all", "every", is_flag=True, help="A line per op, however many there are.")
@click.option(
    "--namespaces/--no-namespaces",
    default=None,
    help="Also the operators of karat.toml's namespaces. Imports those modules: their code runs. Default: not.",
)
@click.option("--html", metavar="F", help="Write a self-contained page; - is stdout.")
@json_option("karat.policy-coverage/1")
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *,
    places: tuple[str, ...],
    ops: tuple[str, ...],
    every: bool,
    namespaces: bool | None,
    html: str | None,
    json_file: str | None,
    quiet: bool,
) -> int:
    """Show which gradients have evidence: op × dtype × device × mode.

    A DIR holds journals written by `pytest --karat-evidence=DIR`. Nothing is judged: that is `karat policy gate`.
    """
    from msgspec import structs

    from karat.config import load
    from karat.policy.coverage import coverage, document, lines, page
    from karat.policy.evidence import merge
    from karat.policy.gate.project import imports, journal_folders, policy_of
    from karat.policy.journal import run_of
    from karat.report.terminal import print_lines, say
    from karat.system.dates import day

    one_report_each({"--json": json_file, "--html": html})
    config = load(Path.cwd())
    merged = merge(journal_folders(places, config), run=run_of(os.environ))
    if (named := imports(config, Path.cwd())) and namespaces is not False and not quiet:
        left_out = f"operators without a test are left out; --namespaces lists them, and imports {named}"
        say(f"karat: {f'importing {named}' if namespaces else left_out}", sys.stderr)
    today = day(None, os.environ)
    policy = policy_of(config, Path.cwd(), today=today, complete=bool(namespaces))
    active = [one for one in policy.exemptions.entries if not one.has_expired(today)]
    found = coverage(merged, entries=active, devices=policy.devices, ops=policy.baseline.ops, only=ops)
    if ops and not found.rows and merged.tests:
        said = f"--op {' '.join(ops)}: no op with tests has such a name"
        raise UsageError(said, next_command="karat policy coverage --all")
    if not found.rows and not found.findings:
        said = f"the {merged.journals} journals hold no evidence"
        raise CannotVerify(said, next_command="pytest --karat-evidence=DIR")
    found = structs.replace(found, findings=(*found.findings, *policy.findings, *policy.exemptions.findings))
    if json_file is not None:
        deliver(json_file, document(found))
    if html is not None:
        deliver(html, page(found))
    if not quiet:
        if "-" not in {json_file, html}:
            for finding in found.findings:
                say(f"{finding.severity.value:4}  {finding.kind}: {finding.message}")
            width = shutil.get_terminal_size((100, 24)).columns
            print_lines(lines(found, width=max(width, 60), every=every), sys.stdout)
        last_line(found.findings)
    return int(exit_code(found.findings))
