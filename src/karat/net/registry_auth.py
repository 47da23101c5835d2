"""Registry logins: whose name and password a registry is asked with, and the token that answers its challenge.

Logins come from an environment variable, from what `docker login` or `podman login` stored, or from the credential helper
that is configured there. Nothing of it is written, shown, or put on a command line. A registry that wants to know who asks
names a server that gives tokens (its realm). The login goes there, and to the registry itself, over https or on loopback,
and nowhere else.
"""

from __future__ import annotations

import base64
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.net.client import Reply, read_reply
from karat.net.image_reference import ImageReference
from karat.net.retry import Trouble
from karat.net.transport import Transport, is_private
from karat.system.command import Command
from karat.system.foreign.limits import TEXT, read_plain
from karat.system.secrets import HIDDEN, Secret

if TYPE_CHECKING:
    import httpx

LARGEST = 16 << 20  # Bytes of an answer.
_HELPER_SECONDS = 30.0
_HELPER = re.compile(r"[A-Za-z0-9_.-]+")
_SCHEME = re.compile(r"\s*([A-Za-z]+)(?:\s*,\s*|\s+|$)")
_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*,?\s*')


class Login:
    """A name with a password, or a token that stands for both; every way of printing it gives `***`."""

    __slots__ = ("_password", "_token", "_username", "found_in")

    def __init__(self, username: str, password: str, *, token: str = "", found_in: str) -> None:
        self._username, self._password, self._token = username, Secret(password), Secret(token)
        self.found_in = found_in

    @property
    def refresh_token(self) -> str:
        """What is exchanged for an access token; empty for a name with a password. For requests only."""
        return self._token.reveal()

    def basic(self) -> str:
        """The header of basic authentication; for requests only."""
        pair = f"{self._username}:{self._password.reveal()}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"

    def __repr__(self) -> str:
        return HIDDEN


class _Auth(msgspec.Struct, frozen=True):
    auth: str = ""
    identitytoken: str = ""


class _Stored(msgspec.Struct, frozen=True, rename={"helpers": "credHelpers", "store": "credsStore"}):
    """A config.json of docker's, or an auth.json of podman's."""

    auths: Mapping[str, _Auth] = {}
    helpers: Mapping[str, str] = {}
    store: str = ""


class _Helped(msgspec.Struct, frozen=True, rename="pascal"):
    username: str = ""
    secret: str = ""


def from_variable(username: str, name: str, env: Mapping[str, str]) -> Login:
    """The login whose password an environment variable holds."""
    password = env.get(name, "")
    if not password:
        said = f"containers.password_env: expected a password in ${name}, found nothing"
        raise UsageError(said, next_command=Command("export", f"{name}=PASSWORD"))
    # Registries that take tokens do not look at the name, but want one.
    return Login(username or "token", password, found_in=f"${name}")


def stored(reference: ImageReference, env: Mapping[str, str]) -> Login | None:
    """The login that the engine keeps for an image's registry, if it keeps one."""
    home = Path(env.get("HOME") or "/nonexistent")
    # In the order in which podman looks; docker has only the last.
    files = [
        Path(env.get("REGISTRY_AUTH_FILE") or "/nonexistent"),
        Path(env.get("XDG_RUNTIME_DIR") or "/nonexistent") / "containers/auth.json",
        Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "containers/auth.json",
        Path(env.get("DOCKER_CONFIG") or home / ".docker") / "config.json",
    ]
    for path in files:
        try:
            found = msgspec.json.decode(read_plain(path, TEXT), type=_Stored)
        except (OSError, ValueError, RecursionError):
            continue  # an engine that cannot read its own file says so when it pulls; here nobody is logged in
        if login := _of_file(found, reference, path, env):
            return login
    return None


def _of_file(found: _Stored, reference: ImageReference, path: Path, env: Mapping[str, str]) -> Login | None:
    parts = reference.name.split("/")
    keys = ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]
    for key, helper in found.helpers.items():
        if _plain(key) in keys and (login := _ask(helper, key, env)):
            return login
    named = {_plain(key): (key, auth) for key, auth in found.auths.items()}
    for wanted in keys:
        if wanted not in named:
            continue
        key, auth = named[wanted]
        with suppress(ValueError):
            user, _, password = base64.b64decode(auth.auth).decode().partition(":")
            if auth.identitytoken or (user and password):
                return Login(user, password, token=auth.identitytoken, found_in=str(path))
        if found.store and (login := _ask(found.store, key, env)):
            return login
    return None


