"""An HTTP/1.1 host on loopback: threads, keep-alive, a log of every request, scripted faults."""

from __future__ import annotations

import http.server
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from factories.faults import Faults


@dataclass(kw_only=True)
class Request:
    """One request as it came in; `status` and `sent` are filled in as it is answered."""

    host: str
    """`api` or `blob`: which of a forge's two hosts was asked."""
    port: int
    method: str
    target: str
    """Path and query, exactly as sent."""
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = b""
    status: int = 0
    sent: int = 0
    """Bytes of the body that went out, or were about to when the client left."""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


@dataclass(kw_only=True)
class Response:
    """What is sent back, and how badly."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""
    cut_after: int | None = None
    """So many bytes of the body are sent; then the connection ends."""
    reset: bool = False
    """It ends with RST rather than FIN."""
    rate: float | None = None
    """Bytes per second."""
    delay: float = 0.0


Answer = Callable[[Request], Response]


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256  # the default of 5 drops connections of a parallel client

    def __init__(self, host: Host) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.host = host
        self.open: set[socket.socket] = set()
        self.resetting: set[socket.socket] = set()
        self.lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.lock:
            self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.lock:
            self.open.discard(request)
            reset = request in self.resetting
            self.resetting.discard(request)
        if reset:  # lingering for no time at all is what makes close() send RST
            request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            request.close()
        else:
            super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away in the middle are part of the game."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing on stderr; `Host.requests` is the log."""

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        host = self.server.host
        request = Request(
            host=host.name,
            port=host.port,
            method=self.command,
            target=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=body,
        )
        self._send(request, host.respond(request))

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - the base class's names

    def _send(self, request: Request, response: Response) -> None:
        request.status = response.status
        if response.delay:
            self.server.host.wait(response.delay)
        headers = {"date": self.date_time_string(), **response.headers}
        if response.status not in {204, 304}:
            headers.setdefault("content-length", str(len(response.body)))
        reason = HTTPStatus(response.status).phrase
        lines = [f"HTTP/1.1 {response.status} {reason}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        body = memoryview(response.body)
        if request.method == "HEAD" or response.status == 304:
            body = body[:0]
        if response.cut_after is not None:
            body = body[: response.cut_after]
            self.close_connection = True
        self._write(request, head, body, response.rate)
        if response.cut_after is not None and response.reset:
            with self.server.lock:
                self.server.resetting.add(self.connection)

    def _write(self, request: Request, head: bytes, body: memoryview, rate: float | None) -> None:
        # Counted before it is sent: once a client has the last byte, a test looks at the count.
        if rate is None and len(body) < 1 << 16:  # one packet rather than two
            request.sent = len(body)
            self.connection.sendall(head + bytes(body))
            return
        self.connection.sendall(head)
        step = 1 << 18 if rate is None else max(1, int(rate / 50))
        for start in range(0, len(body), step):
            piece = body[start : start + step]
            request.sent += len(piece)
            self.connection.sendall(piece)
            if rate is not None:
                self.server.host.wait(len(piece) / rate)


class Host:
    """One listening port: asks `answer` for each response, after the faults have had their say."""

    def __init__(self, name: str, answer: Answer, faults: Faults, log: list[Request]) -> None:
        self.name = name
        self.latency = 0.0
        self.requests = log
        self._stopped = threading.Event()
        self._answer = answer
        self._faults = faults
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stops listening and breaks off every open connection; a second time, nothing."""
        if not self._thread.is_alive():
            return
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        with self._server.lock:
            still_open = list(self._server.open)
        for connection in still_open:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # its own thread was quicker
                continue
        self._thread.join()

    def wait(self, seconds: float) -> None:
        """Let time pass, unless the host is stopped."""
        self._stopped.wait(seconds)

    def respond(self, request: Request) -> Response:
        self.requests.append(request)
        faults = self._faults.due(request.host, request.target)
        for fault in faults:
            if fault.no_ranges:
                request = Request(**{**vars(request), "headers": _without_range(request.headers)})
        response = self._answer(request)
        for fault in faults:
            _spoil(response, fault.status, fault.headers, fault.body)
            if fault.no_ranges:
                response.headers.pop("accept-ranges", None)
            if fault.keep is not None:
                response.body = response.body[: fault.keep]
            response.cut_after = fault.cut_after if fault.cut_after is not None else response.cut_after
            response.reset = response.reset or fault.reset
            response.rate = fault.rate or response.rate
            response.delay += fault.delay
        response.delay += self.latency
        return response


def _spoil(response: Response, status: int | None, headers: Mapping[str, str], body: bytes | None) -> None:
    """Another answer instead of the true one."""
    if status is not None:
        response.status = status
        response.headers = {}
        response.body = b""
    if body is not None:
        response.body = body
    response.headers.update(headers)


def _without_range(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name not in {"range", "if-range"}}
