"""Registry: image references, logins, and whether an image exists, what it is, and its labels, without pulling it.

Asked by HTTP, as the distribution specification has it. Only 404 says that an image is missing; a refusal, a rate limit
that does not end, a server in trouble and silence say nothing of it.

Logins come from what `docker login` or `podman login` stored, or from the credential helper that is configured there. Nothing
of it is written, shown, or put on a command line. A registry that wants to know who asks names a server that gives tokens (its
realm). The login goes there, and to the registry itself, over https or on loopback, and nowhere else.
"""

from __future__ import annotations

import base64
import platform
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.net.client import Advice, Client, Reply, Retry, Stopped, Token, Trouble, basic_token, read_reply
from karat.net.transport import Transport, discard, is_loopback, is_private
from karat.system.command import Command
from karat.system.foreign.limits import TEXT, read_plain
from karat.system.hashes import sha256_hex

if TYPE_CHECKING:
    import httpx

_HUB, _HUB_API = "docker.io", "registry-1.docker.io"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"""(?:(?P<host>(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{{1,5}})?)/)?
    (?P<repository>{_PART}(?:/{_PART})*)
    (?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}))?
    (?:@(?P<digest>[a-z0-9]+:[0-9a-f]{{32,}}))?""",
    re.VERBOSE,
)
LARGEST = 16 << 20  # Bytes of an answer.
_HELPER_SECONDS = 30.0
_HELPER = re.compile(r"[A-Za-z0-9_.-]+")
_SCHEME = re.compile(r"\s*([A-Za-z]+)(?:\s*,\s*|\s+|$)")
_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))\s*,?\s*')
_KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_RETRY = Retry(
    attempts=4, connect_attempts=2, first_wait=1.0, spread=0.0, limit_wait=300.0, connect_timeout=10.0, read_timeout=30.0
)  # fmt: skip
_NEXT = re.compile(r'<(?:https?://[^/>]*)?(/v2/[^>]*/tags/list\?[^>]*)>\s*;[^,]*rel="?next"?')
_MOST_PAGES = 20
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "AMD64": "amd64"}

T = TypeVar("T")


class ImageReference(msgspec.Struct, frozen=True, kw_only=True):
    """The name of an image, taken apart."""

    host: str  # The registry; `docker.io` where none is named, `localhost` for what only the engine has.
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        return f"{self.host}/{self.repository}"

    @property
    def text(self) -> str:
        """The whole reference; a digest makes the tag superfluous."""
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag or 'latest'}"

    @property
    def is_loopback(self) -> bool:
        """Whether its registry is this very machine."""
        return is_loopback(re.sub(r":[0-9]+$", "", self.host))

    @property
    def api_host(self) -> str:
        """The host that answers for the registry."""
        return _HUB_API if self.host == _HUB else self.host


def parse(text: str) -> ImageReference:
    """A reference, taken apart by docker's rules: what is plain before its first / is the Hub's."""
    if _DIGEST.fullmatch(text):
        return ImageReference(host="localhost", repository="", digest=text)
    found = _REFERENCE.fullmatch(text)
    if not found:
        said = f"expected an image such as ghcr.io/nvidia/jax:nightly-2023-08-24, found {text!r}"
        raise UsageError(said, next_command="edit hunt.toml")
    host, repository = found["host"] or "", found["repository"]
    if host and host.islower() and not set(".:") & set(host) and host != "localhost":
        repository, host = f"{host}/{repository}", ""
    if host in {"", _HUB, "index.docker.io", _HUB_API}:
        host = _HUB
        repository = repository if "/" in repository else f"library/{repository}"
    return ImageReference(host=host, repository=repository, tag=found["tag"] or "", digest=found["digest"] or "")


class _Auth(msgspec.Struct, frozen=True):
    auth: str = ""


class _Stored(msgspec.Struct, frozen=True, rename={"helpers": "credHelpers", "store": "credsStore"}):
    """A config.json of docker's, or an auth.json of podman's."""

    auths: Mapping[str, _Auth] = {}
    helpers: Mapping[str, str] = {}
    store: str = ""


