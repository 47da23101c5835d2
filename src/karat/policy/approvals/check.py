"""Approvals: every waiver that a range adds or makes laxer needs the approval of somebody who may give it.

What could not be asked is `unknown`, never `approved` and never `missing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from karat.findings import CannotVerify, ExitCode, Finding, Severity, exit_code, fail, warn
from karat.net.client import Refused
from karat.policy.approvals.changes import RangeChanges
from karat.policy.approvals.code_owners import CodeOwners, OwnerSection
from karat.policy.approvals.request import CODE_OWNERS, Options, RequestPlace, Sides, approvers_of, request_of
from karat.policy.approvals.reviews import Authors, Request, SignOff, latest_reviews, login_of, read, render, signing
from karat.policy.approvals.waivers import PolicyChange, WaiverSummary
from karat.report.words import count, printable
from karat.system import git
from karat.system.command import Command

if TYPE_CHECKING:
    from karat.policy.approvals.forges import ReviewForge

SCHEMA = "karat.policy-approvals/1"
_WHO = ("[policy] approvers", "[policy] signers", "[policy] forge", "CODEOWNERS", "keys that may sign")


class ChangeApproval(msgspec.Struct, frozen=True, kw_only=True):
    """A waiver that a range adds or makes laxer, and whether that is approved."""

    state: Literal["approved", "missing", "unknown"]
    """unknown: it could not be found out whether an approver has approved."""
    change: Literal["added", "changed", "removed"]
    digest: str  # What a sign-off is bound to.
    waiver: WaiverSummary
    before: WaiverSummary | None  # What stood there at the base; null for what was added.
    needed: tuple[str, ...]  # Those who may approve.
    approved_by: tuple[str, ...]
    missing: tuple[str, ...]  # Why it is not approved.
    unknown: tuple[str, ...]  # What could not be found out, where that might have changed the answer.

    @property
    def reasons(self) -> str:
        return "; ".join(dict.fromkeys((*self.unknown, *self.missing)))


class Approvals(msgspec.Struct, frozen=True, kw_only=True):
    base: str  # The commit that the branch began at.
    head: str  # The commit that approvals must be of.
    request: str | None = None  # The pull request or merge request that was asked about; null: none was.
    files: int = 0  # Python files that the range changes.
    judged: tuple[ChangeApproval, ...] = msgspec.field(default=(), name="changes")
    findings: tuple[Finding, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        return exit_code(self.findings)


def to_sign(folder: Path, options: Options) -> str:
    return render(Sides(folder, options).changes().changes)


def approvals(folder: Path, options: Options) -> Approvals:
    """Whether every change of a range is approved; the forge is asked only if there is something to approve."""
    sides = Sides(folder, options)
    found = sides.changes()
    place = request_of(options, sides.forge, sides.root) if found.changes else None
    request = forge = sign_off = None
    judged: tuple[ChangeApproval, ...] = ()
    try:
        if place is not None:
            from karat.policy.approvals.forges import FORGES

            forge = FORGES[place.forge](place.repo, place.number, options)
            request = forge.request()
            if request.head != sides.span.head:
                line = git.run_git(sides.root, "rev-list", "--parents", "-n1", sides.span.head, "--")
                parents = line.decode().split()[1:]
                if len(parents) != 2 or parents[1] != request.head:
                    raise CannotVerify(
                        f"the head of {request.label} is {request.head[:12]}, but {sides.span.head[:12]} is checked out; "
                        "approvals of one say nothing about the other",
                        next_command=f"git fetch origin && {Command('git', 'checkout', request.head)}",
                    )
                sides.move(request.head)  # CI checks out a merge of what is reviewed into the base
                found = sides.changes()
        if found.changes:
            if options.sign_off is not None:
                sign_off = read(options.sign_off, sides.tip.read(sides.settings.signers))
            judge = ApprovalJudge(request, forge, sign_off, sides.authors())
            approvers, owners = sides.settings.approvers, sides.owners()
            needed = [required_approval(change, approvers, owners) for change in found.changes]
            judged = tuple(map(judge.judge, found.changes, needed))
    finally:
        if forge is not None:
            forge.close()
    return Approvals(
        base=sides.span.base,
        head=sides.span.head,
        request=request.label if request else None,
        files=found.files,
        judged=judged,
        findings=(*found.findings, *findings_of(sides, found, judged, place, sign_off, options)),
    )


class RequiredApproval(msgspec.Struct, frozen=True, kw_only=True):
    """Who may approve one change: one of the people, or so many of each section of CODEOWNERS."""

    people: tuple[str, ...]
    sections: tuple[OwnerSection, ...] = ()
    note: str = ""  # What else to report: that CODEOWNERS has no owner for the file.

    @property
    def words(self) -> tuple[str, ...]:
        owners = (owner for section in self.sections for owner in section.owners)
        return tuple(dict.fromkeys((*self.people, *owners)))


def required_approval(
    change: PolicyChange, approvers: Mapping[str, tuple[str, ...]], owners: CodeOwners | None
) -> RequiredApproval:
    words = approvers_of(change.waiver.rule, approvers)
    people = tuple(word for word in words if word != CODE_OWNERS)
    if CODE_OWNERS not in words:
        return RequiredApproval(people=people)
    found = owners.of(change.waiver.path) if owners else ()
    required = tuple(section for section in found if not section.optional)
    note = "" if found else f"CODEOWNERS has no owner for {change.waiver.path}"
    return RequiredApproval(people=people, sections=required or found, note=note)


class Approver(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has reviewed, or has signed a list."""

    name: str
    why: str = ""  # Why that does not count.
    names: frozenset[str] = frozenset()  # Account and addresses, by which two of them are known to be one person.
    principals: tuple[str, ...] = ()  # What a key stands for; empty for reviews.


