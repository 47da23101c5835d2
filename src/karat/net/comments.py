"""A sticky comment: one comment on a pull or merge request that is kept up to date.

It is known by a marker that nobody sees, and by its author: whoever copies the marker into a comment of their own must not
have it overwritten, though the token may well be allowed to. The token comes from the environment and goes to its forge only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import quote

import msgspec

from karat.findings import CannotVerify, UsageError
from karat.net.client import Advice, Client, Refused, Retry, Token
from karat.net.forges import GITHUB_HEADERS, github_host, github_root, github_token, gitlab_root, gitlab_token

ACTIONS_BOT = "github-actions[bot]"
"""Who writes with the token of a workflow, which may not ask who it is."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


class Commented(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the comment."""

    action: Literal["created", "updated", "unchanged"]
    url: str


class _Person(msgspec.Struct, frozen=True):
    login: str = ""
    username: str = ""


class _Comment(msgspec.Struct, frozen=True):
    """GitHub's comment or GitLab's note."""

    id: int
    body: str = ""
    html_url: str = ""
    user: _Person | None = None
    author: _Person | None = None

    @property
    def by(self) -> str:
        person = self.user or self.author or _Person()
        return person.login or person.username


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where comments of one request are, and how they are changed."""

    noun: str
    most: int  # Characters of a comment.
    change: str  # The method that replaces one.
    login: str
    home: str  # The address of all comments, and of each.
    each: str
    root: str
    token: Token | None
    headers: Mapping[str, str] = {}
    page: str  # For people.


def _github(repo: str, number: int, env: Mapping[str, str]) -> _Place:
    root = github_root(env)
    host, home = github_host(root), f"/repos/{quote(repo)}/issues"
    return _Place(
        noun="pull request",
        most=65_536,
        change="PATCH",
        login="export GITHUB_TOKEN=…  # with pull-requests: write",
        home=f"{home}/{number}/comments",
        each=f"{home}/comments",
        root=root,
        token=github_token(env, host),
        headers=GITHUB_HEADERS,
        page=f"https://{host}/{repo}/pull/{number}",
    )


def _gitlab(repo: str, number: int, env: Mapping[str, str]) -> _Place:
    home = f"/projects/{quote(repo, safe='')}/merge_requests/{number}/notes"
    return _Place(
        noun="merge request",
        most=1_000_000,
        change="PUT",
        login="export GITLAB_TOKEN=…  # with the scope api",
        home=home,
        each=home,
        root=gitlab_root(env),
        token=gitlab_token(env),
        page=f"{env.get('CI_MERGE_REQUEST_PROJECT_URL', repo)}/-/merge_requests/{number}",
    )


def _me(client: Client) -> str:
    """The account that the token belongs to."""
    try:
        person = client.get("/user", _Person)
    except Refused as error:
        if error.status != 403:
            raise
        return ACTIONS_BOT
    return person.login or person.username


def marker(name: str) -> str:
    """The line by which a comment is known; nobody sees it."""
    if not _NAME.fullmatch(name):
        said = f"expected a name of letters, digits, dots and dashes, found {name!r}"
        raise UsageError(said, next_command="karat comment --help")
    return f"<!-- karat comment: {name} -->"


def fitting(text: str, most: int) -> str:
    """The text, or as many of its paragraphs as fit, with what they left open closed."""
    if len(text) <= most:
        return text
    note = f"\n\n> Cut here to fit {most:,} characters.\n"
    kept = text[: most - len(note) - 200].rpartition("\n\n")[0]
    fence = "\n```" if len(re.findall(r"^ *```", kept, re.MULTILINE)) % 2 else ""
    return kept + fence + "\n\n</details>" * min(kept.count("<details") - kept.count("</details"), 10) + note


def comment(  # noqa: PLR0913 - what the command line says
    forge: Literal["github", "gitlab"],
    repo: str,
    number: int,
    text: str,
    *,
    name: str,
    env: Mapping[str, str],
    author: str | None = None,
    retry: Retry | None = None,
) -> Commented:
    """Write the comment of this name, or bring it up to date; `author`: whose it is, where the token may not say."""
    line = marker(name)
    where = (_github if forge == "github" else _gitlab)(repo, number, env)
    if where.token is None:
        said = f"expected a token that may comment on {where.noun} {number} of {repo}, found none in the environment"
        raise Refused(said, status=403, next_command=where.login)
    advice = Advice(again="karat comment --help", login=where.login)
    client = Client(where.root, where.token, headers=where.headers, retry=retry, connections=2, advice=advice)
    body = fitting(f"{line}\n{text}", where.most)
    try:
        mine = author or _me(client)
        pages = client.pages(where.home, tuple[_Comment, ...], per_page=100)
        ours = (one for page in pages for one in page if one.by == mine and one.body.lstrip().startswith(line))
        if (found := next(ours, None)) is None:
            made = client.write("POST", where.home, {"body": body}, _Comment)
            return Commented(action="created", url=made.html_url or where.page)
        url = found.html_url or f"{where.page}#note_{found.id}"
        if found.body.replace("\r\n", "\n").strip() == body.strip():
            return Commented(action="unchanged", url=url)
        client.write(where.change, f"{where.each}/{found.id}", {"body": body}, _Comment)
        return Commented(action="updated", url=url)
    except Refused as error:
        if error.status != 404:
            raise
        said = f"there is no {where.noun} {number} of {repo}, or the token may not see it (HTTP 404)"
        raise CannotVerify(said, next_command=where.login) from None
    finally:
        client.close()