class _Helped(msgspec.Struct, frozen=True, rename="pascal"):
    username: str = ""
    secret: str = ""


def stored_login(name: str, env: Mapping[str, str]) -> Token | None:
    """The login that the engine keeps for the registry of an image, such as `ghcr.io/nvidia/jax`, if it keeps one."""
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
        if login := _of_file(found, name, path, env):
            return login
    return None


def _of_file(found: _Stored, name: str, path: Path, env: Mapping[str, str]) -> Token | None:
    parts = name.split("/")
    keys = ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]
    for key, helper in found.helpers.items():
        if _plain_key(key) in keys and (login := _ask(helper, key, env)):
            return login
    named = {_plain_key(key): (key, auth) for key, auth in found.auths.items()}
    for wanted in keys:
        if wanted not in named:
            continue
        key, auth = named[wanted]
        with suppress(ValueError):
            user, _, password = base64.b64decode(auth.auth).decode().partition(":")
            if user and password:
                return basic_token(user, password, str(path))
        if found.store and (login := _ask(found.store, key, env)):
            return login
    return None


def _plain_key(key: str) -> str:
    """`https://index.docker.io/v1/` is what docker calls docker.io."""
    bare = re.sub(r"^https?://", "", key).rstrip("/")
    bare = re.sub(r"/v[12]$", "", bare)
    return re.sub(r"^(index|registry-1)\.docker\.io", "docker.io", bare)


def _ask(helper: str, server: str, env: Mapping[str, str]) -> Token | None:
    """What a credential helper keeps: it is asked on its stdin, and answers in JSON."""
    if not _HELPER.fullmatch(helper):
        return None
    program = f"docker-credential-{helper}"
    try:
        words, given = [program, "get"], server.encode()
        done = subprocess.run(words, input=given, check=False, capture_output=True, timeout=_HELPER_SECONDS, env=env)
        answer = msgspec.json.decode(done.stdout, type=_Helped)
    except (OSError, ValueError, RecursionError, subprocess.TimeoutExpired):
        return None
    # `<token>` is the name that helpers give to what is no password, and only exchanged for one.
    if done.returncode != 0 or not answer.secret or answer.username == "<token>":
        return None
    return basic_token(answer.username, answer.secret, program)


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
        login: Token | None,
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
                found = login.value() if login else ""
            else:
                token = self._token(challenge, login, f"repository:{repository}:pull")
                found = f"Bearer {token}" if token else ""
            if not found or found == tried:
                return None
            self._headers[repository] = found
            return found

    def _token(self, challenge: Challenge, login: Token | None, scope: str) -> str:
        import httpx

        try:
            realm = httpx.URL(challenge.realm).copy_with(userinfo=b"")
        except (httpx.InvalidURL, ValueError):
            realm = httpx.URL("")
        if realm.scheme not in {"http", "https"} or not realm.host:
            raise self._cannot("expected it to name a place that gives tokens; it does not")
        url = realm.copy_merge_params({"service": challenge.service, "scope": scope})
        answer, credential = None, (login.header, login.value()) if login and is_private(realm) else None
        try:
            answer = read_reply(self._transport.send("GET", url, {}, credential), LARGEST, self._seconds)
            trouble = f"HTTP {answer.status}"
        except httpx.RequestError as error:
            # Only its name: it holds the request, and with it the login.
            trouble = type(error).__name__
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

    def _cannot(self, message: str) -> CannotVerify:
        return CannotVerify(f"{self._host}: {message}", next_command=self._advice)


