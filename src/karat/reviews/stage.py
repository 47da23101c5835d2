"""Stage: exactly the changed goldens, their lock and samples, and perhaps the CSV; never anything else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from karat.diffs.report.markdown import current
from karat.diffs.result import Diff
from karat.findings import Finding, Severity, UsageError, warn
from karat.goldens.paths import SAMPLES
from karat.goldens.provenance import LockEntry, encode_lock, lock_names, place_of, read_lock, read_record, write_lock
from karat.refreshes.worktree import lock_at
from karat.report.terminal import Line, finding_lines
from karat.report.words import count
from karat.system import git
from karat.system.hashes import sha256_file, sha256_hex


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What was staged, or would be."""

    goldens: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()  # Lock files, samples and the CSV.
    findings: tuple[Finding, ...] = ()
    unresolved: tuple[Finding, ...] = ()  # `fail` findings that object to it.
    forced: str | None = None  # The reason given for staging all the same.
    staged: bool = False

    def lines(self, *, dry_run: bool, force: bool) -> Iterator[Line]:
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
    wanted: Callable[[str], bool],
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
    names_of = by_lock(goldens, globs)
    # The locks that differ from HEAD: also where a golden's values were only confirmed.
    names = set(names_of) if narrowed else lock_names(globs)
    locks = _differing(root, [name for name in sorted(names) if (root / name).is_file()])
    beside = [*locks, *_samples(root, goldens, wanted)]
    if csv is not None:
        path = Path(os.path.normpath(Path.cwd() / csv))
        if not path.is_file() or path.is_symlink() or not path.resolve().is_relative_to(root.resolve()):
            said = f"expected the CSV {csv} to be a plain file inside {root}"
            raise UsageError(said, next_command="karat diff --csv FILE")
        beside += [path.resolve().relative_to(root.resolve()).as_posix()] if goldens or beside else []
    record, findings = current(diff, read_record(root)), []
    if record and record.not_refreshed and not {*goldens}.isdisjoint((*record.files, *record.confirmed)):
        # That the refresh behind these goldens left something undone must not be forgotten on the way.
        first, *others = record.not_refreshed
        said = f"asked for in the last refresh, and not done: {first}{f'; and {len(others):,} more' if others else ''}"
        findings.append(warn("not-refreshed", said, next="karat summary"))
    staged = Staged(goldens=goldens, beside=tuple(beside), findings=tuple(findings), unresolved=unresolved)
    staged = structs.replace(staged, forced=reason if unresolved else None)
    if dry_run or not (goldens or beside) or (unresolved and reason is None):
        return staged
    with git.only_writer(root) as temporary:
        if unresolved and reason is not None:
            failing = [c.path for c in changes if any(f.severity is Severity.FAIL for f in c.findings)]
            locks = sorted({*locks, *write_reason(root, failing, globs, reason, temporary)})
            beside = sorted({*beside, *locks})
        partly = names_of if narrowed else {}
        git.about(root, [path for path in (*goldens, *beside) if path not in partly], "add", "--all")
        for lock in set(locks) & partly.keys():
            # Some lines of a lock: those of goldens that are not staged would speak of other files.
            lines = read_lock(root / lock)
            stage_lines(root, lock, {name: lines.get(name) for name in partly[lock].values()})
    return structs.replace(staged, beside=tuple(beside), staged=True)


def stage_lines(root: Path, lock: str, lines: Mapping[str, LockEntry | None]) -> bool:
    """Put lines into a lock of the index, or take them out (None); True if that changed it."""
    staged = lock_at(root, "", lock)
    entries = {name: entry for name, entry in {**staged, **lines}.items() if entry is not None}
    if entries == staged:
        return False
    if entries:
        oid = git.write_object(root, encode_lock(entries))
        git.run_git(root, "update-index", "--add", "--cacheinfo", f"100644,{oid},{lock}")
    else:
        git.run_git(root, "update-index", "--force-remove", "--", lock)
    return True


def by_lock(paths: Sequence[str], globs: Sequence[str]) -> dict[str, dict[str, str]]:
    """Lock → the goldens it speaks for, with their names in it."""
    found: dict[str, dict[str, str]] = {}
    for path in paths:
        lock, name = place_of(path, globs)
        found.setdefault(lock, {})[path] = name
    return found


_STATUS = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames")
_ALL_SAMPLES = ("--", f":(glob)**/*{SAMPLES}")


def _differing(root: Path, paths: Sequence[str] | None) -> list[str]:
    """The files among these, or of all samples, that git calls changed or untracked."""
    out = git.run_git(root, *_STATUS, *_ALL_SAMPLES) if paths is None else git.about(root, paths, *_STATUS)
    return sorted(os.fsdecode(line[3:]) for line in out.split(b"\0") if line)


def _samples(root: Path, goldens: Sequence[str], wanted: Callable[[str], bool]) -> list[str]:
    """The repeats that `karat record` keeps beside a golden belong to it, also where only they changed."""
    stems = {path.rpartition(".")[0] for path in goldens}
    found = []
    for name in _differing(root, None):
        stem = name.removesuffix(SAMPLES)
        folder = (root / stem).parent
        beside = folder.iterdir() if folder.is_dir() else ()
        # Whether a golden that was asked for is called so, whatever its ending.
        paths = {f"{stem}.{file.name.rpartition('.')[2]}" for file in beside}
        if stem in stems or any(wanted(path) and (root / path).is_file() for path in paths):
            found.append(name)
    return found


def samples_of(root: Path, goldens: Sequence[str]) -> list[str]:
    """The repeats beside these goldens that differ."""
    known = os.fsdecode(git.run_git(root, "ls-files", "-z", *_ALL_SAMPLES)).split("\0")
    names = [f"{path.rpartition('.')[0]}{SAMPLES}" for path in goldens if "." in path]
    return _differing(root, [name for name in names if name in known or (root / name).exists()])


def write_reason(
    root: Path, failing: Sequence[str], globs: Sequence[str], reason: str, temporary: Path | None = None
) -> list[str]:
    """Put the reason into the lock lines of the goldens it is for, where a reviewer will see it."""
    written = []
    for lock, names in by_lock(failing, globs).items():
        entries = read_lock(root / lock)
        lines: dict[str, LockEntry | None] = {}
        for path, name in names.items():
            # One that was removed keeps its line, to say why.
            digest = sha256_file(root / path) if (root / path).is_file() else sha256_hex(b"")
            entry = entries.get(name) or LockEntry(source="work tree", sha256=digest)
            lines[name] = structs.replace(entry, accepted=reason)
        if lines and write_lock(root / lock, lines, temporary):
            written.append(lock)
    return written
