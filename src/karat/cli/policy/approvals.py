"""`karat policy approvals`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from karat.cli.output import deliver, json_option, last_line, quiet_option
from karat.findings import UsageError

_EXAMPLES = """
\b
Examples:
  karat policy approvals --base origin/main --pr 1234
  karat policy approvals --base origin/main --merge-request 56 --json approvals.json
  karat policy approvals --base origin/main --print-sign-off > sign-off.toml
  karat policy approvals --base origin/main --sign-off sign-off.toml
"""


@click.command(epilog=_EXAMPLES)
@click.option("--base", required=True, metavar="REV", help="The branch to merge into; its commit says who may approve.")
@click.option("--head", default="HEAD", show_default=True, metavar="REV", help="The commit to be merged.")
@click.option(
    "--pr", type=click.IntRange(min=1), metavar="N", help="The pull request on GitHub. Default: the one CI runs for."
)
@click.option(
    "--merge-request",
    type=click.IntRange(min=1),
    metavar="N",
    help="The merge request on GitLab. Default: the one CI runs for.",
)
@click.option("--repo", metavar="O/N", help="Repository or project. Default: CI's, else that of the remote origin.")
@click.option(
    "--sign-off",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A list that approvers have signed; FILE.sig and FILE.*.sig are the signatures.",
)
@click.option(
    "--signers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Whose keys may sign (ssh-keygen's allowed signers), instead of the file at the base.",
)
@click.option(
    "--unsigned-sign-off",
    is_flag=True,
    help="Accept the list without a signature: anyone who can write the file can approve.",
)
@click.option("--print-sign-off", is_flag=True, help="Print the list to sign and exit, without checking any reviews.")
@click.option("--step-summary", is_flag=True, help="Add the table to the file that GITHUB_STEP_SUMMARY names.")
@json_option("karat.policy-approvals/1")
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *,
    base: str,
    head: str,
    pr: int | None,
    merge_request: int | None,
    repo: str | None,
    sign_off: Path | None,
    signers: Path | None,
    unsigned_sign_off: bool,
    print_sign_off: bool,
    step_summary: bool,
    json_file: str | None,
    quiet: bool,
) -> int:
    """Require an approving review for every exemption that was added or changed.

    Compares exemptions, skip decorators, flags set by hand, widened tolerances and the baseline, by structure and not
    by text. Each change needs the approval of one of its rule's approvers ([policy] approvers): the reviewer's latest
    review, of the head commit, and never by an author.
    """
    from karat.policy.approvals.check import approvals, document, lines, markdown, to_sign
    from karat.policy.approvals.request import Options
    from karat.report.terminal import say
    from karat.system.command import Command

    for option, asked in (("--signers", signers is not None), ("--unsigned-sign-off", unsigned_sign_off)):
        if asked and sign_off is None:
            raise UsageError(f"{option} needs --sign-off FILE", next_command="karat policy approvals --help")
    if unsigned_sign_off and signers is not None:
        said = "--signers and --unsigned-sign-off exclude each other"
        raise UsageError(said, next_command="karat policy approvals --help")
    other = None if head == "HEAD" else head
    given = {"--base": base, "--head": other, "--pr": pr, "--merge-request": merge_request, "--repo": repo}
    words = (word for option, value in given.items() if value for word in (option, str(value)))
    options = Options(
        base=base,
        head=head,
        pull=pr,
        merge=merge_request,
        repo=repo,
        sign_off=sign_off,
        signers=signers,
        unsigned=unsigned_sign_off,
        again=Command("karat", "policy", "approvals", *words),
        env=os.environ,
        notice=None if quiet else lambda text: say(f"karat: {text}", sys.stderr),
    )
    if print_sign_off:
        deliver("-", to_sign(Path.cwd(), options))
        return 0
    report = approvals(Path.cwd(), options)
    if step_summary:
        from karat.report.github import add_step_summary

        if not add_step_summary(lambda _: markdown(report)):
            said = "--step-summary needs GITHUB_STEP_SUMMARY to name a file, and it is not set"
            raise UsageError(said, next_command="karat policy approvals --help")
    if json_file is not None:
        deliver(json_file, document(report))
    if not quiet:
        for line in lines(report) if json_file != "-" else ():
            say(line)
        last_line(report.findings, otherwise=options.again if report.exit_code else "")
    return int(report.exit_code)
