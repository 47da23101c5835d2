"""Globbing: files of a folder by pattern, without going through links that nobody named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path


def matching(root: Path, pattern: str) -> Iterator[Path]:
    """What matches, in order of name; `**` is any number of folders, and enters no link.

    A part without `*`, `?` or `[` is taken as it stands: a link that is named is meant.
    """
    parts = [part for part in pattern.split("/") if part not in {"", "."}]
    start = Path("/") if pattern.startswith("/") else root
    # Two ways through `**` may lead to one file.
    yield from dict.fromkeys(_below(start, parts)) if parts else ()


def _below(folder: Path, parts: list[str]) -> Iterator[Path]:
    if not parts:
        if os.path.lexists(folder):
            yield folder
        return
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _below(folder, rest or ["*"])
        for name in _names(folder, folders=True):
            yield from _below(folder / name, parts)
    elif not any(sign in part for sign in "*?["):
        yield from _below(folder / part, rest)
    else:
        for name in _names(folder, folders=bool(rest)):
            if fnmatchcase(name, part):
                yield from _below(folder / name, rest)


def _names(folder: Path, *, folders: bool) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry in entries
                if not folders or entry.is_dir(follow_symlinks=False)
            )
    except OSError:  # it is no folder, is gone, or may not be read
        return []


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path, all links followed, is in that folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def shown(path: Path, root: Path) -> str:
    """A file's name as seen from a folder; names that are no text are spelled out."""
    seen = path.relative_to(root) if path.is_relative_to(root) else path
    return os.fsencode(seen).decode("utf-8", "backslashreplace")
