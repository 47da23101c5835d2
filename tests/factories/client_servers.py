"""Servers that a client talks to."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from factories.faults import Faults
from factories.http_host import Host, Request, Response
from karat.net.client import Token
from karat.system.secrets import Secret

PLANTED = "ghp_PlantedTokenThatNobodyMaySee0123456789"
TOKEN = Token(secret=Secret(PLANTED), header="Authorization", prefix="Bearer ", found_in="GITHUB_TOKEN")


class Servers:
    """Two hosts that answer as a test says, and log what they were sent."""

    def __init__(self) -> None:
        self.log: list[Request] = []
        self.pages: dict[str, Callable[[Request], Response]] = {}
        self.api = Host("api", self._answer, Faults(), self.log)
        self.other = Host("other", self._answer, Faults(), self.log)
        self.api.start()
        self.other.start()

    def _answer(self, request: Request) -> Response:
        page = self.pages.get(request.path)
        return page(request) if page else Response(status=404)

    def put(self, path: str, *responses: Response) -> None:
        """Answers in turn; the last one stays."""
        left = list(responses)
        self.pages[path] = lambda _: left.pop(0) if len(left) > 1 else left[0]

    def stop(self) -> None:
        self.api.stop()
        self.other.stop()


def answer(content: Any, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(body=json.dumps(content).encode(), headers=named)
