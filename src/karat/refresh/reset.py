"""Reset: put goldens back as the index has them, before a refresh is done again.

Tracked goldens are restored, untracked ones deleted; nothing else is touched. What is staged stays
staged: staging is a person's decision. Every version that goes is given to git first.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from karat.findings import Finding, UsageError
from karat.goldens import git
from karat.goldens.lock import NAME
from karat.goldens.paths import PathFilter
from karat.refresh.writing import ensure_inside, keep_edits, only_writer


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset puts back and deletes."""

    root: Path
    restored: tuple[str, ...]
    """Tracked goldens whose work-tree version differs from the index."""
    deleted: tuple[str, ...]
    """Untracked goldens."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, in order."""
        return tuple(sorted((*self.restored, *self.deleted)))


def plan_reset(cwd: Path, is_golden: PathFilter) -> Reset:
    """What would be put back; refuses where that would touch anything but plain golden files."""
    root = git.ensure_repository(cwd)
    unmerged = _names(git.run_git(root, "diff", "--name-only", "-z", "--diff-filter=U"))
    changed = _names(git.run_git(root, "diff-files", "--name-only", "-z"))
    others = _names(git.run_git(root, "ls-files", "-z", "--others", "--exclude-standard"))
    conflicts = sorted(path for path in unmerged if _ours(path, is_golden))
    if conflicts:
        raise UsageError(
            f"expected no merge under way, found {len(conflicts)} goldens in conflict ({conflicts[0]}, …)",
            next_command="git status",
        )
    reset = Reset(
        root=root,
        restored=tuple(sorted(path for path in changed if _ours(path, is_golden))),
        deleted=tuple(sorted(path for path in others if _ours(path, is_golden))),
    )
    for path in reset.paths:
        _ensure_plain(root, path)
    return reset


def _names(out: bytes) -> set[str]:
    return {os.fsdecode(raw) for raw in out.split(b"\0") if raw}


def _ours(path: str, is_golden: PathFilter) -> bool:
    return is_golden(path) or path.rpartition("/")[2] == NAME


def _ensure_plain(root: Path, path: str) -> None:
    target = root / path
    ensure_inside(root, target)
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return  # deleted: it will be restored
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"expected a plain file at {path}, found something else; --reset touches golden files only",
            next_command=f"ls -ld {target}",
        )


def apply_reset(reset: Reset) -> list[Finding]:
    """Do it; every version that goes stays with git, and the findings say under which name."""
    kept: list[Finding] = []
    with only_writer(reset.root):
        for path in reset.paths:
            target = reset.root / path
            if target.is_file():
                kept.append(keep_edits(reset.root, path, target.read_bytes()))
        for path in reset.deleted:
            (reset.root / path).unlink(missing_ok=True)
        for i in range(0, len(reset.restored), 200):
            some = reset.restored[i : i + 200]
            git.run_git(reset.root, "--literal-pathspecs", "checkout-index", "--force", "--", *some)
    return kept
