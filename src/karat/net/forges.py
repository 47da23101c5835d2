"""Forges: where the interfaces of GitHub and GitLab are, as the environment says, and the token each is asked with.

Only the client that signs a request asks a `Secret` for its value. Messages that leave this room go through
`system.secrets.scrub`, because servers and libraries echo what they were sent.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from urllib.parse import urlsplit

from karat.findings import UsageError
from karat.net.client import Token
from karat.system.command import Command
from karat.system.secrets import Secret

GITHUB, GITLAB = "https://api.github.com", "https://gitlab.com/api/v4"
GITHUB_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_REPOSITORIES = {
    "github": re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+"),
    "gitlab": re.compile(r"[0-9]+|[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+"),
}


def is_repository(forge: str, text: str) -> bool:
    """Whether a text is OWNER/NAME on GitHub; GROUP/NAME or a number on GitLab."""
    return bool(_REPOSITORIES[forge].fullmatch(text)) and not set(text.split("/")) & {".", ".."}


def github_root(env: Mapping[str, str]) -> str:
    """Where GitHub's REST interface is; enterprise servers set GITHUB_API_URL."""
    return _root(env.get("GITHUB_API_URL") or GITHUB, "GITHUB_API_URL")


def github_host(root: str) -> str:
    """The host that people log in to, whose interface is at `root`."""
    host = urlsplit(root).hostname or ""
    return "github.com" if host == "api.github.com" else host


def gitlab_root(env: Mapping[str, str]) -> str:
    """Where GitLab's REST interface is: CI says it, people name a host or a URL."""
    if said := env.get("CI_API_V4_URL"):
        return _root(said, "CI_API_V4_URL")
    said = env.get("GITLAB_ENDPOINT")
    if not said:
        return GITLAB
    url = _root(said if "://" in said else f"https://{said}", "GITLAB_ENDPOINT")
    return url if url.endswith("/api/v4") else f"{url}/api/v4"


def _root(url: str, name: str) -> str:
    import httpx

    try:
        parts = urlsplit(url)
        # A host that can be looked up, by the very parser that will ask it.
        host = httpx.URL(url).host
        sound = parts.scheme in {"http", "https"} and parts.port != 0
        sound = sound and bool(re.fullmatch(r"[\w.:-]+", host) and host.encode("idna"))
    except (ValueError, httpx.InvalidURL):
        sound = False
    if not sound or parts.username or parts.password or parts.query or parts.fragment:
        # What was found is not repeated: whoever puts a password there would read it in a log.
        said = f"expected the URL of a server in {name} (https://host/path, without user or query)"
        raise UsageError(f"{said}, found something else", next_command=Command("unset", name))
    return url.rstrip("/")


_GH_SECONDS = 10.0


def github_token(env: Mapping[str, str], host: str = "github.com") -> Token | None:
    """The token for GitHub: from the environment, else from `gh`, which keeps one per host."""
    said = next((name for name in ("GITHUB_TOKEN", "GH_TOKEN") if env.get(name, "").strip()), None)
    text = env[said].strip() if said else _ask_gh(env, host)
    name = said or "gh auth token"
    if not text:
        return None
    return Token(secret=_secret(text, name), header="Authorization", prefix="Bearer ", found_in=name)


def gitlab_token(env: Mapping[str, str]) -> Token | None:
    """The token for GitLab: a person's, a read-only one, or that of the running job."""
    headers = {"GITLAB_TOKEN": "PRIVATE-TOKEN", "RO_API_TOKEN": "PRIVATE-TOKEN", "CI_JOB_TOKEN": "JOB-TOKEN"}
    for name, header in headers.items():
        if text := env.get(name, "").strip():
            return Token(secret=_secret(text, name), header=header, found_in=name)
    return None


def _secret(text: str, name: str) -> Secret:
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