def people_among(those: Sequence[Approver]) -> int:
    """How many people they are: somebody who reviews and signs is one, and so is somebody with two keys."""
    groups: list[frozenset[str]] = []
    for approver in those:
        same = [group for group in groups if group & approver.names]
        others = [group for group in groups if not group & approver.names]
        groups = [*others, approver.names.union(*same)]
    return len(groups)


class ApprovalJudge:
    """Knows who has approved, and asks the forge who is who; every question once."""

    def __init__(
        self, request: Request | None, forge: ReviewForge | None, sign_off: SignOff | None, commits: Authors
    ) -> None:
        known = request.authors if request else Authors()
        # The forge's words first: it knows accounts, and commits know addresses.
        self._authors = Authors(logins={**commits.logins, **known.logins}, emails={**commits.emails, **known.emails})
        self._forge = forge
        self._sign_off = sign_off
        self._has_source = request is not None or sign_off is not None
        self._members: dict[str, frozenset[str] | str] = {}  # Of a team; why that is not known, where it is not.
        self._emails: dict[str, str | None] = {}
        self._approvers: list[Approver] = []
        for reviewer, objection in latest_reviews(request).items() if request else ():
            login, email, why = reviewer.lower(), None, objection
            if not why:  # an address may tell what the account does not
                email = self._email(login)
                why = self._authors.emails.get(email or "") or self._authors.logins.get(login, "")
            self._approvers.append(Approver(name=f"@{reviewer}", why=why, names=frozenset({login, email or login})))
        if sign_off and sign_off.signers:
            logins = self._authors.logins
            # An author who commits under a no-reply address may sign under the one that the account shows.
            shown = {email: why for login, why in logins.items() if (email := self._email(login))}
            authors = {**shown, **self._authors.emails, **logins}
            for signature, principals in sign_off.signers.items():
                names = frozenset(principal.lstrip("@") for principal in principals)
                why = next((authors[name] for name in sorted(names) if name in authors), "")
                name = f"{principals[0]} ({signature})"
                self._approvers.append(Approver(name=name, why=why, names=names, principals=principals))

    def judge(self, change: PolicyChange, need: RequiredApproval) -> ChangeApproval:
        """Who has approved; else why it is not approved, and what could not be found out."""
        listed = self._sign_off is not None and change.digest in self._sign_off.digests
        given = [v for v in self._approvers if listed or not v.principals]
        good = [v for v in given if not v.why]
        unknown: list[str] = []
        people = self._of(good, need.people, unknown)
        owners = [(s, self._of(good, s.owners, unknown)) for s in need.sections]
        approved_by, missing = list[str](), list[str]()
        if people or (owners and all(people_among(found) >= s.count for s, found in owners)):
            approved_by = [v.name for found in (people, *(f for _, f in owners)) for v in found]
            unknown = []
        elif self._has_source:
            missing = list(self._why(need, given, owners)) or ["no approver has approved"]
        else:
            missing = unknown = ["no approvals were checked"]
        return ChangeApproval(
            state="approved" if approved_by else "unknown" if unknown else "missing",
            change=change.what,
            digest=change.digest,
            waiver=msgspec.convert(change.waiver, WaiverSummary, from_attributes=True),
            before=msgspec.convert(change.before, WaiverSummary | None, from_attributes=True),
            needed=need.words,
            approved_by=tuple(dict.fromkeys(approved_by)),
            missing=tuple(missing),
            unknown=tuple(dict.fromkeys(unknown)),
        )

    def _of(self, those: Sequence[Approver], words: Sequence[str], unknown: list[str]) -> list[Approver]:
        return [v for v in those if any(self._is(v, word, unknown) for word in words)]

    def _is(self, approver: Approver, word: str, unknown: list[str]) -> bool:
        """Whether somebody is, or belongs to, whom a word names."""
        lower = word.lower()
        if approver.principals:
            return {lower, lower.removeprefix("@")} & set(approver.principals) != set()
        login = approver.name.removeprefix("@").lower()
        if not word.startswith("@"):
            return lower == self._email(login) or login_of(lower) == login
        if lower == f"@{login}":
            return True
        if "/" not in word and not (self._forge and self._forge.name == "gitlab"):
            return False
        if word not in self._members:
            self._members[word] = f"cannot resolve {word} without GitHub or GitLab"
            try:
                if self._forge is not None:
                    self._members[word] = self._forge.members(word)
            except Refused as error:
                self._members[word] = f"who is in {word} could not be read (HTTP {error.status})"
        members = self._members[word]
        if isinstance(members, str):
            unknown.append(members)
            return False
        return login in members

    def _email(self, login: str) -> str | None:
        if login.lower() not in self._emails:
            self._emails[login.lower()] = self._forge.email_of(login) if self._forge else None
        return self._emails[login.lower()]

    def _why(
        self, need: RequiredApproval, given: Sequence[Approver], owners: Sequence[tuple[OwnerSection, list[Approver]]]
    ) -> Iterator[str]:
        """Every reason a person could act on."""
        if need.note:
            yield need.note
        ignored: list[str] = []
        for approver in given:
            if approver.why and self._of([approver], need.words, ignored):
                yield f"{approver.name}: {approver.why}"
        for section, found in owners if any(found for _, found in owners) else ():
            if people_among(found) < section.count:
                yield f"{section.name or CODE_OWNERS}: {people_among(found)} of {section.count} approvals"
        others = [v.name for v in given if not v.why and not self._of([v], need.words, ignored)]
        if others:
            yield f"{', '.join(others)} approved, but may not"
        if self._sign_off and not given:
            yield f"no signature on {self._sign_off.path} is for this change"


