"""The page of a review, and its server: on loopback, for one person, and for as long as the command runs.

A page of a stranger must neither see nor decide anything. The server listens on 127.0.0.1 and a random port; the address
it prints has a token that works once and becomes a cookie of the same site; every request must name this host, every
decision must come from this origin and carry the page's own token. Nothing is loaded from elsewhere.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from karat.compare.change import Verdict
from karat.findings import KaratError
from karat.report.html import asset, fill, head, page, script_json, text
from karat.report.words import few, short_path
from karat.reviews.review import Decision, NeedsReason, Review, Stale
from karat.system import git

MOST_BYTES: Final = 4 << 20  # Of a decision: two thousand paths, with what was seen of each.
_TOOLS: Final = (
    '<button type="button" id="undo" title="Undo the last decision (u)">Undo</button>'
    '<button type="button" id="help" title="Keyboard (?)">Keys</button>'
)
_POLICY: Final = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the page asks for."""

    verb: Literal["accept", "reject", "undo", "refresh"]
    paths: tuple[str, ...] = ()
    metric: str | None = None
    reason: str | None = None
    seen: dict[str, str] = {}


class ReviewServer(ThreadingHTTPServer):
    """Serves one review; `address()` is where a browser begins."""

    daemon_threads = True

    def __init__(self, review: Review) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.review = review
        self.host = f"127.0.0.1:{self.server_port}"
        self.session, self.page_token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.version = 0
        self.lock = threading.RLock()
        self._tickets: set[str] = set()
        self._index = git.git_path(review.root, "index")
        self._there = self._looked()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A tab that closed while it was being answered is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def address(self, path: str = "") -> str:
        """An address that lets one browser in, once; it begins at this golden."""
        ticket = secrets.token_urlsafe(32)
        with self.lock:
            self._tickets.add(ticket)
        return f"http://{self.host}/?token={ticket}{f'#{quote(path)}' if path else ''}"

    def redeem(self, ticket: str) -> bool:
        """Whether a ticket is good; it is not good again."""
        with self.lock:
            found = next((one for one in self._tickets if secrets.compare_digest(one.encode(), ticket.encode())), None)
            self._tickets.discard(found or "")
        return found is not None

    def _looked(self) -> tuple[object, ...]:
        """HEAD, the index and the files by their times: whether anybody else changed something."""
        root = self.review.root
        paths = (self._index, *(root / item.path for item in self.review.items()))
        return (git.root_and_head(root)[1], *(_time(path) for path in paths))

    def look(self) -> None:
        """Look again at what others have changed."""
        if self._looked() != self._there:
            self.review.refresh()
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._there = self._looked()

    def state(self) -> dict[str, Any]:
        """The list: every change with what was decided, and the causes."""
        review = self.review
        numbers: dict[str, int] = {}
        for cause in review.causes():
            numbers |= dict.fromkeys(cause.paths, cause.number)
        items: list[list[object]] = []
        for item in review.items():
            # Why it is where it is in the list, and how grave its gravest finding is.
            gravest = min(item.change.findings, key=lambda finding: finding.severity.rank, default=None)
            row = min(item.change.metrics, key=lambda row: row.verdict.rank, default=None)
            said = gravest.message if gravest else f"{row.metric}: {row.because}" if row else ""
            where = [item.path, item.verdict.rank, item.state, item.seen, numbers.get(item.path, 0)]
            items.append([*where, said, gravest.severity.value if gravest else None])
        return {
            "version": self.version,
            "answer": review.diff.answer(),
            "root": review.diff.root,
            "causes": [
                [cause.number, cause.title, cause.severity and cause.severity.value] for cause in review.causes()
            ],
            "items": items,
        }

    def decide(self, asked: _Asked) -> str:
        """Do what was asked for; one sentence about it."""
        review = self.review
        match asked.verb:
            case "refresh":
                review.refresh()
                said = "Looked again"
            case "undo":
                undone = review.undo()
                said = f"Undone, {undone.verb} before: {self._named(undone)}" if undone else "There is nothing to undo"
            case "accept":
                done = review.accept(asked.paths, metric=asked.metric, reason=asked.reason, seen=asked.seen)
                said = f"Accepted, and staged: {self._named(done)}"
            case "reject":
                done = review.reject(asked.paths, metric=asked.metric, seen=asked.seen)
                said = f"Rejected, and put back: {self._named(done)}"
        self._changed()
        return said

    def _named(self, done: Decision) -> str:
        named = few([short_path(path, self.review.diff.root) for path in done.paths], 1) or "nothing, it was so already"
        return f"{done.metric} of {named}" if done.metric else named

    def page(self) -> str:
        """The page with the list; everything else is asked for."""
        state = self.state()
        data = {**state, "verdicts": [verdict.value for verdict in Verdict], "token": self.page_token}
        top = head(state["answer"], about=f"Review of {self.review.root}: HEAD and the working tree", tools=_TOOLS)
        body = fill(asset("karat.reviews", "page/body.html"), {"top": top, "data": script_json(data)})
        scripts = [asset("karat.diffs.report", f"page/{name}.js") for name in ("words", "plot")]
        style = asset("karat.diffs.report", "page/page.css") + asset("karat.reviews", "page/review.css")
        script = "\n".join([*scripts, asset("karat.reviews", "page/review.js")])
        return page(title=state["answer"], body=body, style=style, script=script, connects=True)


