"""`karat policy approvals`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from karat.cli.output import deliver, last_line, quiet_option
from karat.findings import UsageError

if TYPE_CHECKING:
    from karat.policy.approvals.check import Approvals, Options

_EXAMPLES = """
\b
Examples:
  karat policy approvals --base origin/main --pr 1234
  karat policy approvals --base origin/main --merge-request 56 --json approvals.json
  karat policy approvals --base origin/main --print-sign-off > sign-off.toml
  karat policy approvals --base origin/main --sign-off sign-off.toml
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--base", required=True, metavar="REV",
    help="The branch to merge into; its commit says who may approve.",
)  # fmt: skip
@click.option(
    "--head", default="HEAD", show_default=True, metavar="REV", help="The commit to be merged."
)
@click.option(
    "--pr",
    type=click.IntRange(min=1),
    metavar="N",
    help="The pull request on GitHub; in its CI, known.",
)
@click.option(
    "--merge-request", type=click.IntRange(min=1), metavar="N",
    help="The merge request on GitLab; in its CI, known.",
)  # fmt: skip
@click.option(
    "--repo",
    metavar="O/N",
    help="Repository or project; by default the CI's, else that of the remote origin.",
)
@click.option(
    "--sign-off", type=click.Path(path_type=Path), metavar="FILE",
    help="A list that approvers have signed; FILE.sig and FILE.*.sig are the signatures.",
)  # fmt: skip
@click.option(
    "--signers", type=click.Path(path_type=Path), metavar="FILE",
    help="Whose keys may sign (ssh-keygen's allowed signers), instead of the base's own file.",
)  # fmt: skip
@click.option(
    "--unsigned-sign-off", is_flag=True,
    help="Let the list count without a signature: whoever can write the file can approve.",
)  # fmt: skip
@click.option("--print-sign-off", is_flag=True, help="Print the list to sign, and ask nobody.")
@click.option(
    "--step-summary", is_flag=True, help="Add the table to the file that GITHUB_STEP_SUMMARY names."
)
@click.option(
    "--json", "json_file", metavar="F",
    help="Write the report, schema karat.policy-approvals/1; - is stdout.",
)  # fmt: skip
@quiet_option
def command(  # noqa: PLR0913 - one parameter per option
    *, base: str, head: str, pr: int | None, merge_request: int | None, repo: str | None,
    sign_off: Path | None, signers: Path | None, unsigned_sign_off: bool, print_sign_off: bool,
    step_summary: bool, json_file: str | None, quiet: bool,
) -> int:  # fmt: skip
    """Require an approving review for every exemption that was added or changed.

    Looks at exemptions, skip decorators, flags set by hand, widened tolerances and entries of the ratchet's list,
    by structure and not by text. Each needs the approval of one of its rule's approvers ([policy] approvers):
    the latest review of the reviewer, of the head commit, and never of an author.
    """
    from karat.policy.approvals.check import Options, approvals, to_sign  # noqa: PLC0415 - help must be quick

    _check(sign_off, signers, unsigned=unsigned_sign_off)
    options = Options(
        base=base, head=head, pull=pr, merge=merge_request, repo=repo, sign_off=sign_off,
        signers=signers, unsigned=unsigned_sign_off, again=_again(base, head, repo, pr, merge_request), env=os.environ,
        notice=None if quiet else _notice,
    )  # fmt: skip
    if print_sign_off:
        return _print(to_sign(Path.cwd(), options))
    told = approvals(Path.cwd(), options)
    if step_summary:
        _add_summary(told)
    if json_file is not None:
        from karat.policy.approvals.check import document  # noqa: PLC0415 - only for those who asked

        deliver(json_file, document(told))
    if not quiet:
        _report(told, options, text=json_file != "-")
    return int(told.exit_code)


def _check(sign_off: Path | None, signers: Path | None, *, unsigned: bool) -> None:
    for option, given in (("--signers", signers is not None), ("--unsigned-sign-off", unsigned)):
        if given and sign_off is None:
            raise UsageError(
                f"expected --sign-off FILE beside {option}, found none",
                next_command="karat policy approvals --help",
            )
    if unsigned and signers is not None:
        raise UsageError(
            "expected one of --signers and --unsigned-sign-off, found both",
            next_command="karat policy approvals --help",
        )


def _again(
    base: str, head: str, repo: str | None, pr: int | None, merge_request: int | None
) -> str:
    """The command as it was typed, as far as it says what is asked about."""
    import shlex  # noqa: PLC0415 - help must be quick

    given = {
        "--base": base, "--head": head if head != "HEAD" else None, "--pr": pr, "--merge-request": merge_request,
        "--repo": repo,
    }  # fmt: skip
    words = (word for option, value in given.items() if value for word in (option, str(value)))
    return shlex.join(["karat", "policy", "approvals", *words])


def _notice(text: str) -> None:
    from karat.report.words import printable  # noqa: PLC0415 - only for those who wait

    print(f"karat: {printable(text)}", file=sys.stderr)


def _print(text: str) -> int:
    deliver("-", text)
    return 0


def _report(told: Approvals, options: Options, *, text: bool) -> None:
    from karat.policy.approvals.check import lines  # noqa: PLC0415
    from karat.report.words import printable  # noqa: PLC0415

    for line in lines(told) if text else ():
        print(printable(line))
    last_line(told.findings, otherwise=options.again if told.exit_code else "")


def _add_summary(told: Approvals) -> None:
    from karat.policy.approvals.check import markdown  # noqa: PLC0415 - only in GitHub's own runners
    from karat.report.github import add_step_summary  # noqa: PLC0415

    if not add_step_summary(lambda _: markdown(told)):
        raise UsageError(
            "expected GITHUB_STEP_SUMMARY to name a file for --step-summary, found nothing",
            next_command="karat policy approvals --help",
        )
