"""Judging: whether somebody who may has approved each change, and if not, why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from karat.policy.approvals_settings import CODE_OWNERS, approvers_of
from karat.policy.changed_policies_waiver import PolicyChange
from karat.policy.code_owners import CodeOwners, Section
from karat.policy.reviews import Authors, Forge, Request, Standing, Unknown, login_of, standings
from karat.policy.sign_off import Signer, SignOff

UNSIGNED = "an unsigned list"


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """Who may approve one change: one of the people, or so many of each section of CODEOWNERS."""

    people: tuple[str, ...]
    sections: tuple[Section, ...] = ()
    note: str = ""
    """What else is to be said: that CODEOWNERS names nobody."""

    @property
    def words(self) -> tuple[str, ...]:
        """Everyone, once."""
        owners = (owner for section in self.sections for owner in section.owners)
        return tuple(dict.fromkeys((*self.people, *owners)))


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One change, and what its approval comes to."""

    change: PolicyChange
    needed: tuple[str, ...]
    approved_by: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Why it is not approved."""
    unknown: tuple[str, ...] = ()
    """What could not be had, where that might have changed the answer."""

    @property
    def state(self) -> str:
        """`approved`, `missing` or `unknown`."""
        if self.approved_by:
            return "approved"
        return "unknown" if self.unknown else "missing"


def needs(
    change: PolicyChange, approvers: Mapping[str, tuple[str, ...]], owners: CodeOwners | None
) -> Need:
    """Who may approve a change, CODEOWNERS looked up."""
    words = approvers_of(change.waiver.rule, approvers)
    people = tuple(word for word in words if word != CODE_OWNERS)
    if CODE_OWNERS not in words:
        return Need(people=people)
    found = owners.of(change.waiver.path) if owners else ()
    required = tuple(section for section in found if not section.optional)
    note = "" if found else f"CODEOWNERS names nobody for {change.waiver.path}"
    return Need(people=people, sections=required or found, note=note)


class Voice(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has said something: in a review, or by signing a list."""

    name: str
    counts: bool
    why: str = ""
    names: frozenset[str] = frozenset()
    """Account and addresses, by which two voices are known to be one person's."""
    principals: tuple[str, ...] = ()
    """What a key stands for; empty for reviews."""
    digests: frozenset[str] = frozenset()


def heads(voices: Sequence[Voice]) -> int:
    """How many people they are: somebody who reviews and signs is one, and so is somebody with two keys."""
    groups: list[frozenset[str]] = []
    for voice in voices:
        same = [group for group in groups if group & voice.names]
        others = [group for group in groups if not group & voice.names]
        groups = [*others, voice.names.union(*same)]
    return len(groups)


