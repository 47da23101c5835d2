"""The index and the files of some goldens: looked at, remembered, and put back as they were.

What is remembered of a file is git's: its bytes are given to git before they are replaced, so that neither a kill nor
a second thought loses them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import sha1, sha256
from pathlib import Path, PurePosixPath

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.goldens.paths import walk
from karat.goldens.saves import keep_displaced
from karat.refreshes.worktree import set_executable, write_golden
from karat.system import files, git
from karat.system.hashes import sha256_text

_ASKED = 1000  # Paths beyond which all others cost less than asking for these.
_WHOLE = 64 << 20  # Bytes up to which a file is read to see whether it is the same.


class Entry(msgspec.Struct, frozen=True):
    """A file of a tree or of the index."""

    mode: str
    oid: str
    intended: bool = False  # Only its name is there: `git add --intent-to-add`.


class Standing(msgspec.Struct, frozen=True):
    """Where the files of one golden stand in HEAD, in the index and on disk; a captured case has many."""

    head: Mapping[str, Entry]
    index: Mapping[str, Entry]
    disk: Mapping[str, str]  # Path → git's name for the bytes, or when and how large where they are too many to read.

    @property
    def seen(self) -> str:
        return sha256_text(repr((sorted(self.head.items()), sorted(self.index.items()), sorted(self.disk.items()))))

    @property
    def files(self) -> list[str]:
        return sorted({*self.head, *self.index, *self.disk})

    @property
    def intended(self) -> bool:
        """Whether the index has names and nothing else."""
        return all(entry.intended for entry in self.index.values())


def in_head(root: Path, commit: str, paths: Sequence[str] | None) -> dict[str, Entry]:
    """The files of a commit at or below paths, or all of them."""
    out = git.about(root, paths, "ls-tree", "-r", "-z", "--full-tree", commit)
    return {path: Entry(mode, oid) for path, (mode, _, oid) in git.entries(out)}


def in_index(root: Path, paths: Sequence[str] | None) -> dict[str, Entry]:
    """The files of the index at or below paths, or all of them; refused while a merge is under way there."""
    found, empty, nothing = {}, False, {blob_name(b"", width) for width in (40, 64)}
    for path, (mode, oid, stage) in git.entries(git.about(root, paths, "ls-files", "--stage", "-z")):
        if stage != "0":
            raise UsageError(f"expected no merge under way, found {path} in conflict", next_command="git status")
        found[path] = Entry(mode, oid)
        empty |= oid in nothing
    if empty:
        words = ("diff-files", "--raw", "-z", "--no-renames", "--diff-filter=A")
        out = git.run_git(root, *words).split(b"\0")[1::2]
        for path in map(os.fsdecode, out):
            if path in found:
                found[path] = Entry(found[path].mode, found[path].oid, intended=True)
    return found


def on_disk(root: Path, path: str, width: int) -> dict[str, str]:
    """The files at or below a path, each with git's name for its bytes as they are, without filters."""
    top = root / path
    if top.is_dir() and not top.is_symlink():
        found = [file for folder, _, names in walk(top) for file in (folder / name for name in names)]
        return {file.relative_to(root).as_posix(): _digest(file, width) for file in found}
    return {path: _digest(top, width)} if os.path.lexists(top) else {}


def _digest(path: Path, width: int) -> str:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > _WHOLE:
        return f"{status.st_mode} {status.st_size} {status.st_mtime_ns} {status.st_ino}"
    try:
        return blob_name(files.bytes_of(path) or b"", width)
    except OSError as error:
        return f"{status.st_mtime_ns} {error.strerror}"


def blob_name(data: bytes, width: int = 40) -> str:
    """Git's name for bytes, in a repository whose names are so long."""
    made = sha1(usedforsecurity=False) if width == 40 else sha256()
    made.update(b"blob %d\0" % len(data))
    made.update(data)
    return made.hexdigest()


