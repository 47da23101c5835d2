"""Package index: where it is (hunt.toml's, uv's or pip's), and the files that it lists for one project.

A simple API is read as JSON (PEP 691, PEP 700) or HTML (PEP 503). Nothing is installed and no file is fetched.
"""

from __future__ import annotations

import base64
import datetime as dt
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.net.addresses import shown
from karat.net.client import Advice, Client, Reply
from karat.net.retry import Retry
from karat.net.tokens import Token
from karat.system.command import Command
from karat.system.foreign import toml
from karat.system.foreign.limits import INDEX, TEXT, read_plain
from karat.system.secrets import Secret

PYPI = "https://pypi.org/simple"
_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
_SEPARATORS = re.compile(r"[-_.]+")
_PIP_SECONDS = 20.0
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
RETRY = Retry(attempts=3, first_wait=1.0, spread=0.0, limit_wait=60.0, connect_timeout=30.0, read_timeout=30.0)


class IndexAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A package index's simple API; its password is in `url`, and nowhere in `shown`."""

    url: str
    origin: str  # Who named it: hunt.toml, a variable, pip's or uv's configuration, the default.

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


def find_address(said: str, environment: Mapping[str, str] | None = None, *, ask_pip: bool = True) -> IndexAddress:
    """The index that holds: hunt.toml's, uv's, pip's, else PyPI."""
    env = os.environ if environment is None else environment
    for url, origin in _candidates(said, env, ask_pip=ask_pip):
        try:
            parts = urlsplit(url)
            web = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            web = False
        if not web:
            said = f"expected the URL of a package index's simple API in {origin}, found {without_password(url)!r}"
            raise UsageError(said, next_command="edit hunt.toml")
        return IndexAddress(url=url.rstrip("/"), origin=origin)
    return IndexAddress(url=PYPI, origin="default")


def plain_name(name: str) -> str:
    """A project's name as indexes compare it, and as their addresses have it."""
    return _SEPARATORS.sub("-", name).lower()


def without_password(url: str) -> str:
    """A URL that may be shown: who logs in, and how, stays out."""
    # A password may hold a slash that nobody escaped, so all before the last @ goes.
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}" if slashes else url


def _candidates(said: str, env: Mapping[str, str], *, ask_pip: bool) -> Iterator[tuple[str, str]]:
    if said:
        yield said, "packages.index"
    for name in _VARIABLES:
        if env.get(name):
            # uv's variable may have a name before the URL.
            yield env[name].rpartition("=")[2] if "=http" in env[name] else env[name], name
    home = env.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111 - no home is no error
    own = env.get("UV_CONFIG_FILE")
    for path in [Path(own)] if own else [Path(home) / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]:
        if url := _of_uv(path):
            yield url, str(path)
    if ask_pip and (url := _of_pip()):
        yield url, "pip's configuration"


def _of_uv(path: Path) -> str:
    """The default index of a uv.toml; uv itself complains of one that is wrong."""
    try:
        table = toml.loads(read_plain(path, TEXT).decode())
    except (OSError, ValueError):
        return ""
    listed = table.get("index", [])
    chosen = [i for i in listed if isinstance(i, dict) and i.get("default")] if isinstance(listed, list) else []
    url = chosen[0].get("url") if chosen else table.get("index-url")
    return url if isinstance(url, str) else ""


