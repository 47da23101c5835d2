"""Reviews of a pull request on GitHub, and of a merge request on GitLab, by their REST APIs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import ClassVar, TypeVar
from urllib.parse import quote

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.net.client import Advice, Client, Refused, Token
from karat.net.forges import (
    GITHUB_HEADERS,
    github_host,
    github_root,
    github_token,
    gitlab_root,
    gitlab_token,
    is_repository,
)
from karat.policy.approvals.code_owners import ForgeName
from karat.policy.approvals.request import Options
from karat.policy.approvals.reviews import Person, Request, Review, State, authors_of, commit_people
from karat.system.command import Command

T = TypeVar("T")


class ReviewForge(ABC):
    """One request, asked about with one client."""

    name: ClassVar[ForgeName]
    noun: ClassVar[str]
    headers: ClassVar[Mapping[str, str]]
    repository: ClassVar[str]  # What names one, in words.
    home: ClassVar[str]  # Where the API has the request.
    look: ClassVar[tuple[str, ...]]  # The words of the command that shows it.

    def __init__(self, repo: str, number: int, options: Options) -> None:
        if not is_repository(self.name, repo):
            raise UsageError(
                f"expected {self.repository}, found {repo!r}", next_command="karat policy approvals --help"
            )
        self._repo, self._number = repo, number
        self._label = f"{self.noun} {number} of {repo}"
        self._home = self.home.format(repo=quote(repo, safe="/" if self.name == "github" else ""), number=number)
        self._look = Command(*(word.format(repo=repo, number=number) for word in self.look))
        root, token, login = self._server(options.env)
        # No answer is kept: an approval may be withdrawn the next moment.
        self._client = Client(
            root,
            token,
            headers=self.headers,
            retry=options.retry,
            connections=2,
            notice=options.notice,
            advice=Advice(again=options.again, login=login),
        )

    def request(self) -> Request:
        """The request with all of its reviews; raises `CannotVerify` where it moved while it was being read."""
        head, author = self._head()
        reviews = tuple(self._reviews(head))
        authors = authors_of([("", author, f"is the author of the {self.noun}"), *self._commit_people()])
        if self._head()[0] != head:
            text = f"somebody pushed to {self._label} while it was being read"
            raise CannotVerify(text, next_command=self._client.advice.again)
        return Request(label=self._label, head=head, reviews=reviews, authors=authors)

    @abstractmethod
    def members(self, team: str) -> frozenset[str]:
        """The accounts of a team, in lower case; raises `Refused`."""

    @abstractmethod
    def email_of(self, login: str) -> str | None:
        """The address that an account shows to everyone, in lower case."""

    def close(self) -> None:
        self._client.close()

    @abstractmethod
    def _server(self, env: Mapping[str, str]) -> tuple[str, Token | None, str]:
        """The API's address, the token, and the command that gets one."""

    @abstractmethod
    def _head(self) -> tuple[str, str | None]:
        """The head commit, and the account whose request it is."""

    @abstractmethod
    def _reviews(self, head: str) -> Iterable[Review]: ...

    @abstractmethod
    def _commit_people(self) -> Iterator[Person]:
        """Who made the commits; bringing a branch up to date with its base makes nobody its author."""

    def _request(self, path: str, kind: type[T]) -> T:
        try:
            return self._client.get(path, kind)
        except Refused as error:
            if error.status != 404:
                raise
            text = f"there is no {self._label}, or {self._client.unseen} (HTTP 404)"
            raise CannotVerify(text, next_command=self._look) from None

    def _all(self, path: str, kind: type[T], **query: str) -> Iterator[T]:
        for page in self._client.pages(path, tuple[kind, ...], per_page=100, **query):  # type: ignore[valid-type]
            yield from page


class _User(msgspec.Struct, frozen=True):
    login: str
    email: str | None = None


class _PullHead(msgspec.Struct, frozen=True):
    sha: str


class _Pull(msgspec.Struct, frozen=True):
    head: _PullHead
    user: _User | None = None


class _PullReview(msgspec.Struct, frozen=True):
    id: int
    state: str
    user: _User | None = None
    commit_id: str | None = None
    submitted_at: str | None = None


class _PullEvent(msgspec.Struct, frozen=True):
    event: str = ""
    created_at: str = ""


class _Signature(msgspec.Struct, frozen=True):
    """Whom a commit names, or whom GitHub takes that for: an empty object where it does not know."""

    email: str | None = None
    login: str | None = None


