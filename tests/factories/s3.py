"""A real S3-speaking server (moto's) behind a host that logs, counts and breaks what it forwards."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Self

import boto3  # type: ignore[import-untyped]
import httpx
from moto.server import ThreadedMotoServer

from factories.faults import Faults
from factories.http_host import Host, Request, Response

KEY, SECRET = "AKIAFORGEFORGEFORGE0", "fOrGeSeCrEtFoRtEsTs0123456789abcdef01234"
_NUMBERS = itertools.count(1)
# Of one connection, not of what travels over it.
_HOPS = {"connection", "keep-alive", "transfer-encoding", "date", "server", "content-length"}


class S3:
    """The server, the host before it, and buckets with objects in them."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.requests: list[Request] = []
        self.host = Host("s3", self._forward, self.faults, self.requests)
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._client: httpx.Client | None = None
        self._boto: Any = None

    def __enter__(self) -> Self:
        self._moto.start()
        _, port = self._moto.get_host_and_port()
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        self._boto = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        self.host.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.host.stop()
        assert self._client is not None
        self._client.close()
        self._boto.close()
        self._moto.stop()

    @property
    def environment(self) -> dict[str, str]:
        """What a user of this server would set."""
        return {
            "AWS_ENDPOINT_URL": self.host.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def bucket(self, objects: Mapping[str, bytes], *, public: bool = False) -> str:
        """A new bucket; its name."""
        name = f"bucket-{next(_NUMBERS)}"
        self._boto.create_bucket(Bucket=name)
        more = {"ACL": "public-read"} if public else {}
        for key, body in objects.items():
            self._boto.put_object(Bucket=name, Key=key, Body=body, **more)
        return name

    def replace(self, bucket: str, key: str, body: bytes) -> None:
        self._boto.put_object(Bucket=bucket, Key=key, Body=body)

    def delete(self, bucket: str, key: str) -> None:
        self._boto.delete_object(Bucket=bucket, Key=key)

    def fetches(self) -> list[Request]:
        """Requests for objects, rather than for lists of them."""
        return [request for request in self.requests if request.method == "GET" and "list-type" not in request.query]

    def _forward(self, request: Request) -> Response:
        assert self._client is not None
        headers = {name: text for name, text in request.headers.items() if name not in _HOPS}
        answer = self._client.request(request.method, request.target, headers=headers)
        kept = {name: text for name, text in answer.headers.items() if name not in _HOPS}
        if request.method == "HEAD":
            kept["content-length"] = answer.headers.get("content-length", "0")
        return Response(status=answer.status_code, headers=kept, body=answer.content)