def findings_of(
    sides: Sides,
    found: RangeChanges,
    judged: Sequence[ChangeApproval],
    place: RequestPlace | None,
    sign_off: SignOff | None,
    options: Options,
) -> Iterator[Finding]:
    """What is odd about the range and the signed list; one finding for each change that is not known to be approved."""
    head = sides.span.head[:12]
    if sides.span.base == sides.span.head:
        yield fail(
            "nothing-compared",
            f"there are no commits between {options.base} and {head}, so nothing was compared",
            next=str(Command("git", "log", "--oneline", "-5", options.base)),
        )
    for path, about in ((change.waiver.path, change.waiver.about) for change in found.changes):
        if about in _WHO:
            base = f"{options.base} ({sides.tip.commit[:12]})"
            text = f"{path}: the range changes who may approve ({about}); those of {base} are asked"
            yield warn("approvers-changed", text, path=path)
    if sign_off is not None:
        yield from (warn("approval-missing", text, path=sign_off.path) for text in sign_off.objections)
    if found.changes and place is None and sign_off is None:
        text = "no approvals were checked: pass --pr N, --merge-request N or --sign-off FILE"
        yield fail("nothing-compared", text, next=options.again.plus("--pr", "N"))
        return
    for one in judged:
        if one.state != "approved":
            waiver = one.waiver
            people = [word.removeprefix("@") for word in one.needed if word.startswith("@")]
            after = f"{options.again.plus('--print-sign-off')} > sign-off.toml"
            if one.unknown and place is not None and place.forge == "github":
                after = "gh auth refresh --scopes read:org"
            elif place is None and sign_off is not None and one.digest in sign_off.digests:
                after = signing(sign_off.path)  # it is on the list, and wants a signature
            elif place is not None and people:
                edit = ("gh", "pr", "edit") if place.forge == "github" else ("glab", "mr", "update")
                option = "--add-reviewer" if place.forge == "github" else "--reviewer"
                after = str(Command(*edit, str(place.number), "--repo", place.repo, option, ",".join(people)))
            yield fail(
                "cannot-read" if one.unknown else "approval-missing",
                f"{one.change} {waiver.label}: {waiver.shown}; expected approval of {head} by"
                f" {' or '.join(one.needed) or 'an approver'}, found: {one.reasons}",
                path=waiver.path,
                where=f"line {waiver.line}" if waiver.line else None,
                next=after,
            )


def lines(report: Approvals) -> Iterator[str]:
    """The report for people: a block for each change, what else there is to say, and the outcome."""
    for one in report.judged:
        before = f"{one.before.shown} → " if one.before else ""
        yield printable(f"{one.state:<8}  {one.waiver.rule:<11}  {one.waiver.place}")
        yield printable(f"          {one.change} {one.waiver.label}: {before}{one.waiver.shown}".removesuffix(": "))
        yield printable(f"          needs {' or '.join(one.needed) or 'an approver'}")
        found = f"by {', '.join(one.approved_by)}" if one.approved_by else f"found {one.reasons}"
        yield printable(f"          {found}")
        yield ""
    for finding in report.findings:
        # What is missing stands in the blocks already.
        if finding.kind != "approval-missing" or finding.severity is not Severity.FAIL:
            yield f"{finding.severity.value}  {finding.kind}: {finding.message}"
    tally = Counter(sorted(one.state for one in report.judged))  # approved, missing, unknown
    parts = [f"{number:,} {state}" for state, number in tally.items()]
    of = f" ({report.request})" if report.request else ""
    span = f"{report.base[:12]}..{report.head[:12]}{of}, {count(report.files, 'Python file')} changed"
    if report.judged:
        yield f"{count(len(report.judged), 'change')} to approve: {', '.join(parts)}; {span}"
    else:
        yield f"{'nothing to approve' if report.exit_code is ExitCode.OK else 'not verified'}: {span}"
