"""git as a hunt runs it: it never asks anybody anything, and no hook or habit of the user's disturbs it.

Two ways: *local* work (reading history, checking out) sees no configuration but the repository's own; what talks to a
*remote* keeps the user's, because credentials, proxies and `insteadOf` stand there.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from karat.engines.foreign import without_foreign
from karat.findings import CannotVerify

# A dialogue would wait for ever in a hunt that runs overnight. GIT_ASKPASS is left alone: CI hands tokens over by it.
QUIET: Mapping[str, str] = {
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS": "",
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
ALONE: Mapping[str, str] = {
    **QUIET,
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "0",
    "GIT_CONFIG_PARAMETERS": "",
}
# Objects of a mirror are borrowed by every work area, so nothing may ever collect them.
SETTINGS = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0", "-c", "maintenance.auto=false",
    "-c", "advice.detachedHead=false", "-c", "safe.directory=*",
    # With it --topo-order goes by who descends from whom; without, by dates, some of which are wrong.
    "-c", "fetch.writeCommitGraph=true",
)  # fmt: skip
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")


def is_commit_id(text: str) -> bool:
    """Whether a text is a whole commit id, and so no option, and no name that may move."""
    return bool(_COMMIT.fullmatch(text))


def local(repository: Path, *words: str, given: bytes = b"") -> bytes:
    """The output of a command on a repository here; git's own words on failure."""
    return _run(repository, words, ALONE, given=given)


def remote(repository: Path, *words: str, held: int | None = None) -> bytes:
    """The same for a command that talks to a server; `held` is a lock that lives as long as git does."""
    return _run(repository, words, QUIET, held=held)


def answer(repository: Path, *words: str) -> str | None:
    """What a question is answered with, or None where git says no."""
    try:
        return local(repository, *words).decode("utf-8", "replace").strip()
    except CannotVerify:
        return None


def hushed(text: str) -> str:
    """A text of git's without the user names and passwords that URLs may hold."""
    return _PASSWORD.sub("", text)


def _run(
    repository: Path,
    words: tuple[str, ...],
    env: Mapping[str, str],
    *,
    given: bytes = b"",
    held: int | None = None,
) -> bytes:
    try:
        done = subprocess.run(
            ["git", *SETTINGS, f"--git-dir={repository}", *words],
            input=given,
            capture_output=True,
            env={**without_foreign(os.environ), **env},
            check=False,
            # Without a terminal of its own ssh cannot ask, either.
            start_new_session=True,
            pass_fds=() if held is None else (held,),
        )
    except FileNotFoundError as error:
        raise CannotVerify(
            "git was expected on PATH and not found; this timeline is made of its history",
            next_command="apt install git",
        ) from error
    if done.returncode:
        said = hushed(done.stderr.decode("utf-8", "replace").strip())
        raise CannotVerify(
            f"git {words[0]} failed in {repository}: {said or f'exit code {done.returncode}'}",
            next_command="edit hunt.toml",
        )
    return done.stdout
