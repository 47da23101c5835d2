"""GitHub's reviews of a pull request, by the REST API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.net.addresses import github_host, github_root
from karat.net.client import Advice, Client, Refused
from karat.net.retry import Retry
from karat.net.tokens import github_token
from karat.policy.approvals.reviews import Request, Review, State, Unknown, authors_of, commit_people, moved, not_found

_REPO = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_HEADERS = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
_STATES: dict[str, State] = {"APPROVED": "approved", "CHANGES_REQUESTED": "changes-requested", "DISMISSED": "dismissed"}
_RETARGETED = "base_ref_changed"
_MOST_COMMITS = 250
"""GitHub lists no more of a pull request."""


class _User(msgspec.Struct, frozen=True):
    login: str
    email: str | None = None


class _Head(msgspec.Struct, frozen=True):
    sha: str


class _Pull(msgspec.Struct, frozen=True):
    head: _Head
    user: _User | None = None


class _Review(msgspec.Struct, frozen=True):
    id: int
    state: str
    user: _User | None = None
    commit_id: str | None = None
    submitted_at: str | None = None


class _Event(msgspec.Struct, frozen=True):
    event: str = ""
    created_at: str = ""


class _Person(msgspec.Struct, frozen=True):
    email: str | None = None


class _Inner(msgspec.Struct, frozen=True):
    message: str = ""
    author: _Person | None = None
    committer: _Person | None = None


class _Parent(msgspec.Struct, frozen=True):
    sha: str = ""


class _Account(msgspec.Struct, frozen=True):
    """Who GitHub says wrote a commit: an empty object where it does not know."""

    login: str | None = None


class _Commit(msgspec.Struct, frozen=True):
    sha: str
    commit: _Inner
    author: _Account | None = None
    committer: _Account | None = None
    parents: tuple[_Parent, ...] = ()


class GitHubReviews:
    """One pull request of one repository."""

    name = "github"

    def __init__(
        self,
        repo: str,
        number: int,
        *,
        env: Mapping[str, str],
        again: str,
        retry: Retry | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        if not _REPO.fullmatch(repo) or set(repo.split("/")) & {".", ".."}:
            raise UsageError(
                f"expected OWNER/NAME of a repository on GitHub, found {repo!r}",
                next_command="karat policy approvals --help",
            )
        root = github_root(env)
        host = github_host(root)
        self._repo, self._number = repo, number
        self._home = f"/repos/{repo}/pulls/{number}"
        # No answer is kept: an approval may be withdrawn the next moment.
        self._client = Client(
            root,
            github_token(env, host),
            headers=_HEADERS,
            retry=retry,
            connections=2,
            notice=notice,
            advice=Advice(again=again, login=f"gh auth login --hostname {host}"),
        )

    def request(self) -> Request:
        """The pull request; raises `CannotVerify` where it moved while it was being read."""
        pull = self._pull()
        pages = self._client.pages(f"{self._home}/reviews", tuple[_Review, ...], per_page=100)
        found = {review.id: review for page in pages for review in page}
        # Numbers grow with time, and so do times; pages may shift while they are read.
        ordered = sorted(found.values(), key=lambda review: (review.submitted_at or "", review.id))
        retargeted = self._retargeted() if ordered else ""
        kept = []
        for review in ordered:
            if review.state not in _STATES or review.user is None:
                continue
            on_head = review.commit_id == pull.head.sha
            stale = bool(retargeted) and (review.submitted_at or "") <= retargeted
            why = f"they approved before the base branch was changed, at {retargeted}"
            kept.append(
                Review(
                    reviewer=review.user.login,
                    state=_STATES[review.state],
                    commit=review.commit_id,
                    on_head=on_head and not stale,
                    why=why if stale and on_head else "",
                )
            )
        authors = authors_of(self._authors(pull))
        if self._pull().head.sha != pull.head.sha:
            raise moved(self._label, self._client.advice.again)
        return Request(label=self._label, head=pull.head.sha, reviews=tuple(kept), authors=authors)

    def members(self, team: str) -> frozenset[str]:
        """The accounts of `@org/team`."""
        org, _, slug = team.removeprefix("@").partition("/")
        path = f"/orgs/{quote(org, safe='')}/teams/{quote(slug, safe='')}/members"
        try:
            pages = list(self._client.pages(path, tuple[_User, ...], per_page=100))
        except Refused as error:
            raise Unknown(f"who is in {team} could not be read (HTTP {error.status})") from error
        return frozenset(user.login.lower() for page in pages for user in page)

    def email_of(self, login: str) -> str | None:
        try:
            user = self._client.get(f"/users/{quote(login, safe='')}", _User)
        except Refused:
            return None
        return user.email.lower() if user.email else None

    def close(self) -> None:
        self._client.close()

    @property
    def _label(self) -> str:
        return f"pull request {self._number} of {self._repo}"

    def _pull(self) -> _Pull:
        try:
            return self._client.get(self._home, _Pull)
        except Refused as error:
            if error.status != 404:
                raise
            look = f"gh pr view {self._number} --repo {self._repo}"
            raise not_found(self._label, self._client.token, look) from None

    def _retargeted(self) -> str:
        """When the base branch was last changed: what was approved before is another diff."""
        path = f"/repos/{self._repo}/issues/{self._number}/events"
        pages = self._client.pages(path, tuple[_Event, ...], per_page=100)
        events = (event for page in pages for event in page)
        return max((e.created_at for e in events if e.event == _RETARGETED), default="")

    def _authors(self, pull: _Pull) -> Iterator[tuple[str, str | None, str]]:
        if pull.user is not None:
            yield "", pull.user.login, "is the author of the pull request"
        pages = self._client.pages(f"{self._home}/commits", tuple[_Commit, ...], per_page=100)
        commits = [commit for page in pages for commit in page]
        if len(commits) >= _MOST_COMMITS:
            raise CannotVerify(
                f"{self._label} has {len(commits)} commits or more; GitHub names the authors of fewer than {_MOST_COMMITS}",
                next_command=f"gh pr view {self._number} --repo {self._repo} --json commits",
            )
        for commit in commits:
            # Bringing a branch up to date with its base makes nobody its author.
            if len(commit.parents) < 2:
                inner = commit.commit
                author, committer = (
                    (person.email or "" if person else "", account.login if account else None)
                    for person, account in ((inner.author, commit.author), (inner.committer, commit.committer))
                )
                yield from commit_people(commit.sha, inner.message, author, committer)
