"""GitHub's REST endpoints for Actions, over what `forge_github` was told."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from factories import github_bodies as bodies
from factories.forge_github import GitHub, GitHubRepository, GitHubRun
from factories.github_comments import GitHubCommentsApi
from factories.github_reviews import GitHubReviewsApi, Refused
from factories.http_host import Request, Response

_DOCS = "https://docs.github.com/rest"


class GitHubApi:
    """Answers requests as api.github.com does."""

    def __init__(self, hub: GitHub, url: Callable[[], str]) -> None:
        self._hub = hub
        self._url = url
        self._lock = threading.Lock()
        self._request = 0
        self._reviews = GitHubReviewsApi(hub, url)
        self._comments = GitHubCommentsApi(hub, url)
        numbered = r"(?P<{}>\d+)"
        run = rf"actions/runs/{numbered.format('run_id')}"
        artifact = rf"actions/artifacts/{numbered.format('artifact_id')}"
        self._routes: list[tuple[str, Callable[..., Response]]] = [
            (r"actions/runs", self._runs),
            (r"actions/workflows/(?P<workflow>[^/]+)/runs", self._workflow_runs),
            (run, self._run),
            (rf"{run}/attempts/{numbered.format('attempt')}", self._run),
            (rf"{run}/jobs", self._jobs),
            (rf"{run}/attempts/{numbered.format('attempt')}/jobs", self._attempt_jobs),
            (rf"{run}/artifacts", self._artifacts),
            (rf"actions/jobs/{numbered.format('job_id')}", self._job),
            (r"commits/(?P<ref>[^/]+)", self._commit),
            (artifact, self._artifact),
            (rf"{artifact}/zip", self._download),
            (r"pulls/(?P<number>\d+)", self._reviews.pull),
            (r"pulls/(?P<number>\d+)/reviews", self._reviews.reviews),
            (r"pulls/(?P<number>\d+)/commits", self._reviews.commits),
            (r"issues/(?P<number>\d+)/events", self._reviews.events),
            (r"issues/(?P<number>\d+)/comments", self._comments.on_issue),
            (r"issues/comments/(?P<comment>\d+)", self._comments.one),
        ]

    def answer(self, request: Request) -> Response:
        try:
            self._admit(request)
            response = self._route(request)
        except Refused as refused:
            response = _json(
                {"message": str(refused), "documentation_url": _DOCS, "status": str(refused.status)},
                status=refused.status,
            )
        if response.status == 200:
            response = _conditional(request, response)
        response.headers |= self._accounting(counts=response.status != 304)
        return response

    def _admit(self, request: Request) -> None:
        """Who asks? Wrong credentials are refused even where none are needed."""
        if not request.headers.get("user-agent"):
            raise Refused(403, "Request forbidden: it needs a User-Agent header.")
        if "authorization" in request.headers and not self._known(request):
            raise Refused(401, "Bad credentials")

    def _known(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() in {"bearer", "token"} and token in self._hub.tokens

    def _route(self, request: Request) -> Response:
        if (answer := self._reviews.elsewhere(request, known=self._known(request))) is not None:
            return answer
        if request.path == "/user":
            return self._comments.me(known=self._known(request))
        place = re.fullmatch(r"/(?:repos/(?P<name>[^/]+/[^/]+)|repositories/(?P<id>\d+))/(?P<rest>.+)", request.path)
        if place is None or (request.method not in {"GET", "HEAD"} and not place["rest"].startswith("issues/")):
            raise Refused(404, "Not Found")
        repository = self._repository(place["name"], place["id"])
        if repository is None or (repository.private and not self._known(request)):
            raise Refused(404, "Not Found")
        for pattern, endpoint in self._routes:
            found = re.fullmatch(pattern, place["rest"])
            if found is not None:
                return endpoint(request, repository, **found.groupdict())
        raise Refused(404, "Not Found")

    def _repository(self, name: str | None, number: str | None) -> GitHubRepository | None:
        if name is not None:
            return self._hub.repositories.get(name.lower())
        every = self._hub.repositories.values()
        return next((one for one in every if number is not None and one.id == int(number)), None)

    def _accounting(self, *, counts: bool) -> dict[str, str]:
        """Headers of every answer; what has not changed costs nothing."""
        with self._lock:
            self._hub.used += counts
            self._request += 1
            used, number = self._hub.used, self._request
        return {
            "x-github-request-id": f"F0F0:{number:04X}",
            "x-github-media-type": "github.v3; format=json",
            "x-github-api-version-selected": "2022-11-28",
            "x-ratelimit-limit": str(self._hub.limit),
            "x-ratelimit-remaining": str(max(0, self._hub.limit - used)),
            "x-ratelimit-used": str(used),
            "x-ratelimit-resource": "core",
            "x-ratelimit-reset": str(int(time.time()) + 3600),
        }

    def _runs(self, request: Request, repository: GitHubRepository) -> Response:
        return self._list_runs(request, repository, list(repository.runs.values()))

    def _workflow_runs(self, request: Request, repository: GitHubRepository, workflow: str) -> Response:
        runs = list(repository.runs.values())
        of_it = [run for run in runs if workflow in {str(run.workflow_id), run.workflow_file}]
        if not of_it:
            raise Refused(404, "Not Found")
        return self._list_runs(request, repository, of_it)

    def _list_runs(self, request: Request, repository: GitHubRepository, runs: list[GitHubRun]) -> Response:
        query = request.query
        kept = [
            run
            for run in runs
            if query.get("head_sha") in {None, run.sha}
            and query.get("branch") in {None, run.branch}
            and query.get("event") in {None, run.event}
            and query.get("status") in {None, run.status, run.conclusion}
        ]
        kept.sort(key=lambda run: (-run.created, -run.id))
        shown = [bodies.run(self._url(), run, run.attempts) for run in kept]
        return self._page(request, repository, "workflow_runs", shown)

    def _run(
        self,
        request: Request,  # noqa: ARG002 - endpoints are called alike
        repository: GitHubRepository,
        run_id: str,
        attempt: str | None = None,
    ) -> Response:
        run = _run(repository, run_id)
        number = run.attempts if attempt is None else int(attempt)
        if not 1 <= number <= run.attempts:
            raise Refused(404, "Not Found")
        return _json(bodies.run(self._url(), run, number))

    def _jobs(self, request: Request, repository: GitHubRepository, run_id: str) -> Response:
        run = _run(repository, run_id)
        every = request.query.get("filter", "latest") == "all"
        return self._list_jobs(request, run, None if every else run.attempts)

    def _attempt_jobs(self, request: Request, repository: GitHubRepository, run_id: str, attempt: str) -> Response:
        run = _run(repository, run_id)
        if not 1 <= int(attempt) <= run.attempts:
            raise Refused(404, "Not Found")
        return self._list_jobs(request, run, int(attempt))

    def _list_jobs(self, request: Request, run: GitHubRun, attempt: int | None) -> Response:
        shown = [bodies.job(self._url(), run, job) for job in run.jobs_of(attempt)]
        return self._page(request, run.repository, "jobs", shown)

    def _job(
        self,
        request: Request,  # noqa: ARG002 - endpoints are called alike
        repository: GitHubRepository,
        job_id: str,
    ) -> Response:
        for run in repository.runs.values():
            for job in run.jobs:
                if job.id == int(job_id):
                    return _json(bodies.job(self._url(), run, job))
        raise Refused(404, "Not Found")

    def _commit(
        self,
        request: Request,  # noqa: ARG002 - endpoints are called alike
        repository: GitHubRepository,
        ref: str,
    ) -> Response:
        """A commit by the beginning of its SHA, or by a branch."""
        runs = repository.runs.values()
        found = {run.sha: run for run in runs if run.sha.startswith(ref) or run.branch == ref}
        if len(found) != 1:
            raise Refused(422, f"No commit found for SHA: {ref}")
        return _json(bodies.commit(self._url(), next(iter(found.values()))))

    def _artifacts(self, request: Request, repository: GitHubRepository, run_id: str) -> Response:
        run = _run(repository, run_id)
        name = request.query.get("name")
        kept = [one for one in run.disorder(run.artifacts) if name in {None, one.name}]
        shown = [bodies.artifact(self._url(), one) for one in kept]
        return self._page(request, repository, "artifacts", shown)

    def _artifact(
        self,
        request: Request,  # noqa: ARG002 - endpoints are called alike
        repository: GitHubRepository,
        artifact_id: str,
    ) -> Response:
        for run in repository.runs.values():
            for one in run.artifacts:
                if one.id == int(artifact_id):
                    return _json(bodies.artifact(self._url(), one))
        raise Refused(404, "Not Found")

    def _download(self, request: Request, repository: GitHubRepository, artifact_id: str) -> Response:
        if not self._hub.anonymous_downloads and not self._known(request):
            raise Refused(401, "Requires authentication")
        for run in repository.runs.values():
            for one in run.artifacts:
                if one.id == int(artifact_id):
                    if one.expired:
                        raise Refused(410, "Artifact has expired")
                    location = self._hub.blobs.signed_url(one.path)
                    return Response(status=302, headers={"location": location})
        raise Refused(404, "Not Found")

    def _page(self, request: Request, repository: GitHubRepository, key: str, items: Sequence[Any]) -> Response:
        """One page of a list, and where the others are: under the repository's number, as GitHub has it."""
        query = request.query
        size = min(100, max(1, _number(query.get("per_page"), 30)))
        page = max(1, _number(query.get("page"), 1))
        last = max(1, -(-len(items) // size))
        response = _json({"total_count": len(items), key: items[(page - 1) * size : page * size]})
        rest = request.path.partition("/actions/")[2]
        base = f"{self._url()}/repositories/{repository.id}/actions/{rest}"
        places = {"prev": page - 1, "next": page + 1, "last": last, "first": 1}
        if page >= last:
            del places["next"], places["last"]
        if page == 1:
            del places["prev"], places["first"]
        links = [f'<{base}?{urlencode(query | {"page": str(number)})}>; rel="{rel}"' for rel, number in places.items()]
        if links:
            response.headers["link"] = ", ".join(links)
        return response


def _run(repository: GitHubRepository, run_id: str) -> GitHubRun:
    run = repository.runs.get(int(run_id))
    if run is None:
        raise Refused(404, "Not Found")
    return run


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdecimal() else default


def _json(content: Any, *, status: int = 200) -> Response:
    headers = {"content-type": "application/json; charset=utf-8"}
    return Response(status=status, headers=headers, body=json.dumps(content).encode())


def _conditional(request: Request, response: Response) -> Response:
    """304 for who has it already."""
    etag = f'W/"{hashlib.sha256(response.body).hexdigest()}"'
    response.headers |= {"etag": etag, "cache-control": "private, max-age=60, s-maxage=60"}
    known = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
    if etag in known or etag.removeprefix("W/") in known:
        return Response(status=304, headers=dict(response.headers))
    return response
