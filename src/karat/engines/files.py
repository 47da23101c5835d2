"""Files of a job: found by pattern, collected within limits, hashed; never through a link that leads elsewhere."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

_Step = tuple[Path, tuple[str, ...]]
"""A folder, and the parts of a pattern that are to be matched below it."""


def glob_files(root: Path, pattern: str) -> Iterator[Path]:
    """What matches, in order of name; `**` is any number of folders, and enters no link.

    A part without `*`, `?` or `[` is taken as it stands: a link that is named is meant.
    """
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    start = Path("/") if pattern.startswith("/") else root
    # A stack, not recursion: a tree may be deeper than Python goes.
    open_ends = [(start, tuple(parts))] if parts else []
    # Two ways through `**` may lead to one place.
    seen: set[_Step] = set()
    while open_ends:
        step = open_ends.pop()
        if step in seen:
            continue
        seen.add(step)
        if step[1]:
            open_ends += reversed(_next(*step))
        elif os.path.lexists(step[0]):
            yield step[0]


def _next(folder: Path, parts: tuple[str, ...]) -> list[_Step]:
    """Where the first part of a pattern leads from a folder, each with what is left of the pattern there."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        below = _names(folder, folders=True)
        return [(folder, rest or ("*",)), *((folder / name, parts) for name in below)]
    if not any(sign in part for sign in "*?["):
        return [(folder / part, rest)]
    names = _names(folder, folders=bool(rest))
    return [(folder / name, rest) for name in names if fnmatchcase(name, part)]


def _names(folder: Path, *, folders: bool) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if not folders or entry.is_dir(follow_symlinks=False))
    except (OSError, ValueError):  # it is no folder, is gone, may not be read, or cannot be named
        return []


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path, all links followed, is in that folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def shown_path(path: Path, root: Path) -> str:
    """A file's name as seen from a folder; names that are no text are spelled out."""
    seen = path.relative_to(root) if path.is_relative_to(root) else path
    return os.fsencode(seen).decode("utf-8", "backslashreplace")


LARGEST = 16 << 20
TOTAL = 64 << 20
MOST = 10_000
_NOTES = 20
"""Files that are named when they are left out; the rest is counted."""

Stamps = dict[Path, tuple[int, ...]]


def stamps(folder: Path, patterns: Iterable[str]) -> Stamps:
    """What matches now, with what tells a later version of it apart."""
    return {path: _stamp(path) for _, path in _named(folder, patterns)}


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = path.lstat()
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class CollectedFiles:
    """Files that a job left, and a sentence on each that was not collected."""

    def __init__(self, *, largest: int = LARGEST, total: int = TOTAL) -> None:
        self._largest, self._room, self._total = largest, total, total
        self.files: dict[str, bytes] = {}
        self._notes: list[str] = []

    @property
    def notes(self) -> list[str]:
        """Why files were not collected; of very many, the first and how many more."""
        more = len(self._notes) - _NOTES
        return [*self._notes[:_NOTES], *([f"{more:,} more were left out"] if more > 0 else ())]

    def add(
        self, folder: Path, patterns: Iterable[str], before: Stamps | None = None, without: Path | None = None
    ) -> None:
        """Collect what matches in a folder, unless it was there `before`; the first file of a name wins."""
        for name, path in _named(folder, patterns):
            if name in self.files or (without is not None and path.is_relative_to(without)):
                continue
            if before and before.get(path) == _stamp(path):
                self._notes.append(f"{name}: an earlier run left it, this one did not write it; left out")
                continue
            if len(self.files) >= MOST:
                self._notes.append(f"more than {MOST:,} files match; the rest was left out")
                return
            if is_inside(path, folder):
                self._take(name, path)
            else:
                self._notes.append(f"{name}: leads out of its folder, and was left out")

    def _take(self, name: str, path: Path) -> None:
        """All or nothing: a part of a file would be taken for the whole one."""
        try:
            # Not blocking: a pipe would wait for a writer.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(handle, "rb") as file:  # noqa: PTH123 - an open descriptor
                status = os.fstat(handle)
                if not stat.S_ISREG(status.st_mode):
                    return
                content = file.read(min(self._largest, self._room) + 1)
        except OSError as error:
            self._notes.append(f"{name}: could not be read, {error.strerror or error}")
            return
        if len(content) > self._largest:
            limit = f"the {self._largest:,} that come back of one file"
        elif len(content) > self._room:
            limit = f"what is left of the {self._total:,} that come back of one run"
        else:
            self.files[name] = content
            self._room -= len(content)
            return
        self._notes.append(f"{name}: {status.st_size:,} bytes are more than {limit}; left out")


def _named(folder: Path, patterns: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for pattern in patterns:
        for path in glob_files(folder, pattern):
            if path.is_symlink() or path.is_file():
                yield shown_path(path, folder), path


_MOST = 1000
"""Files that are listed one by one; of more, the rest has one hash together."""


def hash_files(area: Path, patterns: Iterable[str]) -> dict[str, str]:
    """Built file, as seen from the area → sha256, for all that match; a link out of the area is hashed as a link."""
    found: dict[str, str] = {}
    for path in sorted({path for pattern in patterns for path in glob_files(area, pattern)}):
        digest = _digest(path, area)
        if digest is not None:
            found[shown_path(path, area)] = digest
    if len(found) <= _MOST:
        return found
    names = list(found)
    kept = {name: found[name] for name in names[: _MOST - 1]}
    rest = {name: found[name] for name in names[_MOST - 1 :]}
    return {**kept, f"({len(rest)} more files)": combined_hash(rest)}


def combined_hash(hashes: dict[str, str]) -> str:
    digest = hashlib.sha256()
    for name, each in sorted(hashes.items()):
        digest.update(f"{each}  {name}\n".encode())
    return digest.hexdigest()


def _digest(path: Path, area: Path) -> str | None:
    try:
        if path.is_symlink() and not is_inside(path, area):
            return hashlib.sha256(b"link to " + os.fsencode(path.readlink())).hexdigest()
        # Not a pipe or a device: those would never end.
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
