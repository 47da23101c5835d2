"""Reset: put goldens back as the index has them, before a refresh is done again.

Tracked goldens are restored, untracked ones deleted; nothing else is touched. What is staged stays
staged: staging is a person's decision. Every version that goes is given to git first.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from karat.findings import Finding, UsageError
from karat.goldens import git
from karat.goldens.lock import lock_names, place_of, read_lock, write_lock
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter
from karat.refresh.standing import indexed_lock
from karat.refresh.writing import ensure_inside, keep_edits, only_writer


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset puts back and deletes."""

    root: Path
    restored: tuple[str, ...]
    """Tracked goldens whose work-tree version differs from the index."""
    deleted: tuple[str, ...]
    """Untracked goldens."""
    lines: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Lock → names in it whose lines are put back, where not the whole lock is."""

    @property
    def paths(self) -> tuple[str, ...]:
        """All of them, in order."""
        return tuple(sorted((*self.restored, *self.deleted)))


def plan_reset(
    cwd: Path,
    is_golden: PathFilter,
    globs: Sequence[str] = DEFAULT_GLOBS,
    *,
    narrowed: bool = False,
) -> Reset:
    """What would be put back; refuses where that would touch anything but plain golden files.

    `narrowed`: only some goldens are asked for, so of a lock only their lines go back.
    """
    locks = lock_names(globs) if not narrowed else set()

    def ours(path: str) -> bool:
        return is_golden(path) or path in locks

    root = git.ensure_repository(cwd)
    unmerged = _names(git.run_git(root, "diff", "--name-only", "-z", "--diff-filter=U"))
    changed = _names(git.run_git(root, "diff-files", "--name-only", "-z"))
    others = _names(git.run_git(root, "ls-files", "-z", "--others", "--exclude-standard"))
    conflicts = sorted(path for path in unmerged if ours(path))
    if conflicts:
        raise UsageError(
            f"expected no merge under way, found {len(conflicts)} goldens in conflict ({conflicts[0]}, …)",
            next_command="git status",
        )
    reset = Reset(
        root=root,
        restored=tuple(sorted(path for path in changed if ours(path))),
        deleted=tuple(sorted(path for path in others if ours(path))),
    )
    if narrowed:
        reset = structs.replace(reset, lines=_lines(reset.paths, globs))
    for path in reset.paths:
        _ensure_plain(root, path)
    return reset


def _lines(paths: Sequence[str], globs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for path in paths:
        lock, name = place_of(path, tuple(globs))
        found[lock] = (*found.get(lock, ()), name)
    return found


def _names(out: bytes) -> set[str]:
    return {os.fsdecode(raw) for raw in out.split(b"\0") if raw}


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
        for lock, names in reset.lines.items():
            _put_back(reset.root, lock, names)
    return kept


def _put_back(root: Path, lock: str, names: Sequence[str]) -> None:
    """Some lines of a lock as the index has them; the others speak of goldens that stay."""
    now = read_lock(root / lock)
    before = indexed_lock(root, lock)
    for name in names:
        now.pop(name, None)
        if name in before:
            now[name] = before[name]
    if now:
        ensure_inside(root, root / lock)
        write_lock(root / lock, now)
    else:
        (root / lock).unlink(missing_ok=True)
