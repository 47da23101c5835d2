"""The goldens of a work tree: what HEAD and the work tree hold, writing them, and putting them back.

A golden is written whole or not at all, and nothing outside of the work tree. One refresh writes at a
time; a second one waits. An uncommitted version that would be lost is given to git first, so that it can
be had back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, Finding, KaratError, UsageError, fail
from karat.goldens import formats
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter
from karat.goldens.provenance import LockEntry, decode_lock, lock_names, place_of, read_lock, write_lock
from karat.goldens.saves import keep_displaced, keep_edits, save
from karat.goldens.shapes import Golden
from karat.system import files, git
from karat.system.ci import in_ci
from karat.system.command import Command
from karat.system.foreign.limits import GOLDEN


class GoldenFiles(msgspec.Struct, frozen=True, kw_only=True):
    root: Path
    head: dict[str, str]  # Goldens of HEAD and their blobs.
    paths: frozenset[str]  # Goldens of HEAD, the index and the work tree.

    def too_long(self, paths: Sequence[str]) -> dict[str, Finding]:
        """Those whose version of HEAD is beyond the limit, asked before any is read."""
        known = [path for path in paths if path in self.head]
        sizes = zip(known, git.sizes(self.root, [self.head[path] for path in known]) if known else (), strict=True)
        return {path: formats.too_long(size, path) for path, size in sizes if size and size > GOLDEN.value()}

    def old_bytes(self, paths: Sequence[str]) -> list[bytes | None]:
        """The old side of each: HEAD's version as git checks it out, else what is in the work tree."""
        known = [(path, self.head[path]) for path in paths if path in self.head]
        found = iter(git.checked_out(self.root, known))
        return [next(found) if path in self.head else read_golden(self.root, path) for path in paths]


def list_goldens(root: Path, is_golden: PathFilter) -> GoldenFiles:
    tree = git.tree_paths(root, "HEAD") if git.has_commit(root) else {}
    names = git.work_tree_files(root)
    head = {path: oid for path, oid in tree.items() if is_golden.covers(path)}
    return GoldenFiles(root=root, head=head, paths=frozenset(head) | set(filter(is_golden.covers, names)))


def read_golden(root: Path, path: str) -> bytes | None:
    """A golden's bytes; None where there is no file. One that cannot be read is CannotVerify."""
    with files.expecting(f"read {path}", root / path):
        # A link or a folder is nothing that a golden could be; `write_golden` says so.
        return files.bytes_of(root / path, GOLDEN)


def lock_at(root: Path, revision: str, lock: str) -> dict[str, LockEntry]:
    """A lock's entries as a revision has them, or the index (no word); none where there is no such lock."""
    with closing(git.Blobs(root)) as blobs:
        (data,) = blobs.read([f"{revision}:{lock}"])
    return decode_lock(data, root / lock) if isinstance(data, bytes) else {}


class LockFiles:
    """The lock files of a work tree, read when they are first asked for."""

    def __init__(self, root: Path, globs: Sequence[str]) -> None:
        self._root = root
        self._globs = tuple(globs)
        self._entries: dict[str, dict[str, LockEntry]] = {}  # Lock → path below its folder → entry.
        self._changes: dict[str, dict[str, LockEntry | None]] = {}

    def _place(self, path: str) -> tuple[dict[str, LockEntry], str]:
        lock, name = place_of(path, self._globs)
        if lock not in self._entries:
            ensure_inside(self._root, self._root / lock)
            self._entries[lock] = read_lock(self._root / lock)
        return self._entries[lock], name

    def get(self, path: str) -> LockEntry | None:
        entries, name = self._place(path)
        return entries.get(name)

    def set(self, path: str, entry: LockEntry) -> None:
        entries, name = self._place(path)
        entries[name] = entry
        self._changes.setdefault(place_of(path, self._globs)[0], {})[name] = entry

    def write(self, temporary: Path | None) -> tuple[list[str], list[Finding]]:
        """Write the locks; the names of those that changed, and a finding for each that could not be written."""
        written, findings = [], []
        for name, changes in self._changes.items():
            try:
                ensure_inside(self._root, self._root / name)
                if write_lock(self._root / name, changes, temporary):
                    written.append(name)
            except (OSError, KaratError) as error:
                said = f"goldens were written, but not their lines in {name}: {error}"
                said, look = (
                    f"{said}; run the same command when it can be",
                    Command("ls", "-ld", str((self._root / name).parent)),
                )
                findings.append(fail("not-refreshed", said, path=name, next=look))
        return written, findings