def _plain(key: str) -> str:
    """`https://index.docker.io/v1/` is what docker calls docker.io."""
    bare = re.sub(r"^https?://", "", key).rstrip("/")
    bare = re.sub(r"/v[12]$", "", bare)
    return re.sub(r"^(index|registry-1)\.docker\.io", "docker.io", bare)


def _ask(helper: str, server: str, env: Mapping[str, str]) -> Login | None:
    """What a credential helper keeps: it is asked on its stdin, and answers in JSON."""
    if not _HELPER.fullmatch(helper):
        return None
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"], input=server.encode(), check=False, capture_output=True, timeout=_HELPER_SECONDS, env=env
        )
        answer = msgspec.json.decode(done.stdout, type=_Helped)
    except (OSError, ValueError, RecursionError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0 or not answer.secret:
        return None
    if answer.username == "<token>":  # the name that helpers give where there is no name
        return Login("", "", token=answer.secret, found_in=program)
    return Login(answer.username, answer.secret, found_in=program)


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

    def __init__(
        self,
        transport: Transport,
        host: str,
        login: Login | None,
        *,
        advice: str = "karat --help",
        seconds: float = 120.0,
    ) -> None:
        """`seconds`: how long one answer of the realm may take."""
        self._transport, self._host, self._login = transport, host, login
        self._advice, self._seconds = advice, seconds
        self._headers: dict[str, str] = {}
        self._trouble: tuple[float, Trouble] | None = None
        self._lock = threading.Lock()

    @property
    def who(self) -> str:
        """Whose login it is, for messages."""
        return f"with the login from {self._login.found_in}" if self._login else "without a login"

    def header(self, repository: str) -> str | None:
        """What worked for this repository before."""
        with self._lock:
            return self._headers.get(repository)

    def answer(self, headers: list[str], asked: httpx.URL, repository: str, tried: str | None) -> str | None:
        """The Authorization that answers the registry's WWW-Authenticate `headers`; None if there is nothing else to try."""
        challenge = challenge_of(headers)
        if challenge is None:
            return None
        began = time.monotonic()
        with self._lock:
            known = self._headers.get(repository)
            if known is not None and known != tried:
                return known  # another thread was quicker
            if self._trouble is not None and self._trouble[0] > began:
                raise self._trouble[1]  # another thread has just waited in vain
            # A registry that is asked over plain HTTP may be anybody, and may name any realm.
            login = self._login if is_private(asked) else None
            if challenge.scheme == "basic":
                found = login.basic() if login else ""
            else:
                token = self._token(challenge, login, f"repository:{repository}:pull")
                found = f"Bearer {token}" if token else ""
            if not found or found == tried:
                return None
            self._headers[repository] = found
            return found

    def _token(self, challenge: Challenge, login: Login | None, scope: str) -> str:
        import httpx

        try:
            realm = httpx.URL(challenge.realm).copy_with(userinfo=b"")
        except (httpx.InvalidURL, ValueError):
            realm = httpx.URL("")
        if realm.scheme not in {"http", "https"} or not realm.host:
            raise self._cannot("expected it to name a place that gives tokens; it does not")
        asked = {"service": challenge.service, "scope": scope}
        answer, trouble = self._answered(realm, asked, login if is_private(realm) else None)
        if answer is not None and answer.status in {401, 403}:
            return ""
        if answer is not None and answer.status == 200:
            try:
                found = msgspec.json.decode(answer.body, type=_Token)
            except (ValueError, RecursionError):
                return ""
            token = found.token or found.access_token
            # A line break would end the header, and with it smuggle in another one.
            return token if token.isascii() and token.isprintable() and " " not in token else ""
        said = f"expected a token {self.who}, found {trouble} from {realm.host}"
        if answer is not None and answer.status != 429 and answer.status < 500:
            raise self._cannot(said)
        status, headers = (answer.status, answer.headers) if answer else (0, {})
        self._trouble = (time.monotonic(), Trouble(said, status, headers))
        raise self._trouble[1]

    def _answered(self, realm: httpx.URL, asked: Mapping[str, str], login: Login | None) -> tuple[Reply | None, str]:
        """The realm's answer, and its trouble in a word."""
        import httpx

        url = realm.copy_merge_params(asked)
        try:
            if login is None:
                response = self._transport.send("GET", url, {})
            elif token := login.refresh_token:
                form = {**asked, "grant_type": "refresh_token", "client_id": "karat", "refresh_token": token}
                response = self._transport.send("POST", realm, {}, form=form)
            else:
                response = self._transport.send("GET", url, {}, ("Authorization", login.basic()))
            answer = read_reply(response, LARGEST, self._seconds)
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
        yield Challenge(scheme=scheme[1].lower(), realm=values.get("realm", ""), service=values.get("service", ""))
