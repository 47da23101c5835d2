"""Registry authorization: a registry's challenge, and the token that answers it.

A registry that wants to know who asks names a place that gives tokens (its realm). The login goes there, and to the
registry itself, over https or on loopback; it goes nowhere else, and blobs are fetched from where the registry leads
without it.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

import msgspec

from karat.findings import CannotVerify
from karat.hunt.image_reference import is_loopback
from karat.hunt.registry_login import Login

if TYPE_CHECKING:
    import httpx

_SCHEME = re.compile(r"\s*([A-Za-z]+)(?:\s+|$)")
_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*,?\s*')
_LARGEST_TOKEN = 1 << 20


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, without the request: that holds the login."""

    status: int
    url: httpx.URL
    headers: httpx.Headers
    body: bytes


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

    def __init__(self, http: httpx.Client, host: str, login: Login | None, advice: str) -> None:
        self._http, self._host, self._login, self._advice = http, host, login, advice
        self._headers: dict[str, str] = {}
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
        if challenge is None:
            return None
        with self._lock:
            known = self._headers.get(repository)
            if known is not None and known != tried:
                return known  # another thread was quicker
            found = self._made(challenge, response.url, repository)
            if found is None or found == tried:
                return None
            self._headers[repository] = found
            return found

    def _made(self, challenge: Challenge, asked: httpx.URL, repository: str) -> str | None:
        if challenge.scheme == "basic":
            may = self._login is not None and is_private(asked)
            return self._login.basic() if may and self._login else None
        token = self._token(challenge, repository)
        return f"Bearer {token}" if token else None

    def _token(self, challenge: Challenge, repository: str) -> str:
        import httpx  # noqa: PLC0415 - here already, since a response is

        try:
            realm = httpx.URL(challenge.realm)
        except (httpx.InvalidURL, ValueError):
            realm = httpx.URL("")
        if realm.scheme not in {"http", "https"} or not realm.host:
            raise self._cannot("expected it to name a place that gives tokens; it does not")
        request = self._request(realm, challenge.service, f"repository:{repository}:pull")
        try:
            answer = self._http.send(request)
        except httpx.RequestError as error:
            trouble = f"{type(error).__name__} from {realm.host}"
        else:
            if answer.status_code in {401, 403}:
                return ""
            if answer.status_code == 200:
                return _read(answer.content)
            trouble = f"HTTP {answer.status_code} from {realm.host}"
        # Out here, so that the library's own exception, which holds the request, is not chained.
        raise self._cannot(f"expected a token {self.who}, found {trouble}")

    def _request(self, realm: httpx.URL, service: str, scope: str) -> httpx.Request:
        asked = {"service": service, "scope": scope}
        if self._login is None or not is_private(realm):
            return self._http.build_request("GET", realm.copy_merge_params(asked))
        if token := self._login.refresh_token:
            form = {
                **asked,
                "grant_type": "refresh_token",
                "client_id": "karat",
                "refresh_token": token,
            }
            return self._http.build_request("POST", realm, data=form)
        signed = {"Authorization": self._login.basic()}
        return self._http.build_request("GET", realm.copy_merge_params(asked), headers=signed)

    def _cannot(self, message: str) -> CannotVerify:
        return CannotVerify(f"{self._host}: {message}", next_command=self._advice)


def challenge_of(headers: list[str]) -> Challenge | None:
    """The challenge that can be answered, a realm's before a password's."""
    found = {challenge.scheme: challenge for text in headers if (challenge := _challenge(text))}
    return found.get("bearer") or found.get("basic")


def is_private(url: httpx.URL) -> bool:
    """Whether a secret may travel there: over https, or on this very machine."""
    return url.scheme == "https" or is_loopback(url.host)


def _challenge(text: str) -> Challenge | None:
    scheme = _SCHEME.match(text)
    if not scheme:
        return None
    values: dict[str, str] = {}
    place = scheme.end()
    while parameter := _PARAMETER.match(text, place):
        name, quoted, bare = parameter.groups()
        values[name.lower()] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
        place = parameter.end()
    return Challenge(
        scheme=scheme[1].lower(), realm=values.get("realm", ""), service=values.get("service", "")
    )


def _read(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body[:_LARGEST_TOKEN], type=_Token)
    except ValueError:
        return ""
    token = found.token or found.access_token
    # A line break would end the header, and with it smuggle in another one.
    return token if token.isascii() and token.isprintable() and " " not in token else ""
