"""`karat policy`: evidence of gradients against the rule, as a table, its exemptions' approvals, and op tests as they are written."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from karat.cli.group import LazyGroup
from karat.cli.output import (
    Reports,
    deliver,
    fail_on_option,
    jobs_option,
    progress_line,
    repeatable,
    report_options,
    request_options,
    typed,
)
from karat.findings import CannotVerify, UsageError, exit_code

COMMANDS = {
    "gate": "Check the evidence of test runs against the rule and its exemptions.",
    "coverage": "Show which gradients have evidence: op × dtype × device × mode.",
    "approvals": "Require an approving review for every exemption that was added or changed.",
    "scan": "Read op tests without importing them, and report what is not checked.",
}
_EXAMPLES = """
  pytest --karat-evidence=evidence && karat policy gate evidence
  karat policy coverage evidence --html coverage.html
  karat policy approvals --base origin/main
  karat policy scan test/legacy_test
"""


@click.group(
    cls=LazyGroup, summaries=COMMANDS, homes={name: f"policy:{name}_command" for name in COMMANDS}, epilog=_EXAMPLES
)
def command() -> None:
    """Check that op tests follow the gradient policy.

    Every op test has gradient evidence in float64 for every differentiable input, or an exemption that is
    verified, approved, owned, and ends.
    """


_GATE_EXAMPLES = """
  pytest --karat-evidence=evidence && karat policy gate evidence
  karat policy gate shard-1 shard-2 gpu --complete         all jobs of a CI run
  karat policy gate evidence --json gate.json
  karat policy gate evidence --complete --update-baseline
"""


@click.command(epilog=_GATE_EXAMPLES)
@click.argument("places", metavar="[DIR]...", nargs=-1)
@click.option(
    "--complete/--partial",
    default=None,
    help=(
        "These journals are the whole suite: what is not in them was not run. Imports the modules that karat.toml names as"
        " namespaces: their code runs. Default: as in karat.toml, else partial."
    ),
)
@repeatable("--device", "NAME", "Require evidence on this device; overrides karat.toml.", to="devices")
@click.option("--update-baseline", is_flag=True, help="Remove operators from the baseline that no longer belong there.")
@repeatable("--add-to-baseline", "OP", "Add an operator without evidence (a glob); refused in CI.", to="added")
@report_options("karat.policy-gate/1", "junit")
def gate_command(
    *,
    places: tuple[str, ...],
    complete: bool | None,
    devices: tuple[str, ...],
    update_baseline: bool,
    added: tuple[str, ...],
    out: Reports,
) -> int:
    """Check the evidence of test runs against the rule and its exemptions.

    A DIR holds journals written by `pytest --karat-evidence=DIR`, of one run or of many: workers, shards and CI
    jobs are merged. What was not selected is not judged, unless --complete says that this is the whole suite.
    """
    from msgspec.structs import replace

    from karat.config import load
    from karat.policy.evidence import changed_sources, merge
    from karat.policy.gate.decision import SCHEMA, gate, lines
    from karat.policy.gate.project import journal_folders, policy_of, rewritten
    from karat.policy.journal import run_of, tested_commit, top_of
    from karat.report.terminal import say
    from karat.report.words import severity_counts
    from karat.system import ci
    from karat.system.dates import day

    if added and ci.in_ci():
        said = "--add-to-baseline is refused in CI: a list that a robot extends guards nothing"
        raise UsageError(said, next_command="karat policy gate --help  # add it on your own machine, and commit it")
    config = load(Path.cwd())
    commit = tested_commit(Path.cwd(), os.environ)
    merged = merge(journal_folders(places, config), run=run_of(os.environ), commit=commit)
    merged = replace(merged, findings=(*merged.findings, *changed_sources(merged, top_of(Path.cwd()))))
    rewriting = {"--update-baseline", "--add-to-baseline"}
    namespaces, root = config.policy.namespaces, config.file.parent if config.file else Path.cwd()
    named = f"{', '.join(namespaces)} (found from {root})" if namespaces else ""
    if named and complete is None and config.policy.complete:
        said = (
            f"expected --complete or --partial, found neither: karat.toml says complete = true, and that imports {named};"
            " a configuration alone does not make karat run code"
        )
        raise UsageError(said, next_command=typed().plus("--complete"))
    if named and complete and not out.quiet:
        say(f"karat: importing {named}", sys.stderr)
    policy = policy_of(
        config,
        Path.cwd(),
        today=day(os.environ),
        devices=devices,
        complete=config.policy.complete if complete is None else complete,
        again=typed().without(rewriting, flags={"--update-baseline"}),
    )
    if update_baseline or added:
        policy = rewritten(policy, merged, added, shorten=update_baseline)
    gated = gate(merged, policy)
    answer = severity_counts(gated.findings) or "nothing to object to"
    shown = lambda: lines(gated, today=policy.today)  # noqa: E731
    return out.finish(SCHEMA, gated, shown, ci={"verb": "karat policy gate", "headline": answer})


_COVERAGE_EXAMPLES = """
  karat policy coverage evidence
  karat policy coverage evidence --op 'conv*' --all
  karat policy coverage shard-1 shard-2 gpu --html coverage.html --json coverage.json
