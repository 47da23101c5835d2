"""Image references: `registry/repository:tag@digest`, as docker and podman read them."""

from __future__ import annotations

import re

import msgspec

from karat.findings import UsageError
from karat.net.addresses import is_loopback

_HUB, _HUB_API = "docker.io", "registry-1.docker.io"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"""(?:(?P<host>(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{{1,5}})?)/)?
    (?P<repository>{_PART}(?:/{_PART})*)
    (?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}))?
    (?:@(?P<digest>[a-z0-9]+:[0-9a-f]{{32,}}))?""",
    re.VERBOSE,
)
_IMAGE_ID = re.compile(r"sha256:[0-9a-f]{64}")


class ImageReference(msgspec.Struct, frozen=True, kw_only=True):
    """The name of an image, taken apart."""

    host: str  # The registry; `docker.io` where none is named, `localhost` for what only the engine has.
    repository: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.host}/{self.repository}"

    @property
    def text(self) -> str:
        """The whole reference; a digest makes the tag superfluous."""
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag or 'latest'}"

    @property
    def is_local(self) -> bool:
        """Whether only the engine can know it: images that were built here are called `localhost/…`."""
        return self.host == "localhost"

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
    if _IMAGE_ID.fullmatch(text):
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
