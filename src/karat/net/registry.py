"""Registry: whether an image exists, what it is, and its labels, without pulling it.

Asked by HTTP, as the distribution specification has it. Only 404 says that an image is missing; a refusal, a rate limit
that does not end, a server in trouble and silence say nothing of it.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from karat.findings import CannotVerify
from karat.net.addresses import is_loopback
from karat.net.client import Advice, Client, Reply, Stopped, Unanswered, read_reply
from karat.net.image_reference import ImageReference
from karat.net.registry_auth import LARGEST, Authorizer, Login
from karat.net.retry import Retry
from karat.net.transport import discard, is_private
from karat.system.command import Command
from karat.system.hashes import sha256_hex

if TYPE_CHECKING:
    import httpx

_KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_UNANSWERED, _SILENCE = 4, 60.0
"""After so many questions in a row without an answer the others are not asked, for so many seconds."""
_RETRY = Retry(
    attempts=4, connect_attempts=2, first_wait=1.0, spread=0.0, limit_wait=300.0, connect_timeout=10.0, read_timeout=30.0
)  # fmt: skip
_NEXT = re.compile(r'<(?:https?://[^/>]*)?(/v2/[^>]*/tags/list\?[^>]*)>\s*;[^,]*rel="?next"?')
_MOST_PAGES = 20
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "AMD64": "amd64"}

T = TypeVar("T")


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
        login: Login | None,
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
        self._unanswered, self._silent_until = 0, 0.0
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
        """The digest of the manifest; None if there is no such image."""
        repository, wanted = reference.repository, reference.digest or reference.tag or "latest"
        path = f"/v2/{repository}/manifests/{wanted}"
        headers = {"Accept": ", ".join(_KINDS)}
        response = self._asked("HEAD", path, repository, headers)
        if response.status == 404:
            return None
        said: str = response.headers.get("docker-content-digest", "")
        if response.status == 200 and _DIGEST.fullmatch(said):
            return said
        # Some answer HEAD poorly, or not at all.
        response = self._asked("GET", path, repository, headers)
        if response.status == 404:
            return None
        body = self._body(response, reference.text)
        manifest = self._decoded(body, reference.text, _Manifest)
        if manifest.config is None and not manifest.manifests:
            raise self._cannot(f"expected the manifest of an image in {reference.text}")
        return f"sha256:{sha256_hex(body)}"

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
            raise self._cannot(
                f"expected a manifest or configuration in {name}, found something else: {error}"
            ) from error

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
        if self._unanswered >= _MOST_UNANSWERED and time.monotonic() < self._silent_until:
            raise self._cannot(f"expected an answer from {self._root}, found none several times")
        try:
            reply = self._client.retried(
                lambda: self._authorized(method, path, repository, headers),
                lambda response: read_reply(response, LARGEST, self._longest),
                f"{self._root}{path}",
            )
        except Stopped:
            raise self._cannot("expected an answer, found that the hunt was stopped") from None
        except Unanswered:
            self._unanswered += 1
            self._silent_until = time.monotonic() + _SILENCE
            raise
        self._unanswered = 0
        return reply

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
