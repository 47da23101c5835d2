"""GitHub's REST endpoints for comments of issues and pull requests, and for who asks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from factories import github_bodies as bodies
from factories.forge_github import GitHub, GitHubIssueComment, GitHubRepository
from factories.github_reviews import Refused
from factories.http_host import Request, Response

LARGEST = 65_536


class GitHubCommentsApi:
    """What `karat comment` asks for."""

    def __init__(self, hub: GitHub, url: Callable[[], str]) -> None:
        self._hub = hub
        self._url = url

    def me(self, *, known: bool) -> Response:
        """A workflow's token belongs to an installation, which is nobody."""
        if not known:
            raise Refused(401, "Requires authentication")
        if self._hub.account is None:
            raise Refused(403, "Resource not accessible by integration")
        return _json(bodies.user(self._url(), self._hub.account))

    def on_issue(self, request: Request, repository: GitHubRepository, number: str) -> Response:
        if int(number) not in repository.pulls:
            raise Refused(404, "Not Found")
        if request.method == "POST":
            body = self._body(request)
            login = self._hub.account or "github-actions[bot]"
            made = GitHubIssueComment(id=1 + len(repository.comments), number=int(number), login=login, body=body)
            repository.comments.append(made)
            return _json(self._shown(repository, made), status=201)
        mine = [one for one in repository.comments if one.number == int(number)]
        size, page = int(request.query.get("per_page", "30")), int(request.query.get("page", "1"))
        response = _json([self._shown(repository, one) for one in mine[(page - 1) * size : page * size]])
        if page * size < len(mine):
            place = f"{self._url()}{request.path}?per_page={size}&page={page + 1}"
            response.headers["link"] = f'<{place}>; rel="next"'
        return response

    def one(self, request: Request, repository: GitHubRepository, comment: str) -> Response:
        found = next((one for one in repository.comments if one.id == int(comment)), None)
        if found is None:
            raise Refused(404, "Not Found")
        if request.method == "PATCH":
            found.body = self._body(request)
        return _json(self._shown(repository, found))

    def _body(self, request: Request) -> str:
        if self._hub.reads_only:
            raise Refused(403, "Resource not accessible by integration")
        body = str(json.loads(request.body)["body"])
        if len(body) > LARGEST:
            raise Refused(422, "Validation Failed: body is too long (maximum is 65536 characters)")
        return body

    def _shown(self, repository: GitHubRepository, one: GitHubIssueComment) -> dict[str, Any]:
        home = f"{self._url()}/repos/{repository.full_name}/issues"
        return {
            "id": one.id,
            "node_id": f"IC_{one.id}",
            "url": f"{home}/comments/{one.id}",
            "issue_url": f"{home}/{one.number}",
            "html_url": f"{self._url()}/{repository.full_name}/pull/{one.number}#issuecomment-{one.id}",
            "body": one.body,
            "user": bodies.user(self._url(), one.login),
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z",
            "author_association": "NONE",
        }


def _json(content: Any, *, status: int = 200) -> Response:
    headers = {"content-type": "application/json; charset=utf-8"}
    return Response(status=status, headers=headers, body=json.dumps(content).encode())