"""


@click.command(epilog=_COVERAGE_EXAMPLES)
@click.argument("places", metavar="[DIR]...", nargs=-1)
@repeatable("--op", "GLOB", "Only these ops.", to="ops")
@click.option("--all", "every", is_flag=True, help="A line per op, however many there are.")
@report_options("karat.policy-coverage/1", "html")
def coverage_command(*, places: tuple[str, ...], ops: tuple[str, ...], every: bool, out: Reports) -> int:
    """Show which gradients have evidence: op × dtype × device × mode.

    A DIR holds journals written by `pytest --karat-evidence=DIR`. Nothing is judged: that is `karat policy gate`.
    """
    from msgspec import structs

    from karat.config import load
    from karat.policy.coverage import SCHEMA, coverage, lines, page
    from karat.policy.evidence import merge
    from karat.policy.gate.project import journal_folders, policy_of
    from karat.policy.journal import run_of
    from karat.system.dates import day

    config = load(Path.cwd())
    merged = merge(journal_folders(places, config), run=run_of(os.environ))
    today = day(os.environ)
    policy = policy_of(config, Path.cwd(), today=today, complete=False)
    active = [one for one in policy.exemptions.entries if not one.has_expired(today)]
    found = coverage(merged, entries=active, devices=policy.devices, only=ops)
    if ops and not found.rows and merged.tests:
        said = f"--op {' '.join(ops)}: no op with tests has such a name"
        raise UsageError(said, next_command="karat policy coverage --all")
    if not found.rows and not found.findings:
        said = f"the {merged.journals} journals hold no evidence"
        raise CannotVerify(said, next_command="pytest --karat-evidence=DIR")
    found = structs.replace(found, findings=(*found.findings, *policy.exemptions.findings))
    told = [f"{one.severity.value:4}  {one.kind}: {one.message}" for one in found.findings]
    return out.finish(SCHEMA, found, lambda: [*told, *lines(found, every=every)], html=lambda: page(found))


_REQUEST = {"base": "--base", "head": "--head", "pull": "--pr", "merge": "--merge-request", "repo": "--repo"}
_APPROVALS_EXAMPLES = """
  karat policy approvals --base origin/main --pr 1234
  karat policy approvals --base origin/main --merge-request 56 --json approvals.json
  karat policy approvals --base origin/main --print-sign-off > sign-off.toml
  karat policy approvals --base origin/main --sign-off sign-off.toml
