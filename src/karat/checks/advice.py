"""Advice: the exact command that takes a result as the new golden, or that looks closer.

In CI the result is an artifact of this run, so the command fetches it; elsewhere it lies on this disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from karat.system.ci import facts
from karat.system.command import Command, quoted

__all__ = ["edit_command", "look_command", "quoted", "refresh_command"]

_WORD = re.compile(r"[\w.\-/]+")


def refresh_command(
    actual: str,
    golden: str | None,
    environment: Mapping[str, str],
    *,
    name: str | None = None,
    failing: bool = True,
    fewer: bool = False,
) -> str:
    """The command that makes this result the golden.

    `name`: the golden's path from the root of the repository, where CI finds it. `failing`: the job that runs the check will fail, so it is among those that failed. `fewer`: rows
    of the golden are gone, which has to be said to be meant.
    """
    ci = facts(environment)
    run, repo = ci.get("run", ""), ci.get("repository", "")
    if ci.get("provider") == "github" and run.isdecimal() and _WORD.fullmatch(repo):
        words = ["--source", "github", "--repo", repo, "--run-id", run]
    elif ci.get("provider") == "gitlab" and run.isdecimal():
        words = ["--source", "gitlab", "--pipeline-id", run]
    else:
        more = ["--accept-incomplete"] if fewer else []
        return str(Command("karat", "record", actual, "-o", golden or "GOLDEN", *more))
    words += ["--scope", "only-failing" if failing else "all"]
    known = name or golden
    words += ["--only", known] if known else []
    words += ["--prune"] if fewer else []
    return str(Command("karat", "refresh", *words))


def edit_command(golden: str) -> str:
    """For a result that has another form than its golden, and can only be taken by hand."""
    return f"edit {quoted(golden)}  # the result has other columns, so nothing can take it as it is"


def look_command(actual: str, golden: str) -> str:
    """The command that shows both sides, curve by curve."""
    return str(Command("karat", "diff", golden, actual, "--html", "report.html"))
