"""What a person should know about the approvals of a range, and do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from karat.findings import Finding, Severity
from karat.policy.approvals_judging import Judged
from karat.policy.approvals_sides import Sides
from karat.policy.changed_policies import Changed
from karat.policy.reviews_opening import Place
from karat.policy.sign_off import SignOff, signing

_WHO = (
    "[policy] approvers", "[policy] signers", "[policy] forge", "CODEOWNERS", "keys that may sign",
)  # fmt: skip


def about_range(sides: Sides, found: Changed, base: str) -> Iterator[Finding]:
    """That there is nothing to look at; that the range changes who may approve."""
    if sides.span.base == sides.span.head:
        yield Finding(
            kind="nothing-compared",
            severity=Severity.FAIL,
            message=f"expected commits between {base} and {sides.span.head[:12]}, found none, so nothing was looked at",
            next=f"git log --oneline -5 {shlex.quote(base)}",
        )
    for waiver in (change.waiver for change in found.changes):
        if waiver.about in _WHO:
            yield Finding(
                kind="approvers-changed",
                severity=Severity.WARN,
                message=f"{waiver.path}: the range changes who may approve ({waiver.about}); those of {base} "
                f"({sides.tip.commit[:12]}) are asked",
                path=waiver.path,
            )


def about_sign_off(sign_off: SignOff | None) -> Iterator[Finding]:
    """What is odd about a list of approvals."""
    if sign_off is None:
        return
    said = list(sign_off.objections)
    if sign_off.unsigned:
        said.append(
            f"{sign_off.path} COUNTS WITHOUT A SIGNATURE, because of --unsigned-sign-off: whoever can write the file can "
            "approve"
        )
    for message in said:
        yield Finding(
            kind="approval-missing", severity=Severity.WARN, message=message, path=sign_off.path
        )


def objections(
    judged: Sequence[Judged], place: Place | None, sign_off: SignOff | None, head: str, again: str
) -> Iterator[Finding]:
    """One finding for each change that is not approved, or not known to be."""
    if place is None and sign_off is None:
        yield Finding(
            kind="nothing-compared",
            severity=Severity.FAIL,
            message="expected --pr N, --merge-request N or --sign-off FILE, found none of them, so nobody was asked",
            next=f"{again} --pr N",
        )
        return
    for one in judged:
        if not one.approved_by:
            yield _objection(one, head, _next(one, place, sign_off, again))


def _objection(one: Judged, head: str, advice: str) -> Finding:
    waiver = one.change.waiver
    note = f" ({one.change.note})" if one.change.note else ""
    what = f"{one.change.what} {waiver.label}: {waiver.shown or waiver.value}{note}"
    who = " or ".join(one.needed) if one.needed else "somebody"
    reasons = "; ".join(dict.fromkeys((*one.unknown, *one.missing)))
    return Finding(
        kind="cannot-read" if one.unknown else "approval-missing",
        severity=Severity.FAIL,
        message=f"{what}; expected approval of {head[:12]} by {who}, found: {reasons}",
        path=waiver.path,
        where=f"line {waiver.line}" if waiver.line else None,
        next=advice,
    )


def _next(one: Judged, place: Place | None, sign_off: SignOff | None, again: str) -> str:
    people = [word.removeprefix("@") for word in one.needed if word.startswith("@")]
    if one.unknown and place is not None and place.forge == "github":
        return "gh auth refresh --scopes read:org"
    if place is None and sign_off is not None and one.change.digest in sign_off.digests:
        return signing(sign_off.path)  # it is on the list, and wants a signature
    if place is None or not people:
        return f"{again} --print-sign-off > sign-off.toml"
    names = shlex.quote(",".join(people))
    if place.forge == "github":
        return f"gh pr edit {place.number} --repo {place.repo} --add-reviewer {names}"
    return f"glab mr update {place.number} --repo {place.repo} --reviewer {names}"
