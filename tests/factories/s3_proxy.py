"""A real S3-speaking server (moto's) behind a proxy that forwards everything, and breaks some of it."""

from __future__ import annotations

import http.client
import http.server
import itertools
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Self

import boto3  # type: ignore[import-untyped]
from moto.backends import get_backend
from moto.server import ThreadedMotoServer

from factories.s3 import KEY, SECRET

_NUMBERS = itertools.count(1)
_HOPS = {"connection", "keep-alive", "transfer-encoding", "content-length"}
KINDS = ("refused", "reset", "lost", "cut", "slow")
"""What may befall a request: a 503; a connection that ends before the server has heard of it; one that ends
after the server has done as it was told; one that ends amid the answer; a while of silence."""


class S3Proxy:
    """The server, the proxy, and buckets; `chance` says how often something goes wrong."""

    def __init__(self) -> None:
        self.chance = 0.0
        self.dice = random.Random(0)
        self.struck: Counter[str] = Counter()
        self.requests: list[tuple[str, str, int]] = []
        """Method, path and bytes sent, in the order they came."""
        self.alarm: tuple[int, Callable[[], None]] | None = None
        """What happens as request number so-and-so comes in, before it is answered."""
        self.lock = threading.Lock()
        self.upstream = 0
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server: _Server | None = None
        self.boto: Any = None

    def __enter__(self) -> Self:
        self._moto.start()
        self.upstream = int(self._moto.get_host_and_port()[1])
        self.boto = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.upstream}",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self.boto.close()
        self._moto.stop()

    @property
    def environment(self) -> dict[str, str]:
        """What a user of this server would set."""
        assert self._server is not None
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.server_address[1]}",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def bucket(self) -> str:
        name = f"store-{next(_NUMBERS)}"
        self.boto.create_bucket(Bucket=name)
        return name

    def keys(self, bucket: str, prefix: str = "") -> dict[str, Any]:
        """moto's own objects, whose times a test may change."""
        everything = get_backend("s3")["123456789012"]["aws"].buckets[bucket].keys
        return {key: everything[key] for key in list(everything) if key.startswith(prefix)}

    def trouble(self, chance: float, seed: int) -> None:
        self.chance, self.dice = chance, random.Random(seed)

    def fate(self) -> str | None:
        with self.lock:
            if self.dice.random() >= self.chance:
                return None
            kind = self.dice.choice(KINDS)
            self.struck[kind] += 1
            return kind


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, proxy: S3Proxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed are part of the game."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing on stderr."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy = self.server.proxy
        with proxy.lock:
            proxy.requests.append((self.command, self.path, len(body)))
            if proxy.alarm is not None and len(proxy.requests) == proxy.alarm[0]:
                proxy.alarm[1]()
        kind = proxy.fate()
        if kind == "reset":
            self._end(reset=True)
            return
        if kind == "refused":
            page = b"<Error><Code>SlowDown</Code></Error>"
            self._send(503, {"content-type": "application/xml"}, page, len(page))
            return
        if kind == "slow":
            time.sleep(0.05)
        status, headers, content, length = self._forward(body)
        if kind == "lost":
            self._end(reset=False)
        elif kind == "cut":
            self._send(status, headers, content[: len(content) // 2], length)
            self._end(reset=False)
        else:
            self._send(status, headers, content, length)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - the base class's names

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes, int]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.proxy.upstream, timeout=30)
        try:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOPS}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            kept = {k: v for k, v in answer.getheaders() if k.lower() not in _HOPS}
            length = int(answer.headers.get("content-length") or len(content))
            return answer.status, kept, content, length
        finally:
            connection.close()

    def _send(self, status: int, headers: dict[str, str], content: bytes, length: int) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("content-length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _end(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:  # lingering for no time at all is what makes close() send RST
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