"""


@click.command(epilog=_APPROVALS_EXAMPLES)
@click.option("--base", required=True, metavar="REV", help="The branch to merge into; its commit says who may approve.")
@click.option("--head", default="HEAD", show_default=True, metavar="REV", help="The commit to be merged.")
@request_options
@click.option(
    "--sign-off",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A list that approvers have signed; FILE.sig and FILE.*.sig are the signatures.",
)
@click.option("--print-sign-off", is_flag=True, help="Print the list to sign and exit, without checking any reviews.")
@report_options("karat.policy-approvals/1")
def approvals_command(*, print_sign_off: bool, out: Reports, **given: Any) -> int:  # as Options names them
    """Require an approving review for every exemption that was added or changed.

    Compares exemptions, skip decorators, flags set by hand, widened tolerances and the baseline, by structure and not
    by text. Each change needs the approval of one of its rule's approvers ([policy] approvers): the reviewer's latest
    review, of the head commit, and never by an author.
    """
    from karat.policy.approvals.check import SCHEMA, approvals, lines, to_sign
    from karat.policy.approvals.request import Options
    from karat.report.terminal import say
    from karat.system.command import Command

    typed_ = {**given, "head": None if given["head"] == "HEAD" else given["head"]}
    words = (word for name, option in _REQUEST.items() if typed_[name] for word in (option, str(typed_[name])))
    options = Options(
        **given,
        again=Command("karat", "policy", "approvals", *words),
        env=os.environ,
        notice=None if out.quiet else lambda text: say(f"karat: {text}", sys.stderr),
    )
    if print_sign_off:
        deliver("-", to_sign(Path.cwd(), options))
        return 0
    report = approvals(Path.cwd(), options)
    return out.finish(SCHEMA, report, lambda: lines(report), otherwise=options.again)


_SCAN_EXAMPLES = """
  karat policy scan test/legacy_test
  karat policy scan tests --base-class MyOpTest --exclude 'tests/third_party/**'
  karat policy scan tests --sarif scan.sarif --json scan.json
  karat policy scan tests --fail-on none               only look
  karat policy scan tests --fail-on tolerance-override
"""


@click.command(epilog=_SCAN_EXAMPLES)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@repeatable("--base-class", "NAME", "Another class whose subclasses are op tests.", to="base_classes")
@repeatable("--exclude", "GLOB", "Leave out files and folders.")
@fail_on_option
@click.option("--all", "everything", is_flag=True, help="List every finding, including info.")
@report_options("karat.policy-scan/1", "sarif")
@jobs_option
def scan_command(
    *, paths: tuple[str, ...], fail_on: tuple[str, ...] | None, everything: bool, out: Reports, **given: Any
) -> int:
    """Read op tests without importing them, and report what is not checked.

    A PATH is a folder or a Python file. Classes are followed through imports, aliases, factories and inheritance;
    nothing is run. Reported are op tests without a gradient check, empty checks, flags set by hand, skips without
    a reason or an exemption, and widened tolerances.
    """
    from karat import __version__
    from karat.config import load
    from karat.policy.exemptions import read
    from karat.policy.scan.scanner import SCHEMA, ScanOptions, lines, sarif_log, scan
    from karat.system.dates import day

    for name in given["base_classes"]:
        if not all(part.isidentifier() for part in name.split(".")):
            said = f"expected --base-class to name a class (OpTest, or mylib.testing.OpTest), found {name!r}"
            raise UsageError(said, next_command="karat policy scan --help")
    path = load(Path.cwd()).policy.exemptions
    options = ScanOptions(
        **given, exemptions=read(Path(path), path) if Path(path).is_file() else None, today=day(os.environ)
    )
    progress = progress_line(sys.stderr, "reading {done}/{total} files", least=500)
    report = scan(paths, options, progress=None if out.quiet else progress)
    failing = ("fail",) if fail_on is None else fail_on
    sarif = lambda: sarif_log(report, __version__, exit_code(report.findings, fail_on=failing))  # noqa: E731
    return out.finish(SCHEMA, report, lambda: lines(report, everything=everything), fail_on=failing, sarif=sarif)
