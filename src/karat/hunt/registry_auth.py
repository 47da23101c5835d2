"""Registry authorization: a registry's challenge, and the token that answers it.

A registry that wants to know who asks names a place that gives tokens (its realm). The login goes there, and to the
registry itself, over https or on loopback; it goes nowhere else, and blobs are fetched from where the registry leads
without it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from karat.findings import CannotVerify
from karat.hunt.registry_login import Login
from karat.hunt.registry_wire import Answer, RegistryWire, is_private

if TYPE_CHECKING:
    import httpx

_SCHEME = re.compile(r"\s*([A-Za-z]+)(?:\s*,\s*|\s+|$)")
_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*,?\s*')


class RealmTrouble(Exception):  # noqa: N818 - what it is about; nobody but the registry sees it
    """The realm has no time, or is silent: trouble that may pass."""

    def __init__(self, message: str, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """What a registry wants of those who ask: `Basic`, or `Bearer` with a realm that gives tokens."""

    scheme: str
    realm: str = ""
    service: str = ""


class _Token(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


class Authorizer:
    """Answers the challenges of one registry; used from many threads at once."""

    def __init__(self, wire: RegistryWire, host: str, login: Login | None, advice: str) -> None:
        self._wire, self._host, self._login, self._advice = wire, host, login, advice
        self._headers: dict[str, str] = {}
        self._trouble: tuple[float, RealmTrouble] | None = None
        self._lock = threading.Lock()

    @property
    def who(self) -> str:
        """Whose login it is, for messages."""
        return f"with the login from {self._login.found_in}" if self._login else "without a login"

    def header(self, repository: str) -> str | None:
        """What worked for this repository before."""
        with self._lock:
            return self._headers.get(repository)

    def answer(self, response: Answer, repository: str, tried: str | None) -> str | None:
        """A header for the request that was refused; None if there is nothing else to try."""
        challenge = challenge_of(response.headers.get_list("www-authenticate"))
        # Where a redirect leads, somebody else may name a realm, to which the login would go.
        if challenge is None or not response.own:
            return None
        began = time.monotonic()
        with self._lock:
            known = self._headers.get(repository)
            if known is not None and known != tried:
                return known  # another thread was quicker
            if self._trouble is not None and self._trouble[0] > began:
                raise self._trouble[1]  # another thread has just waited in vain
            found = self._made(challenge, response.url, repository)
            if found is None or found == tried:
                return None
            self._headers[repository] = found
            return found

    def _made(self, challenge: Challenge, asked: httpx.URL, repository: str) -> str | None:
        # A registry that is asked over plain HTTP may be anybody, and may name any realm.
        login = self._login if is_private(asked) else None
        if challenge.scheme == "basic":
            return login.basic() if login else None
        token = self._token(challenge, login, f"repository:{repository}:pull")
        return f"Bearer {token}" if token else None

    def _token(self, challenge: Challenge, login: Login | None, scope: str) -> str:
        realm = self._realm(challenge)
        asked = {"service": challenge.service, "scope": scope}
        answer, trouble = self._answered(realm, asked, login if is_private(realm) else None)
        if answer is not None and answer.status in {401, 403}:
            return ""
        if answer is not None and answer.status == 200:
            return _read(answer.body)
        said = f"expected a token {self.who}, found {trouble} from {realm.host}"
        if answer is not None and answer.status != 429 and answer.status < 500:
            raise self._cannot(said)
        status, headers = (answer.status, answer.headers) if answer else (0, {})
        self._trouble = (time.monotonic(), RealmTrouble(said, status, headers))
        raise self._trouble[1]

    def _realm(self, challenge: Challenge) -> httpx.URL:
        import httpx  # noqa: PLC0415 - here already, since a response is

        try:
            realm = httpx.URL(challenge.realm).copy_with(userinfo=b"")
        except (httpx.InvalidURL, ValueError):
            realm = httpx.URL("")
        if realm.scheme not in {"http", "https"} or not realm.host:
            raise self._cannot("expected it to name a place that gives tokens; it does not")
        return realm

    def _answered(
        self, realm: httpx.URL, asked: Mapping[str, str], login: Login | None
    ) -> tuple[Answer | None, str]:
        """The realm's answer, and its trouble in a word."""
        import httpx  # noqa: PLC0415 - here already, since a response is

        url = realm.copy_merge_params(asked)
        try:
            if login is None:
                answer = self._wire.sent("GET", url, {})
            elif token := login.refresh_token:
                form = {
                    **asked,
                    "grant_type": "refresh_token",
                    "client_id": "karat",
                    "refresh_token": token,
                }
                answer = self._wire.sent("POST", realm, {}, form)
            else:
                answer = self._wire.sent("GET", url, {"Authorization": login.basic()})
        except httpx.RequestError as error:
            # Only its name: it holds the request, and with it the login.
            return None, type(error).__name__
        return answer, f"HTTP {answer.status}"

    def _cannot(self, message: str) -> CannotVerify:
        return CannotVerify(f"{self._host}: {message}", next_command=self._advice)


def challenge_of(headers: list[str]) -> Challenge | None:
    """The challenge that can be answered, a realm's before a password's."""
    found = {each.scheme: each for text in headers for each in _challenges(text)}
    return found.get("bearer") or found.get("basic")


def _challenges(text: str) -> Iterator[Challenge]:
    """One header may hold several."""
    place = 0
    while scheme := _SCHEME.match(text, place):
        values: dict[str, str] = {}
        place = scheme.end()
        while parameter := _PARAMETER.match(text, place):
            name, quoted, bare = parameter.groups()
            values[name.lower()] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
            place = parameter.end()
        yield Challenge(
            scheme=scheme[1].lower(),
            realm=values.get("realm", ""),
            service=values.get("service", ""),
        )


def _read(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body, type=_Token)
    except (ValueError, RecursionError):
        return ""
    token = found.token or found.access_token
    # A line break would end the header, and with it smuggle in another one.
    return token if token.isascii() and token.isprintable() and " " not in token else ""
