"""Who has approved: reviews of a pull request, and lists that approvers have signed with their SSH keys.

A signed list is for where no forge can be asked. It holds digests, each of one exact change; the signatures lie beside it
(`sign-off.toml.sig`, `sign-off.toml.bob.sig`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import asdict

from karat.findings import UsageError
from karat.policy.approvals.waivers import PolicyChange
from karat.report.words import printable
from karat.system import signatures
from karat.system.command import quoted
from karat.system.foreign import toml
from karat.system.foreign.limits import TEXT, read_plain

SCHEMA = "karat.sign-off/1"
NAMESPACE = "karat-policy"
_PRINT = "karat policy approvals --base REV --print-sign-off > sign-off.toml"
Account = tuple[str, str | None]  # An e-mail address, or nothing, and an account.
Person = tuple[str, str | None, str]  # The same, and why that is somebody whose own work it is.
State = Literal["approved", "changes-requested", "dismissed"]
_TRAILER = re.compile(r"(?im)^co-authored-by:[^<\n]*<([^>\n]+)>")
_NOREPLY = re.compile(r"(?:\d+[+-])?([^@+]+)@users\.noreply\.[^@]+")


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict of one person, in the order in which they were given."""

    reviewer: str
    state: State
    commit: str | None = None  # The commit that was looked at, where the forge says so.
    on_head: bool  # Whether it is about the head as it is now.
    why: str = ""  # Why it is not, or why that is not known.


class Authors(msgspec.Struct, frozen=True, kw_only=True):
    """Those whose own work it is: their approval counts for nothing."""

    logins: Mapping[str, str] = {}  # Account, in lower case → why.
    emails: Mapping[str, str] = {}  # E-mail address, in lower case → why.


class Request(msgspec.Struct, frozen=True, kw_only=True):
    label: str  # `pull request 12 of octo/goldens`.
    head: str
    reviews: tuple[Review, ...]
    authors: Authors


def latest_reviews(request: Request) -> dict[str, str]:
    """Reviewer → why their newest verdict does not count, or nothing if it does; a comment is none, and takes none back."""
    newest: dict[str, Review] = {}
    for review in request.reviews:
        newest.pop(review.reviewer.lower(), None)
        newest[review.reviewer.lower()] = review
    found: dict[str, str] = {}
    for login, review in newest.items():
        why = ""
        if review.state == "dismissed":
            why = "their latest review was dismissed"
        elif review.state == "changes-requested":
            why = "their latest review requests changes"
        elif login in request.authors.logins:
            why = request.authors.logins[login]
        elif not review.on_head:
            seen = review.commit[:12] if review.commit else "an unknown commit"
            why = review.why or f"their approval is of {seen}, not of the head"
        found[review.reviewer] = why
    return found


def login_of(email: str) -> str | None:
    """The account that a forge's own no-reply address names, in lower case."""
    found = _NOREPLY.fullmatch(email.lower())
    return found[1] if found else None


def authors_of(people: Iterable[Person]) -> Authors:
    """The first reason for each."""
    logins: dict[str, str] = {}
    emails: dict[str, str] = {}
    for email, login, why in people:
        for name in (login, login_of(email)):
            if name:
                logins.setdefault(name.lower(), why)
        if email:
            emails.setdefault(email.lower(), why)
    return Authors(logins=logins, emails=emails)


def commit_people(commit: str, message: str, author: Account, committer: Account) -> Iterator[Person]:
    """Everyone who made a commit, for `authors_of`: its author, its committer and its co-authors."""
    short = commit[:12]
    yield *author, f"wrote commit {short}"
    yield *committer, f"committed {short}"
    for email in _TRAILER.findall(message):
        yield email.strip().lower(), None, f"is a co-author of commit {short}"


class SignedChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a list to sign; all but the digest is for those who read it."""

    digest: str  # Of one exact change; nothing else of the entry is looked at.
    rule: str = ""
    change: str = ""
    what: str = ""
    grants: str = ""
    before: str = ""
    path: str = ""


class SignOffList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    schema: Literal["karat.sign-off/1"]
    approved: tuple[SignedChange, ...] = ()


class SignOff(msgspec.Struct, frozen=True, kw_only=True):
    """A list, and who stands behind it."""

    path: str
    digests: frozenset[str]
    signers: Mapping[str, tuple[str, ...]] = {}
    """File of a signature → the names that the list of keys gives whose it is, in lower case."""
    objections: tuple[str, ...] = ()  # Why a signature beside it does not count.


def signing(path: str) -> str:
    return f"ssh-keygen -Y sign -n {NAMESPACE} -f ~/.ssh/id_ed25519 {quoted(path)}"


def render(changes: Iterable[PolicyChange]) -> str:
    blocks = [
        f'# Read what each entry grants. Then sign this file:\n#   {signing("sign-off.toml")}\nschema = "{SCHEMA}"\n'
    ]
    for change in changes:
        waiver = change.waiver
        entry = SignedChange(
            digest=change.digest,
            rule=waiver.rule,
            change=change.what,
            what=waiver.label,
            grants=waiver.shown,
            before=change.before.shown if change.before else "",
            path=waiver.path,
        )
        # JSON's strings are TOML's, once nothing in them needs a pair of surrogates.
        fields = {key: json.dumps(printable(text), ensure_ascii=False) for key, text in asdict(entry).items() if text}
        blocks.append("".join(["[[approved]]\n", *(f"{key} = {text}\n" for key, text in fields.items())]))
    return "\n".join(blocks)


def read(path: Path, signers: bytes | None) -> SignOff:
    """The list, with the signatures that hold; without a list of keys none does."""
    try:
        data = read_plain(path, TEXT)
    except OSError as error:
        raise UsageError(f"cannot read the sign-off {path}: {error.strerror or error}", next_command=_PRINT) from error
    digests = _digests(data, path)
    beside = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
    files = [file for file in beside if file.name.startswith(f"{path.name}.") and file.name.endswith(".sig")]
    made: dict[str, tuple[str, ...]] = {}
    objections = [] if files else [f"{path.name} has no signature beside it ({path.name}.sig)"]
    for file in files:
        found: tuple[str, ...] | str = "there is no list of keys to hold it against"
        try:
            if signers is not None:
                found = signatures.verify(data, read_plain(file, TEXT), signers, NAMESPACE)
        except OSError as error:
            found = f"cannot be read: {error.strerror or error}"
        if isinstance(found, str):
            objections.append(f"{file.name}: {found}")
        else:
            made[file.name] = found
    return SignOff(path=str(path), digests=digests, signers=made, objections=tuple(objections))


def _digests(data: bytes, path: Path) -> frozenset[str]:
    """Whatever is not understood is an error, not an empty list."""
    try:
        document = toml.loads(data.decode("utf-8"))
        return frozenset(one.digest for one in msgspec.convert(document, SignOffList).approved)
    except msgspec.ValidationError as error:
        expected = f'schema = "{SCHEMA}" and [[approved]] tables with a digest each ({error})'
    except (ValueError, RecursionError) as error:
        expected = f"TOML ({error})"
    raise UsageError(f"expected in the sign-off {path}: {expected}, found something else", next_command=_PRINT)
