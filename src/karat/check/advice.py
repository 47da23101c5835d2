"""Advice: the exact command that takes a result as the new golden, or that looks closer.

In CI the result is an artifact of this run, so the command fetches it; elsewhere it lies on this disk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from karat.diff.advice import quoted

__all__ = ["look_command", "quoted", "refresh_command"]

_WORD = re.compile(r"[\w.\-/]+")


def refresh_command(actual: str, golden: str | None, environment: Mapping[str, str]) -> str:
    """The command that makes this result the golden."""
    only = ["--only", quoted(golden)] if golden else []
    run, repo = environment.get("GITHUB_RUN_ID", ""), environment.get("GITHUB_REPOSITORY", "")
    pipeline = environment.get("CI_PIPELINE_ID", "")
    if run.isdecimal() and _WORD.fullmatch(repo):
        words = ["--source", "github", "--repo", repo, "--run-id", run]
    elif pipeline.isdecimal():
        words = ["--source", "gitlab", "--pipeline-id", pipeline]
    else:
        return f"karat record {quoted(actual)} -o {quoted(golden or 'GOLDEN')}"
    return " ".join(["karat", "refresh", *words, "--scope", "only-failing", *only])


def look_command(actual: str, golden: str) -> str:
    """The command that shows both sides, curve by curve."""
    return f"karat diff {quoted(golden)} {quoted(actual)} --html report.html"
