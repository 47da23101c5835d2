"""Reviews: who has approved the head of a change, and who has only seemed to. Pure, but for asking who is in a team."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

import msgspec

State = Literal["approved", "changes-requested", "dismissed"]
_NOREPLY = re.compile(r"(?:\d+[+-])?([^@+]+)@users\.noreply\.[^@]+")


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict of one person, in the order in which they were given."""

    reviewer: str
    state: State
    commit: str | None = None
    """The commit that was looked at, where the forge says so."""
    on_head: bool
    """Whether it is about the head as it is now."""
    why: str = ""
    """Why it is not, or why that is not known."""


class Authors(msgspec.Struct, frozen=True, kw_only=True):
    """Those whose own work it is: their approval counts for nothing."""

    logins: Mapping[str, str] = {}
    """Account, in lower case → why."""
    emails: Mapping[str, str] = {}
    """E-mail address, in lower case → why."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest verdict of one person comes to."""

    reviewer: str
    counts: bool
    why: str = ""
    """Why it does not count."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A pull request or merge request as its forge knows it."""

    label: str
    """`pull request 12 of octo/goldens`."""
    head: str
    reviews: tuple[Review, ...]
    authors: Authors


class Unknown(Exception):  # noqa: N818 - a state of knowledge, not a bug
    """Who is in a team, or who someone is, could not be had."""


class Forge(Protocol):
    """Where reviews are: GitHub or GitLab."""

    name: str

    def request(self) -> Request:
        """The request with all of its reviews."""

    def members(self, team: str) -> frozenset[str]:
        """The accounts of a team, in lower case; raises `Unknown`."""

    def email_of(self, login: str) -> str | None:
        """The address that an account shows to everyone, in lower case."""

    def close(self) -> None:
        """Lets go of connections."""


def standings(request: Request) -> tuple[Standing, ...]:
    """What each reviewer's newest verdict comes to; a comment is none, and takes none back."""
    newest: dict[str, Review] = {}
    for review in request.reviews:
        newest.pop(review.reviewer.lower(), None)
        newest[review.reviewer.lower()] = review
    return tuple(_standing(review, request.authors) for review in newest.values())


def _standing(review: Review, authors: Authors) -> Standing:
    why = ""
    if review.state == "dismissed":
        why = "their latest review was dismissed"
    elif review.state == "changes-requested":
        why = "their latest review asks for changes"
    elif review.reviewer.lower() in authors.logins:
        why = authors.logins[review.reviewer.lower()]
    elif not review.on_head:
        seen = review.commit[:12] if review.commit else "an unknown commit"
        why = review.why or f"their approval is of {seen}, not of the head"
    return Standing(reviewer=review.reviewer, counts=not why, why=why)


def login_of(email: str) -> str | None:
    """The account that a forge's own no-reply address names, in lower case."""
    found = _NOREPLY.fullmatch(email.lower())
    return found[1] if found else None


def authors_of(people: Iterable[tuple[str, str | None, str]]) -> Authors:
    """From (e-mail or nothing, account or None, why), the first reason for each."""
    logins: dict[str, str] = {}
    emails: dict[str, str] = {}
    for email, login, why in people:
        for name in (login, login_of(email)):
            if name:
                logins.setdefault(name.lower(), why)
        if email:
            emails.setdefault(email.lower(), why)
    return Authors(logins=logins, emails=emails)


_TRAILER = re.compile(r"(?im)^co-authored-by:[^<\n]*<([^>\n]+)>")


def co_authors(message: str) -> list[str]:
    """E-mail addresses of a commit's co-authors."""
    return [email.strip().lower() for email in _TRAILER.findall(message)]
