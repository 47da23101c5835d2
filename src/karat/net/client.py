"""Answers of an API, kept with their ETag, so that asking again costs nothing.

An answer is found by its URL and by who asked: what one token may see is never shown to another.
Neither the URL nor the token is written; both go into a salted hash.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode, urljoin

import msgspec

from karat.findings import CannotVerify
from karat.net.addresses import shown
from karat.net.retry import Patience, limited_for
from karat.net.tokens import Secret, Token, scrub
from karat.net.transport import Origin, Wire, origin_of, read_body

if TYPE_CHECKING:
    import httpx

_LARGEST = 16 << 20


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer as it was given."""

    etag: str
    link: str = ""
    body: bytes
    checksum: str = ""


class Answers:
    """A folder of answers; one that cannot be read or written is as good as an empty one."""

    def __init__(self, folder: Path, salt: bytes) -> None:
        self._folder = folder
        self._salt = salt

    def find(self, url: str, token: Token | None) -> Answer | None:
        """What was answered the last time, or None; a damaged one is thrown away."""
        path = self._path(url, token)
        try:
            answer = msgspec.msgpack.decode(path.read_bytes(), type=Answer)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, msgspec.MsgspecError):
            answer = None
        if answer is None or answer.checksum != _checksum(answer):
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return answer

    def keep(self, url: str, token: Token | None, answer: Answer) -> None:
        """Remembers an answer, if the disk allows it."""
        if len(answer.body) > _LARGEST:
            return
        whole = msgspec.structs.replace(answer, checksum=_checksum(answer))
        path = self._path(url, token)
        draft = path.with_name(f".{os.urandom(8).hex()}.tmp")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(msgspec.msgpack.encode(whole))
            draft.replace(path)
        except OSError:
            with suppress(OSError):
                draft.unlink()

    def _path(self, url: str, token: Token | None) -> Path:
        who = token.secret.reveal() if token else ""
        name = hmac.new(self._salt, f"{who}\0{url}".encode(), "sha256").hexdigest()
        return self._folder / name[:2] / name[2:]


def _checksum(answer: Answer) -> str:
    head = f"{answer.etag}\0{answer.link}\0".encode()
    return hashlib.sha256(head + answer.body).hexdigest()


# DOC-HERE client: The client: asks one API, patiently, and remembers what it answered.
#
# Trouble that passes (cut connections, 5xx, rate limits) is waited for; what the server refuses is
# told at once. Who gets to see the token is decided in `karat.net.transport`.

_PAGES = 1000
_LARGEST_JSON = 64 << 20
_NEXT = re.compile(r"""<([^<>]*)>\s*(?:;[^,<>]*)?;\s*rel="?next"?""", re.IGNORECASE)
_SECONDARY_WAIT = 60.0
# 400 is what some stores say to a signature that is too old.
_STALE = frozenset({400, 401, 403, 404, 410})

T = TypeVar("T")


class Refused(CannotVerify):
    """The server understood the question, and said no."""

    def __init__(self, message: str, *, status: int, next_command: str = "karat --help") -> None:
        super().__init__(message, next_command=next_command)
        self.status = status


class Unanswered(CannotVerify):
    """No usable answer came, again and again."""


class CalledOff(Exception):  # noqa: N818 - someone stopped the work; nothing is wrong
    """The work was stopped; what arrived is kept."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The next command for whoever did not get what they asked for."""

    again: str = "karat refresh --help"
    """Asks once more; for trouble that passes."""
    login: str = "karat refresh --help"
    """Gets a token, or a better one."""


class _Reply(msgspec.Struct, frozen=True):
    """An answer whose body has been read."""

    status: int
    origin: Origin
    etag: str
    link: str
    body: bytes


