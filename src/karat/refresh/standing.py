"""The goldens that stand: in HEAD, which is the old side, and in the work tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from karat.findings import CannotVerify
from karat.goldens import git
from karat.goldens.lock import NAME, Entry, group_root, read_lock
from karat.goldens.paths import PathFilter


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What a work tree has before a refresh."""

    root: Path
    head: dict[str, str]
    """Goldens of HEAD and their blobs."""
    paths: frozenset[str]
    """Goldens of HEAD, the index and the work tree."""

    def old_bytes(self, paths: Sequence[str]) -> list[bytes | None]:
        """The old side of each: HEAD's version, else what lies in the work tree."""
        oids = [self.head[path] for path in paths if path in self.head]
        blobs = git.Blobs(self.root) if oids else None
        try:
            found = iter(list(blobs.read(oids)) if blobs else [])
        finally:
            if blobs is not None:
                blobs.close()
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


def survey(root: Path, is_golden: PathFilter) -> Standing:
    """The goldens of a work tree."""
    try:
        tree = git.tree_paths(root, "HEAD")
    except CannotVerify:
        tree = {}  # no first commit yet
    listed = git.run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = {os.fsdecode(raw) for raw in listed.split(b"\0") if raw}
    covers: Callable[[str], bool] = is_golden.covers
    head = {path: oid for path, oid in tree.items() if covers(path)}
    return Standing(root=root, head=head, paths=frozenset(head) | {p for p in names if covers(p)})


class Locks:
    """The lock files of a work tree, read when they are first asked for."""

    def __init__(self, root: Path, globs: Sequence[str]) -> None:
        self._root = root
        self._globs = tuple(globs)
        self.entries: dict[str, dict[str, Entry]] = {}
        """Folder of the lock → path below it → entry."""

    def _place(self, path: str) -> tuple[str, str]:
        folder = group_root(path, self._globs)
        if folder not in self.entries:
            self.entries[folder] = read_lock(self._root / folder / NAME)
        return folder, path[len(folder) + 1 :] if folder else path

    def get(self, path: str) -> Entry | None:
        """What the lock says of a golden."""
        folder, name = self._place(path)
        return self.entries[folder].get(name)

    def set(self, path: str, entry: Entry) -> None:
        """Say it anew."""
        folder, name = self._place(path)
        self.entries[folder][name] = entry
