"""Actuals: the results that the words of a command line name, one by one.

A word is a file, the folder of one run (it holds event files), or a folder of results and runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from karat.findings import CannotVerify
from karat.goldens.paths import DATA_GLOBS, PathFilter

_EVENTS = "tfevents"
_is_result = PathFilter(DATA_GLOBS)


class Actual(msgspec.Struct, frozen=True, kw_only=True):
    """One result on this disk."""

    path: Path
    name: str
    """As a person would write it."""
    inside: str | None = None
    """Its path below the folder that was named, if one was."""

    @property
    def stem(self) -> str:
        """The name without what only says how it is stored."""
        return self.path.name if self.path.is_dir() else self.path.stem


def actuals_of(word: str, cwd: Path) -> list[Actual]:
    """The results that one word names; one that does not exist is named all the same."""
    path = cwd / word
    if not path.is_dir() or holds_events(path):
        return [Actual(path=path, name=word)]
    return list(_below(path, word))


def is_folder_of_results(word: str, cwd: Path) -> bool:
    """Whether a word names a folder that is not itself a run."""
    return (cwd / word).is_dir() and not holds_events(cwd / word)


def holds_events(folder: Path) -> bool:
    """Whether event files lie in this very folder."""
    try:
        return any(_EVENTS in path.name for path in folder.iterdir())
    except OSError as error:
        raise _cannot_list(error) from error


def _below(root: Path, word: str) -> Iterator[Actual]:
    def unreadable(error: OSError) -> None:
        raise _cannot_list(error) from error

    for folder, folders, files in os.walk(root, onerror=unreadable):
        folders[:] = sorted(name for name in folders if name != ".git")
        here = Path(folder)
        if any(_EVENTS in name for name in files):
            folders.clear()
            yield _inside(here, root, word)
            continue
        for name in sorted(files):
            path = here / name
            # Sockets, pipes and devices would block or never end.
            if _is_result(name) and path.is_file():
                yield _inside(path, root, word)


def _inside(path: Path, root: Path, word: str) -> Actual:
    inside = path.relative_to(root).as_posix()
    return Actual(path=path, name=f"{word.rstrip('/')}/{inside}", inside=inside)


def _cannot_list(error: OSError) -> CannotVerify:
    return CannotVerify(
        f"expected to list {error.filename}, but: {error.strerror}",
        next_command=f"ls -ld {error.filename}",
    )
