"""A review under way with its server, in a thread."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from karat.api import diff_options
from karat.config import load
from karat.reviews.review import Review
from karat.reviews.server import ReviewServer


@contextmanager
def served(root: Path) -> Iterator[ReviewServer]:
    """The server of a review of this repository."""
    with ReviewServer(Review(root, config := load(root), diff_options(config, provenance=True))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Client:
    """A browser without its manners: sends what it is told to."""

    def __init__(self, server: ReviewServer) -> None:
        self.server = server
        self.headers: dict[str, str] = {}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], str]:
        """Status, headers and text of an answer; a header is left out where it is empty."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=30)
        sent = {"Host": self.server.host, **self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}}
        data = b"" if body is None else json.dumps(body).encode()
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in {**sent, "Content-Length": str(len(data))}.items():
            if value:
                connection.putheader(name, value)
        connection.endheaders(data)
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read().decode()
        connection.close()
        return found

    def let_in(self) -> None:
        """Goes through the address that the server prints, and learns what its page knows."""
        _, headers, _ = self.ask("GET", self.server.address().removeprefix(f"http://{self.server.host}"))
        self.headers["Cookie"] = headers["Set-Cookie"].partition(";")[0]
        _, _, page = self.ask("GET", "/")
        token = page.partition('"token":"')[2].partition('"')[0]
        origin = f"http://{self.server.host}"
        self.headers |= {"Origin": origin, "X-Karat-Token": token, "Content-Type": "application/json"}

    def decide(self, **asked: Any) -> tuple[int, dict[str, Any]]:
        """What comes of a decision."""
        status, _, text = self.ask("POST", "/decide", asked)
        return status, json.loads(text)
