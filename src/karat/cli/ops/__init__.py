"""`karat ops`: a group of commands, each imported when it is used."""

from __future__ import annotations

import click

from karat.cli.group import LazyGroup

COMMANDS = {
    "list": "List the operators of a framework or a module, and why some cannot be audited.",
    "audit": "Check every operator's derivatives: modes, orders, precisions, memory layouts.",
}
_EXAMPLES = """
\b
Examples:
  karat ops list torch
  karat ops audit torch --select 'linalg.*' --html audit.html
  karat ops audit jax --level deep --jobs 8
  karat ops audit my_package.my_specs --known known.toml --against audit.json
"""


@click.group(
    cls=LazyGroup,
    summaries=COMMANDS,
    homes={"list": "ops:list_command", "audit": "ops.audit:command"},
    epilog=_EXAMPLES,
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
