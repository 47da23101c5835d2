"""Order of logs by commit: as git has it, where there is a repository that knows the commits."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from karat.findings import CannotVerify
from karat.goldens.git import find_root, resolve, run_git

_ASKED = 2000
"""Commits that fit a command line; more of them are looked for in all branches."""


class CommitOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Where commits stand in a history."""

    places: Mapping[str, int]
    """Commit as it was asked for → its place, oldest first."""
    times: Mapping[str, datetime]


def commit_order(commits: tuple[str, ...], start: Path) -> CommitOrder | None:
    """The order of commits in the history of the repository around `start`; None outside of one."""
    if shutil.which("git") is None:
        return None
    try:
        root = find_root(start)
    except CannotVerify:  # a repository of somebody else, which git will not read
        return None
    if root is None:
        return None
    known = {commit: full for commit in commits if (full := resolve(root, commit)) is not None}
    if not known:
        return CommitOrder(places={}, times={})
    wanted = sorted(set(known.values())) if len(known) <= _ASKED else ["--all"]
    out = run_git(root, "rev-list", "--topo-order", "--reverse", "--timestamp", *wanted, "--")
    lines = [line.split() for line in out.decode().splitlines()]
    place = {full: n for n, (_, full) in enumerate(lines)}
    time = {full: datetime.fromtimestamp(int(stamp), UTC) for stamp, full in lines}
    return CommitOrder(
        places={commit: place[full] for commit, full in known.items() if full in place},
        times={commit: time[full] for commit, full in known.items() if full in time},
    )