class Client:
    """Asks one API, and whatever it redirects to; used from many threads at once."""

    def __init__(  # noqa: PLR0913 - every part can be replaced by a test
        self,
        root: str,
        token: Token | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        patience: Patience | None = None,
        answers: Answers | None = None,
        connections: int = 16,
        notice: Callable[[str], None] | None = None,
        advice: Advice | None = None,
    ) -> None:
        self.root = root
        self.advice = advice or Advice()
        self.token = token
        self.patience = patience or Patience()
        self._answers = answers
        self._notice = notice or (lambda _: None)
        self._headers = dict(headers or {})
        self._stopped = threading.Event()
        self._gates: dict[Origin, float] = {}
        self._lock = threading.Lock()
        self._wire = Wire(
            root,
            token,
            connections=connections,
            timeouts=(self.patience.connect_timeout, self.patience.read_timeout),
            before=self._wait_at_gate,
        )

    def stop(self) -> None:
        """Calls the work off: whoever waits wakes up, and no further request is sent."""
        self._stopped.set()

    def close(self) -> None:
        """Lets go of all connections."""
        self.stop()
        self._wire.close()

    def get(self, path: str, kind: type[T], **query: str | int) -> T:
        """One JSON answer of the API."""
        return self._page(self._url(path, query), kind)[0]

    def pages(self, path: str, kind: type[T], **query: str | int) -> Iterator[T]:
        """All pages of an answer, as `Link` headers chain them."""
        url: str | None = self._url(path, query)
        seen: set[str] = set()
        while url is not None:
            if url in seen or len(seen) >= _PAGES:
                raise self._cannot(f"expected {shown(url)} to have a last page, found none")
            seen.add(url)
            page, url = self._page(url, kind)
            yield page

    @contextmanager
    def open(
        self, url: str, headers: Mapping[str, str] | None = None, *, at: Secret | None = None
    ) -> Iterator[httpx.Response]:
        """A download whose body is still to be read; raises `Refused` for 4xx answers but 416.

        `at` is where the bytes were the last time: tried first, and left when it has expired.
        """
        response = self._opened(url, {"Accept-Encoding": "identity", **(headers or {})}, at)
        try:
            status = response.status_code
            if status >= 400 and status != 416:
                raise self._refusal(url, status, asked=origin_of(response.url))
            yield response
        finally:
            response.close()

    def place(self, response: httpx.Response) -> Secret | None:
        """Where a redirect led, to go there directly the next time; None for the API itself."""
        elsewhere = origin_of(response.url) != self._wire.own
        return Secret(str(response.url)) if elsewhere else None

    def pause(self, attempt: int) -> None:
        """Waits as before attempt number `attempt` + 1; raises `CalledOff` if the work is stopped."""
        self._pause(self.patience.backoff(attempt, random.random()))  # noqa: S311 - jitter

    def check_stopped(self) -> None:
        """Raises `CalledOff` once the work is stopped."""
        if self._stopped.is_set():
            raise CalledOff

    def scrub(self, text: str) -> str:
        """A text without the token."""
        return scrub(text, [self.token.secret] if self.token else [])

    def url(self, path: str) -> str:
        """The address of a part of the API."""
        return f"{self.root}{path}"

    def _url(self, path: str, query: Mapping[str, str | int]) -> str:
        return self.url(path) + (f"?{urlencode(query)}" if query else "")

    def _opened(self, url: str, headers: Mapping[str, str], at: Secret | None) -> httpx.Response:
        if at is not None:
            response = self._ask(at.reveal(), headers, _unread, label=url)
            if response.status_code not in _STALE:
                return response
            response.close()
        response = self._ask(url, headers, _unread, label=url)
        if response.status_code in {401, 403} and self.place(response) is not None:
            # A signature lives for a minute; it may have grown too old on the way.
            response.close()
            response = self._ask(url, headers, _unread, label=url)
        return response

    def _page(self, url: str, kind: type[T]) -> tuple[T, str | None]:
        kept = self._answers.find(url, self.token) if self._answers else None
        headers = {**self._headers, **({"If-None-Match": kept.etag} if kept else {})}
        reply = self._ask(url, headers, _read, label=url)
        if reply.status == 304 and kept:
            return self._decoded(url, kept.body, kind), self._next_page(url, kept.link)
        if reply.status != 200:
            raise self._refusal(url, reply.status, asked=reply.origin)
        decoded = self._decoded(url, reply.body, kind)
        if self._answers and reply.etag.isascii() and reply.etag:  # others cannot be sent back
            answer = Answer(etag=reply.etag, link=reply.link, body=reply.body)
            self._answers.keep(url, self.token, answer)
        return decoded, self._next_page(url, reply.link)

    def _decoded(self, url: str, body: bytes, kind: type[T]) -> T:
        if len(body) > _LARGEST_JSON:
            raise self._cannot(
                f"expected an API's answer from {shown(url)}, found more than {_LARGEST_JSON:,} bytes"
            )
        try:
            return msgspec.json.decode(body, type=kind)
        except RecursionError:
            problem = "one that is nested too deeply"
        except (ValueError, msgspec.MsgspecError) as error:
            page = body.lstrip()[:1] == b"<"
            problem = "an HTML page, as of a login or a proxy" if page else str(error)
        raise self._cannot(f"expected the JSON of an API from {shown(url)}, found {problem}")

    def _next_page(self, url: str, link: str) -> str | None:
        import httpx  # noqa: PLC0415 - here already, since a page came

        found = _NEXT.search(link)
        if not found:
            return None
        with suppress(httpx.InvalidURL, ValueError):
            following: str = urljoin(url, found[1])
            if origin_of(httpx.URL(following)) == self._wire.own:
                return following
        raise self._cannot(
            f"expected the next page of {shown(url)} on the same server, found it on another"
        )

    def _ask(
        self,
        url: str,
        headers: Mapping[str, str],
        read: Callable[[httpx.Response], T],
        *,
        label: str,
    ) -> T:
        """What `read` makes of an answer that is not about trouble that passes."""
        import httpx  # noqa: PLC0415 - here already, since this object was made

        trouble = ""
        for attempt in range(1, self.patience.attempts + 1):
            try:
                response = self._wire.follow(httpx.URL(url), headers)
                limited = self._limited(response)
                if not limited and response.status_code < 500 and response.status_code != 429:
                    return read(response)
                trouble = f"HTTP {response.status_code}"
                response.close()
                if limited:
                    continue
            except (httpx.RequestError, httpx.InvalidURL, UnicodeError) as error:
                trouble = why(error)
                if _is_hopeless(error):
                    break
            if attempt < self.patience.attempts:
                self.pause(attempt)
        # Out here, so that the library's own exception, which holds the request, is not chained.
        raise Unanswered(
            self.scrub(f"expected an answer from {shown(label)}, found {trouble}"),
            next_command=self.advice.again,
        )

    def _limited(self, response: httpx.Response) -> bool:
        """Whether this answer is about a rate limit; if so, its server is left alone for a while."""
        now = self.patience.clock()
        seconds = limited_for(response.status_code, response.headers, now)
        if seconds is None and response.status_code == 403:
            # Of its secondary limits GitHub speaks in words only, now and then.
            words = read_body(response, 4096).lower()
            seconds = _SECONDARY_WAIT if b"rate limit" in words else None
        if seconds is None:
            return False
        if seconds > self.patience.limit_wait:
            response.close()
            raise Unanswered(
                f"the rate limit of {response.url.host} is used up; expected it to reset within "
                f"{self.patience.limit_wait / 60:.0f} minutes, found that it does at {_clock(now + seconds)}",
                next_command=self.advice.again if self.token else self.advice.login,
            )
        self._close_gate(origin_of(response.url), now + seconds, seconds)
        return True

    def _close_gate(self, origin: Origin, until: float, seconds: float) -> None:
        with self._lock:
            before = self._gates.get(origin, 0.0)
            self._gates[origin] = max(before, until)
        # Sixteen threads run into one limit at once; the person hears of it once.
        if seconds >= 1 and until > before + 1:
            self._notice(f"{origin[1]}: rate limit reached; waiting {seconds:.0f} s")

    def _wait_at_gate(self, origin: Origin) -> None:
        self.check_stopped()
        with self._lock:
            until = self._gates.get(origin, 0.0)
        if until and (seconds := until - self.patience.clock()) > 0:
            self._pause(seconds)

    def _pause(self, seconds: float) -> None:
        (self.patience.sleep or self._stopped.wait)(seconds)
        self.check_stopped()

    def _refusal(self, url: str, status: int, *, asked: Origin) -> Refused:
        where, used = shown(url), self.token.found_in if self.token else None
        then = self.advice.login if status in {401, 403} else self.advice.again
        if status in {401, 403} and asked != self._wire.own:
            # No better token helps where none is sent.
            message = f"expected to read {where}, found HTTP {status} from {asked[1]}, which gets no token"
            then = self.advice.again
        elif status == 401 and used:
            message = f"expected {where} to accept the token from {used}, found HTTP 401"
        elif status in {401, 403} and not used:
            message = f"expected to read {where} without a token, found HTTP {status}"
        elif status == 403:
            message = f"expected that the token from {used} may read {where}, found HTTP 403"
        else:
            message = f"expected {where} to be there, found HTTP {status}"
        return Refused(self.scrub(message), status=status, next_command=then)

    def _cannot(self, message: str) -> CannotVerify:
        return CannotVerify(self.scrub(message), next_command=self.advice.again)


def _unread(response: httpx.Response) -> httpx.Response:
    return response


def _read(response: httpx.Response) -> _Reply:
    headers = response.headers
    return _Reply(
        response.status_code,
        origin_of(response.url),
        headers.get("etag", ""),
        headers.get("link", ""),
        b"" if response.is_closed else read_body(response, _LARGEST_JSON),
    )


def why(error: Exception) -> str:
    """What an exception says, less the line of the answer that some repeat: a signed URL may be on it."""
    return str(error).partition(": bytearray(")[0] or type(error).__name__


def _is_hopeless(error: Exception) -> bool:
    """Whether asking again would only fail again."""
    import httpx  # noqa: PLC0415 - here already, since it raised

    wrong = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL, UnicodeError)
    return isinstance(error, wrong) or "CERTIFICATE_VERIFY_FAILED" in str(error)


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
