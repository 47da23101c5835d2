"""The goldens that stand: in HEAD, which is the old side, and in the work tree."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from karat.findings import CannotVerify
from karat.goldens import git
from karat.goldens.lock import Entry, decode_lock, place_of, read_lock
from karat.goldens.paths import PathFilter


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
