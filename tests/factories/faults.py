"""Scripted misfortune: what a forge does wrong, to which requests, and how often."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Fault:
    """One misfortune; several may befall one request."""

    pattern: str
    """Searched in path and query."""
    host: str | None = None
    """`api`, `blob`, or both."""
    times: int | None = 1
    """None: every time."""
    skip: int = 0
    """So many matching requests are spared first."""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    keep: int | None = None
    """The body is only this long, and Content-Length says so, too."""
    cut_after: int | None = None
    reset: bool = False
    rate: float | None = None
    delay: float = 0.0
    no_ranges: bool = False

    def strikes(self, host: str, target: str) -> bool:
        """Whether it befalls this request; counts."""
        if self.host not in {None, host} or not re.search(self.pattern, target):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is None:
            return True
        self.times -= 1
        return self.times >= 0


class Faults:
    """What will go wrong, in the order it was said."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._faults.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def due(self, host: str, target: str) -> list[Fault]:
        with self._lock:
            return [fault for fault in self._faults if fault.strikes(host, target)]

    def too_many_requests(self, pattern: str, *, retry_after: float | str = 0, times: int | None = 1) -> None:
        """429; `retry_after` in seconds, or an HTTP date."""
        self._refuse(pattern, 429, "Too many requests", {"retry-after": _whole(retry_after)}, times=times)

    def rate_limit(self, pattern: str, *, reset_in: float = 0, times: int | None = 1) -> None:
        """GitHub's primary limit: 403, nothing remaining, and when it resets."""
        headers = {
            "x-ratelimit-limit": "5000",
            "x-ratelimit-remaining": "0",
            "x-ratelimit-used": "5000",
            "x-ratelimit-resource": "core",
            "x-ratelimit-reset": str(int(time.time() + reset_in)),
        }
        self._refuse(pattern, 403, "API rate limit exceeded for user ID 1.", headers, times=times)

    def secondary_limit(self, pattern: str, *, retry_after: float | None = 0, times: int | None = 1) -> None:
        """GitHub's other limit: 403 although requests remain, perhaps with Retry-After."""
        headers = {"x-ratelimit-remaining": "4711"}
        if retry_after is not None:
            headers["retry-after"] = _whole(retry_after)
        message = "You have exceeded a secondary rate limit. Please wait a few minutes."
        self._refuse(pattern, 403, message, headers, times=times)

    def server_error(self, pattern: str, *, status: int = 502, times: int | None = 1, skip: int = 0) -> None:
        page = b"<html><body><h1>Bad Gateway</h1></body></html>"
        headers = {"content-type": "text/html"}
        self.add(Fault(pattern=pattern, status=status, body=page, headers=headers, times=times, skip=skip))

    def forbidden(
        self,
        pattern: str,
        *,
        status: int = 403,
        message: str = "Resource not accessible by integration",
        times: int | None = None,
    ) -> None:
        self._refuse(pattern, status, message, {}, times=times)

    def cut(
        self,
        pattern: str,
        *,
        after: int,
        reset: bool = False,
        times: int | None = 1,
        host: str | None = "blob",
        skip: int = 0,
    ) -> None:
        """The connection ends after so many bytes of the body; Content-Length promised them all."""
        self.add(Fault(pattern=pattern, cut_after=after, reset=reset, times=times, host=host, skip=skip))

    def slow(self, pattern: str, *, rate: float, times: int | None = None) -> None:
        """Bodies trickle at `rate` bytes per second."""
        self.add(Fault(pattern=pattern, rate=rate, times=times, host="blob"))

    def delay(self, pattern: str, *, seconds: float, times: int | None = None) -> None:
        """Nothing comes for so long."""
        self.add(Fault(pattern=pattern, delay=seconds, times=times))

    def truncate(self, pattern: str, *, keep: int, times: int | None = None) -> None:
        """The stored body ends early; Content-Length agrees, so only the content can tell."""
        self.add(Fault(pattern=pattern, keep=keep, times=times, host="blob"))

    def overstate(self, pattern: str, *, length: int, times: int | None = 1) -> None:
        """Content-Length promises `length` bytes; the body ends before, and the connection with it."""
        headers = {"content-length": str(length)}
        self.add(Fault(pattern=pattern, headers=headers, cut_after=length, times=times, host="blob"))

    def html(self, pattern: str, *, times: int | None = None) -> None:
        """A page with status 200 where an archive should be, as captive portals have it."""
        page = b"<!DOCTYPE html><html><body>Sign in to continue</body></html>"
        headers = {"content-type": "text/html; charset=utf-8"}
        self.add(Fault(pattern=pattern, status=200, body=page, headers=headers, times=times, host="blob"))

    def no_ranges(self, pattern: str = "", *, times: int | None = None) -> None:
        """A server that does not know ranges: 200 and everything."""
        self.add(Fault(pattern=pattern, no_ranges=True, times=times))

    def stale_signature(self, pattern: str, *, times: int | None = 1, skip: int = 0) -> None:
        """The signed URL has expired by the time it is used; a new redirect gives a new one."""
        page = b"<?xml version='1.0'?><Error><Code>AuthenticationFailed</Code></Error>"
        headers = {"content-type": "application/xml", "x-ms-error-code": "AuthenticationFailed"}
        self.add(Fault(pattern=pattern, status=403, body=page, headers=headers, times=times, skip=skip, host="blob"))

    def _refuse(
        self, pattern: str, status: int, message: str, headers: Mapping[str, str], *, times: int | None
    ) -> None:
        body = json.dumps({"message": message, "documentation_url": "", "status": str(status)})
        given = {"content-type": "application/json; charset=utf-8", **headers}
        self.add(Fault(pattern=pattern, status=status, body=body.encode(), headers=given, times=times))


def _whole(seconds: float | str) -> str:
    return seconds if isinstance(seconds, str) else str(int(seconds))