class Judge:
    """Knows the voices, and asks the forge who is who; every question once."""

    def __init__(
        self,
        request: Request | None,
        forge: Forge | None,
        sign_off: SignOff | None,
        authors: Authors,
    ) -> None:
        self._forge = forge
        self._authors = authors
        self._sign_off = sign_off
        self._asked_anyone = request is not None or sign_off is not None
        self._members: dict[str, frozenset[str] | Unknown] = {}
        self._emails: dict[str, str | None] = {}
        self._voices = [self._reviewer(s) for s in (standings(request) if request else ())]
        self._voices += [self._signer(s) for s in (sign_off.signers if sign_off else ())]

    def judge(self, change: PolicyChange, need: Need) -> Judged:
        """Whether the change is approved."""
        needed = need.words
        if self._sign_off and self._sign_off.unsigned and change.digest in self._sign_off.digests:
            return Judged(change=change, needed=needed, approved_by=(UNSIGNED,))
        if not self._asked_anyone:
            asked = ("nobody was asked",)
            return Judged(change=change, needed=needed, missing=asked, unknown=asked)
        unknown: list[str] = []
        heard = [v for v in self._voices if not v.principals or change.digest in v.digests]
        good = [v for v in heard if v.counts]
        people = self._of(good, need.people, unknown)
        owners = [(s, self._of(good, s.owners, unknown)) for s in need.sections]
        if people or (owners and all(heads(found) >= s.count for s, found in owners)):
            named = dict.fromkeys(
                v.name for found in (people, *(f for _, f in owners)) for v in found
            )
            return Judged(change=change, needed=needed, approved_by=tuple(named))
        why = tuple(self._why(need, heard, owners)) or ("nobody who may has approved",)
        return Judged(
            change=change, needed=needed, missing=why, unknown=tuple(dict.fromkeys(unknown))
        )

    def _reviewer(self, standing: Standing) -> Voice:
        login, email, why = standing.reviewer.lower(), None, standing.why
        if standing.counts:  # an address may tell what the account does not
            email = self._email(login)
            why = self._authors.emails.get(email or "") or self._authors.logins.get(login, "")
        names = frozenset({login, email or login})
        return Voice(name=f"@{standing.reviewer}", counts=not why, why=why, names=names)

    def _signer(self, signer: Signer) -> Voice:
        logins = self._authors.logins
        # An author who commits under a no-reply address may sign under the one that the account shows.
        shown = {email: why for login, why in logins.items() if (email := self._email(login))}
        known = {**shown, **self._authors.emails, **logins}
        names = frozenset(principal.lstrip("@") for principal in signer.principals)
        why = next((known[name] for name in sorted(names) if name in known), "")
        digests = self._sign_off.digests if self._sign_off else frozenset()
        name = f"{signer.principals[0]} ({signer.signature})"
        return Voice(
            name=name, counts=not why, why=why, names=names, principals=signer.principals,
            digests=digests,
        )  # fmt: skip

    def _of(self, voices: Sequence[Voice], words: Sequence[str], unknown: list[str]) -> list[Voice]:
        return [v for v in voices if any(self._is(v, word, unknown) for word in words)]

    def _is(self, voice: Voice, word: str, unknown: list[str]) -> bool:
        """Whether a voice is, or belongs to, whom a word names."""
        lower = word.lower()
        if voice.principals:
            return {lower, lower.removeprefix("@")} & set(voice.principals) != set()
        login = voice.name.removeprefix("@").lower()
        if not word.startswith("@"):
            return lower == self._email(login) or login_of(lower) == login
        if lower == f"@{login}":
            return True
        if "/" not in word and not (self._forge and self._forge.name == "gitlab"):
            return False
        members = self._team(word)
        if isinstance(members, Unknown):
            unknown.append(str(members))
            return False
        return login in members

    def _team(self, word: str) -> frozenset[str] | Unknown:
        if word not in self._members:
            self._members[word] = self._asked(word)
        return self._members[word]

    def _asked(self, word: str) -> frozenset[str] | Unknown:
        if self._forge is None:
            return Unknown(f"who is in {word} is not known without a forge")
        try:
            return self._forge.members(word)
        except Unknown as unknown:
            return unknown

    def _email(self, login: str) -> str | None:
        if login.lower() not in self._emails:
            self._emails[login.lower()] = self._forge.email_of(login) if self._forge else None
        return self._emails[login.lower()]

    def _why(
        self, need: Need, heard: Sequence[Voice], owners: Sequence[tuple[Section, list[Voice]]]
    ) -> Iterator[str]:
        """Every reason a person could act on."""
        if need.note:
            yield need.note
        ignored: list[str] = []
        for voice in heard:
            if not voice.counts and self._of([voice], need.words, ignored):
                yield f"{voice.name}: {voice.why}"
        for section, found in owners if any(found for _, found in owners) else ():
            if heads(found) < section.count:
                name = section.name or "CODEOWNERS"
                yield f"{name}: {heads(found)} of {section.count} approvals"
        others = [v.name for v in heard if v.counts and not self._of([v], need.words, ignored)]
        if others:
            yield f"{', '.join(others)} approved, and may not"
        if self._sign_off and not heard:
            yield f"no signature on {self._sign_off.path} is for this change"
