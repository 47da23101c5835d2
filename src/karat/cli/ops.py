"""`karat ops`: the derivatives of a framework's operators, audited."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from karat.cli.group import LazyGroup
from karat.cli.output import Reports, jobs_option, progress_line, repeatable, report_options, typed

COMMANDS = {
    "list": "List the operators of a framework or a module, and why some cannot be audited.",
    "audit": "Check every operator's derivatives: modes, orders, precisions, memory layouts.",
}
_EXAMPLES = """
  karat ops list torch
  karat ops audit torch --select 'linalg.*' --html audit.html
  karat ops audit jax --level deep --jobs 8
  karat ops audit my_package.my_specs --known known.toml --against audit.json
"""


@click.group(
    cls=LazyGroup, summaries=COMMANDS, homes={name: f"ops:{name}_command" for name in COMMANDS}, epilog=_EXAMPLES
)
def command() -> None:
    """Audit the derivatives of a framework's operators.

    WHAT is torch, jax, paddle, a name under the entry point karat.ops, or a module with OpSpecs or operators().
    """


@click.command("list", epilog=_EXAMPLES)
@click.argument("what", metavar="WHAT")
def list_command(*, what: str) -> int:
    """List the operators of a framework or a module, and why some cannot be audited."""
    from karat.ops.audit import listing
    from karat.ops.worker import WorkerSetup
    from karat.report.terminal import say

    for name, why in listing(WorkerSetup(catalogue=what)).operators.items():
        say(f"{name}: {why}" if why else name)
    return 0


@click.command("audit", epilog=_EXAMPLES)
@click.argument("what", metavar="WHAT")
@repeatable("--select", "GLOB", "Only operators with such a name.")
@click.option(
    "--level",
    type=click.Choice(["quick", "default", "deep"]),
    default="default",
    help="How much to check of each sample: reverse mode alone, also forward mode, second order, float32 and laws "
    "(default), or composed modes, higher orders, boundary points and half precision as well.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=0),
    default=8,
    metavar="N",
    help="Samples of each operator, spread over those there are; 0: all. Default: 8.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Seed of the samples. Default: 0.")
@click.option("--timeout", type=float, default=600.0, metavar="S", help="Seconds for one operator. Default: 600.")
@click.option("--memory", type=int, default=8, metavar="GB", help="Memory of one process. Default: 8.")
@click.option("--peer", is_flag=True, help="Also time torch.autograd.gradcheck(fast_mode=True) on the same samples.")
@click.option(
    "--journal", metavar="F", help="Where results are kept as they come. Default: .karat/ops/WHAT.jsonl below here."
)
@click.option(
    "--resume/--no-resume", default=True, help="Go on with a journal of the same audit (default), or begin anew."
)
@click.option("--known", metavar="F", help="TOML with known faults: op, column, reason, expires.")
@click.option("--against", metavar="F", help="An earlier audit's JSON: only faults that it does not have fail.")
@click.option("--all", "everything", is_flag=True, help="List every operator and finding.")
@report_options("karat.ops/1", "html")
@jobs_option
def audit_command(
    *, what: str, known: str | None, against: str | None, everything: bool, out: Reports, **given: Any
) -> int:
    """Check every operator's derivatives: modes, orders, precisions, memory layouts.

    Operators run in processes of their own: one that crashes, hangs or runs out of memory affects no other. Each fault comes
    with a script that shows it without karat, and is FAIL only if that script, run here, does show it.
    """
    from karat.ops import report as reports
    from karat.ops.audit import SCHEMA, audit, earlier, judged, known_faults
    from karat.ops.worker import WorkerSetup
    from karat.system.dates import day
    from karat.system.processes import available_cores

    select, timeout, journal, resume, jobs = map(given.pop, ("select", "timeout", "journal", "resume", "jobs"))
    setup = WorkerSetup(catalogue=what, **given)
    entries = known_faults(Path(known)) if known else ()
    before = earlier(Path(against)) if against else None
    found = audit(
        setup,
        select=select,
        jobs=jobs or available_cores(),
        timeout=timeout,
        journal=Path(journal) if journal else Path(".karat", "ops", f"{what}.jsonl"),
        resume=resume,
        progress=progress_line(sys.stderr, "auditing operators {done}/{total}", least=2, every=1),
    )
    report = judged(found, known=entries, against=before, today=day(os.environ))
    html = lambda: reports.render_html(report, str(typed()))  # noqa: E731
    return out.finish(SCHEMA, report, lambda: reports.lines(report, everything=everything), html=html)
