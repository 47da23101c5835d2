"""Links: the page of a commit, from where its repository was cloned. Pure: text in, text out."""

from __future__ import annotations

import re
from urllib.parse import quote, urlsplit

_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[A-Za-z0-9.-]+\.[A-Za-z0-9-]+):(?!//)(?P<path>\S+)")
# Which part of a host's name tells what it runs → the way to a commit from the repository's page.
_FORGES = (
    ("github", "/commit/"),
    ("gitlab", "/-/commit/"),
    ("bitbucket.org", "/commits/"),
    ("codeberg", "/commit/"),
    ("gitea", "/commit/"),
    ("forgejo", "/commit/"),
    ("googlesource.com", "/+/"),
)


def commit_link(url: str, commit: str, template: str = "") -> str:
    """The page of a commit; empty where nobody knows it. `template` wins: `https://…/{commit}`."""
    if template:
        return template.replace("{commit}", commit)
    host, path = _host_and_path(url)
    way = next((way for word, way in _FORGES if word in host), "")
    return f"https://{host}/{quote(path)}{way}{commit}" if way and path else ""


def _host_and_path(url: str) -> tuple[str, str]:
    """Without user, password and port: what is private to the clone stays out of reports."""
    scp = _SCP.fullmatch(url)
    if scp:
        host, path = scp["host"], scp["path"]
    else:
        try:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path
        except ValueError:
            return "", ""
        if parts.scheme not in {"http", "https", "ssh", "git", "git+ssh"}:
            return "", ""
    return host.lower(), path.strip("/").removesuffix(".git").strip("/")
