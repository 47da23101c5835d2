"""Collecting: files that a job left, brought back; within limits, and never through a link that leads elsewhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from karat.engines.globbing import is_inside, matching, shown

LARGEST = 16 << 20
TOTAL = 64 << 20
MOST = 10_000
_NOTES = 20
"""Files that are named when they are left out; the rest is counted."""

Stamps = dict[Path, tuple[int, ...]]


def stamps(folder: Path, patterns: Iterable[str]) -> Stamps:
    """What matches now, and by what a later version of it can be told."""
    return {path: _stamp(path) for _, path in _named(folder, patterns)}


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = path.lstat()
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Collected:
    """Files that came back, and sentences on those that did not."""

    def __init__(self, *, largest: int = LARGEST, total: int = TOTAL) -> None:
        self._largest, self._room, self._total = largest, total, total
        self.files: dict[str, bytes] = {}
        self._notes: list[str] = []

    @property
    def notes(self) -> list[str]:
        """Why files did not come back; of very many the first, and how many more."""
        more = len(self._notes) - _NOTES
        return [*self._notes[:_NOTES], *([f"{more:,} more were left out"] if more > 0 else ())]

    def add(
        self,
        folder: Path,
        patterns: Iterable[str],
        before: Stamps | None = None,
        without: Path | None = None,
    ) -> None:
        """What matches in a folder, unless it was there before; a name that came already stays what it is."""
        for name, path in _named(folder, patterns):
            if name in self.files or (without is not None and path.is_relative_to(without)):
                continue
            if before and before.get(path) == _stamp(path):
                self._notes.append(
                    f"{name}: an earlier run left it, this one did not write it; left out"
                )
                continue
            if len(self.files) >= MOST:
                self._notes.append(f"more than {MOST:,} files match; the rest was left out")
                return
            if is_inside(path, folder):
                self._take(name, path)
            else:
                self._notes.append(f"{name}: leads out of its folder, and was left out")

    def _take(self, name: str, path: Path) -> None:
        try:
            # Not blocking: a pipe would wait for somebody who writes.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(handle, "rb") as file:  # noqa: PTH123 - an open descriptor
                status = os.fstat(handle)
                if not stat.S_ISREG(status.st_mode):
                    return
                self._read(name, status.st_size, file.read(min(self._largest, self._room) + 1))
        except OSError as error:
            self._notes.append(f"{name}: could not be read, {error.strerror or error}")

    def _read(self, name: str, size: int, content: bytes) -> None:
        """A part of a file would be taken for the whole one, so it is all or nothing."""
        if len(content) > self._largest:
            limit = f"the {self._largest:,} that come back of one file"
        elif len(content) > self._room:
            limit = f"what is left of the {self._total:,} that come back of one run"
        else:
            self.files[name] = content
            self._room -= len(content)
            return
        self._notes.append(f"{name}: {size:,} bytes are more than {limit}; left out")


def _named(folder: Path, patterns: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for pattern in patterns:
        for path in matching(folder, pattern):
            if path.is_symlink() or path.is_file():
                yield shown(path, folder), path
