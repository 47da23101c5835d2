"""Addresses: API roots from the environment, and URLs as they may be shown."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from karat.findings import UsageError
from karat.system.command import Command

GITHUB, GITLAB = "https://api.github.com", "https://gitlab.com/api/v4"


def github_root(env: Mapping[str, str]) -> str:
    """Where GitHub's REST interface is; enterprise servers set GITHUB_API_URL."""
    return _checked(env.get("GITHUB_API_URL") or GITHUB, "GITHUB_API_URL")


def github_host(root: str) -> str:
    """The host that people log in to, whose interface is at `root`."""
    host = urlsplit(root).hostname or ""
    return "github.com" if host == "api.github.com" else host


def gitlab_root(env: Mapping[str, str]) -> str:
    """Where GitLab's REST interface is: CI says it, people name a host or a URL."""
    if said := env.get("CI_API_V4_URL"):
        return _checked(said, "CI_API_V4_URL")
    said = env.get("GITLAB_ENDPOINT")
    if not said:
        return GITLAB
    url = _checked(said if "://" in said else f"https://{said}", "GITLAB_ENDPOINT")
    return url if url.endswith("/api/v4") else f"{url}/api/v4"


def _checked(url: str, name: str) -> str:
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
        raise UsageError(
            f"expected the URL of a server in {name} (https://host/path, without user or query), found something else",
            next_command=Command("unset", name),
        )
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a host is this very machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def shown(url: str) -> str:
    """A URL as it may stand in a message: a query may be a signature, a user a password."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an odd URL"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"
