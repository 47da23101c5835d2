"""A forge on loopback that behaves like GitHub and GitLab: an API host, a blob host, and a public
bucket that neither of them lists.

    with Forge() as forge:
        run = forge.github.run("owner/name", run_id=123, attempts=2)
        run.job("test (h100)", attempt=2, conclusion="failure", labels=["h100"])
        run.artifact("logs-gpt", {"golden_values.json": b"{}"})
        forge.faults.cut(r"/logs-gpt", after=1000)
        ...ask forge.github_url with forge.github.token...
        assert forge.seen(r"/zip$")

Patterns are regular expressions, searched in path and query. Blobs live under
`/actions-results/RUN/artifacts/ID/NAME.zip` and `/gitlab-artifacts/JOB/artifacts.zip`.
"""

from __future__ import annotations

import re
from typing import Self

from factories.blob_host import BlobHost, PublicBucket
from factories.faults import Faults
from factories.forge_github import GitHub
from factories.forge_gitlab import GitLab
from factories.github_api import GitHubApi
from factories.gitlab_api import ROOT, GitLabApi
from factories.http_host import Host, Request, Response


class Forge:
    """The hosts, what they know, what they do wrong, and what they were asked."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.requests: list[Request] = []
        self.blobs = BlobHost(self.faults, self.requests)
        self.bucket = PublicBucket(self.faults, self.requests)
        self.github = GitHub(self.blobs)
        self.gitlab = GitLab(self.blobs)
        self.api = Host("api", self._answer, self.faults, self.requests)
        self._github = GitHubApi(self.github, lambda: self.api.url)
        self._gitlab = GitLabApi(self.gitlab, lambda: self.api.url)

    def __enter__(self) -> Self:
        self.api.start()
        self.blobs.host.start()
        self.bucket.host.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.api.stop()
        self.blobs.host.stop()
        self.bucket.host.stop()

    @property
    def github_url(self) -> str:
        """For GITHUB_API_URL."""
        return self.api.url

    @property
    def gitlab_url(self) -> str:
        """For CI_API_V4_URL."""
        return f"{self.api.url}{ROOT}"

    @property
    def latency(self) -> float:
        """Seconds before every answer of both hosts."""
        return self.api.latency

    @latency.setter
    def latency(self, seconds: float) -> None:
        self.api.latency = self.blobs.host.latency = seconds

    def seen(self, pattern: str = "", *, host: str | None = None) -> list[Request]:
        """The requests so far whose path and query match."""
        return [
            request
            for request in list(self.requests)
            if host in {None, request.host} and re.search(pattern, request.target)
        ]

    def _answer(self, request: Request) -> Response:
        gitlab = request.path.startswith(f"{ROOT}/")
        return self._gitlab.answer(request) if gitlab else self._github.answer(request)
