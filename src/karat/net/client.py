"""The client: asks one server, again while trouble may pass, and remembers what an API answered.

Cut connections, 5xx and rate limits are waited for; what the server refuses is told at once. Forges, registries and
package indexes are all asked through it. Who gets to see a credential is decided in `karat.net.transport`.
"""

from __future__ import annotations

import base64
import hmac
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode, urljoin

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.net.transport import Origin, Transport, origin_of, read_body, shown
from karat.system.files import write_bytes
from karat.system.hashes import sealed, unsealed
from karat.system.secrets import Secret, scrub

if TYPE_CHECKING:
    import httpx

_PAGES = 1000
_LARGEST_JSON = 64 << 20
_LARGEST_KEPT = 16 << 20
_NEXT = re.compile(r"""<([^<>]*)>\s*(?:;[^,<>]*)?;\s*rel="?next"?""", re.IGNORECASE)
_SECONDARY_WAIT = 60.0
# 400 is what some stores say to a signature that is too old.
_STALE = frozenset({400, 401, 403, 404, 410})

T = TypeVar("T")


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A credential, the header it travels in, and the name of where it was found."""

    secret: Secret
    header: str
    prefix: str = ""
    found_in: str

    def value(self) -> str:
        """What the header says; for the request only."""
        return f"{self.prefix}{self.secret.reveal()}"


def basic_token(username: str, password: str, found_in: str) -> Token:
    """What a name with a password travels as."""
    pair = base64.b64encode(f"{username}:{password}".encode()).decode()
    return Token(secret=Secret(pair), header="Authorization", prefix="Basic ", found_in=found_in)


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often a request is tried, and how long each try and each wait may take."""

    attempts: int = 5  # Failures in a row without a single new byte.
    connect_attempts: int = 5  # The same while nothing answers at all.
    first_wait: float = 0.5
    longest_wait: float = 20.0  # Between two attempts, when the server does not say how long.
    spread: float = 0.5  # The share of a wait that chance decides, so that a crowd does not come back at once.
    limit_wait: float = 900.0  # The longest wait for a rate limit to reset; beyond it, the person is told when.
    connect_timeout: float = 15.0
    read_timeout: float = 60.0
    sleep: Callable[[float], object] | None = None  # None: wait, but wake up when the work is stopped.
    clock: Callable[[], float] = time.time

    def backoff(self, attempt: int, chance: float) -> float:
        """Seconds before attempt number `attempt` (from 1); `chance` is in [0, 1)."""
        full: float = min(self.longest_wait, self.first_wait * 2.0 ** min(attempt - 1, 30))
        return full * (1 - self.spread + self.spread * chance)


