"""The policy's settings as a commit has them, so that no branch appoints its own approvers."""

from __future__ import annotations

import os
import posixpath
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from karat.config import load
from karat.findings import UsageError
from karat.policy.changed_policies import CONFIGURATIONS, Placed
from karat.policy.changed_policies_files import Side
from karat.policy.code_owners import is_owner
from karat.policy.settings import DEFAULT_RULE, PolicySettings

CODE_OWNERS = "CODEOWNERS"
_FALLBACKS = {"float64": ("gradient",)}
"""Rule → whose approvers decide where it has none of its own."""


def placed_at(side: Side, folder: str) -> Placed:
    """The settings that hold in a folder of a commit; `folder` is relative to the root, `` for the root."""
    with tempfile.TemporaryDirectory(prefix="karat-") as made:
        root = Path(made).resolve()
        (root / ".git").mkdir()  # nothing above it is looked at
        (root / folder).mkdir(parents=True, exist_ok=True)
        for path in _candidates(folder):
            data = side.read(path)
            if data is not None:
                (root / path).write_bytes(data)
        try:
            config = load(root / folder)
        except UsageError as error:
            message = str(error).replace(f"{root}{os.sep}", "")
            raise UsageError(
                f"{message} (at {side.commit[:12]})",
                next_command=f"git show {side.commit[:12]} --stat",
            ) from error
        file = config.file.relative_to(root).as_posix() if config.file else ""
    return _placed(config.policy, file)


def _candidates(folder: str) -> Iterator[str]:
    here = PurePosixPath(folder)
    for place in (here, *here.parents) if folder else (here,):
        for name in CONFIGURATIONS:
            yield (place / name).as_posix()


def _placed(settings: PolicySettings, file: str) -> Placed:
    home = posixpath.dirname(file)
    _inside("", settings.signers, "signers")
    return Placed(
        settings=settings,
        file=file,
        exemptions=_inside(home, settings.exemptions, "exemptions"),
        baseline=_inside(home, settings.baseline, "baseline"),
    )


def _inside(home: str, name: str, key: str) -> str:
    path = posixpath.normpath(posixpath.join(home, name))
    if path.startswith(("/", "../")) or path in {"..", "."}:
        raise UsageError(
            f"[policy] {key}: expected a file of the repository, found {name!r}",
            next_command="karat config",
        )
    return path


def check_approvers(placed: Placed, commit: str) -> None:
    """A clear error where nobody may approve, or where it is not clear who."""
    approvers = placed.settings.approvers
    if not approvers:
        raise UsageError(
            f"expected [policy] approvers in karat.toml at {commit[:12]}, the base of the range, found none; add for "
            'example approvers = {default = ["@org/numerics", "CODEOWNERS"]} there, and merge it first: '
            "a branch does not appoint its own approvers",
            next_command=f"git show {commit[:12]}:{shlex.quote(placed.file or 'karat.toml')}",
        )
    for rule, people in approvers.items():
        if not people:
            raise UsageError(
                f"[policy] approvers of {rule}: expected somebody, found nobody",
                next_command="karat config",
            )
        for word in people:
            if word != CODE_OWNERS and not is_owner(word):
                raise UsageError(
                    f"[policy] approvers of {rule}: expected @user, @org/team, an e-mail address or CODEOWNERS, "
                    f"found {word!r}",
                    next_command="karat config",
                )


def approvers_of(rule: str, approvers: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Who may approve a waiver from a rule; raises where nobody may."""
    for name in (rule, *_FALLBACKS.get(rule, ()), DEFAULT_RULE):
        if approvers.get(name):
            return approvers[name]
    if rule == "policy":  # those whom it is about
        return tuple(dict.fromkeys(word for people in approvers.values() for word in people))
    raise UsageError(
        f"expected [policy] approvers for the rule {rule}, or a default, found only {', '.join(sorted(approvers))}",
        next_command="karat config",
    )
