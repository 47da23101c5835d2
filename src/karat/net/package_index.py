"""Package index: where it is (hunt.toml's, or a variable of uv's or pip's), and the files that it lists for one project.

A simple API is read as JSON (PEP 691, PEP 700) or HTML (PEP 503). Nothing is installed and no file is fetched.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from html import unescape
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.net.client import Advice, Client, Retry, basic_token
from karat.net.transport import shown
from karat.system.command import Command
from karat.system.foreign.limits import INDEX

PYPI = "https://pypi.org/simple"
_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
_SEPARATORS = re.compile(r"[-_.]+")
# What is within quotes is escaped, as the specification wants it, so that the first `>` ends a tag; hostile ones are no longer than this.
_ANCHOR = re.compile(r"<a\s([^<>]{1,8192})>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([\w-]+)(?:\s*=\s*("[^"]*"|'[^']*'))?""")
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
RETRY = Retry(attempts=3, first_wait=1.0, spread=0.0, limit_wait=60.0, connect_timeout=30.0, read_timeout=30.0)


class IndexAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A package index's simple API; its password is in `url`, and nowhere in `shown`."""

    url: str
    origin: str  # Who named it: hunt.toml, a variable, the default.

    def __repr__(self) -> str:
        return f"Address({self.shown!r}, {self.origin!r})"

    @property
    def shown(self) -> str:
        """For messages."""
        return without_password(self.url)

    @property
    def credentials(self) -> tuple[str, str] | None:
        parts = urlsplit(self.url)
        if parts.username is None:
            return None
        return unquote(parts.username), unquote(parts.password or "")

    @property
    def is_pypi(self) -> bool:
        """Whether it is the public index, whose project pages are known."""
        return urlsplit(self.url).hostname in {"pypi.org", "pypi.python.org"}


def find_address(said: str, environment: Mapping[str, str] | None = None) -> IndexAddress:
    """The index that holds: hunt.toml's, that of a variable, else PyPI."""
    env = os.environ if environment is None else environment
    named = {"packages.index": said, **{name: env.get(name, "") for name in _VARIABLES}}
    origin = next((name for name, url in named.items() if url), "default")
    url = named.get(origin, PYPI)
    if origin in _VARIABLES and "=http" in url:
        url = url.rpartition("=")[2]  # uv's may have a name before the URL
    try:
        parts = urlsplit(url)
        web = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        web = False
    if not web:
        said = f"expected the URL of a package index's simple API in {origin}, found {without_password(url)!r}"
        raise UsageError(said, next_command="edit hunt.toml")
    return IndexAddress(url=url.rstrip("/"), origin=origin)


def plain_name(name: str) -> str:
    """A project's name as indexes compare it, and as their addresses have it."""
    return _SEPARATORS.sub("-", name).lower()


def without_password(url: str) -> str:
    """A URL that may be shown: who logs in, and how, stays out."""
    # A password may hold a slash that nobody escaped, so all before the last @ goes.
    scheme, slashes, rest = url.partition("://")
    return f"{scheme}{slashes}{rest.rpartition('@')[2]}" if slashes else url


class IndexFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a project."""

    filename: str
    requires_python: str = ""
    yanked: str | None = None  # Why it was withdrawn, maybe empty; None: it was not.
    uploaded: dt.datetime | None = None


def files(address: IndexAddress, name: str) -> tuple[IndexFile, ...]:
    parts, most = urlsplit(address.url), INDEX.value()
    # Who logs in is no part of the URL: that goes into a header of its own.
    parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    url = f"{urlunsplit(parts)}/{quote(plain_name(name))}/"
    token = basic_token(*address.credentials, address.origin) if address.credentials else None
    look = Command("curl", "-I", url)
    root, advice = f"{parts.scheme}://{parts.netloc}", Advice(again=look, login=look)
    with closing(Client(root, token, retry=RETRY, advice=advice)) as client:
        answer = client.fetch(url, {"Accept": _ACCEPT}, most=most)
    there = Command("curl", "-I", shown(str(answer.url)))
    if len(answer.body) > most:
        said = f"expected a list of files from {address.shown}, found more than {most:,} bytes; {INDEX.setting}"
        raise CannotVerify(said, next_command=there)
    if answer.status == 404:
        said = f"packages.name: expected a project that {address.shown} has, found none called {name!r}"
        raise UsageError(said, next_command="edit hunt.toml")
    if answer.status != 200:
        said = f"expected the package index {address.shown} ({address.origin}) to list files"
        raise CannotVerify(f"{said}, found HTTP {answer.status}", next_command=there)
    if answer.headers.get("content-type", "").partition(";")[0].strip().endswith("json"):
        return tuple(_of_json(answer.body, address))
    return tuple(_of_html(answer.body.decode("utf-8", "replace")))


def _of_json(body: bytes, address: IndexAddress) -> Iterator[IndexFile]:
    try:
        listed = msgspec.json.decode(body)["files"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:  # msgspec's are among the first
        said = f"expected a list of files from {address.shown}, found other JSON: {error}"
        raise CannotVerify(said, next_command="edit hunt.toml") from error
    for file in listed if isinstance(listed, list) else ():
        if isinstance(file, dict) and isinstance(file.get("filename"), str):
            python, yanked = file.get("requires-python"), file.get("yanked", False)
            needs, reason = (text if isinstance(text, str) else "" for text in (python, yanked))
            why, uploaded = None if yanked is None or yanked is False else reason, _moment(file.get("upload-time"))
            yield IndexFile(filename=file["filename"], requires_python=needs, yanked=why, uploaded=uploaded)


def _moment(value: Any) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def _of_html(text: str) -> Iterator[IndexFile]:
    for tag in _ANCHOR.findall(text):
        with suppress(ValueError):  # no address, or a character of thousands of digits
            attributes = {name.lower(): unescape(value[1:-1]) for name, value in _ATTRIBUTE.findall(tag)}
            path = urlsplit(attributes.get("href", "")).path
            if filename := unquote(path).rpartition("/")[2]:
                python, yanked = attributes.get("data-requires-python", ""), attributes.get("data-yanked")
                uploaded = _moment(attributes.get("data-upload-time"))
                yield IndexFile(filename=filename, requires_python=python, yanked=yanked, uploaded=uploaded)
