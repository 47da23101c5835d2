"""The goldens that stand: in HEAD, which is the old side, and in the work tree."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import structs

from karat.findings import CannotVerify, Finding, Severity, UsageError
from karat.goldens import formats
from karat.goldens.paths import DEFAULT_GLOBS, PathFilter
from karat.goldens.provenance import Entry, decode_lock, lock_names, place_of, read_lock, write_lock
from karat.goldens.shapes import Golden
from karat.system import files, git
from karat.system.git import git_path
from karat.system.locks import hold


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a work tree has before a refresh."""

    root: Path
    head: dict[str, str]
    """Goldens of HEAD and their blobs."""
    paths: frozenset[str]
    """Goldens of HEAD, the index and the work tree."""

    def old_bytes(self, paths: Sequence[str]) -> list[bytes | None]:
        """The old side of each: HEAD's version as it is checked out, else what lies in the work tree."""
        known = [path for path in paths if path in self.head]
        found = iter(_checked_out(self.root, [(path, self.head[path]) for path in known]))
        return [next(found) if path in self.head else self.current(path) for path in paths]

    def current(self, path: str) -> bytes | None:
        """What lies in the work tree, or None."""
        try:
            handle = os.open(
                self.root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except OSError:
            return None  # absent, or nothing a golden could be; writing will say which
        with os.fdopen(handle, "rb") as file:
            try:
                return file.read()
            except OSError:
                return None


def _checked_out(root: Path, blobs: Sequence[tuple[str, str]]) -> list[bytes]:
    """The bytes of (path, blob) as git checks them out: with the work tree's line endings and filters."""
    plain = [(path, oid) for path, oid in blobs if "\n" not in path]
    found = dict(zip((path for path, _ in plain), _in_one_go(root, plain), strict=True))
    for path, oid in blobs:
        if path not in found:  # git reads one path a line
            found[path] = git.run_git(root, "cat-file", "--filters", f"--path={path}", oid)
    return [found[path] for path, _ in blobs]


def _in_one_go(root: Path, blobs: Sequence[tuple[str, str]]) -> list[bytes]:
    # git announces a blob's size before filtering it, so an object that nobody has marks each end.
    end = os.urandom(20).hex()
    asked = "".join(f"{oid} {path}\n{end} {path}\n" for path, oid in blobs)
    done = subprocess.run(
        ["git", "-C", str(root), "cat-file", "--batch", "--filters"],
        input=os.fsencode(asked),
        capture_output=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    answers = done.stdout.split(f"\n{end} missing\n".encode())
    if done.returncode or len(answers) != len(blobs) + 1:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise CannotVerify(f"git cat-file failed in {root}: {said}", next_command="git fsck")
    return [_content(answer, path) for answer, (path, _) in zip(answers, blobs, strict=False)]


def _content(answer: bytes, path: str) -> bytes:
    header, _, data = answer.partition(b"\n")
    if header.split()[1:2] != [b"blob"]:
        # Without the old side, a run that died would pass for a new golden.
        raise CannotVerify(
            f"expected HEAD's version of {path}, found that git does not have the object",
            next_command="git fsck",
        )
    return data


def survey(root: Path, is_golden: PathFilter) -> Standing:
    """The goldens of a work tree."""
    tree = git.tree_paths(root, "HEAD") if _has_commit(root) else {}
    listed = git.run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = {os.fsdecode(raw) for raw in listed.split(b"\0") if raw}
    covers: Callable[[str], bool] = is_golden.covers
    head = {path: oid for path, oid in tree.items() if covers(path)}
    return Standing(root=root, head=head, paths=frozenset(head) | {p for p in names if covers(p)})


def _has_commit(root: Path) -> bool:
    """Whether HEAD names a commit at all; whether it can be read is another question."""
    try:
        git.run_git(root, "rev-parse", "--verify", "--quiet", "HEAD")
    except CannotVerify:
        return False
    return True


def indexed_lock(root: Path, lock: str) -> dict[str, Entry]:
    """A lock's entries as the index has them; none where it has no such lock."""
    if not git.run_git(root, "--literal-pathspecs", "ls-files", "-z", "--", lock):
        return {}
    return decode_lock(git.run_git(root, "show", f":{lock}"), root / lock)


class Locks:
    """The lock files of a work tree, read when they are first asked for."""

    def __init__(self, root: Path, globs: Sequence[str]) -> None:
        self._root = root
        self._globs = tuple(globs)
        self.entries: dict[str, dict[str, Entry]] = {}
        """Lock → path below its folder → entry."""

    def _place(self, path: str) -> tuple[str, str]:
        lock, name = place_of(path, self._globs)
        if lock not in self.entries:
            self.entries[lock] = read_lock(self._root / lock)
        return lock, name

    def read(self, paths: Iterable[str]) -> None:
        """Read the locks of these goldens now: one that is broken must be known before anything is written."""
        for path in paths:
            self._place(path)

    def get(self, path: str) -> Entry | None:
        """What the lock says of a golden."""
        lock, name = self._place(path)
        return self.entries[lock].get(name)

    def set(self, path: str, entry: Entry) -> None:
        """Say it anew."""
        lock, name = self._place(path)
        self.entries[lock][name] = entry


# DOC-HERE writing: Writing: goldens into the work tree, whole or not at all, and nothing outside of it.
#
# One refresh writes at a time; a second one waits. An uncommitted version that would be lost is given
# to git first, so that it can be had back.

_ODD = re.compile(rb"[eE]|^-?[0-9]{16,}$")
"""Exponents, and whole numbers that a float cannot hold."""
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def rendered(golden: Golden, *, old: bytes | None, incoming: bytes | None, padding: int) -> bytes:
    """The golden's bytes: in the style of the file that stands, else as they came in."""
    if old is not None and incoming is not None and same_layout(old, incoming):
        return incoming
    if old is not None and formats.read(old).golden is not None:
        try:
            data = formats.write(golden, like=old)
        except UsageError:
            data = None  # the old form cannot hold the new values
        # Style is worth nothing if a value gets lost over it.
        if data is not None and formats.read(data).golden == golden:
            return data
    if incoming is not None:
        return incoming
    data = formats.write(golden)
    if padding:
        rows = data.rstrip(b"\n").split(b"\n")
        padded = (b"\n" * (padding + 1)).join(rows) + b"\n"
        return padded if formats.read(padded).golden == golden else data
    return data


def same_layout(old: bytes, new: bytes) -> bool:
    """Whether two texts differ in numbers alone, each written as karat would write it.

    Nearly all goldens that come in do. Writing them anew in the old one's style would give the bytes
    that came in, at several times the price.
    """
    if _NUMBER.sub(b"#", old) != _NUMBER.sub(b"#", new):
        return False
    pairs = list(zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True))
    if any(_ODD.search(text) for pair in pairs for text in pair):
        return False  # one of them may change how its neighbours are written
    return all(_plainly(before, after) for before, after in pairs if before != after)


def _plainly(before: bytes, after: bytes) -> bool:
    # A value that is the same keeps its old characters, and whole numbers stay written as such.
    value = float(after)
    if value == float(before) or before.isdigit() != after.isdigit():
        return False
    return after.isdigit() or repr(value).encode() == after


@contextmanager
def only_writer(root: Path) -> Iterator[Path]:
    """Keeps other karat processes from writing goldens of this work tree at the same time.

    Gives a folder for half-written files; what a killed process left there is swept out.
    """
    path = git_path(root, "karat/writing")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = hold(path, wait=True, mode=0o644)
    except OSError as error:
        raise CannotVerify(
            f"expected to write {path}, but: {error.strerror}", next_command=f"ls -ld {path.parent}"
        ) from error
    assert handle is not None, "waited for"  # noqa: S101
    try:
        yield _swept(path.parent / "workshop")
    finally:
        os.close(handle)


def _swept(workshop: Path) -> Path:
    workshop.mkdir(exist_ok=True)
    for left in workshop.iterdir():
        left.unlink(missing_ok=True)
    return workshop


def put(root: Path, path: str, data: bytes, workshop: Path | None = None) -> None:
    """Write one golden; the folder is made if need be, and must not lead out of the work tree."""
    target = root / path
    ensure_inside(root, target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        ensure_inside(root, target)
        files.write_bytes(target, data, workshop=workshop)
    except OSError as error:
        raise CannotVerify(
            f"expected to write {target}, but: {error.strerror or error}",
            next_command=f"ls -ld {shlex.quote(str(target.parent))}",
        ) from error


def ensure_inside(root: Path, target: Path) -> None:
    """A folder that is a link to elsewhere must not carry a write out of the work tree."""
    folder = target.parent
    while not folder.exists() and folder != root:
        folder = folder.parent
    if not folder.resolve().is_relative_to(root.resolve()):
        raise UsageError(
            f"expected {target} inside {root}, found that {folder} leads to {folder.resolve()}",
            next_command=f"ls -ld {folder}",
        )
    if target.is_symlink() or target.is_dir():
        what = "a symbolic link" if target.is_symlink() else "a folder"
        raise UsageError(
            f"expected a plain file at {target}, found {what}", next_command=f"ls -ld {target}"
        )


def keep_edits(root: Path, path: str, data: bytes, *, dry_run: bool = False) -> Finding:
    """Give an uncommitted version to git, and say how to have it back."""
    if dry_run:
        message = "the work tree holds an uncommitted version that karat did not write; git would be given it first"
        return Finding(kind="kept-edits", severity=Severity.WARN, path=path, message=message)
    oid = git_object(root, data)
    from karat.diffs.advice import quoted  # noqa: PLC0415 - only where there is something to keep

    return Finding(
        kind="kept-edits",
        severity=Severity.WARN,
        path=path,
        message="the work tree held an uncommitted version that karat did not write; git keeps it",
        # From where the user stands, which may be below the root.
        next=f"git cat-file -p {oid[:16]} > {quoted(os.path.relpath(root / path))}",
    )


def git_object(root: Path, data: bytes) -> str:
    """Give bytes to git; its name for them."""
    done = subprocess.run(
        ["git", "-C", str(root), "hash-object", "-w", "--stdin"],
        input=data,
        capture_output=True,
        check=False,
    )
    oid = done.stdout.decode().strip()
    if done.returncode or not oid:
        raise CannotVerify(
            f"expected git to keep {len(data):,} bytes in {root}, but: {done.stderr.decode().strip()}",
            next_command="git status",
        )
    return oid


# DOC-HERE reset: Reset: put goldens back as the index has them, before a refresh is done again.
#
# Tracked goldens are restored, untracked ones deleted; nothing else is touched. What is staged stays
# staged: staging is a person's decision. Every version that goes is given to git first.


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
