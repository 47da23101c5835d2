"""Scratch: where a folder's archives are unpacked, until the source is closed.

Files get numbers for names. What an archive calls them never becomes a path.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

from karat.sources.archive import Archive


class Scratch:
    """A folder that is there from its first file until `close`."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._numbers = itertools.count(1)

    def new(self) -> Path:
        """A path at which there is no file yet."""
        return self._place() / f"{next(self._numbers):06}"

    def unpack(self, archive: Archive, wanted: Callable[[str], bool]) -> dict[str, Path]:
        """The wanted members, each in a file of its own."""
        members = {}
        for member in archive.wanted(wanted):
            path = self.new()
            with path.open("xb") as file:
                archive.extract(member, file)
            members[member.name] = path
        return members

    def close(self) -> None:
        """Everything is deleted."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _place(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="karat-")
        return Path(self._folder.name)
