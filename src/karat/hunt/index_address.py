"""The address of a package index: hunt.toml's, uv's or pip's, and how it is shown without its password."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from karat.findings import UsageError

PYPI = "https://pypi.org/simple"
_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
_SEPARATORS = re.compile(r"[-_.]+")
_PIP_SECONDS = 20.0


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A package index's simple API; its password is in `url`, and nowhere in `shown`."""

    url: str
    origin: str
    """Who named it: hunt.toml, a variable, pip's or uv's configuration, the default."""

    def __repr__(self) -> str:
        return f"Address({self.shown!r}, {self.origin!r})"

    @property
    def shown(self) -> str:
        """For messages."""
        return without_password(self.url)

    @property
    def credentials(self) -> tuple[str, str] | None:
        """User and password of the URL."""
        parts = urlsplit(self.url)
        if parts.username is None:
            return None
        return unquote(parts.username), unquote(parts.password or "")

    @property
    def is_pypi(self) -> bool:
        """Whether it is the public index, whose project pages are known."""
        return urlsplit(self.url).hostname in {"pypi.org", "pypi.python.org"}


def find_address(
    said: str, environment: Mapping[str, str] | None = None, *, ask_pip: bool = True
) -> Address:
    """The index that holds: hunt.toml's, uv's, pip's, else PyPI."""
    env = os.environ if environment is None else environment
    for url, origin in _candidates(said, env, ask_pip=ask_pip):
        if not _is_web(url):
            raise UsageError(
                f"expected the URL of a package index's simple API in {origin}, found {without_password(url)!r}",
                next_command="edit hunt.toml",
            )
        return Address(url=url.rstrip("/"), origin=origin)
    return Address(url=PYPI, origin="default")


def plain_name(name: str) -> str:
    """A project's name as indexes compare it, and as their addresses have it."""
    return _SEPARATORS.sub("-", name).lower()


def without_password(url: str) -> str:
    """A URL that may be shown: who logs in, and how, stays out."""
    # A password may hold a slash that nobody escaped, so all before the last @ goes.
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}" if slashes else url


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _candidates(said: str, env: Mapping[str, str], *, ask_pip: bool) -> Iterator[tuple[str, str]]:
    if said:
        yield said, "packages.index"
    for name in _VARIABLES:
        if env.get(name):
            # uv's variable may have a name before the URL.
            yield env[name].rpartition("=")[2] if "=http" in env[name] else env[name], name
    for path in _uv_files(env):
        url = _of_uv(path)
        if url:
            yield url, str(path)
    if ask_pip:
        url = _of_pip()
        if url:
            yield url, "pip's configuration"


def _uv_files(env: Mapping[str, str]) -> Iterator[Path]:
    if env.get("UV_CONFIG_FILE"):
        yield Path(env["UV_CONFIG_FILE"])
        return
    home = env.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - no home is no error
    yield Path(home) / "uv" / "uv.toml"
    yield Path("/etc/uv/uv.toml")


def _of_uv(path: Path) -> str:
    """The default index of a uv.toml; uv itself complains of one that is wrong."""
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    listed = table.get("index", [])
    chosen = (
        [i for i in listed if isinstance(i, dict) and i.get("default")]
        if isinstance(listed, list)
        else []
    )
    url = chosen[0].get("url") if chosen else table.get("index-url")
    return url if isinstance(url, str) else ""


def _of_pip() -> str:
    """What pip is configured for, by any of its files; empty without pip."""
    # `config get` looks into fewer files than an installation does.
    argv = (sys.executable, "-m", "pip", "config", "list")
    try:
        done = subprocess.run(
            argv, check=False, capture_output=True, timeout=_PIP_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    rows = [line.partition("=") for line in done.stdout.decode(errors="replace").splitlines()]
    found = {key: value.strip("'\"") for key, _, value in rows}
    return found.get("install.index-url") or found.get("global.index-url", "")