def render(golden: Golden, *, old: bytes | None, incoming: bytes | None, padding: int) -> bytes:
    """The golden's bytes: in the style of the old file, else as they came in."""
    if old is not None and formats.read(old).golden is not None:
        try:
            data = formats.write(golden, like=old)
        except UsageError:
            data = b""  # the old form cannot hold the new values
        # Style is worth nothing if a value gets lost over it.
        if formats.read(data).golden == golden:
            return data
    if incoming is not None:
        return incoming
    data = formats.write(golden)
    padded = (b"\n" * (padding + 1)).join(data.rstrip(b"\n").split(b"\n")) + b"\n"
    return padded if padding and formats.read(padded).golden == golden else data


def write_golden(
    root: Path, path: str, data: bytes, seen: bytes | None, temporary: Path | None = None
) -> list[Finding]:
    """Write one golden in place of the version that was `seen`; the folder must not lead out of the work tree."""
    ensure_inside(root, root / path)
    return save(root / path, data, seen, root=root, temporary=temporary)


def ensure_inside(root: Path, target: Path) -> None:
    """A folder that is a link must not carry a write out of the work tree, nor to git's own files in it."""
    folder = target.parent
    while not folder.exists() and folder != root:
        folder = folder.parent
    real, top = folder.resolve(), root.resolve()
    if not real.is_relative_to(top) or ".git" in map(str.lower, real.relative_to(top).parts):
        said = f"expected {target} inside {root}, found that {folder} leads to {real}"
        raise UsageError(said, next_command=Command("ls", "-ld", str(folder)))
    if os.path.lexists(target) and not stat.S_ISREG(target.lstat().st_mode):
        what = "a symbolic link" if target.is_symlink() else "a folder" if target.is_dir() else "something else"
        look = Command("ls", "-ld", str(target))
        raise UsageError(f"expected a plain file at {target}, found {what}", next_command=look)


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset puts back as the index has it, and what it deletes."""

    root: Path
    restored: tuple[str, ...]  # Tracked goldens whose work-tree version differs from the index.
    deleted: tuple[str, ...]  # Untracked goldens.
    lines: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)
    """Lock → names in it whose lines are put back, where not the whole lock is."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted((*self.restored, *self.deleted)))


def plan_reset(
    cwd: Path, is_golden: PathFilter, globs: Sequence[str] = DEFAULT_GLOBS, *, narrowed: bool = False
) -> Reset:
    """What would be put back; refuses where that would touch anything but plain golden files.

    Nothing else is touched, and what is staged stays staged: staging is a person's decision.
    `narrowed`: only some goldens are asked for, so of a lock only their lines go back.
    """
    root = git.ensure_repository(cwd)
    locks = lock_names(globs) if not narrowed else set()

    def ours(*words: str) -> tuple[str, ...]:
        names = {os.fsdecode(raw) for raw in git.run_git(root, *words).split(b"\0") if raw}
        return tuple(sorted(path for path in names if is_golden(path) or path in locks))

    if conflicts := ours("diff", "--name-only", "-z", "--diff-filter=U"):
        said = f"expected no merge under way, found {len(conflicts)} goldens in conflict ({conflicts[0]}, …)"
        raise UsageError(said, next_command="git status")
    restored = ours("diff-files", "--name-only", "-z")
    deleted = ours("ls-files", "-z", "--others", "--exclude-standard")
    lines: dict[str, list[str]] = {}
    for path in sorted((*restored, *deleted)):
        ensure_inside(root, root / path)
        if narrowed:
            lock, name = place_of(path, tuple(globs))
            lines.setdefault(lock, []).append(name)
    return Reset(root=root, restored=restored, deleted=deleted, lines=lines)