def in_background(review: Review) -> ReviewServer:
    """A server beside what else this process does, until it ends."""
    server = ReviewServer(review)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def shown(address: str) -> bool:
    """Open a browser that has a window; one in the terminal would take it over."""
    import webbrowser

    graphical = os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} or sys.platform in {"darwin", "win32"}
    return bool(graphical) and webbrowser.open(address)


def _time(path: Any) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class _Handler(BaseHTTPRequestHandler):
    """One request: who asks is settled before what."""

    server: ReviewServer
    protocol_version = "HTTP/1.1"
    timeout = 60
    server_version, sys_version = "karat", ""

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        words = {name: values[0] for name, values in parse_qs(asked.query).items()}
        if not self._is_ours():
            return
        if asked.path == "/" and "token" in words:
            if not self._is_known() and not self.server.redeem(words["token"]):
                self._refuse("this address was used already, or is none: run karat review --web again")
                return
            cookie = f"{self._cookie()}={self.server.session}; HttpOnly; SameSite=Strict; Path=/"
            self._send(HTTPStatus.SEE_OTHER, b"", "text/plain", {"Location": "/", "Set-Cookie": cookie})
        elif not self._is_known():
            self._refuse("this page belongs to whoever ran karat review --web: open the address that it printed")
        else:
            with self.server.lock:
                self._answered(asked.path, words)

    def _answered(self, path: str, words: dict[str, str]) -> None:
        server = self.server
        try:
            if path == "/":
                self._send(HTTPStatus.OK, server.page().encode("utf-8", "backslashreplace"), "text/html; charset=utf-8")
            elif path == "/state":
                server.look()
                known = words.get("version") == str(server.version)
                self._json({"version": server.version} if known else server.state())
            elif path == "/golden":
                from karat.reviews.details import details

                self._json(details(server.review, json.loads(words.get("path", '""'))))
            else:
                self._refuse(f"there is no {path}", HTTPStatus.NOT_FOUND)
        except (KaratError, ValueError) as error:
            self._refuse(str(error), HTTPStatus.BAD_REQUEST)

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length", "")
        body = self.rfile.read(int(size)) if size.isdecimal() and int(size) <= MOST_BYTES else None
        token = self.headers.get("X-Karat-Token", "")
        if body is None:
            self.close_connection = True
        if not self._is_ours():
            return
        fits = self.headers.get("Origin") == f"http://{self.server.host}" and self.path == "/decide"
        fits = fits and self.headers.get_content_type() == "application/json" and body is not None
        if not (fits and self._is_known() and secrets.compare_digest(token.encode(), self.server.page_token.encode())):
            self._refuse("a decision comes from the page of this review, and from nowhere else")
            return
        with self.server.lock:
            try:
                asked = msgspec.convert(json.loads(body or b""), _Asked)
                self._json({"said": self.server.decide(asked), **self.server.state()})
            except NeedsReason as error:
                failing = [[f.kind, f.path, f.metric, f.message] for f in error.failing]
                self._json({"error": str(error), "failing": failing}, HTTPStatus.UNPROCESSABLE_ENTITY)
            except Stale as error:
                self.server.review.refresh()
                self.server._changed()  # noqa: SLF001 - its own
                self._json({"error": f"{error}: look at it again", **self.server.state()}, HTTPStatus.CONFLICT)
            except (KaratError, ValueError) as error:
                self._refuse(str(error), HTTPStatus.BAD_REQUEST)

    def _is_ours(self) -> bool:
        """Whether it is asked of this host, by this site; a name that somebody bent to loopback is not ours."""
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "none")
        fits = self.headers.get("Host") == self.server.host and site in {"none", "same-origin"}
        if not fits or origin not in {None, f"http://{self.server.host}"}:
            self._refuse(f"expected a request of http://{self.server.host} itself")
            return False
        return True

    def _is_known(self) -> bool:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie())
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self.server.session.encode())

    def _cookie(self) -> str:
        return f"karat-review-{self.server.server_port}"  # cookies do not know ports

    def _refuse(self, why: str, status: HTTPStatus = HTTPStatus.FORBIDDEN) -> None:
        if self.headers.get("Accept", "").startswith("text/html"):
            made = f"<!doctype html><title>karat review</title><p>{text(why)}</p>"
            self._send(status, made.encode(), "text/html; charset=utf-8")
        else:
            self._json({"error": why}, status)

    def _json(self, value: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(status, script_json(value).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        # The page's own policy is in it: a header cannot know the digest of its script.
        is_page = kind.startswith("text/html") and status == HTTPStatus.OK
        policy = {} if is_page else {"Content-Security-Policy": _POLICY}
        length = {"Content-Length": str(len(body)), "Content-Type": kind}
        for name, value in (_HEADERS | policy | length | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: a log would hold the token."""
