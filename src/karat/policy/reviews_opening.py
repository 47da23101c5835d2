"""From the words of a command line, the CI's variables and the remote to the request whose reviews count."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.goldens import git
from karat.policy.code_owners import Forge as Kind
from karat.policy.reviews import Forge
from karat.sources.patience import Patience

_REF = re.compile(r"refs/pull/([1-9][0-9]{0,17})/(?:merge|head)")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_LARGEST_EVENT = 32 << 20


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the user said about the request."""

    pull: int | None = None
    merge: int | None = None
    repo: str | None = None
    forge: Kind | None = None
    """What karat.toml says."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One request of one forge."""

    forge: Kind
    repo: str
    number: int


def place_of(asked: Asked, root: Path, env: Mapping[str, str]) -> Place | None:
    """The request that is meant; None where nothing tells."""
    if asked.pull is not None and asked.merge is not None:
        raise UsageError(
            "expected one of --pr and --merge-request, found both",
            next_command="karat policy approvals --help",
        )
    forge = forge_of(asked, env)
    if forge is None:
        return None
    said = asked.pull if forge == "github" else asked.merge
    number = said if said is not None else _number(forge, env)
    if number is None:
        return None
    return Place(forge=forge, repo=asked.repo or _repo(forge, root, env), number=number)


def forge_of(asked: Asked, env: Mapping[str, str]) -> Kind | None:
    """GitHub or GitLab: by the option, karat.toml, or the CI that this runs in."""
    if asked.pull is not None:
        return "github"
    if asked.merge is not None:
        return "gitlab"
    if asked.forge is not None:
        return asked.forge
    if env.get("GITHUB_ACTIONS") == "true":
        return "github"
    return "gitlab" if env.get("GITLAB_CI") == "true" else None


def open_forge(
    place: Place, env: Mapping[str, str], again: str, notice: Callable[[str], None] | None = None,
    patience: Patience | None = None,
) -> Forge:  # fmt: skip
    """The forge, ready to be asked."""
    if place.forge == "github":
        from karat.policy.reviews_github import GitHubReviews  # noqa: PLC0415 - brings httpx along

        return GitHubReviews(
            place.repo, place.number, env=env, again=again, notice=notice, patience=patience
        )
    from karat.policy.reviews_gitlab import GitLabReviews  # noqa: PLC0415

    return GitLabReviews(
        place.repo, place.number, env=env, again=again, notice=notice, patience=patience
    )


def _number(forge: Kind, env: Mapping[str, str]) -> int | None:
    if forge == "gitlab":
        text = env.get("CI_MERGE_REQUEST_IID", "")
        return int(text) if _NUMBER.fullmatch(text) else None
    if found := _REF.fullmatch(env.get("GITHUB_REF", "")):
        return int(found[1])
    return _event_number(env.get("GITHUB_EVENT_PATH", ""))


class _Pull(msgspec.Struct, frozen=True):
    number: Annotated[int, msgspec.Meta(ge=1, le=10**18)]


class _Event(msgspec.Struct, frozen=True):
    pull_request: _Pull | None = None


def _event_number(path: str) -> int | None:
    """The pull request of the event that started a workflow."""
    try:
        if not path or Path(path).stat().st_size > _LARGEST_EVENT:
            return None
        event = msgspec.json.decode(Path(path).read_bytes(), type=_Event)
    except (OSError, ValueError, RecursionError):
        return None  # an event of another kind
    return event.pull_request.number if event.pull_request else None


def _repo(forge: Kind, root: Path, env: Mapping[str, str]) -> str:
    names = {
        "github": ("GITHUB_REPOSITORY",),
        # A pipeline of a fork runs in the fork, and its request is in the project that it asks to merge into.
        "gitlab": ("CI_MERGE_REQUEST_PROJECT_ID", "CI_PROJECT_ID", "CI_PROJECT_PATH"),
    }[forge]
    said = next((env[name] for name in names if env.get(name)), None) or _remote(root)
    if said is None:
        raise UsageError(
            f"expected --repo, {' or '.join(names)}, or a remote called origin, found none",
            next_command="karat policy approvals --help",
        )
    return said


def _remote(root: Path) -> str | None:
    """`owner/name` of the remote, from `https://host/owner/name.git` or `git@host:owner/name.git`."""
    try:
        url = os.fsdecode(git.run_git(root, "remote", "get-url", "origin")).strip()
        path = urlsplit(url).path if "://" in url else url.partition(":")[2]
    except (CannotVerify, ValueError):
        return None
    name = path.strip("/").removesuffix(".git")
    return name if "/" in name else None
