"""Scratch: where a folder's or bucket's files are unpacked, until the source is closed.

Files get numbers for names. What an archive or a bucket calls them never becomes a path.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from karat.sources.archive import Archive


class Scratch:
    """A folder that is there from its first file until `close`; several threads may ask for files."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

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

    def open(self) -> BinaryIO:
        """An unnamed file that is gone once it is closed."""
        return tempfile.TemporaryFile(dir=self._place())

    def close(self) -> None:
        """Everything is deleted."""
        with self._lock:
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None

    def _place(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="karat-")
            return Path(self._folder.name)
