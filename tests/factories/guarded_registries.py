"""A registry that asks who is there, with a place that gives tokens and one where blobs lie, on three ports."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Self

from factories.faults import Faults
from factories.http_host import Host, Request, Response

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
USER, PASSWORD = "planter", "ghp_PlantedInARegistry"
GIVEN = "token-of-the-realm"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class GuardedRegistry:
    """One image, `toy/nightly:here`, for those who bring a token of the realm."""

    def __init__(self, *, anonymous: bool = False) -> None:
        self.anonymous = anonymous
        """Whether the realm gives tokens to anybody."""
        self.config = json.dumps({"config": {"Labels": {"karat.commit.engine": "a" * 40}}}).encode()
        described = {"digest": digest_of(self.config), "size": len(self.config)}
        self.manifest = json.dumps(
            {"schemaVersion": 2, "mediaType": MANIFEST, "config": described, "layers": []}
        ).encode()
        self.requests: list[Request] = []
        self.faults = Faults()
        self.api = Host("api", self._registry, self.faults, self.requests)
        self.realm = Host("realm", self._realm, self.faults, self.requests)
        self.blob = Host("blob", self._blobs, self.faults, self.requests)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.api.port}"

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)

    def __enter__(self) -> Self:
        for host in (self.api, self.realm, self.blob):
            host.start()
        return self

    def __exit__(self, *_: object) -> None:
        for host in (self.api, self.realm, self.blob):
            host.stop()

    def signed(self, host: str) -> list[str]:
        """What `Authorization` said in the requests to one of the hosts."""
        asked = [request for request in self.requests if request.host == host]
        return [request.headers.get("authorization", "") for request in asked]

    def _registry(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {GIVEN}":
            realm = f'Bearer realm="{self.realm.url}/token",service="the \\"service\\"",scope="x"'
            return Response(status=401, headers={"www-authenticate": realm})
        if request.path == "/v2/":
            return Response(body=b"{}")
        if request.path.startswith("/v2/toy/nightly/blobs/"):
            return Response(status=307, headers={"location": f"{self.blob.url}/lies/here?sig=1"})
        if request.path == "/v2/toy/nightly/tags/list":
            last = request.query.get("last", "")
            tag, *left = [name for name in ("gone", "here", "there") if name > last]
            # Some name themselves as they are called behind a proxy.
            link = f'<http://inside.invalid/v2/toy/nightly/tags/list?n=1&last={tag}>; rel="next"'
            return Response(headers={"link": link} if left else {}, body=json.dumps({"tags": [tag]}).encode())
        known = {f"/v2/toy/nightly/manifests/{name}" for name in ("here", self.digest)}
        if request.path in known:
            headers = {"content-type": MANIFEST, "docker-content-digest": self.digest}
            return Response(headers=headers, body=self.manifest)
        return Response(status=404)

    def _realm(self, request: Request) -> Response:
        pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        known = request.headers.get("authorization") == f"Basic {pair}"
        if not (known or self.anonymous):
            return Response(status=401)
        return Response(body=json.dumps({"token": GIVEN}).encode())

    def _blobs(self, request: Request) -> Response:
        return Response(body=self.config if request.path == "/lies/here" else b"")
