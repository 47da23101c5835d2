"""GitLab's REST endpoints for merge requests, their approvals, versions and notes, groups and people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from factories.forge_gitlab import GitLab, GitLabMergeRequest, GitLabProject
from factories.http_host import Request, Response

ROOT = "/api/v4"
Page = Callable[[Request, Sequence[Any]], Response]


class Refused(Exception):  # noqa: N818 - an answer, not a bug
    """A request that gets GitLab's error body."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class GitLabReviewsApi:
    """The part of the API that `karat policy approvals` asks."""

    def __init__(self, lab: GitLab, page: Page) -> None:
        self._lab = lab
        self._page = page
        home = r"merge_requests/(?P<iid>\d+)"
        self.routes: list[tuple[str, Callable[..., Response]]] = [
            (home, self._request),
            (rf"{home}/approvals", self._approvals),
            (rf"{home}/versions", self._versions),
            (rf"{home}/notes", self._notes),
            (rf"{home}/notes/(?P<note>\d+)", self._note),
            (rf"{home}/reviewers", self._reviewers),
            (rf"{home}/commits", self._commits),
            (r"members", self._project_members),
        ]

    def elsewhere(self, request: Request, *, known: bool) -> Response | None:
        """Groups and people, which belong to no project."""
        if request.path == f"{ROOT}/user" and known:
            return _json(self._user(self._lab.account))
        if group := re.fullmatch(rf"{ROOT}/groups/([^/]+)/members", request.path):
            members = self._lab.groups.get(unquote(group[1]))
            if members is None or not known:
                raise Refused(404, "404 Group Not Found")
            return self._page(request, [self._member(name, 30) for name in members])
        if person := re.fullmatch(rf"{ROOT}/users/(\d+)", request.path):
            names = {number: name for name, number in self._lab.users.items()}
            return _json(self._user(names[int(person[1])]))
        return None

    def _request(self, request: Request, project: GitLabProject, iid: str) -> Response:  # noqa: ARG002 - endpoints are called alike
        made = _of(project, iid)
        return _json(
            {
                "id": 9000 + made.iid,
                "iid": made.iid,
                "project_id": project.id,
                "title": "Bump the image",
                "state": "opened",
                "sha": made.head,
                "author": self._basic(made.author),
                "diff_refs": {"base_sha": "0" * 40, "head_sha": made.head, "start_sha": "0" * 40},
            }
        )

    def _approvals(self, request: Request, project: GitLabProject, iid: str) -> Response:  # noqa: ARG002
        made = _of(project, iid)
        shown = []
        for one in made.approvals:
            entry: dict[str, Any] = {"user": self._basic(one.username)}
            if made.tells_when:
                entry["approved_at"] = _when(one.when)
            shown.append(entry)
        return _json({"id": 9000 + made.iid, "iid": made.iid, "approved_by": shown})

    def _versions(self, request: Request, project: GitLabProject, iid: str) -> Response:
        versions = [
            {
                "id": 100 + i,
                "head_commit_sha": sha,
                "base_commit_sha": "0" * 40,
                "start_commit_sha": "0" * 40,
                "created_at": _when(when),
                "state": "collected",
            }
            for i, (sha, when) in enumerate(_of(project, iid).versions)
        ]
        return self._page(request, versions[::-1])

    def _note(self, request: Request, project: GitLabProject, iid: str, note: str) -> Response:
        made = _of(project, iid)
        who, _ = made.comments[int(note)]
        made.comments[int(note)] = (who, str(json.loads(request.body)["body"]))
        return _json(self._written(made, int(note)))

    def _written(self, made: GitLabMergeRequest, number: int) -> dict[str, Any]:
        who, body = made.comments[number]
        return {"id": number, "body": body, "system": False, "author": self._basic(who), "created_at": _when(4e9)}

    def _notes(self, request: Request, project: GitLabProject, iid: str) -> Response:
        if request.method == "POST":
            made = _of(project, iid)
            number = 900 + len(made.comments)
            made.comments[number] = (self._lab.account, str(json.loads(request.body)["body"]))
            return _json(self._written(made, number))
        notes = [
            {"id": 700 + i, "body": body, "system": True, "author": self._basic(who), "created_at": _when(when)}
            for i, (who, body, when) in enumerate(_of(project, iid).notes)
        ]
        # What a person writes is no system note, whatever it says.
        made_up = {"id": 1, "body": "approved this merge request", "system": False}
        first = made_up | {"author": self._basic("mallory"), "created_at": _when(4e9)}
        ordered = [first, *notes, *(self._written(_of(project, iid), number) for number in _of(project, iid).comments)]
        return self._page(request, ordered if request.query.get("sort") == "asc" else ordered[::-1])

    def _reviewers(self, request: Request, project: GitLabProject, iid: str) -> Response:
        states = _of(project, iid).states.items()
        shown = [{"user": self._basic(who), "state": state} for who, state in states]
        return self._page(request, shown)

    def _commits(self, request: Request, project: GitLabProject, iid: str) -> Response:
        shown = [
            {
                "id": one.sha,
                "short_id": one.sha[:8],
                "title": "x",
                "message": one.message,
                "author_name": "A",
                "author_email": one.author_email,
                "committer_name": "C",
                "committer_email": one.committer_email,
                "parent_ids": ["f" * 40] * one.parents,
            }
            for one in _of(project, iid).commits
        ]
        return self._page(request, shown)

    def _project_members(self, request: Request, project: GitLabProject) -> Response:
        members = project.members.items()
        return self._page(request, [self._member(name, level) for name, level in members])

    def _member(self, username: str, level: int) -> dict[str, Any]:
        return {**self._basic(username), "access_level": level, "expires_at": None}

    def _basic(self, username: str) -> dict[str, Any]:
        number = self._lab.user_id(username)
        return {"id": number, "username": username, "name": username, "state": "active"}

    def _user(self, username: str) -> dict[str, Any]:
        return {**self._basic(username), "public_email": self._lab.emails.get(username, "")}


def _of(project: GitLabProject, iid: str) -> GitLabMergeRequest:
    made = project.merge_requests.get(int(iid))
    if made is None:
        raise Refused(404, "404 Not found")
    return made


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _json(content: Any) -> Response:
    headers = {"content-type": "application/json"}
    return Response(headers=headers, body=json.dumps(content).encode())
