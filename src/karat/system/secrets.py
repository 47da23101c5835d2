"""Secrets of the environment: what code under test does not see, and how values stay out of everything that is written.

The one place that decides: engines, containers and replays start the code of others with `withhold`, and whatever is kept of
its output goes through `scrub`. This keeps secrets from programs that print, log or upload their environment. It is no
sandbox: a program of the same user can read that user's files and other processes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import AnyStr
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "***"
EVERYTHING = ("*",)  # For commands of karat itself that log in somewhere: git, and the clients of container engines.
PACKAGE_INDEX = ("UV_*", "PIP_*")  # For the installer, which runs code of others when it builds.
CLOUD = ("AWS_*", "GOOGLE_*", "AZURE_*", "MSI_*", "IDENTITY_*")  # For whoever reads from a bucket.
# Tokenizers are no tokens, and nearly everybody has TOKENIZERS_PARALLELISM.
_NAME = re.compile(
    r".*(?:TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|CONNECTION_STRING|ASKPASS|APIKEY).*"
    r"|.*_(?:KEY|KEY_ID|PASS|PWD|AUTH|PAT|JWT|JWT_V\d)|DOCKER_AUTH_CONFIG",
    re.IGNORECASE,
)
# A login in an address or a header. `ssh://git@host` says nothing that is secret.
_LOGIN = re.compile(r"https?://[^/@\s]+@|://[^/@\s:]*:[^/@\s]+@|authorization:", re.IGNORECASE)
# A token may also stand before the colon, where a password is of no use.
_TOKEN = re.compile(
    r"://([^/@\s:]+)(?::x-oauth-basic|:)?@|://[^/@\s:]*:([^/@\s]+)@|authorization: *\w+ +(\S+)", re.IGNORECASE
)
# Numbered settings of git, of which none may be missing.
_GIT_SETTINGS = re.compile(r"GIT_CONFIG_(?:COUNT|KEY_\d+|VALUE_\d+)")
# Shorter texts, and numbers, would hide innocent words.
SHORTEST = 8
_NUMBER = re.compile(r"[\d.,_+-]{1,15}")


class Secret:
    """A text that must not be seen: every way of printing it gives `***`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself; for the request that needs it, and for `scrub`."""
        return self._value

    def __repr__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a secret is not copied, stored or sent to another process")


def is_secret_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def withhold(
    environment: Mapping[str, str], passed: Collection[str] = (), named: Collection[str] = ()
) -> dict[str, str]:
    """An environment for code under test: without secrets, except those that `passed`, names or globs, lets through.

    Secrets are known by their names, by a login in their values, or because they are `named`. Proxies stay, whatever login
    they hold: without them there is no network.
    """

    def is_withheld(name: str, value: str) -> bool:
        by_value = _LOGIN.search(value) is not None and not name.lower().endswith("_proxy")
        secret = name in named or is_secret_name(name) or by_value
        return secret and not any(fnmatchcase(name, pattern) for pattern in passed)

    gone = {name for name, value in environment.items() if is_withheld(name, value)}
    if any(map(_GIT_SETTINGS.fullmatch, gone)):
        gone |= {name for name in environment if _GIT_SETTINGS.fullmatch(name)}
    return {name: value for name, value in environment.items() if name not in gone}


def secrets_in(*environments: Mapping[str, str], named: Collection[str] = ()) -> tuple[Secret, ...]:
    """What must not be written, of all these environments, whether or not it was withheld from anybody."""
    found: dict[str, None] = {}
    for environment in environments:
        for name, value in environment.items():
            if name in named or is_secret_name(name):
                # A key of several lines is printed line by line.
                found |= dict.fromkeys((value, *map(str.strip, value.splitlines())))
            found |= dict.fromkeys(unquote("".join(groups)) for groups in _TOKEN.findall(value))
    return tuple(Secret(value) for value in found if len(value) >= SHORTEST and not _NUMBER.fullmatch(value))


def scrub(text: AnyStr, secrets: Iterable[Secret]) -> AnyStr:
    """The text with every secret, also quoted for URLs or JSON or in base64, replaced by `***`."""
    if isinstance(text, bytes):
        for form in _forms(secrets):
            text = text.replace(_bytes(form), HIDDEN.encode())
        return text
    for form in _forms(secrets):
        text = text.replace(form, HIDDEN)
    return text


def _forms(secrets: Iterable[Secret]) -> list[str]:
    """As they may be printed; the longest first, which may contain others."""
    forms: set[str] = set()
    for value in (secret.reveal() for secret in secrets):
        raw = _bytes(value)
        # What base64 makes of it wherever it stands in a longer text, such as `user:value`. Three bytes become four
        # characters, so there are three alignments; characters at either end that also depend on a neighbour are left off.
        encoded = ((before, base64.b64encode(bytes(before) + raw).decode()) for before in range(3))
        found = (text[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6] for before, text in encoded)
        pieces = [piece for piece in found if len(piece) >= SHORTEST]
        forms |= {value, json.dumps(value)[1:-1], quote(raw), quote(raw, safe=""), quote_plus(raw), *pieces}
        forms |= {piece.replace("+", "-").replace("/", "_") for piece in pieces}
    return sorted(forms - {""}, key=len, reverse=True)


def _bytes(value: str) -> bytes:
    """As an environment holds it, where it may be no text."""
    return value.encode("utf-8", "surrogateescape")