def standings(root: Path, commit: str, paths: Sequence[str]) -> dict[str, Standing]:
    asked = paths if len(paths) <= _ASKED else None
    known = in_head(root, commit, asked), in_index(root, asked)
    # A captured case is a folder of many files.
    below: dict[str, tuple[dict[str, Entry], dict[str, Entry]]] = {
        path: ({}, {}) for path in paths if not any(path in entries for entries in known)
    }
    for side, entries in enumerate(known) if below else ():
        for file, entry in entries.items():
            for folder in map(str, PurePosixPath(file).parents):
                if folder in below:
                    below[folder][side][file] = entry
    found = {}
    for path in paths:
        own = below.get(path) or [{path: entries[path]} if path in entries else {} for entries in known]
        found[path] = Standing(own[0], own[1], on_disk(root, path, len(commit)))
    return found


def staged_whole(root: Path, standing: Standing) -> bool:
    """Whether the index has exactly what is on disk."""
    if standing.index.keys() == standing.disk.keys() and all(
        entry.oid == standing.disk[path] and not entry.intended for path, entry in standing.index.items()
    ):
        return True
    # Line endings and other filters: git knows, and only where something is staged at all is it asked.
    paths = [*standing.index, *standing.disk.keys() - standing.index.keys()]
    lines = git.about(root, paths, "status", "--porcelain", "-z", "--untracked-files=all", "--no-renames").split(b"\0")
    return all(line[1:2] == b" " for line in lines if line)


class Snapshot(msgspec.Struct, frozen=True):
    """Entries of the index, and files, as they were at a moment; None for what was not there."""

    index: Mapping[str, Entry | None]
    files: Mapping[str, Entry | None]

    def of(self, path: str) -> tuple[Entry | None, Entry | None]:
        return self.index.get(path), self.files.get(path)


def snapshot(root: Path, index: Iterable[str], written: Iterable[str], *, width: int = 0) -> Snapshot:
    """Remember these; the files' bytes are given to git, unless only their names, of a `width`, are asked for."""
    names = sorted(set(index))
    there: dict[str, Entry | None] = {}
    entries = in_index(root, names) if names else {}
    read = {path: files.bytes_of(root / path) for path in sorted(set(written))}
    plain = [path for path, data in read.items() if data is not None and "\n" not in path and not width]
    # One process for all of them; what is saved at this very moment is given to git by itself.
    words = ("hash-object", "-w", "--no-filters", "--stdin-paths")
    told = git.run_git(root, *words, data=os.fsencode("".join(f"{path}\n" for path in plain))) if plain else b""
    names_of = dict(zip(plain, told.decode().split(), strict=True))
    for path, data in read.items():
        there[path] = None
        if data is not None:
            oid = names_of.get(path, "")
            if blob_name(data, width or len(oid)) != oid:
                oid = blob_name(data, width) if width else git.write_object(root, data)
            executable = (root / path).stat().st_mode & 0o100
            there[path] = Entry("100755" if executable else "100644", oid)
    return Snapshot({name: entries.get(name) for name in names}, there)


def set_index(root: Path, entries: Mapping[str, Entry | None]) -> None:
    """Make the index hold exactly this of these paths, in one step."""
    if not entries:
        return
    none = "0" * 40
    lines = [f"{e.mode} {e.oid}\t{p}\0" if e and not e.intended else f"0 {none}\t{p}\0" for p, e in entries.items()]
    git.run_git(root, "update-index", "-z", "--index-info", data=os.fsencode("".join(lines)))
    git.about(root, [path for path, e in entries.items() if e and e.intended], "add", "--intent-to-add")


def put_back(root: Path, before: Snapshot, temporary: Path) -> None:
    """The index and the files as they were remembered, each file whole; what is saved meanwhile is kept."""
    there = {path: entry for path, entry in before.files.items() if entry is not None}
    with closing(git.Blobs(root)) as blobs:
        for (path, entry), data in zip(there.items(), blobs.read([e.oid for e in there.values()]), strict=True):
            if not isinstance(data, bytes):
                raise CannotVerify(f"expected {path} as it was: {git.no_object(entry.oid)}", next_command="git fsck")
            if (now := files.bytes_of(root / path)) != data:
                write_golden(root, path, data, now, temporary)
            set_executable(root / path, executable=entry.mode == "100755")
    for path in before.files.keys() - there.keys():
        made = (root / path).is_file() and not (root / path).is_symlink()
        if made and (displaced := files.take_away(root / path, temporary)) is not None:
            keep_displaced(displaced, root / path, root)
    set_index(root, before.index)