class Trouble(Exception):  # noqa: N818 - what it is about; whoever retries catches it
    """Something that may pass, found while a request was prepared; status and headers are those of an answer, if any."""

    def __init__(self, message: str, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class Refused(CannotVerify):
    """The server understood the question, and said no."""

    def __init__(self, message: str, *, status: int, next_command: str = "karat --help") -> None:
        super().__init__(message, next_command=next_command)
        self.status = status


class Unanswered(CannotVerify):
    """No usable answer came, again and again."""


class Stopped(Exception):  # noqa: N818 - nothing is wrong
    """The work was stopped; what arrived is kept."""


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """The next command for whoever did not get what they asked for."""

    again: str = "karat --help"  # Asks once more; for trouble that passes.
    login: str = "karat --help"  # Gets a token, or a better one.


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer whose body has been read, without its request, which held the credential."""

    status: int
    url: httpx.URL
    headers: httpx.Headers
    body: bytes


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of an API as it was given."""

    etag: str
    link: str = ""
    body: bytes


class Answers:
    """A folder of answers with their ETags; one that cannot be read or written is as good as an empty one.

    An answer is found by its URL and by who asked: what one token may see is never shown to another. Neither the URL nor
    the token is written; both go into a salted hash.
    """

    def __init__(self, folder: Path, salt: bytes) -> None:
        self._folder, self._salt = folder, salt

    def find(self, url: str, token: Token | None) -> Answer | None:
        """What was answered the last time, or None; a damaged one is thrown away."""
        path = self._path(url, token)
        try:
            answer = msgspec.msgpack.decode(unsealed(path.read_bytes()), type=Answer)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return answer

    def keep(self, url: str, token: Token | None, answer: Answer) -> None:
        """Remembers an answer, if the disk allows it."""
        if len(answer.body) > _LARGEST_KEPT:
            return
        path = self._path(url, token)
        with suppress(OSError, UsageError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_bytes(path, sealed(msgspec.msgpack.encode(answer)), durable=False)

    def _path(self, url: str, token: Token | None) -> Path:
        who = token.secret.reveal() if token else ""
        name = hmac.new(self._salt, f"{who}\0{url}".encode(), "sha256").hexdigest()
        return self._folder / name[:2] / name[2:]


class Client:
    """Asks one server, and whatever it redirects to; used from many threads at once."""

    def __init__(  # noqa: PLR0913 - every part can be replaced by a test
        self,
        root: str,
        token: Token | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        retry: Retry | None = None,
        answers: Answers | None = None,
        connections: int = 16,
        trust_env: bool = True,
        notice: Callable[[str], None] | None = None,
        advice: Advice | None = None,
    ) -> None:
        self.root = root
        self.advice = advice or Advice()
        self.token = token
        self.retry = retry or Retry()
        self._answers = answers
        self._notice = notice or (lambda _: None)
        self._headers = dict(headers or {})
        self._stopped = threading.Event()
        self._not_before: dict[Origin, float] = {}
        self._lock = threading.Lock()
        self.transport = Transport(
            root,
            connections=connections,
            connect_timeout=self.retry.connect_timeout,
            read_timeout=self.retry.read_timeout,
            trust_env=trust_env,
            before=self._wait_for_limit,
            advice=self.advice.again,
        )

    def stop(self) -> None:
        """Stops the work: whoever waits wakes up, and no further request is sent."""
        self._stopped.set()

    def close(self) -> None:
        self.stop()
        self.transport.close()

    def get(self, path: str, kind: type[T], **query: str | int) -> T:
        """One JSON answer of the API."""
        return self._page(self.url(path, query), kind)[0]

    def pages(self, path: str, kind: type[T], **query: str | int) -> Iterator[T]:
        """All pages of an answer, as `Link` headers chain them."""
        url: str | None = self.url(path, query)
        seen: set[str] = set()
        while url is not None:
            if url in seen or len(seen) >= _PAGES:
                raise self._cannot(f"expected {shown(url)} to have a last page, found none")
            seen.add(url)
            page, url = self._page(url, kind)
            yield page

    def write(self, method: str, path: str, document: Mapping[str, str], kind: type[T]) -> T:
        """What the API answers to a document. It is sent once: an answer that was lost may have been a yes."""
        import httpx

        url = self.url(path)
        headers = {**self._headers, "Content-Type": "application/json"}
        credential = (self.token.header, self.token.value()) if self.token else None
        content = msgspec.json.encode(document)

        def send() -> httpx.Response:
            return self.transport.send(method, httpx.URL(url), headers, credential, content=content)

        reply = self.retried(send, lambda r: read_reply(r, _LARGEST_JSON), url, attempts=1)
        if reply.status not in {200, 201}:
            raise self._refusal(url, reply.status, asked=self.transport.own, verb="write to")
        return self._decoded(url, reply.body, kind)

    def fetch(self, url: str, headers: Mapping[str, str], *, most: int) -> Reply:
        """An answer of any status that is not about trouble that passes; its body up to `most` bytes and one more."""
        return self.retried(lambda: self._follow(url, headers), lambda r: read_reply(r, most), url)

    @contextmanager
    def open(
        self, url: str, headers: Mapping[str, str] | None = None, *, at: Secret | None = None
    ) -> Iterator[httpx.Response]:
        """A download whose body is still to be read; raises `Refused` for 4xx answers but 416.

        `at` is where the bytes were the last time: tried first, and left when it has expired.
        """
        asked = {"Accept-Encoding": "identity", **(headers or {})}

        def ask(place: str) -> httpx.Response:
            return self.retried(lambda: self._follow(place, asked), lambda r: r, url)

        response = ask(url if at is None else at.reveal())
        if at is not None and response.status_code in _STALE:
            response.close()
            response = ask(url)
        if response.status_code in {401, 403} and self.redirected(response) is not None:
            # A signature lives for a minute; it may have grown too old on the way.
            response.close()
            response = ask(url)
        try:
            status = response.status_code
            if status >= 400 and status != 416:
                raise self._refusal(url, status, asked=origin_of(response.url))
            yield response
        finally:
            response.close()

    def redirected(self, response: httpx.Response) -> Secret | None:
        """Where a redirect led, to go there directly the next time; None for the server itself."""
        elsewhere = origin_of(response.url) != self.transport.own
        return Secret(str(response.url)) if elsewhere else None

    def retried(
        self,
        send: Callable[[], httpx.Response],
        read: Callable[[httpx.Response], T],
        url: str,
        *,
        attempts: int | None = None,
    ) -> T:
        """What `read` makes of the first answer to `send` that is not about trouble that passes; `url` is for the message."""
        import httpx

        trouble, attempts = "", attempts or self.retry.attempts
        for attempt in range(1, attempts + 1):
            try:
                response = send()
                limited = self._is_limited(response)
                if not limited and response.status_code < 500 and response.status_code != 429:
                    return read(response)
                trouble = f"HTTP {response.status_code}"
                response.close()
                if limited:
                    continue
            except Trouble as error:
                trouble = str(error)
                if self._limit(limited_for(error.status, error.headers, self.retry.clock()), self.transport.own):
                    continue
            except (httpx.RequestError, httpx.InvalidURL, UnicodeError) as error:
                trouble = error_text(error)
                unreachable = isinstance(error, httpx.ConnectError)
                wrong = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL, UnicodeError)
                # Asking again would only fail again.
                hopeless = isinstance(error, wrong) or "CERTIFICATE_VERIFY_FAILED" in trouble
                if hopeless or (unreachable and attempt >= self.retry.connect_attempts):
                    break
            if attempt < attempts:
                self.pause(attempt)
        # Out here, so that the library's own exception, which holds the request, is not chained.
        said = self.scrub(f"expected an answer from {shown(url)}, found {trouble}")
        raise Unanswered(said, next_command=self.advice.again)

    def pause(self, attempt: int) -> None:
        """Waits as before attempt number `attempt` + 1; raises `Stopped` if the work is stopped."""
        self._pause(self.retry.backoff(attempt, random.random()))  # noqa: S311 - jitter

    def check_stopped(self) -> None:
        """Raises `Stopped` once the work is stopped."""
        if self._stopped.is_set():
            raise Stopped

    @property
    def unseen(self) -> str:
        """Why what is there may not be shown, for messages."""
        return f"the token from {self.token.found_in} may not see it" if self.token else "it needs a token"

    def scrub(self, text: str) -> str:
        """A text without the token."""
        return scrub(text, [self.token.secret] if self.token else [])

    def url(self, path: str, query: Mapping[str, str | int] | None = None) -> str:
        return f"{self.root}{path}" + (f"?{urlencode(query)}" if query else "")

    def _follow(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        import httpx

        credential = (self.token.header, self.token.value()) if self.token else None
        return self.transport.follow(httpx.URL(url), headers, credential)[0]

    def _page(self, url: str, kind: type[T]) -> tuple[T, str | None]:
        kept = self._answers.find(url, self.token) if self._answers else None
        headers = {**self._headers, **({"If-None-Match": kept.etag} if kept else {})}
        reply = self.fetch(url, headers, most=_LARGEST_JSON)
        if reply.status == 304 and kept:
            return self._decoded(url, kept.body, kind), self._next_page(url, kept.link)
        if reply.status != 200:
            raise self._refusal(url, reply.status, asked=origin_of(reply.url))
        decoded = self._decoded(url, reply.body, kind)
        etag, link = reply.headers.get("etag", ""), reply.headers.get("link", "")
        if self._answers and etag.isascii() and etag:  # others cannot be sent back
            self._answers.keep(url, self.token, Answer(etag=etag, link=link, body=reply.body))
        return decoded, self._next_page(url, link)

    def _decoded(self, url: str, body: bytes, kind: type[T]) -> T:
        if len(body) > _LARGEST_JSON:
            raise self._cannot(f"expected an API's answer from {shown(url)}, found more than {_LARGEST_JSON:,} bytes")
        try:
            return msgspec.json.decode(body, type=kind)
        except RecursionError:
            problem = "one that is nested too deeply"
        except (ValueError, msgspec.MsgspecError) as error:
            page = body.lstrip()[:1] == b"<"
            problem = "an HTML page, as of a login or a proxy" if page else str(error)
        raise self._cannot(f"expected the JSON of an API from {shown(url)}, found {problem}")

    def _next_page(self, url: str, link: str) -> str | None:
        import httpx

        found = _NEXT.search(link)
        if not found:
            return None
        with suppress(httpx.InvalidURL, ValueError):
            following: str = urljoin(url, found[1])
            if origin_of(httpx.URL(following)) == self.transport.own:
                return following
        raise self._cannot(f"expected the next page of {shown(url)} on the same server, found it on another")

    def _is_limited(self, response: httpx.Response) -> bool:
        """Whether this answer is about a rate limit; if so, its server is left alone for a while."""
        seconds = limited_for(response.status_code, response.headers, self.retry.clock())
        if seconds is None and response.status_code == 403:
            # Of its secondary limits GitHub speaks in words only, now and then.
            words = read_body(response, 4096).lower()
            seconds = _SECONDARY_WAIT if b"rate limit" in words else None
        try:
            return self._limit(seconds, origin_of(response.url))
        except Unanswered:
            response.close()
            raise

    def _limit(self, seconds: float | None, origin: Origin) -> bool:
        """Leaves a server alone until its rate limit ends; False if there is none."""
        if seconds is None:
            return False
        until = self.retry.clock() + seconds
        if seconds > self.retry.limit_wait:
            when = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M UTC")
            said = f"expected it to reset within {self.retry.limit_wait / 60:.0f} minutes, found that it does at {when}"
            following = self.advice.again if self.token else self.advice.login
            raise Unanswered(f"the rate limit of {origin[1]} is used up; {said}", next_command=following)
        with self._lock:
            before = self._not_before.get(origin, 0.0)
            self._not_before[origin] = max(before, until)
        # Sixteen threads run into one limit at once; the person hears of it once.
        if seconds >= 1 and until > before + 1:
            self._notice(f"{origin[1]}: rate limit reached; waiting {seconds:.0f} s")
        return True

    def _wait_for_limit(self, origin: Origin) -> None:
        self.check_stopped()
        with self._lock:
            until = self._not_before.get(origin, 0.0)
        if until and (seconds := until - self.retry.clock()) > 0:
            self._pause(seconds)

    def _pause(self, seconds: float) -> None:
        (self.retry.sleep or self._stopped.wait)(seconds)
        self.check_stopped()

    def _refusal(self, url: str, status: int, *, asked: Origin, verb: str = "read") -> Refused:
        where, used = shown(url), self.token.found_in if self.token else None
        then = self.advice.login if status in {401, 403} else self.advice.again
        if status in {401, 403} and asked != self.transport.own:
            # No better token helps where none is sent.
            message = f"expected to read {where}, found HTTP {status} from {asked[1]}, which gets no token"
            then = self.advice.again
        elif status == 401 and used:
            message = f"expected {where} to accept the token from {used}, found HTTP 401"
        elif status in {401, 403} and not used:
            message = f"expected to {verb} {where} without a token, found HTTP {status}"
        elif status == 403:
            message = f"expected that the token from {used} may {verb} {where}, found HTTP 403"
        else:
            message = f"expected {where} to be there, found HTTP {status}"
        return Refused(self.scrub(message), status=status, next_command=then)

    def _cannot(self, message: str) -> CannotVerify:
        return CannotVerify(self.scrub(message), next_command=self.advice.again)


def read_reply(response: httpx.Response, most: int, seconds: float | None = None) -> Reply:
    """The whole answer; of its body at most `most` bytes and one more, within `seconds`."""
    body = b"" if response.is_closed else read_body(response, most, seconds)
    return Reply(status=response.status_code, url=response.url, headers=response.headers, body=body)


def error_text(error: Exception) -> str:
    """What an exception says, less the line of the answer that some repeat: a signed URL may be on it."""
    return str(error).partition(": bytearray(")[0] or type(error).__name__


def limited_for(status: int, headers: Mapping[str, str], now: float) -> float | None:
    """Seconds until the server's rate limit ends; None if this is no answer about a limit."""
    if status not in {403, 429, 503}:
        return None
    after = headers.get("retry-after", "").strip()
    if (seconds := _number(after)) is not None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(after).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        pass
    for prefix in ("x-ratelimit", "ratelimit") if status != 503 else ():
        if headers.get(f"{prefix}-remaining") == "0":
            reset = _number(headers.get(f"{prefix}-reset", ""))
            # One second more, since the two clocks differ by some part of one.
            return None if reset is None else max(0.0, reset - now) + 1.0
    return None


def _number(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 12 else None
