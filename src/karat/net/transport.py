"""The transport: one pool of connections, and the one place that follows redirects.

A credential goes to the root's own origin (scheme, host and port) and nowhere else. Redirects are followed by hand: once
a chain has left the origin, no credential travels on it any more, none leads from https to plain http on another machine,
and the query of where it leads, which may be a signature, stands in no message and in no log.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import karat
from karat.findings import CannotVerify, UsageError

if TYPE_CHECKING:
    import httpx

_HOPS = 5
_SMALL_BODY = 1 << 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# httpx logs each URL, where a signature may stand, and httpcore each answer's headers, where the next signed URL stands.
_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy", "httpcore.socks")
_thread = threading.local()

Origin = tuple[str, str, int | None]
Credential = tuple[str, str]  # A header and what it says.


class Transport:
    """Sends requests and follows redirects; used from many threads at once."""

    def __init__(  # noqa: PLR0913 - what the kinds of servers differ in
        self,
        root: str,
        *,
        connections: int = 16,
        connect_timeout: float = 15.0,
        read_timeout: float = 60.0,
        trust_env: bool = True,
        before: Callable[[Origin], None] = lambda _: None,
        advice: str = "karat --help",
    ) -> None:
        """`before` is called ahead of every request, and may wait; `advice` is the next command where a redirect goes wrong."""
        import httpx

        self.own = origin_of(httpx.URL(root))
        self._before, self._advice = before, advice
        # Each worker keeps one connection to the API and one to where the bytes are.
        limits = httpx.Limits(max_connections=2 * connections, max_keepalive_connections=2 * connections)
        timeout = httpx.Timeout(read_timeout, connect=connect_timeout, pool=None)
        self._pool = _pool(limits, timeout, trust_env=trust_env)

    def close(self) -> None:
        self._pool.close()

    def follow(
        self, url: httpx.URL, headers: Mapping[str, str], credential: Credential | None = None, *, method: str = "GET"
    ) -> tuple[httpx.Response, bool]:
        """The answer at the end of the redirects, its body still to be read, and whether no redirect left the origin."""
        own = origin_of(url) == self.own
        for _ in range(_HOPS + 1):
            response = self.send(method, url, headers, credential if own else None)
            target = response.headers.get("location")
            if response.status_code not in _REDIRECTS or target is None:
                return response, own
            discard(response)
            url = redirect_target(url, target, self._advice)
            own = own and origin_of(url) == self.own
        said = f"expected at most {_HOPS} redirects before {shown(str(url))}, found more"
        raise CannotVerify(said, next_command=self._advice)

    def send(
        self,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        credential: Credential | None = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        """One answer, its body still to be read; redirects are not followed."""
        self._before(origin_of(url))
        request = self._pool.build_request(method, url, headers=dict(headers), content=content)
        if credential:
            request.headers[credential[0]] = credential[1]
        try:
            with _silence():
                return self._pool.send(request, stream=True)
        finally:
            # Responses and exceptions carry their request; it must not carry the token.
            if credential:
                request.headers.pop(credential[0], None)


def _pool(limits: httpx.Limits, timeout: httpx.Timeout, *, trust_env: bool) -> httpx.Client:
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx

    try:
        return httpx.Client(
            headers={"User-Agent": f"karat/{karat.__version__}"},
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            follow_redirects=False,
            timeout=timeout,
            limits=limits,
            trust_env=trust_env,
        )
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        names, expected = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY", "an http:// or https:// proxy"
        next_command = "env | cut -d= -f1 | grep -i _proxy"
        if isinstance(error, ImportError):
            expected += ", or httpx with its extra for socks://"
            next_command = "pip install 'httpx[socks]'"
        elif isinstance(error, OSError):
            names, expected = "SSL_CERT_FILE", "certificates that can be read"
            next_command = "unset SSL_CERT_FILE"
    # Out here, since the library's own words may hold a proxy's password.
    raise UsageError(f"expected {expected} in {names}, found something else", next_command=next_command)


def origin_of(url: httpx.URL) -> Origin:
    """Scheme, host and port, by the very parser that sends the request."""
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def shown(url: str) -> str:
    """A URL as it may stand in a message: a query may be a signature, a user a password."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an odd URL"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


def is_private(url: httpx.URL) -> bool:
    """Whether a secret may travel there: over https, or on this very machine."""
    return url.scheme == "https" or is_loopback(url.host)


def redirect_target(url: httpx.URL, location: str, advice: str = "karat --help") -> httpx.URL:
    """Where a redirect leads; CannotVerify if that is no web address, or plain http after https."""
    import httpx

    try:
        target = url.join(location).copy_with(userinfo=b"", fragment=None)
    except (httpx.InvalidURL, ValueError):
        target = httpx.URL("")
    problem = None
    if target.scheme not in {"http", "https"} or not target.host:
        problem = f"expected {shown(str(url))} to lead to a web address; it does not"
    elif url.scheme == "https" and not is_private(target):
        problem = f"expected {shown(str(url))} to lead to https, found plain http on {target.host}"
    if problem:
        raise CannotVerify(problem, next_command=advice)
    return target


def read_body(response: httpx.Response, most: int, seconds: float | None = None) -> bytes:
    """The body, or its first `most` bytes and one more; httpx.ReadTimeout if it takes longer than `seconds` in all."""
    import httpx

    until = None if seconds is None else time.monotonic() + seconds
    body = bytearray()
    with _silence(), closing(response):
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > most:
                break
            if until is not None and time.monotonic() > until:
                raise httpx.ReadTimeout(f"no end of it within {seconds:g} s")
    return bytes(body[: most + 1])


def discard(response: httpx.Response) -> None:
    """Closes an answer; a small body is read off first, so that the connection can be used again."""
    length = response.headers.get("content-length", "")
    with _silence():
        if length.isdigit() and int(length) <= _SMALL_BODY:
            response.read()
        response.close()


def _is_heard(_record: logging.LogRecord) -> bool:
    return not getattr(_thread, "silent", False)


@contextmanager
def _silence() -> Iterator[None]:
    """Nothing of what this thread sends or receives meanwhile is logged, whatever logs are on; others keep theirs."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_heard)
    before = getattr(_thread, "silent", False)
    _thread.silent = True
    try:
        yield
    finally:
        _thread.silent = before
