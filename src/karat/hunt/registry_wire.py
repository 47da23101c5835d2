"""Registry wire: what is sent to a registry and to where it leads; its login stays with it.

Redirects are followed by hand, and on none of them does the login leave the registry. Of an answer only so many bytes are
read, for so long. Nothing of it is logged: where blobs lie, the URL itself may be a signature.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

import karat
from karat.findings import CannotVerify, UsageError
from karat.sources.addresses import is_loopback
from karat.sources.hush import hush
from karat.sources.wire import origin_of

if TYPE_CHECKING:
    import httpx

LARGEST = 16 << 20
_HOPS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, without the request: that holds the login."""

    status: int
    url: httpx.URL
    headers: httpx.Headers
    body: bytes
    own: bool = False
    """Whether it is the registry's own word, and not that of where it leads."""


class RegistryWire:
    """Connections to one registry, and to where it leads; used from many threads at once."""

    def __init__(self, root: str, *, advice: str, longest: float = 120.0) -> None:
        """`longest`: seconds that one answer may take in all."""
        import httpx  # noqa: PLC0415 - 60 ms that only those who ask pay

        url = httpx.URL(root)
        self._root, self._own = root, origin_of(url)
        self._advice, self._longest = advice, longest
        # Proxies and certificates of the environment are for other machines than this one.
        self._http = _made_client(trust_env=not is_loopback(url.host))

    def close(self) -> None:
        """Lets go of all connections."""
        self._http.close()

    def followed(
        self, method: str, path: str, headers: Mapping[str, str], signed: str | None
    ) -> Answer:
        """The answer at the end of the redirects."""
        import httpx  # noqa: PLC0415 - here already, since this object was made

        url = httpx.URL(f"{self._root}{path}")
        own = True
        for _ in range(_HOPS + 1):
            may = signed is not None and own and is_private(url)
            answer = self.sent(
                method, url, {**headers, **({"Authorization": signed or ""} if may else {})}
            )
            target = answer.headers.get("location")
            if answer.status not in _REDIRECTS or target is None:
                return msgspec.structs.replace(answer, own=own)
            url = self._target(url, target)
            # A chain that has left the registry does not come back to it as its own.
            own = own and origin_of(url) == self._own
        raise self._cannot(
            f"expected at most {_HOPS} redirects from {self._root}{path}, found more"
        )

    def sent(
        self,
        method: str,
        url: httpx.URL,
        headers: Mapping[str, str],
        form: Mapping[str, str] | None = None,
    ) -> Answer:
        """One answer, whatever it says."""
        import httpx  # noqa: PLC0415 - here already, since this object was made

        until = time.monotonic() + self._longest
        with (
            hush(),
            self._http.stream(method, url, headers=dict(headers), data=form) as response,
        ):
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > LARGEST:
                    break
                if time.monotonic() > until:
                    raise httpx.ReadTimeout(f"no end of it within {self._longest:g} s")
            return Answer(
                status=response.status_code, url=url, headers=response.headers, body=bytes(body)
            )

    def _target(self, url: httpx.URL, location: str) -> httpx.URL:
        import httpx  # noqa: PLC0415 - here already, since this object was made

        try:
            target = url.join(location).copy_with(userinfo=b"", fragment=None)
        except (httpx.InvalidURL, ValueError):
            target = httpx.URL("")
        if target.scheme not in {"http", "https"} or not target.host:
            raise self._cannot(f"expected {url.host} to lead to a web address; it does not")
        if url.scheme == "https" and not is_private(target):
            raise self._cannot(f"expected {url.host} to lead to https, found http on {target.host}")
        return target

    def _cannot(self, message: str) -> CannotVerify:
        return CannotVerify(message, next_command=self._advice)


def is_private(url: httpx.URL) -> bool:
    """Whether a secret may travel there: over https, or on this very machine."""
    return url.scheme == "https" or is_loopback(url.host)


def _made_client(*, trust_env: bool) -> httpx.Client:
    from http.cookiejar import (  # noqa: PLC0415 - with httpx, which is late
        CookieJar,
        DefaultCookiePolicy,
    )

    import httpx  # noqa: PLC0415 - 60 ms that only those who ask pay

    try:
        return httpx.Client(
            headers={"User-Agent": f"karat/{karat.__version__}"},
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
            follow_redirects=False,
            timeout=httpx.Timeout(30.0, connect=10.0, pool=None),
            trust_env=trust_env,
        )
    except (ImportError, OSError, ValueError, httpx.InvalidURL):
        pass
    # Out here, since the library's own words may hold a proxy's password.
    raise UsageError(
        "expected a proxy and certificates that can be used in HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE, found others",
        next_command="env | cut -d= -f1 | grep -i -e _proxy -e ssl_cert",
    )