class _GitCommit(msgspec.Struct, frozen=True):
    message: str = ""
    author: _Signature | None = None
    committer: _Signature | None = None


class _PullCommit(msgspec.Struct, frozen=True):
    sha: str
    commit: _GitCommit
    author: _Signature | None = None
    committer: _Signature | None = None
    parents: tuple[msgspec.Raw, ...] = ()


_STATES: dict[str, State] = {"APPROVED": "approved", "CHANGES_REQUESTED": "changes-requested", "DISMISSED": "dismissed"}
_MOST_COMMITS = 250  # GitHub lists no more of a pull request.


class GitHubReviews(ReviewForge):
    name = "github"
    noun = "pull request"
    headers = GITHUB_HEADERS
    repository = "OWNER/NAME of a repository on GitHub"
    home = "/repos/{repo}/pulls/{number}"
    look = ("gh", "pr", "view", "{number}", "--repo", "{repo}")

    def members(self, team: str) -> frozenset[str]:
        """The accounts of `@org/team`."""
        org, _, slug = team.removeprefix("@").partition("/")
        path = f"/orgs/{quote(org, safe='')}/teams/{quote(slug, safe='')}/members"
        return frozenset(user.login.lower() for user in self._all(path, _User))

    def email_of(self, login: str) -> str | None:
        try:
            user = self._client.get(f"/users/{quote(login, safe='')}", _User)
        except Refused:
            return None
        return user.email.lower() if user.email else None

    def _server(self, env: Mapping[str, str]) -> tuple[str, Token | None, str]:
        root = github_root(env)
        host = github_host(root)
        return root, github_token(env, host), Command("gh", "auth", "login", "--hostname", host)

    def _head(self) -> tuple[str, str | None]:
        pull = self._request(self._home, _Pull)
        return pull.head.sha, pull.user.login if pull.user else None

    def _reviews(self, head: str) -> Iterator[Review]:
        found = {review.id: review for review in self._all(f"{self._home}/reviews", _PullReview)}
        # Numbers grow with time, and so do times; pages may shift while they are read.
        ordered = sorted(found.values(), key=lambda review: (review.submitted_at or "", review.id))
        retargeted = ""  # when the base branch was last changed: what was approved before is another diff
        if ordered:
            events = self._all(f"/repos/{self._repo}/issues/{self._number}/events", _PullEvent)
            retargeted = max((e.created_at for e in events if e.event == "base_ref_changed"), default="")
        for review in ordered:
            if review.state not in _STATES or review.user is None:
                continue
            on_head = review.commit_id == head
            stale = bool(retargeted) and (review.submitted_at or "") <= retargeted
            why = f"they approved before the base branch was changed, at {retargeted}"
            yield Review(
                reviewer=review.user.login,
                state=_STATES[review.state],
                commit=review.commit_id,
                on_head=on_head and not stale,
                why=why if stale and on_head else "",
            )

    def _commit_people(self) -> Iterator[Person]:
        commits = list(self._all(f"{self._home}/commits", _PullCommit))
        if len(commits) >= _MOST_COMMITS:
            raise CannotVerify(
                f"{self._label} has {len(commits)} commits or more; GitHub names the authors of fewer than {_MOST_COMMITS}",
                next_command=self._look.plus("--json", "commits"),
            )
        for commit in commits:
            if len(commit.parents) < 2:
                inner = commit.commit
                author, committer = (
                    (person.email or "" if person else "", account.login if account else None)
                    for person, account in ((inner.author, commit.author), (inner.committer, commit.committer))
                )
                yield from commit_people(commit.sha, inner.message, author, committer)


class _Account(msgspec.Struct, frozen=True):
    username: str
    id: int = 0
    public_email: str | None = None
    state: str = "active"
    access_level: int = 0


class _MergeRequest(msgspec.Struct, frozen=True):
    sha: str | None = None
    author: _Account | None = None


class _Reviewer(msgspec.Struct, frozen=True):
    user: _Account
    state: str = ""
    approved_at: datetime | None = None


class _MergeApprovals(msgspec.Struct, frozen=True):
    approved_by: tuple[_Reviewer, ...] = ()


class _DiffVersion(msgspec.Struct, frozen=True):
    id: int
    head_commit_sha: str
    created_at: datetime


class _Note(msgspec.Struct, frozen=True):
    body: str
    created_at: datetime
    author: _Account
    system: bool = False


class _MergeCommit(msgspec.Struct, frozen=True):
    id: str
    message: str = ""
    author_email: str | None = None
    committer_email: str | None = None
    parent_ids: tuple[str, ...] = ()


