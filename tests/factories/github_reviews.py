"""GitHub's REST endpoints for pull requests, their reviews and commits, teams and people."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from factories import github_bodies as bodies
from factories.forge_github import EPOCH, HOUR, GitHub, GitHubCommit, GitHubPull, GitHubRepository, GitHubReview
from factories.http_host import Request, Response


class Refused(Exception):  # noqa: N818 - an answer, not a bug
    """A request that gets GitHub's error body."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class GitHubReviewsApi:
    """The part of the API that `karat policy approvals` asks."""

    def __init__(self, hub: GitHub, url: Callable[[], str]) -> None:
        self._hub = hub
        self._url = url

    def pull(self, request: Request, repository: GitHubRepository, number: str) -> Response:  # noqa: ARG002 - endpoints are called alike
        return _json(_pull(self._url(), repository, _of(repository, number)))

    def reviews(self, request: Request, repository: GitHubRepository, number: str) -> Response:
        pull = _of(repository, number)
        shown = [_review(self._url(), repository, pull, one) for one in pull.reviews]
        return self._page(request, shown)

    def commits(self, request: Request, repository: GitHubRepository, number: str) -> Response:
        shown = [_commit(self._url(), repository, one) for one in _of(repository, number).commits]
        return self._page(request, shown[:250])

    def events(self, request: Request, repository: GitHubRepository, number: str) -> Response:
        pull = _of(repository, number)
        kinds = [("base_ref_changed", when) for when in pull.retargeted] + [("labeled", EPOCH + 9 * HOUR)]
        shown = [_event(self._url(), repository, pull, *each, i) for i, each in enumerate(kinds)]
        return self._page(request, shown)

    def elsewhere(self, request: Request, *, known: bool) -> Response | None:
        """Teams and people, which belong to no repository."""
        if team := re.fullmatch(r"/orgs/([^/]+)/teams/([^/]+)/members", request.path):
            members = self._hub.teams.get(f"{team[1]}/{team[2]}".lower())
            if members is None or not known:
                raise Refused(404, "Not Found")
            return self._page(request, [bodies.user(self._url(), login) for login in members])
        if person := re.fullmatch(r"/users/([^/]+)", request.path):
            return _json(_public(self._url(), person[1], self._hub.emails.get(person[1])))
        return None

    def _page(self, request: Request, items: Sequence[Any]) -> Response:
        query = request.query
        size = min(100, max(1, int(query.get("per_page", "30"))))
        page = max(1, int(query.get("page", "1")))
        response = _json(items[(page - 1) * size : page * size])
        if page * size < len(items):
            following = urlencode(query | {"page": str(page + 1)})
            response.headers["link"] = f'<{self._url()}{request.path}?{following}>; rel="next"'
        return response


def _of(repository: GitHubRepository, number: str) -> GitHubPull:
    pull = repository.pulls.get(int(number))
    if pull is None:
        raise Refused(404, "Not Found")
    return pull


def _pull(api: str, repository: GitHubRepository, pull: GitHubPull) -> dict[str, Any]:
    home = f"{api}/repos/{repository.full_name}/pulls/{pull.number}"
    issue = home.replace("/pulls/", "/issues/")
    statuses = f"{api}/repos/{repository.full_name}/statuses/{pull.head}"
    places = {
        "self": home,
        "html": home,
        "issue": issue,
        "comments": f"{issue}/comments",
        "statuses": statuses,
        "review_comments": f"{home}/comments",
        "review_comment": f"{home}/comments{{/number}}",
        "commits": f"{home}/commits",
    }
    return {
        "url": home,
        "id": 1000 + pull.number,
        "node_id": _node("PullRequest", pull.number),
        "html_url": home,
        "diff_url": f"{home}.diff",
        "patch_url": f"{home}.patch",
        "issue_url": issue,
        "commits_url": places["commits"],
        "review_comments_url": places["review_comments"],
        "review_comment_url": places["review_comment"],
        "comments_url": places["comments"],
        "statuses_url": statuses,
        "number": pull.number,
        "state": "open",
        "locked": False,
        "title": "Bump the image",
        "user": bodies.user(api, pull.author),
        "body": None,
        "labels": [],
        "milestone": None,
        "created_at": bodies.when(EPOCH),
        "updated_at": bodies.when(EPOCH + HOUR),
        "closed_at": None,
        "merged_at": None,
        "merge_commit_sha": pull.merge,
        "assignee": None,
        "head": _end(api, repository, "topic", pull.head),
        "base": _end(api, repository, "main", "0" * 40),
        "_links": {name: {"href": url} for name, url in places.items()},
        "author_association": "CONTRIBUTOR",
        "auto_merge": None,
        "merged": False,
        "mergeable": True,
        "mergeable_state": "clean",
        "merged_by": None,
        "comments": 0,
        "review_comments": 0,
        "maintainer_can_modify": True,
        "commits": len(pull.commits),
        "additions": 1,
        "deletions": 0,
        "changed_files": 1,
    }