def challenge_of(headers: list[str]) -> Challenge | None:
    """The challenge that can be answered, a realm's before a password's."""
    found: dict[str, Challenge] = {}
    for text in headers:
        place = 0
        while scheme := _SCHEME.match(text, place):  # one header may hold several
            values: dict[str, str] = {}
            kind, place = scheme[1].lower(), scheme.end()
            while parameter := _PARAMETER.match(text, place):
                name, quoted, bare = parameter.groups()
                values[name.lower()] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare
                place = parameter.end()
            found[kind] = Challenge(scheme=kind, realm=values.get("realm", ""), service=values.get("service", ""))
    return found.get("bearer") or found.get("basic")


class _Platform(msgspec.Struct, frozen=True):
    os: str = ""
    architecture: str = ""


class _Described(msgspec.Struct, frozen=True):
    digest: str = ""
    platform: _Platform = _Platform()


class _Manifest(msgspec.Struct, frozen=True):
    """A manifest, or a list of manifests, one per platform."""

    config: _Described | None = None
    manifests: tuple[_Described, ...] = ()


class _Inner(msgspec.Struct, frozen=True, rename="pascal"):
    labels: Mapping[str, str] | None = None


class _Config(msgspec.Struct, frozen=True):
    config: _Inner | None = None


class _Tags(msgspec.Struct, frozen=True):
    tags: tuple[str, ...] | None = None