def _of_pip() -> str:
    """What pip is configured for, by any of its files; empty without pip."""
    # `config get` looks into fewer files than an installation does. -P: a clone may have a pip of its own.
    argv = (sys.executable, "-P", "-m", "pip", "config", "list")
    try:
        done = subprocess.run(argv, check=False, capture_output=True, timeout=_PIP_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    rows = [line.partition("=") for line in done.stdout.decode(errors="replace").splitlines()]
    found = {key: value.strip("'\"") for key, _, value in rows}
    return found.get("install.index-url") or found.get("global.index-url", "")


class IndexFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a project."""

    filename: str
    requires_python: str = ""
    yanked: str | None = None  # Why it was withdrawn, maybe empty; None: it was not.
    uploaded: dt.datetime | None = None


def files(address: IndexAddress, name: str) -> tuple[IndexFile, ...]:
    """Every file of a project."""
    answer = _get(address, f"{_plain(address.url)}/{quote(plain_name(name))}/", _ACCEPT)
    if answer.status == 404:
        said = f"packages.name: expected a project that {address.shown} has, found none called {name!r}"
        raise UsageError(said, next_command="edit hunt.toml")
    if answer.status != 200:
        raise CannotVerify(
            f"expected the package index {address.shown} ({address.origin}) to list files, found HTTP {answer.status}",
            next_command=Command("curl", "-I", shown(str(answer.url))),
        )
    if answer.headers.get("content-type", "").partition(";")[0].strip().endswith("json"):
        return tuple(_of_json(answer.body, address))
    if len(answer.body) > INDEX.value() // 4:
        raise _too_long(address, INDEX.value() // 4, answer)
    try:
        return tuple(_of_html(answer.body.decode("utf-8", "replace")))
    except (AssertionError, ValueError) as error:  # what the parser makes of odd declarations, digits and addresses
        said = f"expected a list of files from {address.shown}, found a page that is no HTML: {error}"
        raise CannotVerify(said, next_command="edit hunt.toml") from error


def pages(address: IndexAddress, name: str) -> Mapping[str, str]:
    """Links of a project by their labels, where the index has PyPI's JSON beside its simple API; else none."""
    base = _plain(address.url).removesuffix("/simple")
    try:
        answer = _get(address, f"{base}/pypi/{quote(plain_name(name))}/json", "application/json")
        info = msgspec.json.decode(answer.body).get("info") if answer.status == 200 else None
    except (CannotVerify, ValueError, RecursionError, AttributeError):  # msgspec's are among the second
        return {}
    urls = info.get("project_urls") if isinstance(info, dict) else None
    listed = urls.items() if isinstance(urls, dict) else ()
    return {str(k): v for k, v in listed if isinstance(v, str) and v.startswith("https://")}


def _plain(url: str) -> str:
    """The URL without who logs in: that goes into a header of its own."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _get(address: IndexAddress, url: str, accept: str) -> Reply:
    parts, credentials = urlsplit(url), address.credentials
    token = None
    if credentials is not None:
        pair = base64.b64encode(":".join(credentials).encode()).decode()
        token = Token(secret=Secret(pair), header="Authorization", prefix="Basic ", found_in=address.origin)
    look = Command("curl", "-I", _plain(url))
    root, advice = f"{parts.scheme}://{parts.netloc}", Advice(again=look, login=look)
    with closing(Client(root, token, retry=RETRY, advice=advice)) as client:
        reply = client.fetch(url, {"Accept": accept}, most=INDEX.value())
    if len(reply.body) > INDEX.value():
        raise _too_long(address, INDEX.value(), reply)
    return reply


def _too_long(address: IndexAddress, most: int, reply: Reply) -> CannotVerify:
    said = f"expected a list of files from {address.shown}, found more than {most:,} bytes; {INDEX.setting}"
    return CannotVerify(said, next_command=Command("curl", "-I", shown(str(reply.url))))


def _of_json(body: bytes, address: IndexAddress) -> Iterator[IndexFile]:
    try:
        listed = msgspec.json.decode(body)["files"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:  # msgspec's are among the first
        said = f"expected a list of files from {address.shown}, found other JSON: {error}"
        raise CannotVerify(said, next_command="edit hunt.toml") from error
    for file in listed if isinstance(listed, list) else ():
        if isinstance(file, dict) and isinstance(file.get("filename"), str):
            python, yanked = file.get("requires-python"), file.get("yanked", False)
            reason = yanked if isinstance(yanked, str) else ""
            yield IndexFile(
                filename=file["filename"],
                requires_python=python if isinstance(python, str) else "",
                yanked=None if yanked is None or yanked is False else reason,
                uploaded=_moment(file.get("upload-time")),
            )


def _moment(value: Any) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _of_html(text: str) -> Iterator[IndexFile]:
    reader = _Anchors()
    # What does not end soon begins no tag: the parser looks for its end over and over, in a hundred times its length.
    *pieces, rest = (
        f"{piece[:-_LONGEST_TAG].replace('<', '&lt;')}{piece[-_LONGEST_TAG:]}" for piece in text.split(">")
    )
    reader.feed(">".join([*pieces, rest.replace("<", "&lt;")]))
    for attributes in reader.found:
        try:
            path = urlsplit(attributes.get("href") or "").path
        except ValueError:
            continue  # no address
        if filename := unquote(path).rpartition("/")[2]:
            yield IndexFile(
                filename=filename,
                requires_python=attributes.get("data-requires-python") or "",
                yanked=(attributes["data-yanked"] or "") if "data-yanked" in attributes else None,
                uploaded=_moment(attributes.get("data-upload-time")),
            )


_LONGEST_TAG = 8192


class _Anchors(HTMLParser):
    """Attributes of every link of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One element begins."""
        if tag == "a":
            self.found.append(dict(attrs))
