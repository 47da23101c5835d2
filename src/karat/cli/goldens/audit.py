"""`karat audit`, and its quick part for a hook: `karat lint`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from karat.cli.output import Reports, fail_on_option, jobs_option, preset_option, progress_line, report_options, typed
from karat.findings import Severity, UsageError, exit_code

if TYPE_CHECKING:
    from karat.config import Config
    from karat.diffs.diff import DiffOptions

_EXAMPLES = """
  karat audit                                       all goldens of the repository
  karat audit --preset megatron-lm --html audit.html
  karat audit tests/gpt --fail-on warn
  karat audit --baseline audit.json                 in CI: only what is new fails
  karat audit captures                              captured cases: which cannot fail?
"""


@click.command(epilog=_EXAMPLES)
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--baseline", metavar="FILE", help="Let findings pass that this list names; only new ones fail.")
@click.option(
    "--update-baseline",
    is_flag=True,
    help="Remove from the list what is no longer wrong; without a list yet, write one of all that is (refused in CI).",
)
@fail_on_option
@click.option("--all", "everything", is_flag=True, help="List every finding, including info.")
@report_options("karat.audit/1", "sarif", "html", "junit")
@preset_option
@jobs_option
def command(
    *, paths: tuple[str, ...], baseline: str | None, update_baseline: bool, everything: bool, out: Reports, **given: Any
) -> int:
    """Find what is wrong with the goldens in a tree today.

    Empty, truncated, unreadable and not finite goldens, copies, goldens that nobody refreshes, goldens that no test
    uses, and tests without a golden. A PATH is a folder, a glob, or the end of a path. Of captured cases (a capture folder,
    a zip, a reference of a store), those that a wrong output would pass, and tolerances that nobody set.
    """
    from dataclasses import replace

    from karat.audits import report as reports
    from karat.audits.audit import against_baseline, audit, audit_bundle, is_bundle, name_of
    from karat.goldens import saves
    from karat.report.baseline import BaselineFile
    from karat.system import ci, git
    from karat.system.dates import day

    if update_baseline and (paths or baseline is None):
        said = (
            "--update-baseline needs --baseline FILE, and no PATH: part of a tree does not show what is no longer wrong"
        )
        raise UsageError(said, next_command=typed().without(set(paths), flags=set(paths)))
    config, fail, options = _opened(**given)
    root = git.find_root(Path.cwd()) or Path.cwd()
    # A path that is there means that one; any other is looked for.
    here = [os.path.relpath(word, root) if os.path.lexists(word) else word for word in paths]
    only = [word for word in here if word != "."]
    narrowed = only if len(only) == len(here) else []
    options = replace(options, only=narrowed)
    bundles = [is_bundle(word) for word in paths]
    if all(bundles) and len(paths) == 1:
        report = audit_bundle(paths[0])
    elif any(bundles):
        said = "expected goldens of a tree, or one bundle and nothing else, found both, or several bundles"
        raise UsageError(said, next_command="karat audit --help")
    else:
        report = audit(root, options, config.audit, today=day(os.environ))
    if baseline is not None:
        file, place = BaselineFile("karat.audit-baseline/1", "findings"), Path(baseline)
        listed = file.read(place, baseline)
        if update_baseline:  # the list is shortened first, or made
            if not place.exists() and ci.in_ci():
                said = f"expected the list {baseline}, found none; a list that a robot makes guards nothing"
                raise UsageError(said, next_command="karat audit --help  # make it on your own machine, and commit it")
            wrong = {name_of(finding) for finding in report.findings if finding.severity is not Severity.INFO}
            # What was not looked at may be wrong still.
            gone = {name for name in listed if name.partition(" ")[0] not in report.unjudged} - wrong
            saves.update(place, lambda there: file.merged(there, baseline, wrong if there is None else (), gone))
            listed = file.read(place, baseline)
        again = typed().without({"--update-baseline"}, flags={"--update-baseline"})
        report = against_baseline(report, listed, baseline, again, whole=not narrowed)
    return out.finish(
        "karat.audit/1",
        report,
        lambda: reports.lines(report, everything=everything),
        fail_on=fail,
        ci={"verb": "karat audit", "headline": report.headline()},
        sarif=lambda: reports.render_sarif(report, exit_code(report.findings, fail_on=fail)),
        html=lambda: reports.render_html(report, str(typed())),
    )


def _opened(
    fail_on: tuple[str, ...] | None, preset: str | None, jobs: int | None
) -> tuple[Config, tuple[str, ...], DiffOptions]:
    """The configuration, what fails, and how goldens are read."""
    from karat.api import diff_options
    from karat.config import load

    config = load(Path.cwd(), preset=preset)
    progress = progress_line(sys.stderr, "reading goldens {done}/{total}")
    fail = tuple(config.fail_on) if fail_on is None else fail_on
    return config, fail, diff_options(config, jobs=jobs, progress=progress)


_LINT_EXAMPLES = """
  karat lint                                    all goldens of the repository
  karat lint $(git diff --cached --name-only)   what is about to be committed
  karat lint --fail-on warn --junit lint.xml    in CI, strict
"""


@click.command(epilog=_LINT_EXAMPLES)
@click.argument("files", metavar="[FILE]...", nargs=-1)
@fail_on_option
@click.option("--all", "everything", is_flag=True, help="List every finding, including info.")
@report_options("karat.lint/1", "junit")
@preset_option
@jobs_option
def lint(*, files: tuple[str, ...], everything: bool, out: Reports, **given: Any) -> int:
    """Check files before they are committed; quick enough for a hook.

    Goldens must be readable, complete and finite, and each in one style; no FILE may hold merge-conflict markers.
    Without a FILE, all goldens of the repository are read.
    """
    from karat.audits.lint import lint as linted
    from karat.audits.report import lines
    from karat.system import git

    _, fail, options = _opened(**given)
    root = (git.find_root(Path.cwd()) or Path.cwd()).resolve()
    named = [os.path.relpath(Path.cwd().resolve() / file, root) for file in files]
    for file, path in zip(files, named, strict=True):
        if path.startswith("../") or Path(file).is_dir():
            said = f"expected a file below {root}, found {file}"
            raise UsageError(said, next_command="karat lint  # all goldens of the repository")
    report = linted(root, named, options)
    ci = {"verb": "karat lint", "headline": report.headline(), "checked": report.goldens}
    return out.finish("karat.lint/1", report, lambda: lines(report, everything=everything), fail_on=fail, ci=ci)