class Registry:
    """One registry; used from many threads at once."""

    def __init__(
        self,
        reference: ImageReference,
        login: Token | None,
        *,
        insecure: bool = False,
        advice: str = "edit hunt.toml",
        pause: Callable[[float], object] | None = None,
        longest: float = 120.0,
    ) -> None:
        """`advice`: what to do where it refuses; `longest`: seconds that one answer may take in all."""
        import httpx

        self.host = reference.host
        self.insecure = insecure or reference.is_loopback
        self._advice, self._longest = advice, longest
        self._root = f"{'http' if self.insecure else 'https'}://{reference.api_host}"
        self._look = Command("curl", "--include", f"{self._root}/v2/")
        url = httpx.URL(self._root)
        self._private = is_private(url)
        self._client = Client(
            self._root,
            retry=msgspec.structs.replace(_RETRY, sleep=pause),
            # Proxies and certificates of the environment are for other machines than this one.
            trust_env=not is_loopback(url.host),
            advice=Advice(again=self._look, login=self._look),
        )
        self._authorizer = Authorizer(self._client.transport, self.host, login, advice=self._look, seconds=longest)

    def close(self) -> None:
        """Closes all connections; whoever waits gives up."""
        self._client.close()

    def check(self) -> None:
        """Makes sure that it is a registry: elsewhere, too, everything is 404."""
        response = self._ask("GET", "/v2/", "", {})
        page = response.headers.get("content-type", "").startswith("text/html")
        if response.status not in {200, 401} or (page and response.status == 200):
            found = "a web page" if page else f"HTTP {response.status}"
            raise self._cannot(f"expected a registry at {self._root}/v2/, found {found}")

    def digest(self, reference: ImageReference) -> str | None:
        repository, wanted = reference.repository, reference.digest or reference.tag or "latest"
        headers = {"Accept": ", ".join(_KINDS)}
        response = self._asked("HEAD", f"/v2/{repository}/manifests/{wanted}", repository, headers)
        if response.status == 404:
            return None
        said: str = response.headers.get("docker-content-digest", "")
        if response.status == 200 and _DIGEST.fullmatch(said):
            return said
        raise self._cannot(f"expected the digest of {reference.text}, found HTTP {response.status} without one")

    def labels(self, reference: ImageReference, digest: str) -> Mapping[str, str]:
        """The labels of an image; of one for several platforms, those of this machine's."""
        repository = reference.repository
        manifest = self._fetched(repository, "manifests", digest, _Manifest)
        if manifest.manifests:
            wanted = _Platform("linux", _MACHINES.get(platform.machine(), platform.machine()))
            fitting = [one.digest for one in manifest.manifests if one.platform == wanted]
            mine = (fitting or [manifest.manifests[0].digest])[0]
            manifest = self._fetched(repository, "manifests", mine, _Manifest)
        if manifest.config is None:
            return {}
        inner = self._fetched(repository, "blobs", manifest.config.digest, _Config).config
        return (inner.labels or {}) if inner else {}

    def tags(self, reference: ImageReference, page: int = 1000) -> list[str]:
        """The tags of a repository, page by page as its answers say, in order; of very many those of the first pages."""
        found: list[str] = []
        path = f"/v2/{reference.repository}/tags/list?n={page}"
        for _ in range(_MOST_PAGES):
            response = self._asked("GET", path, reference.repository, {})
            if response.status == 404:
                break
            body = self._body(response, path)
            found += self._decoded(body, f"the tags of {reference.name}", _Tags).tags or ()
            # Of the same registry, whatever host it names: the login goes nowhere else.
            link = _NEXT.search(response.headers.get("link", ""))
            if link is None:
                break
            path = link[1]
        return sorted(found)

    def _fetched(self, repository: str, what: str, digest: str, kind: type[T]) -> T:
        """A document that is known by its digest, and held against it."""
        name = f"{self.host}/{repository}@{digest}"
        if not _DIGEST.fullmatch(digest):
            raise self._cannot(f"expected a sha256 digest, found {digest[:80]!r} in {repository}")
        accept = ", ".join(_KINDS) if what == "manifests" else "*/*"
        response = self._asked("GET", f"/v2/{repository}/{what}/{digest}", repository, {"Accept": accept})
        body = self._body(response, name)
        if f"sha256:{sha256_hex(body)}" != digest:
            raise self._cannot(f"expected the bytes of {name}, found others")
        return self._decoded(body, name, kind)

    def _decoded(self, body: bytes, name: str, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (ValueError, RecursionError) as error:
            said = f"expected a manifest or configuration in {name}, found something else: {error}"
            raise self._cannot(said) from error

    def _body(self, response: Reply, name: str) -> bytes:
        if response.status != 200:
            raise self._cannot(f"expected {name} to be there, found HTTP {response.status}")
        if len(response.body) > LARGEST:
            raise self._cannot(f"expected less than {LARGEST:,} bytes in {name}, found more")
        return response.body

    def _asked(self, method: str, path: str, repository: str, headers: Mapping[str, str]) -> Reply:
        """An answer that says something: anything but a refusal."""
        response = self._ask(method, path, repository, headers)
        if response.status in {401, 403}:
            said = f"expected to read {self.host}/{repository} {self._authorizer.who}, found HTTP {response.status}"
            raise CannotVerify(said, next_command=self._advice)
        return response

    def _ask(self, method: str, path: str, repository: str, headers: Mapping[str, str]) -> Reply:
        """An answer that is not about trouble that passes."""
        try:
            return self._client.retried(
                lambda: self._authorized(method, path, repository, headers),
                lambda response: read_reply(response, LARGEST, self._longest),
                f"{self._root}{path}",
            )
        except Stopped:
            raise self._cannot("expected an answer, found that the hunt was stopped") from None

    def _authorized(self, method: str, path: str, repository: str, headers: Mapping[str, str]) -> httpx.Response:
        """The answer, after the registry's challenge was answered, where it has one."""
        import httpx

        url = httpx.URL(f"{self._root}{path}")

        def follow(header: str | None) -> tuple[httpx.Response, bool]:
            credential = ("Authorization", header) if header and self._private else None
            return self._client.transport.follow(url, headers, credential, method=method)

        tried = self._authorizer.header(repository) if repository else None
        response, own = follow(tried)
        # Where a redirect leads, somebody else may name a realm, to which the login would go.
        if response.status_code != 401 or not repository or not own:
            return response
        discard(response)  # its connection is for others while the realm is waited for
        challenges = response.headers.get_list("www-authenticate")
        header = self._authorizer.answer(challenges, response.url, repository, tried)
        return follow(header)[0] if header else response

    def _cannot(self, message: str) -> CannotVerify:
        return CannotVerify(message, next_command=self._look)
