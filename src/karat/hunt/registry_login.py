"""Registry logins: whose name and password a registry is asked with, and how they stay unseen.

They come from an environment variable, from what `docker login` or `podman login` stored, or from the credential helper
that is configured there. Nothing of it is written, shown, or put on a command line.
"""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from karat.findings import UsageError
from karat.hunt.image_reference import Reference
from karat.sources.tokens import HIDDEN, Secret

_HELPER_SECONDS = 30.0
_HELPER = re.compile(r"[A-Za-z0-9_.-]+")
_TOKEN_USER = "<token>"  # noqa: S105 - the name that helpers give where there is no name


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


class _Stored(
    msgspec.Struct, frozen=True, rename={"helpers": "credHelpers", "store": "credsStore"}
):
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
        raise UsageError(
            f"containers.password_env: expected a password in ${name}, found nothing",
            next_command=f"export {name}=…",
        )
    # Registries that take tokens do not look at the name, but want one.
    return Login(username or "token", password, found_in=f"${name}")


def stored(reference: Reference, env: Mapping[str, str]) -> Login | None:
    """The login that the engine keeps for an image's registry, if it keeps one."""
    for path in _files(env):
        if (found := _read(path)) is None:
            continue
        if login := _of_file(found, reference, path, env):
            return login
    return None


def _files(env: Mapping[str, str]) -> Iterator[Path]:
    """Where logins are kept, in the order in which podman looks; docker has only the last."""
    home = Path(env.get("HOME") or "/nonexistent")
    if explicit := env.get("REGISTRY_AUTH_FILE"):
        yield Path(explicit)
    if runtime := env.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers/auth.json"
    yield Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "containers/auth.json"
    yield Path(env.get("DOCKER_CONFIG") or home / ".docker") / "config.json"


def _read(path: Path) -> _Stored | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Stored)
    except (OSError, ValueError):
        # An engine that cannot read its own file says so when it pulls; here nobody is logged in.
        return None


def _of_file(
    found: _Stored, reference: Reference, path: Path, env: Mapping[str, str]
) -> Login | None:
    keys = _keys(reference)
    for key, helper in found.helpers.items():
        if _plain(key) in keys and (login := _ask(helper, key, env)):
            return login
    named = {_plain(key): (key, auth) for key, auth in found.auths.items()}
    for wanted in keys:
        if wanted not in named:
            continue
        key, auth = named[wanted]
        if login := _decoded(auth, str(path)):
            return login
        if found.store and (login := _ask(found.store, key, env)):
            return login
    return None


def _keys(reference: Reference) -> list[str]:
    """The names a registry may be stored under, the closest first."""
    parts = reference.name.split("/")
    return ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]


def _plain(key: str) -> str:
    """`https://index.docker.io/v1/` is what docker calls docker.io."""
    bare = re.sub(r"^https?://", "", key).rstrip("/")
    bare = re.sub(r"/v[12]$", "", bare)
    return re.sub(r"^(index|registry-1)\.docker\.io", "docker.io", bare)


def _decoded(auth: _Auth, path: str) -> Login | None:
    try:
        user, _, password = base64.b64decode(auth.auth).decode().partition(":")
    except ValueError:
        return None
    if auth.identitytoken:
        return Login(user, password, token=auth.identitytoken, found_in=path)
    return Login(user, password, found_in=path) if user and password else None


def _ask(helper: str, server: str, env: Mapping[str, str]) -> Login | None:
    """What a credential helper keeps: it is asked on its stdin, and answers in JSON."""
    if not _HELPER.fullmatch(helper):
        return None
    program = f"docker-credential-{helper}"
    try:
        done = subprocess.run(
            [program, "get"],
            input=server.encode(),
            check=False,
            capture_output=True,
            timeout=_HELPER_SECONDS,
            env=dict(env),
        )
        answer = msgspec.json.decode(done.stdout, type=_Helped)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0 or not answer.secret:
        return None
    if answer.username == _TOKEN_USER:
        return Login("", "", token=answer.secret, found_in=program)
    return Login(answer.username, answer.secret, found_in=program)
