"""Workplaces: a folder for each case to be replayed in, kept where asked for, else gone afterwards."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from karat.findings import CannotVerify, UsageError


class Workplaces:
    """Folders named by case path below one root."""

    def __init__(self, keep: Path | None) -> None:
        self.kept = keep is not None
        self._root = _prepared(keep) if keep else Path(tempfile.mkdtemp(prefix="karat-replay-"))

    def folder(self, path: str) -> Path:
        """An empty folder for a case."""
        made = self._root / path
        made.mkdir(parents=True)
        return made

    def done(self, folder: Path) -> str | None:
        """Where to look at it, if it is kept."""
        if self.kept:
            return str(folder)
        shutil.rmtree(folder, ignore_errors=True)
        return None

    def close(self) -> None:
        """Leave nothing behind that nobody asked for."""
        if not self.kept:
            shutil.rmtree(self._root, ignore_errors=True)


def _prepared(keep: Path) -> Path:
    try:
        keep.mkdir(parents=True, exist_ok=True)
        taken = next(keep.iterdir(), None)
    except OSError as error:
        raise CannotVerify(
            f"expected to make the folder {keep}, but: {error.strerror or error}",
            next_command=f"ls -ld {keep.parent}",
        ) from error
    if taken is not None:
        raise UsageError(
            f"expected --keep to name a new or empty folder, found {taken.name} in {keep}",
            next_command=f"ls {keep}",
        )
    return keep.absolute()
