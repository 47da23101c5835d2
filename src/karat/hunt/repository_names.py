"""Names and folders of repositories: which can be told apart, and stay below the work area. Nothing is asked of a disk."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from karat.findings import UsageError
from karat.hunt.settings import RepositorySettings
from karat.hunt.words import EDIT

IMAGE = "image"
"""The part of a point that names the container everything is built in."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def folder_of(settings: RepositorySettings) -> PurePosixPath:
    """Where a repository is checked out, seen from the work area."""
    return PurePosixPath(settings.folder or settings.name)


def variable(name: str) -> str:
    """A repository's name as a part of a variable's."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).upper()


def check_names(repositories: Sequence[RepositorySettings]) -> None:
    """Refuses what could not be told apart, or would leave the work area."""
    for each in repositories:
        if not _NAME.fullmatch(each.name) or each.name == IMAGE:
            raise UsageError(
                "repositories: expected a name of letters, digits, '.', '_', '+' and '-' "
                f"(and not {IMAGE!r}), found {each.name!r}",
                next_command=EDIT,
            )
        if not _is_below(folder_of(each)):
            raise UsageError(
                f"repository {each.name}: expected a folder below the work area, found {each.folder!r}",
                next_command=EDIT,
            )
    _once("name", [each.name for each in repositories])
    _once("variable", [f"KARAT_COMMIT_{variable(each.name)}" for each in repositories])
    _once("folder", [str(folder_of(each)) for each in repositories])


def _is_below(folder: PurePosixPath) -> bool:
    parts = folder.parts
    odd = folder.is_absolute() or "@" in str(folder) or not str(folder).isprintable()
    return bool(parts) and not odd and not any(part.startswith(".") for part in parts)


def _once(what: str, words: Iterable[str]) -> None:
    for word, count in Counter(words).items():
        if count > 1:
            raise UsageError(
                f"repositories: expected each {what} once, found {word!r} {count} times",
                next_command=EDIT,
            )