def _end(api: str, repository: GitHubRepository, branch: str, sha: str) -> dict[str, Any]:
    owner = repository.full_name.split("/")[0]
    whole = bodies.repository(api, repository)
    more = {
        **dict.fromkeys(
            (
                "forks",
                "forks_count",
                "stargazers_count",
                "watchers",
                "watchers_count",
                "size",
                "open_issues",
                "open_issues_count",
            ),
            0,
        ),
        **dict.fromkeys(("has_issues", "has_projects", "has_wiki", "has_downloads"), True),
        **dict.fromkeys(("has_pages", "archived", "disabled"), False),
        **dict.fromkeys(("homepage", "language", "license", "mirror_url"), None),
        **dict.fromkeys(("pushed_at", "created_at", "updated_at"), bodies.when(EPOCH)),
        **dict.fromkeys(("clone_url", "git_url", "ssh_url", "svn_url"), f"{whole['html_url']}.git"),
        "default_branch": "main",
    }
    return {
        "label": f"{owner}:{branch}",
        "ref": branch,
        "sha": sha,
        "repo": whole | more,
        "user": bodies.user(api, owner),
    }


def _review(api: str, repository: GitHubRepository, pull: GitHubPull, review: GitHubReview) -> dict[str, Any]:
    home = f"{api}/repos/{repository.full_name}/pulls/{pull.number}"
    body = {
        "id": review.id,
        "node_id": _node("PullRequestReview", review.id),
        "user": None if review.login is None else bodies.user(api, review.login),
        "body": "",
        "state": review.state,
        "html_url": f"{home}#pullrequestreview-{review.id}",
        "pull_request_url": home,
        "author_association": "MEMBER",
        "_links": {"html": {"href": home}, "pull_request": {"href": home}},
        "commit_id": review.commit,
    }
    if review.submitted is not None:
        body["submitted_at"] = bodies.when(review.submitted)
    return body


def _event(
    api: str, repository: GitHubRepository, pull: GitHubPull, kind: str, when: float, number: int
) -> dict[str, Any]:
    return {
        "id": 500 + number,
        "node_id": _node("IssueEvent", number),
        "url": f"{api}/repos/{repository.full_name}/issues/events/{500 + number}",
        "actor": bodies.user(api, pull.author),
        "event": kind,
        "commit_id": None,
        "commit_url": None,
        "created_at": bodies.when(when),
        "performed_via_github_app": None,
        **({"label": {"name": "bump", "color": "ededed"}} if kind == "labeled" else {}),
    }


def _commit(api: str, repository: GitHubRepository, commit: GitHubCommit) -> dict[str, Any]:
    home = f"{api}/repos/{repository.full_name}"
    parents = [
        hashlib.sha1(f"{commit.sha}{i}".encode(), usedforsecurity=False).hexdigest() for i in range(commit.parents)
    ]
    people = {
        "author": {"name": "A", "email": commit.author_email, "date": bodies.when(EPOCH)},
        "committer": {"name": "C", "email": commit.committer_email, "date": bodies.when(EPOCH)},
    }
    return {
        "sha": commit.sha,
        "node_id": _node("Commit", commit.sha),
        "url": f"{home}/commits/{commit.sha}",
        "html_url": f"{home}/commit/{commit.sha}",
        "comments_url": f"{home}/commits/{commit.sha}/comments",
        "commit": {
            **people,
            "url": f"{home}/git/commits/{commit.sha}",
            "message": commit.message,
            "comment_count": 0,
            "tree": {"sha": "1" * 40, "url": f"{home}/git/trees/{'1' * 40}"},
        },
        "author": None if commit.author is None else bodies.user(api, commit.author),
        "committer": None if commit.committer is None else bodies.user(api, commit.committer),
        "parents": [{"sha": sha, "url": f"{home}/commits/{sha}"} for sha in parents],
    }


def _public(api: str, login: str, email: str | None) -> dict[str, Any]:
    return {
        **bodies.user(api, login),
        **dict.fromkeys(("bio", "blog", "company", "hireable", "location", "name"), None),
        "blog": "",
        "email": email,
        **dict.fromkeys(("followers", "following", "public_gists", "public_repos"), 0),
        "created_at": bodies.when(EPOCH),
        "updated_at": bodies.when(EPOCH),
    }


def _node(kind: str, of: int | str) -> str:
    return base64.b64encode(f"{kind}{of}".encode()).decode()


def _json(content: Any) -> Response:
    headers = {"content-type": "application/json; charset=utf-8"}
    return Response(headers=headers, body=json.dumps(content).encode())
