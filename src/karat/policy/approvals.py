"""Approvals: every waiver that a range adds or makes laxer needs the approval of somebody who may give it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from karat.findings import CannotVerify, ExitCode, Finding, UsageError, exit_code
from karat.policy.approvals_findings import about_range, about_sign_off, objections
from karat.policy.approvals_judging import Judge, Judged, needs
from karat.policy.approvals_sides import Sides
from karat.policy.changed_policies_waiver import PolicyChange
from karat.policy.reviews import Authors, Forge, Request
from karat.policy.reviews_opening import Asked, forge_of, open_forge, place_of
from karat.policy.sign_off import SignOff, read, render
from karat.sources.patience import Patience


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for."""

    base: str
    head: str = "HEAD"
    pull: int | None = None
    merge: int | None = None
    repo: str | None = None
    sign_off: Path | None = None
    signers: Path | None = None
    unsigned: bool = False
    again: str = "karat policy approvals --base REV"
    """The command as it was typed, for advice."""
    env: Mapping[str, str] = {}
    notice: Callable[[str], None] | None = None
    patience: Patience | None = None


class Approvals(msgspec.Struct, frozen=True, kw_only=True):
    """What a range comes to."""

    base: str
    head: str
    request: str | None = None
    files: int = 0
    judged: tuple[Judged, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """As findings say."""
        return exit_code(self.findings)


def to_sign(folder: Path, options: Options) -> str:
    """The list of a range's changes, for approvers to sign."""
    return render(_sides(folder, options).changes().changes)


def approvals(folder: Path, options: Options) -> Approvals:
    """Whether every change of a range is approved; the forge is asked only if there is something to approve."""
    sides = _sides(folder, options)
    found = sides.changes()
    place = place_of(_asked(sides, options), sides.root, options.env) if found.changes else None
    request, forge = None, None
    try:
        if place is not None:
            forge = open_forge(place, options.env, options.again, options.notice, options.patience)
            request = forge.request()
            if _step_back(sides, request):
                found = sides.changes()
        sign_off = _sign_off(sides, options) if found.changes else None
        judged = _judged(sides, found.changes, request, forge, sign_off)
    finally:
        if forge is not None:
            forge.close()
    said = [*found.findings, *about_range(sides, found, options.base), *about_sign_off(sign_off)]
    if found.changes:
        said += objections(judged, place, sign_off, sides.span.head, options.again)
    return Approvals(
        base=sides.span.base,
        head=sides.span.head,
        request=request.label if request else None,
        files=found.files,
        judged=judged,
        findings=tuple(said),
    )


def _sides(folder: Path, options: Options) -> Sides:
    sides = Sides(folder, options.base, options.head)
    sides.forge = forge_of(_asked(sides, options), options.env)
    return sides


def _asked(sides: Sides, options: Options) -> Asked:
    said = sides.trusted.settings.forge
    return Asked(pull=options.pull, merge=options.merge, repo=options.repo, forge=said)


def _step_back(sides: Sides, request: Request) -> bool:
    """Whether the head had to become the one that is reviewed: CI checks out a merge of it into the base."""
    if request.head == sides.span.head:
        return False
    parents = sides.parents()
    if len(parents) == 2 and parents[1] == request.head:
        sides.move(request.head)
        return True
    raise CannotVerify(
        f"expected the head of {request.label}, {request.head[:12]}, found {sides.span.head[:12]} here; approvals of one "
        "say nothing about the other",
        next_command=f"git fetch origin && git checkout {request.head}",
    )


def _judged(
    sides: Sides,
    changes: Sequence[PolicyChange],
    request: Request | None,
    forge: Forge | None,
    sign_off: SignOff | None,
) -> tuple[Judged, ...]:
    if not changes:
        return ()
    here, known = sides.authors(), request.authors if request else Authors()
    # The forge's words first: it knows accounts, and commits know addresses.
    authors = Authors(
        logins={**here.logins, **known.logins}, emails={**here.emails, **known.emails}
    )
    judge = Judge(request, forge, sign_off, authors)
    approvers, owners = sides.trusted.settings.approvers, sides.owners()
    return tuple(judge.judge(change, needs(change, approvers, owners)) for change in changes)


def _sign_off(sides: Sides, options: Options) -> SignOff | None:
    if options.sign_off is None:
        return None
    return read(options.sign_off, _keys(sides, options), unsigned=options.unsigned)


def _keys(sides: Sides, options: Options) -> bytes | None:
    if options.signers is None:
        return sides.keys()
    try:
        return options.signers.read_bytes()
    except OSError as error:
        raise UsageError(
            f"expected to read {options.signers}, but: {error.strerror or error}",
            next_command=f"ls -l {shlex.quote(str(options.signers))}",
        ) from error
