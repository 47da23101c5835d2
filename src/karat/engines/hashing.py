"""Hashing: which built files were there, and what was in them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from karat.engines.globbing import is_inside, matching, shown

_MOST = 1000
"""Files that are listed one by one; of more, the rest has one hash together."""


def hash_files(area: Path, patterns: Iterable[str]) -> dict[str, str]:
    """Built file, as seen from the area → sha256, for all that match; a link out of the area is hashed as a link."""
    found: dict[str, str] = {}
    for path in sorted({path for pattern in patterns for path in matching(area, pattern)}):
        digest = _digest(path, area)
        if digest is not None:
            found[shown(path, area)] = digest
    return _shortened(found)


def combined(hashes: dict[str, str]) -> str:
    """One sha256 of many."""
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


def _shortened(found: dict[str, str]) -> dict[str, str]:
    if len(found) <= _MOST:
        return found
    names = list(found)
    kept = {name: found[name] for name in names[: _MOST - 1]}
    rest = {name: found[name] for name in names[_MOST - 1 :]}
    return {**kept, f"({len(rest)} more files)": combined(rest)}
