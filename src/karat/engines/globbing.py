"""Globbing: files of a folder by pattern, without going through links that nobody named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

_Step = tuple[Path, tuple[str, ...]]
"""A folder, and the parts of a pattern that are to be matched below it."""


def matching(root: Path, pattern: str) -> Iterator[Path]:
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
            return sorted(
                entry.name
                for entry in entries
                if not folders or entry.is_dir(follow_symlinks=False)
            )
    except (OSError, ValueError):  # it is no folder, is gone, may not be read, or cannot be named
        return []


def is_inside(path: Path, folder: Path) -> bool:
    """Whether a path, all links followed, is in that folder."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def shown(path: Path, root: Path) -> str:
    """A file's name as seen from a folder; names that are no text are spelled out."""
    seen = path.relative_to(root) if path.is_relative_to(root) else path
    return os.fsencode(seen).decode("utf-8", "backslashreplace")
