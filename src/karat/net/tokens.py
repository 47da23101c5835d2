"""Tokens: where a credential comes from, and how it stays out of everything that is written.

A `Secret` shows itself as `***`; only the client that signs a request asks for its value. Messages
that leave this room go through `scrub`, because servers and libraries echo what they were sent.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

import msgspec

from karat.findings import UsageError
from karat.system.command import Command

HIDDEN = "***"
_GH_SECONDS = 10.0
# Shorter pieces of base64 would hide innocent words.
_SHORTEST_PIECE = 8


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


def scrub(text: str, secrets: Iterable[Secret]) -> str:
    """The text with every secret, also quoted for URLs or in base64, replaced by `***`."""
    forms: set[str] = set()
    for value in (secret.reveal() for secret in secrets):
        pieces = [piece for piece in _base64_pieces(value.encode()) if len(piece) >= _SHORTEST_PIECE]
        forms |= {value, quote(value), quote(value, safe=""), quote_plus(value), *pieces}
        forms |= {piece.replace("+", "-").replace("/", "_") for piece in pieces}
    for form in sorted(forms - {""}, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def _base64_pieces(value: bytes) -> Iterator[str]:
    """What base64 makes of the value wherever it stands in a longer text, such as `user:value`.

    Three bytes become four characters, so there are three alignments; characters at either end that
    also depend on a neighbour are left off.
    """
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + value).decode()
        first = -(-before * 8 // 6)
        last = (before + len(value)) * 8 // 6
        yield encoded[first:last]
