"""`karat policy gate`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from karat.cli.output import deliver, json_option, last_line, one_report_each, quiet_option, typed
from karat.findings import UsageError

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
    "--complete/--partial",
    default=None,
    help=(
        "These journals are the whole suite: what is not in them was not run. Imports the modules that karat.toml names as"
        " namespaces: their code runs. Default: as in karat.toml, else partial."
    ),
)
@click.option("--exemptions", metavar="FILE", help="The file of exemptions; overrides karat.toml.")
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME",
    help="Require evidence on this device; overrides karat.toml. Repeatable.",
)
@click.option("--update-baseline", is_flag=True, help="Remove operators from the baseline that no longer belong there.")
@click.option(
    "--add-to-baseline",
    "added",
    multiple=True,
    metavar="OP",
    help="Add an operator without evidence (a glob) to the baseline; refused in CI. Repeatable.",
)
@click.option("--today", metavar="DAY", help="The day for expiries, YYYY-MM-DD; also KARAT_TODAY.")
@json_option("karat.policy-gate/1")
@click.option("--github/--no-github", default=None, help="Print annotations. Default: on where GITHUB_ACTIONS is true.")
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *,
    places: tuple[str, ...],
    complete: bool | None,
    exemptions: str | None,
    devices: tuple[str, ...],
    update_baseline: bool,
    added: tuple[str, ...],
    today: str | None,
    json_file: str | None,
    github: bool | None,
    quiet: bool,
) -> int:
    """Check the evidence of test runs against the rule and its exemptions.

    A DIR holds journals written by `pytest --karat-evidence=DIR`, of one run or of many: workers, shards and CI
    jobs are merged. What was not selected is not judged, unless --complete says that this is the whole suite.
    """
    from msgspec.structs import replace

    from karat.config import load
    from karat.policy.evidence import changed_sources, merge
    from karat.policy.gate.decision import document, gate, lines
    from karat.policy.gate.project import imports, journal_folders, policy_of, rewritten
    from karat.policy.journal import run_of, tested_commit, top_of
    from karat.report.terminal import say
    from karat.system import ci
    from karat.system.dates import day

    one_report_each({"--json": json_file})
    if added and ci.in_ci():
        said = "--add-to-baseline is refused in CI: a list that a robot extends guards nothing"
        raise UsageError(said, next_command="karat policy gate --help  # add it on your own machine, and commit it")
    config = load(Path.cwd())
    commit = tested_commit(Path.cwd(), os.environ)
    merged = merge(journal_folders(places, config), run=run_of(os.environ), commit=commit)
    merged = replace(merged, findings=(*merged.findings, *changed_sources(merged, top_of(Path.cwd()))))
    rewriting = {"--update-baseline", "--add-to-baseline"}
    if (named := imports(config, Path.cwd())) and complete is None and config.policy.complete:
        said = (
            f"expected --complete or --partial, found neither: karat.toml says complete = true, and that imports {named};"
            " a configuration alone does not make karat run code"
        )
        raise UsageError(said, next_command=typed().plus("--complete"))
    if named and complete and not quiet:
        say(f"karat: importing {named}", sys.stderr)
    policy = policy_of(
        config,
        Path.cwd(),
        today=day(today, os.environ),
        exemptions=exemptions,
        devices=devices,
        complete=config.policy.complete if complete is None else complete,
        again=typed().without(rewriting, flags={"--update-baseline"}),
    )
    if update_baseline or added:
        policy = rewritten(policy, merged, added, shorten=update_baseline)
    gated = gate(merged, policy)
    if json_file is not None:
        deliver(json_file, document(gated))
    if not quiet:
        for line in lines(gated, today=policy.today) if json_file != "-" else ():
            say(line)
        last_line(gated.findings)
    if github or (github is None and ci.provider_of() == "github"):
        from karat.report.github import workflow_commands

        stream = sys.stderr if json_file == "-" else sys.stdout
        stream.write(workflow_commands(gated.findings, "karat policy gate"))
    return int(gated.exit_code)
