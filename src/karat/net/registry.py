"""Registry: whether an image exists, what it is, and its labels, without pulling it.

Asked by HTTP, as the distribution specification has it. Only 404 says that an image is missing; a refusal, a rate limit
that does not end, a server in trouble and silence say nothing of it.
"""

from __future__ import annotations

import hashlib
import platform
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from karat.findings import CannotVerify
from karat.net.image_reference import Reference
from karat.net.registry_auth import LARGEST, Answer, Authorizer, Login, RealmTrouble, RegistryWire
from karat.net.retry import limited_for

_KINDS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_ATTEMPTS = 4
_IN_VAIN, _LET_BE = 4, 60.0
"""After so many questions in a row without an answer the others are not asked, for so many seconds."""
_LONGEST_WAIT = 300.0
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


class Registry:
    """One registry; used from many threads at once."""

    def __init__(
        self,
        reference: Reference,
        login: Login | None,
        *,
        insecure: bool = False,
        advice: str = "edit hunt.toml",
        pause: Callable[[float], object] | None = None,
        longest: float = 120.0,
    ) -> None:
        """`advice`: what to do where it refuses; `longest`: seconds that one answer may take."""
        self.host = reference.host
        self.insecure = insecure or reference.is_loopback
        self._advice = advice
        self._root = f"{'http' if self.insecure else 'https'}://{reference.api_host}"
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait
        self._not_before = 0.0
        self._in_vain, self._let_be_until = 0, 0.0
        self._look = f"curl --include {self._root}/v2/"
        self._wire = RegistryWire(self._root, advice=self._look, longest=longest)
        self._authorizer = Authorizer(self._wire, self.host, login, self._look)

    def close(self) -> None:
        """Lets go of all connections; whoever waits gives up."""
        self._stopped.set()
        self._wire.close()

    def check(self) -> None:
        """Makes sure that it is a registry: elsewhere, too, everything is 404."""
        response = self._patiently("GET", "/v2/", "", {})
        page = response.headers.get("content-type", "").startswith("text/html")
        if response.status not in {200, 401} or (page and response.status == 200):
            found = "a web page" if page else f"HTTP {response.status}"
            raise self._cannot(f"expected a registry at {self._root}/v2/, found {found}")

    def digest(self, reference: Reference) -> str | None:
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
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    def labels(self, reference: Reference, digest: str) -> Mapping[str, str]:
        """The labels of an image; of one for several platforms, those of this machine's."""
        repository = reference.repository
        manifest = self._fetched(repository, "manifests", digest, _Manifest)
        if manifest.manifests:
            mine = _for_this_machine(manifest.manifests)
            manifest = self._fetched(repository, "manifests", mine, _Manifest)
        if manifest.config is None:
            return {}
        inner = self._fetched(repository, "blobs", manifest.config.digest, _Config).config
        return (inner.labels or {}) if inner else {}

    def _fetched(self, repository: str, what: str, digest: str, kind: type[T]) -> T:
        """A document that is known by its digest, and held against it."""
        name = f"{self.host}/{repository}@{digest}"
        if not _DIGEST.fullmatch(digest):
            raise self._cannot(f"expected a sha256 digest, found {digest[:80]!r} in {repository}")
        accept = ", ".join(_KINDS) if what == "manifests" else "*/*"
        response = self._asked(
            "GET", f"/v2/{repository}/{what}/{digest}", repository, {"Accept": accept}
        )
        body = self._body(response, name)
        if f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
            raise self._cannot(f"expected the bytes of {name}, found others")
        return self._decoded(body, name, kind)

    def _decoded(self, body: bytes, name: str, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (ValueError, RecursionError) as error:
            raise self._cannot(
                f"expected a manifest or configuration in {name}, found something else: {error}"
            ) from error

    def _body(self, response: Answer, name: str) -> bytes:
        if response.status != 200:
            raise self._cannot(f"expected {name} to be there, found HTTP {response.status}")
        if len(response.body) > LARGEST:
            raise self._cannot(f"expected less than {LARGEST:,} bytes in {name}, found more")
        return response.body

    def _asked(self, method: str, path: str, repository: str, headers: Mapping[str, str]) -> Answer:
        """An answer that says something: anything but a refusal."""
        response = self._patiently(method, path, repository, headers)
        if response.status in {401, 403}:
            raise CannotVerify(
                f"expected to read {self.host}/{repository} {self._authorizer.who}, "
                f"found HTTP {response.status}",
                next_command=self._advice,
            )
        return response

    def _patiently(
        self, method: str, path: str, repository: str, headers: Mapping[str, str]
    ) -> Answer:
        """An answer that is not about trouble that passes."""
        import httpx  # noqa: PLC0415 - here already, since this object was made

        trouble = ""
        if self._in_vain >= _IN_VAIN and time.monotonic() < self._let_be_until:
            raise self._cannot(f"expected an answer from {self._root}, found none several times")
        for attempt in range(_ATTEMPTS):
            self._wait(2.0**attempt / 2 if attempt else 0.0)
            try:
                response = self._authorized(method, path, repository, headers)
            except httpx.RequestError as error:
                trouble = str(error) or type(error).__name__
                if attempt and isinstance(error, httpx.ConnectError):
                    break  # nobody listens there, or nobody is called so
                continue
            except RealmTrouble as error:
                trouble = str(error)
                self._hold_back(error.status, error.headers)
                continue
            if response.status != 429 and response.status < 500:
                self._in_vain = 0
                return response
            trouble = f"HTTP {response.status}"
            self._hold_back(response.status, response.headers)
        self._in_vain += 1
        self._let_be_until = time.monotonic() + _LET_BE
        raise self._cannot(f"expected an answer from {self._root}{path}, found {trouble}")

    def _authorized(
        self, method: str, path: str, repository: str, headers: Mapping[str, str]
    ) -> Answer:
        """The answer, after the registry's challenge was answered, where it has one."""
        tried = self._authorizer.header(repository) if repository else None
        response = self._wire.followed(method, path, headers, tried)
        if response.status != 401 or not repository:
            return response
        header = self._authorizer.answer(response, repository, tried)
        return self._wire.followed(method, path, headers, header) if header else response

    def _wait(self, seconds: float) -> None:
        seconds = max(seconds, self._not_before - time.monotonic())
        if seconds > 0:
            self._pause(seconds)
        if self._stopped.is_set():
            raise self._cannot("expected an answer, found that the hunt was stopped")

    def _hold_back(self, status: int, headers: Mapping[str, str]) -> None:
        """Nobody asks before the server wants to be asked again."""
        seconds = limited_for(status, headers, time.time()) or 0.0
        if seconds > _LONGEST_WAIT:
            raise self._cannot(
                f"the rate limit of {self.host} is used up; expected it to end within "
                f"{_LONGEST_WAIT / 60:.0f} minutes, found {seconds / 60:.0f}"
            )
        self._not_before = max(self._not_before, time.monotonic() + seconds)

    def _cannot(self, message: str) -> CannotVerify:
        return CannotVerify(message, next_command=self._look)


def _for_this_machine(manifests: tuple[_Described, ...]) -> str:
    """The manifest for this machine; else the first."""
    wanted = _Platform("linux", _MACHINES.get(platform.machine(), platform.machine()))
    fitting = [one.digest for one in manifests if one.platform == wanted]
    return (fitting or [manifests[0].digest])[0]
