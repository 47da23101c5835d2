"""Commits of an image: what its labels say of the repositories in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from karat.hunt.settings import RepositorySettings

PREFIX = "karat.commit."
REVISION, SOURCE = "org.opencontainers.image.revision", "org.opencontainers.image.source"
_SHOWN, _LONGEST = 8, 80
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def commits_of(
    labels: Mapping[str, str], repositories: Sequence[RepositorySettings] = ()
) -> dict[str, str]:
    """`commit.NAME` of each repository that a label tells of.

    The OCI label names one revision and maybe its source: it is the repository with that address, or the only one.
    """
    found = {
        f"commit.{label.removeprefix(PREFIX)}": value
        for label, value in labels.items()
        if label.startswith(PREFIX) and _COMMIT.fullmatch(value)
    }
    revision = labels.get(REVISION, "")
    name = _repository(labels.get(SOURCE, ""), repositories)
    if name and _COMMIT.fullmatch(revision):
        found.setdefault(f"commit.{name}", revision)
    return found


def changed_labels(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Labels that are not the same, in words; of many, or of long ones, only so much as a line can hold."""
    names = sorted(old.keys() | new.keys())
    changed = [name for name in names if old.get(name) != new.get(name)]
    more = [f"and {len(changed) - _SHOWN} more labels"] if len(changed) > _SHOWN else []
    return [
        f"{_short(name)} {_short(old.get(name, '(none)'))} → {_short(new.get(name, '(none)'))}"
        for name in changed[:_SHOWN]
    ] + more


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _repository(source: str, repositories: Sequence[RepositorySettings]) -> str:
    if source:
        same = [one.name for one in repositories if _address(one.url) == _address(source)]
        return same[0] if len(same) == 1 else ""
    return repositories[0].name if len(repositories) == 1 else ""


def _address(url: str) -> str:
    """Host and path of a repository, the same for https, ssh and with or without `.git`."""
    bare = re.sub(r"^[a-z+]+://", "", url.strip().lower())
    bare = re.sub(r"^[^@/]*@", "", bare).removesuffix("/").removesuffix(".git")
    return re.sub(r"^([^/:]+):(?!\d+/)", r"\1/", bare)
