"""GitLab's approvals of a merge request, by the REST API.

GitLab knows who approves, not what they looked at. An approval is taken for one of the head if it was given after
the head was pushed: both times are the server's own, of the approval (or of the note that it left in the
discussion, on servers that do not tell) and of the newest version of the diff.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from urllib.parse import quote

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.net.addresses import gitlab_root
from karat.net.client import Advice, Client, Refused
from karat.net.retry import Retry
from karat.net.tokens import gitlab_token
from karat.policy.approvals.reviews import Request, Review, Unknown, authors_of, commit_people, moved, not_found

_PROJECT = re.compile(r"[0-9]+|[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+")
_ROLES = {"@@developer": 30, "@@maintainer": 40, "@@owner": 50}
_APPROVED, _WITHDRAWN = "approved this merge request", "unapproved this merge request"


class _User(msgspec.Struct, frozen=True):
    username: str
    id: int = 0
    public_email: str | None = None


class _Member(msgspec.Struct, frozen=True):
    username: str
    state: str = "active"
    access_level: int = 0


class _MergeRequest(msgspec.Struct, frozen=True):
    sha: str | None = None
    author: _User | None = None


class _Approval(msgspec.Struct, frozen=True):
    user: _User
    approved_at: datetime | None = None


class _Approvals(msgspec.Struct, frozen=True):
    approved_by: tuple[_Approval, ...] = ()


class _Reviewer(msgspec.Struct, frozen=True):
    user: _User
    state: str = ""


class _Version(msgspec.Struct, frozen=True):
    id: int
    head_commit_sha: str
    created_at: datetime


class _Note(msgspec.Struct, frozen=True):
    body: str
    created_at: datetime
    author: _User
    system: bool = False


class _Commit(msgspec.Struct, frozen=True):
    id: str
    message: str = ""
    author_email: str | None = None
    committer_email: str | None = None
    parent_ids: tuple[str, ...] = ()


class GitLabReviews:
    """One merge request of one project."""

    name = "gitlab"

    def __init__(
        self,
        project: str,
        number: int,
        *,
        env: Mapping[str, str],
        again: str,
        retry: Retry | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        if not _PROJECT.fullmatch(project) or set(project.split("/")) & {".", ".."}:
            raise UsageError(
                f"expected a project on GitLab, its number or GROUP/NAME, found {project!r}",
                next_command="karat policy approvals --help",
            )
        self._number, self._label = number, f"merge request {number} of {project}"
        self._project = f"/projects/{quote(project, safe='')}"
        self._home = f"{self._project}/merge_requests/{number}"
        self._numbers: dict[str, int] = {}
        # No answer is kept: an approval may be withdrawn the next moment.
        self._client = Client(
            gitlab_root(env),
            gitlab_token(env),
            headers={"Accept": "application/json"},
            retry=retry,
            connections=2,
            notice=notice,
            advice=Advice(again=again, login="export GITLAB_TOKEN=YOUR_TOKEN"),
        )

    def request(self) -> Request:
        """The merge request; raises `CannotVerify` where it moved while it was being read."""
        asked = self._merge_request()
        if asked.sha is None:
            raise CannotVerify(f"{self._label} has no head (is it empty?)", next_command=self._client.advice.again)
        reviews = tuple(self._reviews(asked.sha))
        authors = authors_of(self._authors(asked))
        if self._merge_request().sha != asked.sha:
            raise moved(self._label, self._client.advice.again)
        return Request(label=self._label, head=asked.sha, reviews=reviews, authors=authors)

    def members(self, team: str) -> frozenset[str]:
        """The direct members of `@group`, `@group/subgroup`, or those of the project in a role, `@@maintainer`."""
        role = _ROLES.get(team.lower())
        path = self._project if role else f"/groups/{quote(team.removeprefix('@'), safe='')}"
        try:
            pages = list(self._client.pages(f"{path}/members", tuple[_Member, ...], per_page=100))
        except Refused as error:
            if error.status == 404 and "/" not in team:
                return frozenset()  # the name of a person, then
            raise Unknown(f"who is in {team} could not be read (HTTP {error.status})") from error
        members = (member for page in pages for member in page if member.state == "active")
        return frozenset(m.username.lower() for m in members if role in {None, m.access_level})

    def email_of(self, login: str) -> str | None:
        number = self._numbers.get(login.lower())
        try:
            user = self._client.get(f"/users/{number}", _User) if number else None
        except Refused:
            return None
        return user.public_email.lower() if user and user.public_email else None

    def close(self) -> None:
        self._client.close()

    def _merge_request(self) -> _MergeRequest:
        try:
            return self._client.get(self._home, _MergeRequest)
        except Refused as error:
            if error.status != 404:
                raise
            raise not_found(self._label, self._client.token, f"glab mr view {self._number}") from None

    def _reviews(self, head: str) -> Iterator[Review]:
        given = self._client.get(f"{self._home}/approvals", _Approvals).approved_by
        self._numbers = {one.user.username.lower(): one.user.id for one in given}
        # When the head became the head, the last time that it did.
        pages = self._client.pages(f"{self._home}/versions", tuple[_Version, ...], per_page=100)
        newest = max((v for page in pages for v in page), key=lambda v: v.id, default=None)
        pushed = newest.created_at if newest and newest.head_commit_sha == head else None
        noted = self._noted() if any(one.approved_at is None for one in given) else {}
        for one in given:
            when = one.approved_at or noted.get(one.user.username.lower())
            yield _review(one.user.username, when, pushed)
        for reviewer in self._reviewers():
            if reviewer.state == "requested_changes":
                yield Review(reviewer=reviewer.user.username, state="changes-requested", on_head=True)

    def _noted(self) -> dict[str, datetime]:
        """When each approved, by the notes in the discussion; whoever withdrew is out again."""
        path = f"{self._home}/notes"
        pages = self._client.pages(path, tuple[_Note, ...], sort="asc", order_by="created_at", per_page=100)
        found: dict[str, datetime] = {}
        for note in (note for page in pages for note in page if note.system):
            if note.body == _APPROVED:
                found[note.author.username.lower()] = note.created_at
            elif note.body == _WITHDRAWN:
                found.pop(note.author.username.lower(), None)
        return found

    def _reviewers(self) -> tuple[_Reviewer, ...]:
        try:
            path = f"{self._home}/reviewers"
            pages = list(self._client.pages(path, tuple[_Reviewer, ...], per_page=100))
        except Refused as error:
            if error.status == 404:  # older servers have no such list
                return ()
            raise
        return tuple(reviewer for page in pages for reviewer in page)

    def _authors(self, asked: _MergeRequest) -> Iterator[tuple[str, str | None, str]]:
        if asked.author is not None:
            yield "", asked.author.username, "is the author of the merge request"
        pages = self._client.pages(f"{self._home}/commits", tuple[_Commit, ...], per_page=100)
        for commit in (commit for page in pages for commit in page):
            if len(commit.parent_ids) < 2:  # bringing a branch up to date makes nobody its author
                author, committer = commit.author_email or "", commit.committer_email or ""
                yield from commit_people(commit.id, commit.message, (author, None), (committer, None))


def _review(username: str, when: datetime | None, pushed: datetime | None) -> Review:
    why = ""
    if when is None:
        why = "GitLab does not say when they approved"
    elif pushed is None:
        why = "GitLab does not say when the head was pushed"
    elif when <= pushed:
        times = [at.isoformat(sep=" ", timespec="seconds") for at in (when, pushed)]
        why = f"they approved at {times[0]}, before the head was pushed at {times[1]}"
    return Review(reviewer=username, state="approved", on_head=not why, why=why)
