"""`karat comment`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from karat.cli.output import Reports, report_options, request_options
from karat.findings import CannotVerify, UsageError
from karat.system.command import Command

_EXAMPLES = """
  karat summary --format github -o body.md && karat comment body.md     in CI, on its own request
  karat comment body.md --pr 1234 --repo octo/models                    with GITHUB_TOKEN
  karat comment body.md --or-summary                                    also where a fork's token may not comment
"""


@click.command(epilog=_EXAMPLES)
@click.argument("body")
@click.option("--name", default="karat", show_default=True, metavar="NAME", help="Which comment, if there are several.")
@request_options
@click.option("--author", metavar="LOGIN", help="Whose comment to replace. Default: the account of the token.")
@click.option(
    "--or-summary",
    is_flag=True,
    help="Where the token may not comment, as on a pull request from a fork, add BODY to the step summary instead.",
)
@report_options("karat.comment/1")
def command(*, body: str, name: str, author: str | None, or_summary: bool, out: Reports, **request: Any) -> int:
    """Write a text as one comment of a pull or merge request, and keep it up to date.

    The comment is found by a hidden marker and its author, so that each run replaces the one before, and never the comment of
    somebody else. The token is read from GITHUB_TOKEN or GITLAB_TOKEN.
    """
    from karat.net.client import Refused
    from karat.net.comments import comment, fitting
    from karat.policy.approvals.request import Options, forge_of, request_of
    from karat.report.json import encode
    from karat.report.terminal import say
    from karat.system.foreign.limits import TEXT, read_plain

    try:
        text = read_plain(Path(body), TEXT).decode("utf-8", "replace")
    except OSError as error:
        said = f"expected to read {body}, but: {error.strerror or error}"
        raise CannotVerify(said, next_command=Command("karat", "summary", "--format", "github", "-o", body)) from error
    options = Options(base="", env=os.environ, **request)
    try:
        place = request_of(options, forge_of(options, None), Path.cwd())
    except UsageError as error:
        error.next_command = "karat comment --help"
        raise
    if place is None:
        said = "expected --pr or --merge-request, or a CI run for one, found none"
        raise UsageError(said, next_command="karat comment --help")
    report = {"schema": "karat.comment/1", "exit_code": 0, "action": "", "url": ""}
    try:
        done = comment(place.forge, place.repo, place.number, text, name=name, env=os.environ, author=author)
        report |= {"action": done.action, "url": done.url}
    except Refused as error:
        from karat.report.github import add_step_summary

        # A character has at most four bytes.
        if not (or_summary and error.status == 403 and add_step_summary(lambda room: fitting(text, room // 4))):
            raise
        report |= {"action": "step-summary"}
        if not out.quiet:
            say(f"karat: {error}; the text is in the step summary instead", sys.stderr)
    out.write(json=lambda: encode(report))
    if out.shown:
        say(f"{report['action']} {report['url']}".strip())
    return 0
