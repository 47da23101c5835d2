"""Tokens: where a credential comes from, and the header it travels in.

Only the client that signs a request asks a `Secret` for its value. Messages that leave this room go through
`system.secrets.scrub`, because servers and libraries echo what they were sent.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping

import msgspec

from karat.findings import UsageError
from karat.system.command import Command
from karat.system.secrets import Secret

_GH_SECONDS = 10.0


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A credential, the header it travels in, and the name of where it was found."""

    secret: Secret
    header: str
    prefix: str = ""
    found_in: str

    def value(self) -> str:
        """What the header says; for the request only."""
        return f"{self.prefix}{self.secret.reveal()}"


def github_token(env: Mapping[str, str], host: str = "github.com") -> Token | None:
    """The token for GitHub: from the environment, else from `gh`, which keeps one per host."""
    said = next((name for name in ("GITHUB_TOKEN", "GH_TOKEN") if env.get(name, "").strip()), None)
    text = env[said].strip() if said else _ask_gh(env, host)
    name = said or "gh auth token"
    if not text:
        return None
    return Token(secret=_checked(text, name), header="Authorization", prefix="Bearer ", found_in=name)


def gitlab_token(env: Mapping[str, str]) -> Token | None:
    """The token for GitLab: a person's, a read-only one, or that of the running job."""
    for name, header in (
        ("GITLAB_TOKEN", "PRIVATE-TOKEN"),
        ("RO_API_TOKEN", "PRIVATE-TOKEN"),
        ("CI_JOB_TOKEN", "JOB-TOKEN"),
    ):
        if text := env.get(name, "").strip():
            return Token(secret=_checked(text, name), header=header, found_in=name)
    return None


def _checked(text: str, name: str) -> Secret:
    # A line break would end the header, and with it smuggle in another one.
    if not text.isascii() or not text.isprintable() or " " in text:
        said = f"expected a token in {name}, found a text with blanks or special characters in it"
        raise UsageError(said, next_command=Command("unset", name) if name.isupper() else "gh auth login")
    return Secret(text)


def _ask_gh(env: Mapping[str, str], host: str) -> str:
    """What `gh` keeps for that very host; nothing if there is no `gh`, or it knows no token."""
    program = shutil.which("gh", path=env.get("PATH", ""))
    if program is None or host.startswith("-"):
        return ""
    try:
        done = subprocess.run(
            [program, "auth", "token", "--hostname", host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GH_SECONDS,
            check=False,
            env={**env, "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("ascii", "replace").strip() if done.returncode == 0 else ""
