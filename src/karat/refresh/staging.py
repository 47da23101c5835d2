"""Staging: exactly the changed goldens, their lock and perhaps the CSV; never anything else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from karat.compare.change import Change, Diff
from karat.findings import Finding, Severity, UsageError
from karat.goldens import git
from karat.goldens.lock import NAME, Entry, group_root, read_lock, write_lock
from karat.refresh.writing import only_writer, sha256


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What was staged, or would be."""

    root: str
    goldens: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """Lock files and the CSV."""
    findings: tuple[Finding, ...] = ()
    unresolved: tuple[Finding, ...] = ()
    """`fail` findings that stand in the way."""
    forced: str | None = None
    """The reason given for staging all the same."""
    done: bool = False


def stage(
    diff: Diff,
    root: Path,
    globs: Sequence[str],
    *,
    csv: str | None,
    reason: str | None,
    dry_run: bool,
) -> Staged:
    """Stage the goldens of a diff between HEAD and the work tree; refused while a finding fails."""
    changes = [c for c in diff.changes if not c.same_bytes]
    goldens = tuple(sorted(c.path for c in changes))
    unresolved = tuple(f for c in changes for f in c.findings if f.severity is Severity.FAIL)
    unresolved += tuple(f for f in diff.findings if f.severity is Severity.FAIL and goldens)
    locks = sorted({_lock_of(path, globs) for path in goldens})
    beside = [name for name in locks if (root / name).is_file()]
    beside += _samples(root, goldens)
    if csv is not None:
        beside.append(_inside(root, csv))
    staged = Staged(
        root=str(root),
        goldens=goldens,
        beside=tuple(beside),
        findings=tuple(
            _edited(root, path, globs) for path in _edited_by_hand(root, goldens, globs)
        ),
        unresolved=unresolved,
        forced=reason if unresolved else None,
    )
    if dry_run or not goldens or (unresolved and reason is None):
        return staged
    with only_writer(root):
        if unresolved and reason is not None:
            beside = sorted({*beside, *_write_reason(root, changes, globs, reason)})
        _add(root, (*goldens, *beside))
    return msgspec.structs.replace(staged, beside=tuple(beside), done=True)


def _lock_of(path: str, globs: Sequence[str]) -> str:
    folder = group_root(path, tuple(globs))
    return f"{folder}/{NAME}" if folder else NAME


def _samples(root: Path, goldens: Sequence[str]) -> list[str]:
    """The repeats that `karat record` keeps beside a golden belong to it."""
    names = (f"{path.rpartition('.')[0]}.samples.json" for path in goldens)
    return [name for name in names if (root / name).is_file()]


def _inside(root: Path, csv: str) -> str:
    path = Path(os.path.normpath(Path.cwd() / csv))
    if not path.is_file() or path.is_symlink() or not path.resolve().is_relative_to(root.resolve()):
        raise UsageError(
            f"expected the CSV {csv} to be a plain file inside {root}",
            next_command="karat diff --csv FILE",
        )
    return path.resolve().relative_to(root.resolve()).as_posix()


def _entry_of(root: Path, path: str, globs: Sequence[str]) -> Entry | None:
    lock = _lock_of(path, globs)
    folder = lock.rpartition("/")[0]
    return read_lock(root / lock).get(path[len(folder) + 1 :] if folder else path)


def _edited_by_hand(root: Path, goldens: Sequence[str], globs: Sequence[str]) -> list[str]:
    """Goldens that are not what the lock says they are."""
    found = []
    for path in goldens:
        entry = _entry_of(root, path, globs)
        file = root / path
        if entry is not None and file.is_file() and sha256(file.read_bytes()) != entry.sha256:
            found.append(path)
    return found


def _edited(root: Path, path: str, globs: Sequence[str]) -> Finding:
    entry = _entry_of(root, path, globs)
    run = f" of run {entry.run}" if entry and entry.run else ""
    return Finding(
        kind="kept-edits",
        severity=Severity.WARN,
        path=path,
        message=f"it is not the file that karat refresh took{run}: it was edited since, or its lock is old",
        next=f"karat diff --only {path}",
    )


def _write_reason(
    root: Path, changes: Sequence[Change], globs: Sequence[str], reason: str
) -> list[str]:
    """Put the reason into the lock lines of the goldens it is for, where a reviewer will see it."""
    written = []
    failing = [c for c in changes if any(f.severity is Severity.FAIL for f in c.findings)]
    by_lock: dict[str, list[str]] = {}
    for change in failing:
        by_lock.setdefault(_lock_of(change.path, globs), []).append(change.path)
    for lock, paths in by_lock.items():
        folder = lock.rpartition("/")[0]
        entries = read_lock(root / lock)
        for path in paths:
            file = root / path
            if not file.is_file():
                continue  # removed: no line to write on
            name = path[len(folder) + 1 :] if folder else path
            standing = entries.get(name) or Entry(
                source="work tree", sha256=sha256(file.read_bytes())
            )
            entries[name] = msgspec.structs.replace(standing, accepted=reason)
        if entries and write_lock(root / lock, entries):
            written.append(lock)
    return written


def _add(root: Path, paths: Sequence[str]) -> None:
    for i in range(0, len(paths), 200):
        some = paths[i : i + 200]
        git.run_git(root, "--literal-pathspecs", "add", "--all", "--", *some)