def ensure_may_write(typed: Command, *, dry_run: bool, write: bool) -> None:
    """In CI, goldens are rewritten only if asked for."""
    if dry_run and write:
        raise UsageError("expected --dry-run or --write, found both", next_command="karat refresh --help")
    if in_ci() and not dry_run and not write:
        said = "expected --write or --dry-run: CI is set, and in CI karat rewrites nothing unless asked"
        raise UsageError(said, next_command=typed.plus("--dry-run"))


def reset_goldens(
    cwd: Path,
    is_golden: PathFilter,
    globs: Sequence[str] = DEFAULT_GLOBS,
    *,
    narrowed: bool = False,
    dry_run: bool = False,
    notice: Callable[[str], None] | None = None,
) -> tuple[str, ...]:
    """Plan a reset, say what goes, and do it unless it is a dry run; the paths."""
    tell = notice or (lambda _: None)
    reset = plan_reset(cwd, is_golden, globs, narrowed=narrowed)
    for path in reset.paths:
        verb = "delete" if path in reset.deleted else "restore"
        tell(f"reset: {'would ' if dry_run else ''}{verb} {path}")
    if not reset.paths:
        tell("reset: no golden differs from the index")
    for finding in [] if dry_run else apply_reset(reset):
        tell(f"reset: have {finding.path} back: {finding.next}")
    return reset.paths


def apply_reset(reset: Reset) -> list[Finding]:
    """Do it; every version that goes stays with git, and the findings say under which name."""
    with git.only_writer(reset.root) as temporary:
        return put_back(reset, temporary)


def put_back(reset: Reset, temporary: Path) -> list[Finding]:
    """The same, for who is the only writer."""
    root = reset.root
    kept: list[Finding] = []
    staged = dict(git.entries(git.about(root, reset.restored, "ls-files", "--stage", "-z")))
    plain = [(path, oid) for path, (mode, oid, _) in staged.items() if mode.startswith("100")]
    # As git would check them out of the index.
    texts = dict(zip((path for path, _ in plain), git.checked_out(root, plain), strict=True))
    for path in reset.deleted:
        kept += _take_away(root, path, temporary)
    for path, (mode, *_) in staged.items():
        data = texts.get(path)
        if data is None:  # a link, or whatever else git can make
            kept += _take_away(root, path, temporary)
            git.run_git(root, "--literal-pathspecs", "checkout-index", "--quiet", "--", path)
        else:
            kept += _restore(root, path, data, temporary)
            set_executable(root / path, executable=mode == "100755")
    for lock, names in reset.lines.items():
        # Some lines of a lock as the index has them; the others speak of goldens that stay.
        indexed = lock_at(root, "", lock)
        ensure_inside(root, root / lock)
        write_lock(root / lock, {name: indexed.get(name) for name in names}, temporary)
    return kept


def set_executable(path: Path, *, executable: bool) -> None:
    """Whether those who may read a file may run it, as git keeps it."""
    now = stat.S_IMODE(path.stat().st_mode)
    wanted = now & ~0o111 | ((now & 0o444) >> 2 if executable else 0)
    if now != wanted:
        path.chmod(wanted)


def _take_away(root: Path, path: str, temporary: Path) -> list[Finding]:
    seen = read_golden(root, path)
    # Given to git before it goes, so that a kill in between loses nothing.
    kept = [] if seen is None else [keep_edits(root, path, seen)]
    displaced = files.take_away(root / path, temporary)
    if displaced is None or displaced.data == seen:
        if displaced is not None:
            displaced.file.unlink()
        return kept
    return kept + keep_displaced(displaced, root / path, root)


def _restore(root: Path, path: str, data: bytes, temporary: Path) -> list[Finding]:
    kept: list[Finding] = []
    for once_more in reversed(range(100)):  # whatever was saved meanwhile is to go, too
        seen = read_golden(root, path)
        if seen is not None and seen != data:
            kept.append(keep_edits(root, path, seen))
        try:
            return kept + (write_golden(root, path, data, seen, temporary) if seen != data else [])
        except CannotVerify:
            if not once_more:
                raise
    return kept