class GitLabReviews(ReviewForge):
    """One merge request of one project.

    GitLab knows who approves, not what they looked at. An approval is taken for one of the head if it was given after
    the head was pushed: both times are the server's own, of the approval (or of the note that it left in the
    discussion, on servers that do not tell) and of the newest version of the diff.
    """

    name = "gitlab"
    noun = "merge request"
    headers: ClassVar = {"Accept": "application/json"}
    repository = "a project on GitLab, its number or GROUP/NAME"
    home = "/projects/{repo}/merge_requests/{number}"
    look = ("glab", "mr", "view", "{number}")
    _numbers: Mapping[str, int] = {}  # Account, in lower case → its number, of those who approved.

    def members(self, team: str) -> frozenset[str]:
        """The direct members of `@group`, `@group/subgroup`, or those of the project in a role, `@@maintainer`."""
        role = {"@@developer": 30, "@@maintainer": 40, "@@owner": 50}.get(team.lower())
        project, group = quote(self._repo, safe=""), quote(team.removeprefix("@"), safe="")
        path = f"/projects/{project}" if role else f"/groups/{group}"
        try:
            active = [member for member in self._all(f"{path}/members", _Account) if member.state == "active"]
        except Refused as error:
            if error.status == 404 and "/" not in team:
                return frozenset()  # the name of a person, then
            raise
        return frozenset(m.username.lower() for m in active if role in {None, m.access_level})

    def email_of(self, login: str) -> str | None:
        number = self._numbers.get(login.lower())
        try:
            user = self._client.get(f"/users/{number}", _Account) if number else None
        except Refused:
            return None
        return user.public_email.lower() if user and user.public_email else None

    def _server(self, env: Mapping[str, str]) -> tuple[str, Token | None, str]:
        return gitlab_root(env), gitlab_token(env), "export GITLAB_TOKEN=YOUR_TOKEN"

    def _head(self) -> tuple[str, str | None]:
        asked = self._request(self._home, _MergeRequest)
        if asked.sha is None:
            raise CannotVerify(f"{self._label} has no head (is it empty?)", next_command=self._client.advice.again)
        return asked.sha, asked.author.username if asked.author else None

    def _reviews(self, head: str) -> Iterator[Review]:
        given = self._client.get(f"{self._home}/approvals", _MergeApprovals).approved_by
        self._numbers = {one.user.username.lower(): one.user.id for one in given}
        # When the head became the head, the last time that it did.
        versions = self._all(f"{self._home}/versions", _DiffVersion)
        newest = max(versions, key=lambda version: version.id, default=None)
        pushed = newest.created_at if newest and newest.head_commit_sha == head else None
        # When each approved, by the notes in the discussion; whoever withdrew is out again.
        noted: dict[str, datetime] = {}
        asked = any(one.approved_at is None for one in given)
        for note in self._all(f"{self._home}/notes", _Note, sort="asc", order_by="created_at") if asked else ():
            if note.system and note.body == "approved this merge request":
                noted[note.author.username.lower()] = note.created_at
            elif note.system and note.body == "unapproved this merge request":
                noted.pop(note.author.username.lower(), None)
        for one in given:
            when = one.approved_at or noted.get(one.user.username.lower())
            why = ""
            if when is None:
                why = "GitLab does not say when they approved"
            elif pushed is None:
                why = "GitLab does not say when the head was pushed"
            elif when <= pushed:
                times = [at.isoformat(sep=" ", timespec="seconds") for at in (when, pushed)]
                why = f"they approved at {times[0]}, before the head was pushed at {times[1]}"
            yield Review(reviewer=one.user.username, state="approved", on_head=not why, why=why)
        try:
            reviewers = list(self._all(f"{self._home}/reviewers", _Reviewer))
        except Refused as error:
            if error.status != 404:  # older servers have no such list
                raise
            reviewers = []
        for reviewer in reviewers:
            if reviewer.state == "requested_changes":
                yield Review(reviewer=reviewer.user.username, state="changes-requested", on_head=True)

    def _commit_people(self) -> Iterator[Person]:
        for commit in self._all(f"{self._home}/commits", _MergeCommit):
            if len(commit.parent_ids) < 2:
                author, committer = commit.author_email or "", commit.committer_email or ""
                yield from commit_people(commit.id, commit.message, (author, None), (committer, None))


FORGES: dict[ForgeName, type[ReviewForge]] = {"github": GitHubReviews, "gitlab": GitLabReviews}
