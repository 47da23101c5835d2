"""Files of a job: found by pattern, collected within limits, hashed; never through a link that leads elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from karat.system.hashes import sha256_file, sha256_hex


def glob_files(root: Path, pattern: str) -> Iterator[Path]:
    """What matches, in order of name; `**` is any number of folders, and enters no link, unlike a link that is named."""
    listed = [part for part in pattern.split("/") if part not in {"", "."}]
    parts = [part for n, part in enumerate(listed) if part != "**" or listed[n - 1 : n] != ["**"]]
    ending = ["*"] if parts[-1:] == ["**"] else []
    start = Path("/") if pattern.startswith("/") else root
    # Folders that may not be read, or are deeper than Python goes, and what cannot be a pattern.
    with suppress(OSError, ValueError, RecursionError):
        yield from sorted(set(start.glob("/".join([*parts, *ending])))) if parts else ()


def is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def shown_path(path: Path, root: Path) -> str:
    """A file's name as seen from a folder; names that are no text are spelled out."""
    seen = path.relative_to(root) if path.is_relative_to(root) else path
    return os.fsencode(seen).decode("utf-8", "backslashreplace")


_LARGEST, _TOTAL = 16 << 20, 64 << 20
_MOST_COLLECTED = 10_000
_NOTES = 20  # Files that are named when they are left out; the rest is counted.

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

    def __init__(self, *, largest: int = _LARGEST, total: int = _TOTAL) -> None:
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
            elif len(self.files) >= _MOST_COLLECTED:
                self._notes.append(f"more than {_MOST_COLLECTED:,} files match; the rest was left out")
                return
            elif is_inside(path, folder):
                self._take(name, path)
            else:
                self._notes.append(f"{name}: points outside its folder; left out")

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
            limit = f"the limit of {self._largest:,} for one file"
        elif len(content) > self._room:
            limit = f"what is left of the {self._total:,} for one run"
        else:
            self.files[name] = content
            self._room -= len(content)
            return
        self._notes.append(f"{name}: {status.st_size:,} bytes exceed {limit}; left out")


def _named(folder: Path, patterns: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for pattern in patterns:
        for path in glob_files(folder, pattern):
            if path.is_symlink() or path.is_file():
                yield shown_path(path, folder), path


FILES = "files.sha256"  # The name under which an identity has the hash of all built files.


def hash_files(area: Path, patterns: Iterable[str]) -> dict[str, str]:
    """Built file, as seen from the area → sha256, for all that match; a link out of the area is hashed as a link."""
    found: dict[str, str] = {}
    for path in sorted({path for pattern in patterns for path in glob_files(area, pattern)}):
        try:
            if path.is_symlink() and not is_inside(path, area):
                digest = sha256_hex(b"link to " + os.fsencode(path.readlink()))
            elif stat.S_ISREG(path.stat().st_mode):
                digest = sha256_file(path)
            else:
                continue  # a pipe or a device, which would never end
        except OSError as error:
            digest = f"cannot be read: {error.strerror or error}"
        found[shown_path(path, area)] = digest
    return found


def combined_hash(hashes: dict[str, str]) -> str:
    """One hash of many, as `sha256sum` lists them."""
    return sha256_hex("".join(f"{each}  {name}\n" for name, each in sorted(hashes.items())).encode())
