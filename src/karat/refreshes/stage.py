"""Staging: exactly the changed goldens, their lock and perhaps the CSV; never anything else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from karat.compare.change import Change, Diff
from karat.diffs.report.markdown import current
from karat.findings import Finding, Severity, UsageError
from karat.goldens.paths import SAMPLES, PathFilter
from karat.goldens.provenance import (
    Entry,
    encode_lock,
    lock_names,
    place_of,
    read_lock,
    read_record,
    write_lock,
)
from karat.refreshes.worktree import git_object, indexed_lock, only_writer
from karat.system import git
from karat.system.hashes import sha256_hex


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


def stage(  # noqa: PLR0913 - one parameter per choice of the user
    diff: Diff,
    root: Path,
    globs: Sequence[str],
    *,
    csv: str | None,
    reason: str | None,
    dry_run: bool,
    wanted: PathFilter,
    narrowed: bool = False,
) -> Staged:
    """Stage the goldens of a diff between HEAD and the work tree; refused while a finding fails.

    `wanted` says which goldens were asked for, those without a change among them. `narrowed`: the diff has only some of the goldens, so only their lines of a lock are staged.
    """
    changes = [c for c in diff.changes if not c.same_bytes]
    goldens = tuple(sorted(c.path for c in changes))
    unresolved = tuple(f for c in changes for f in c.findings if f.severity is Severity.FAIL)
    unresolved += tuple(f for f in diff.findings if f.severity is Severity.FAIL and goldens)
    locks = _locks(root, goldens, globs, narrowed=narrowed)
    beside = [*locks, *_samples(root, goldens, wanted)]
    if csv is not None:
        named = _inside(root, csv)
        beside += [named] if goldens or beside else []
    staged = Staged(
        root=str(root),
        goldens=goldens,
        beside=tuple(beside),
        findings=(
            *(_edited(root, path, globs) for path in _edited_by_hand(root, goldens, globs)),
            *_undone(diff, root),
        ),
        unresolved=unresolved,
        forced=reason if unresolved else None,
    )
    if dry_run or not (goldens or beside) or (unresolved and reason is None):
        return staged
    with only_writer(root):
        if unresolved and reason is not None:
            locks = sorted({*locks, *_write_reason(root, changes, globs, reason)})
            beside = sorted({*beside, *locks})
        partly = _by_lock(goldens, globs) if narrowed else {}
        _add(root, [path for path in (*goldens, *beside) if path not in partly])
        for lock in set(locks) & partly.keys():
            _add_lines(root, lock, list(partly[lock].values()))
    return msgspec.structs.replace(staged, beside=tuple(beside), done=True)


def _by_lock(paths: Sequence[str], globs: Sequence[str]) -> dict[str, dict[str, str]]:
    """Lock → the goldens it speaks for, with their names in it."""
    found: dict[str, dict[str, str]] = {}
    for path in paths:
        lock, name = place_of(path, tuple(globs))
        found.setdefault(lock, {})[path] = name
    return found


def _locks(
    root: Path, goldens: Sequence[str], globs: Sequence[str], *, narrowed: bool
) -> list[str]:
    """The locks that differ from HEAD: also where a golden's values were only confirmed."""
    wanted = set(_by_lock(goldens, globs)) if narrowed else lock_names(globs)
    there = sorted(name for name in wanted if (root / name).is_file())
    changed = _differing(root, *(f":(literal){name}" for name in there)) if there else []
    return [name for name in there if name in changed]


def _differing(root: Path, *specs: str) -> list[str]:
    """The files that git calls changed or untracked."""
    words = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", *specs)
    lines = git.run_git(root, *words).split(b"\0")
    return sorted(os.fsdecode(line[3:]) for line in lines if line)


def _add_lines(root: Path, lock: str, names: Sequence[str]) -> None:
    """Stage some lines of a lock: those of goldens that are not staged would speak of other files."""
    entries = indexed_lock(root, lock)
    now = read_lock(root / lock)
    for name in names:
        entries.pop(name, None)
        if name in now:
            entries[name] = now[name]
    oid = git_object(root, encode_lock(entries))
    git.run_git(root, "update-index", "--add", "--cacheinfo", f"100644,{oid},{lock}")


def _samples(root: Path, goldens: Sequence[str], wanted: PathFilter) -> list[str]:
    """The repeats that `karat record` keeps beside a golden belong to it, also where only they changed."""
    stems = {path.rpartition(".")[0] for path in goldens}
    return [
        name
        for name in _differing(root, f":(glob)**/*{SAMPLES}")
        if (stem := name.removesuffix(SAMPLES)) in stems or _is_stem(root, stem, wanted)
    ]


def _is_stem(root: Path, stem: str, wanted: PathFilter) -> bool:
    """Whether a golden that was asked for is called so, whatever its ending."""
    folder = (root / stem).parent
    names = (file.name for file in folder.iterdir()) if folder.is_dir() else ()
    beside = (f"{stem}.{name.rpartition('.')[2]}" for name in names)
    return any(wanted(path) and (root / path).is_file() for path in beside)


def _inside(root: Path, csv: str) -> str:
    path = Path(os.path.normpath(Path.cwd() / csv))
    if not path.is_file() or path.is_symlink() or not path.resolve().is_relative_to(root.resolve()):
        raise UsageError(
            f"expected the CSV {csv} to be a plain file inside {root}",
            next_command="karat diff --csv FILE",
        )
    return path.resolve().relative_to(root.resolve()).as_posix()


def _entry_of(root: Path, path: str, globs: Sequence[str]) -> Entry | None:
    lock, name = place_of(path, tuple(globs))
    return read_lock(root / lock).get(name)


def _edited_by_hand(root: Path, goldens: Sequence[str], globs: Sequence[str]) -> list[str]:
    """Goldens that are not what the lock says they are."""
    found = []
    for path in goldens:
        entry = _entry_of(root, path, globs)
        file = root / path
        if entry is not None and file.is_file() and sha256_hex(file.read_bytes()) != entry.sha256:
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


def _undone(diff: Diff, root: Path) -> list[Finding]:
    """That the refresh behind these goldens left something undone must not be forgotten on the way."""
    record = current(diff, read_record(root))
    changed = {change.path for change in diff.changes if not change.same_bytes}
    if record is None or not changed & {*record.files, *record.confirmed}:
        return []
    if not record.not_refreshed:
        return []
    first, *others = record.not_refreshed
    more = f"; and {len(others):,} more" if others else ""
    message = f"asked for in the last refresh, and not done: {first}{more}"
    return [
        Finding(kind="not-refreshed", severity=Severity.WARN, message=message, next="karat summary")
    ]


def _write_reason(
    root: Path, changes: Sequence[Change], globs: Sequence[str], reason: str
) -> list[str]:
    """Put the reason into the lock lines of the goldens it is for, where a reviewer will see it."""
    written = []
    failing = [c for c in changes if any(f.severity is Severity.FAIL for f in c.findings)]
    for lock, names in _by_lock([c.path for c in failing], globs).items():
        entries = read_lock(root / lock)
        for path, name in names.items():
            file = root / path
            if not file.is_file():
                continue  # removed: no line to write on
            standing = entries.get(name) or Entry(
                source="work tree", sha256=sha256_hex(file.read_bytes())
            )
            entries[name] = msgspec.structs.replace(standing, accepted=reason)
        if entries and write_lock(root / lock, entries):
            written.append(lock)
    return written


def _add(root: Path, paths: Sequence[str]) -> None:
    for i in range(0, len(paths), 200):
        some = paths[i : i + 200]
        git.run_git(root, "--literal-pathspecs", "add", "--all", "--", *some)
