"""Hush: the libraries beneath log URLs and headers; of karat's requests they log nothing.

httpx logs each URL, where a signature may stand, and httpcore each answer's headers, where the next
signed URL stands. Both do so whenever somebody asks for their logs, so it is not enough to be silent
by default. Requests that others make in the same process keep their logs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import karat
from karat.findings import CannotVerify, UsageError
from karat.net.addresses import is_loopback, shown
from karat.net.tokens import Token

if TYPE_CHECKING:
    import httpx

_LOGGERS = (
    "httpx",
    "httpcore.connection",
    "httpcore.http11",
    "httpcore.http2",
    "httpcore.proxy",
    "httpcore.socks",
)
_thread = threading.local()


class _Filter(logging.Filter):
    def filter(self, _record: logging.LogRecord) -> bool:
        return not getattr(_thread, "hushed", False)


_FILTER = _Filter()


@contextmanager
def hush() -> Iterator[None]:
    """Nothing of what this thread sends or receives meanwhile is logged."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
    before = getattr(_thread, "hushed", False)
    _thread.hushed = True
    try:
        yield
    finally:
        _thread.hushed = before


# DOC-HERE wire: The wire: one pool of connections, and what may be sent where.
#
# The token goes to the API's own origin (scheme, host and port) and nowhere else. Redirects are
# followed by hand: once a chain has left the origin, no credential travels on it any more, and the
# query of where it leads, which may be a signature, stands in no message.

_HOPS = 5
_SMALL_BODY = 1 << 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

Origin = tuple[str, str, int | None]


class Wire:
    """Sends requests and follows redirects; used from many threads at once."""

    def __init__(
        self,
        root: str,
        token: Token | None,
        *,
        connections: int,
        timeouts: tuple[float, float],
        before: Callable[[Origin], None],
    ) -> None:
        import httpx  # noqa: PLC0415 - 60 ms that only those who fetch pay

        self.own = origin_of(httpx.URL(root))
        self._token = token
        self._before = before
        self._pool = _make_pool(connections, *timeouts)

    def close(self) -> None:
        """Lets go of all connections."""
        self._pool.close()

    def follow(self, url: httpx.URL, headers: Mapping[str, str]) -> httpx.Response:
        """The answer at the end of the redirects, its body still to be read."""
        signed = origin_of(url) == self.own
        for _ in range(_HOPS + 1):
            response = self._send(url, headers, signed=signed)
            target = response.headers.get("location")
            if response.status_code not in _REDIRECTS or target is None:
                return response
            _finish(response)
            url = _target(url, target)
            signed = signed and origin_of(url) == self.own
        raise _astray(f"expected at most {_HOPS} redirects before {shown(str(url))}, found more")

    def _send(self, url: httpx.URL, headers: Mapping[str, str], *, signed: bool) -> httpx.Response:
        self._before(origin_of(url))
        request = self._pool.build_request("GET", url, headers=dict(headers))
        if signed and self._token:
            request.headers[self._token.header] = self._token.value()
        try:
            with hush():
                return self._pool.send(request, stream=True)
        finally:
            # Responses and exceptions carry their request; it must not carry the token.
            if self._token:
                request.headers.pop(self._token.header, None)


def _make_pool(connections: int, connect: float, read: float) -> httpx.Client:
    from http.cookiejar import (  # noqa: PLC0415 - with httpx, which is late
        CookieJar,
        DefaultCookiePolicy,
    )

    import httpx  # noqa: PLC0415 - 60 ms that only those who fetch pay

    # Each worker keeps one connection to the API and one to where the bytes are.
    places = 2 * connections
    try:
        return httpx.Client(
            headers={"User-Agent": f"karat/{karat.__version__}"},
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            follow_redirects=False,
            timeout=httpx.Timeout(read, connect=connect, pool=None),
            limits=httpx.Limits(max_connections=places, max_keepalive_connections=places),
        )
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        wrong = _misconfigured(error)
    # Out here, since the library's own words may hold a proxy's password.
    raise wrong


def _misconfigured(error: Exception) -> UsageError:
    """What the environment says of proxies and certificates cannot be used."""
    if isinstance(error, OSError):
        names, next_command = "SSL_CERT_FILE", "unset SSL_CERT_FILE"
        expected = "certificates that can be read"
    else:
        names = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"
        expected = "an http:// or https:// proxy"
        next_command = "env | cut -d= -f1 | grep -i _proxy"
    if isinstance(error, ImportError):
        expected += ", or httpx with its extra for socks://"
        next_command = "pip install 'httpx[socks]'"
    return UsageError(
        f"expected {expected} in {names}, found something else", next_command=next_command
    )


def origin_of(url: httpx.URL) -> Origin:
    """Scheme, host and port, by the very parser that sends the request."""
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def _target(url: httpx.URL, location: str) -> httpx.URL:
    import httpx  # noqa: PLC0415 - here already, since a response is

    try:
        target = url.join(location).copy_with(userinfo=b"", fragment=None)
    except (httpx.InvalidURL, ValueError):
        target = httpx.URL("")
    if target.scheme not in {"http", "https"} or not target.host:
        raise _astray(f"expected {shown(str(url))} to lead to a web address; it does not")
    if url.scheme == "https" and target.scheme == "http" and not is_loopback(target.host):
        raise _astray(
            f"expected {shown(str(url))} to lead to https, found plain http on {target.host}"
        )
    return target


def _finish(response: httpx.Response) -> None:
    """Reads off a small body, so that the connection can be used again."""
    length = response.headers.get("content-length", "")
    if length.isdigit() and int(length) <= _SMALL_BODY:
        response.read()
    response.close()


def read_body(response: httpx.Response, most: int) -> bytes:
    """The body, or its first `most` bytes and one more."""
    body = bytearray()
    try:
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > most:
                break
    finally:
        response.close()
    return bytes(body[: most + 1])


def _astray(message: str) -> CannotVerify:
    return CannotVerify(message, next_command="karat refresh --help")
