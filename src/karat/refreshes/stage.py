"""Stage: exactly the changed goldens, their lock and samples, and perhaps the CSV; never anything else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from karat.compare.change import Change
from karat.diffs.report.markdown import current
from karat.diffs.result import Diff
from karat.findings import Finding, Severity, UsageError, warn
from karat.goldens.paths import SAMPLES, PathFilter
from karat.goldens.provenance import LockEntry, encode_lock, lock_names, place_of, read_lock, read_record, write_lock
from karat.refreshes.worktree import indexed_lock
from karat.report.json import finding_json
from karat.report.terminal import Line, finding_lines
from karat.report.words import count
from karat.system import git
from karat.system.command import Command
from karat.system.hashes import sha256_file


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What was staged, or would be."""

    root: str
    goldens: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()  # Lock files, samples and the CSV.
    findings: tuple[Finding, ...] = ()
    unresolved: tuple[Finding, ...] = ()  # `fail` findings that object to it.
    forced: str | None = None  # The reason given for staging all the same.
    done: bool = False

    def document(self) -> dict[str, Any]:
        """The outcome as plain data, schema karat.stage/1."""
        return {
            "schema": "karat.stage/1",
            "staged": self.done,
            "goldens": self.goldens,
            "beside": self.beside,
            "forced": self.forced,
            "unresolved": [finding_json(f) for f in self.unresolved],
            "findings": [finding_json(f) for f in self.findings],
        }

    def lines(self, *, dry_run: bool, force: bool) -> Iterator[Line]:
        """The outcome for people."""
        for finding in (*self.findings, *self.unresolved[:12]):
            yield from finding_lines(finding)
        failing = count(len(self.unresolved), "fail finding")
        if self.unresolved and self.forced is None:
            yield ()
            yield ((f"nothing was staged: {failing} unresolved", "bold red"),)
            return
        verb = "would stage" if dry_run else "staged"
        if self.goldens:
            yield ((f"{verb} {count(len(self.goldens), 'golden')}", "bold"),)
        elif self.beside:
            yield ((f"no golden differs from HEAD; {verb} what is known of them", "bold"),)
        else:
            yield (("no golden differs from HEAD; there is nothing to stage", ""),)
            return
        for path in (*self.goldens, *self.beside):
            yield ((f"  {path}", ""),)
        if force and self.forced is None:
            yield (("no finding says fail, so the reason was not needed and not written", "dim"),)
        if self.forced is not None:
            yield ((f"over {failing}: {self.forced}", "yellow"),)
        yield ("next: ", "dim"), ("karat summary", "cyan")


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

    `wanted` says which goldens were asked for, those without a change among them. `narrowed`: the diff
    has only some of the goldens, so only their lines of a lock are staged.
    """
    changes = [c for c in diff.changes if not c.same_bytes]
    goldens = tuple(sorted(c.path for c in changes))
    unresolved = tuple(f for c in changes for f in c.findings if f.severity is Severity.FAIL)
    unresolved += tuple(f for f in diff.findings if f.severity is Severity.FAIL and goldens)
    by_lock = _by_lock(goldens, globs)
    # The locks that differ from HEAD: also where a golden's values were only confirmed.
    names = set(by_lock) if narrowed else lock_names(globs)
    there = [f":(literal){name}" for name in sorted(names) if (root / name).is_file()]
    locks = _differing(root, *there) if there else []
    beside = [*locks, *_samples(root, goldens, wanted)]
    if csv is not None:
        path = Path(os.path.normpath(Path.cwd() / csv))
        if not path.is_file() or path.is_symlink() or not path.resolve().is_relative_to(root.resolve()):
            said = f"expected the CSV {csv} to be a plain file inside {root}"
            raise UsageError(said, next_command="karat diff --csv FILE")
        beside += [path.resolve().relative_to(root.resolve()).as_posix()] if goldens or beside else []
    staged = Staged(
        root=str(root),
        goldens=goldens,
        beside=tuple(beside),
        findings=(*_edited(root, by_lock), *_not_refreshed(diff, root)),
        unresolved=unresolved,
        forced=reason if unresolved else None,
    )
    if dry_run or not (goldens or beside) or (unresolved and reason is None):
        return staged
    with git.only_writer(root):
        if unresolved and reason is not None:
            locks = sorted({*locks, *_write_reason(root, changes, globs, reason)})
            beside = sorted({*beside, *locks})
        partly = by_lock if narrowed else {}
        paths = [path for path in (*goldens, *beside) if path not in partly]
        for i in range(0, len(paths), 200):
            some = paths[i : i + 200]
            git.run_git(root, "--literal-pathspecs", "add", "--all", "--", *some)
        for lock in set(locks) & partly.keys():
            # Some lines of a lock: those of goldens that are not staged would speak of other files.
            names = set(partly[lock].values())
            entries = {name: entry for name, entry in indexed_lock(root, lock).items() if name not in names}
            entries |= {name: entry for name, entry in read_lock(root / lock).items() if name in names}
            oid = git.write_object(root, encode_lock(entries))
            git.run_git(root, "update-index", "--add", "--cacheinfo", f"100644,{oid},{lock}")
    return structs.replace(staged, beside=tuple(beside), done=True)


def _by_lock(paths: Sequence[str], globs: Sequence[str]) -> dict[str, dict[str, str]]:
    """Lock → the goldens it speaks for, with their names in it."""
    found: dict[str, dict[str, str]] = {}
    for path in paths:
        lock, name = place_of(path, globs)
        found.setdefault(lock, {})[path] = name
    return found


def _differing(root: Path, *specs: str) -> list[str]:
    """The files that git calls changed or untracked."""
    words = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--", *specs)
    lines = git.run_git(root, *words).split(b"\0")
    return sorted(os.fsdecode(line[3:]) for line in lines if line)


def _samples(root: Path, goldens: Sequence[str], wanted: PathFilter) -> list[str]:
    """The repeats that `karat record` keeps beside a golden belong to it, also where only they changed."""
    stems = {path.rpartition(".")[0] for path in goldens}
    found = []
    for name in _differing(root, f":(glob)**/*{SAMPLES}"):
        stem = name.removesuffix(SAMPLES)
        folder = (root / stem).parent
        beside = folder.iterdir() if folder.is_dir() else ()
        # Whether a golden that was asked for is called so, whatever its ending.
        paths = {f"{stem}.{file.name.rpartition('.')[2]}" for file in beside}
        if stem in stems or any(wanted(path) and (root / path).is_file() for path in paths):
            found.append(name)
    return found


def _edited(root: Path, by_lock: dict[str, dict[str, str]]) -> Iterator[Finding]:
    """A finding for each golden that is not what its lock says it is."""
    for lock, names in sorted(by_lock.items()):
        entries = read_lock(root / lock)
        for path, name in names.items():
            entry, file = entries.get(name), root / path
            if entry is None or not file.is_file() or sha256_file(file) == entry.sha256:
                continue
            run = f" of run {entry.run}" if entry.run else ""
            said = f"it is not the file that karat refresh took{run}: it was edited since, or its lock is old"
            yield warn("kept-edits", said, path=path, next=Command("karat", "diff", "--only", path))


def _not_refreshed(diff: Diff, root: Path) -> list[Finding]:
    """That the refresh behind these goldens left something undone must not be forgotten on the way."""
    record = current(diff, read_record(root))
    changed = {change.path for change in diff.changes if not change.same_bytes}
    if record is None or not record.not_refreshed or not changed & {*record.files, *record.confirmed}:
        return []
    first, *others = record.not_refreshed
    more = f"; and {len(others):,} more" if others else ""
    return [warn("not-refreshed", f"asked for in the last refresh, and not done: {first}{more}", next="karat summary")]


def _write_reason(root: Path, changes: Sequence[Change], globs: Sequence[str], reason: str) -> list[str]:
    """Put the reason into the lock lines of the goldens it is for, where a reviewer will see it."""
    written = []
    failing = [c.path for c in changes if any(f.severity is Severity.FAIL for f in c.findings)]
    for lock, names in _by_lock(failing, globs).items():
        entries = read_lock(root / lock)
        lines: dict[str, LockEntry | None] = {}
        for path, name in names.items():
            file = root / path
            if file.is_file():  # one that was removed has no line to write on
                digest = sha256_file(file)
                entry = entries.get(name) or LockEntry(source="work tree", sha256=digest)
                lines[name] = structs.replace(entry, accepted=reason)
        if lines and write_lock(root / lock, lines):
            written.append(lock)
    return written
