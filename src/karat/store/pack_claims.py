"""Claims that capture sessions left, read to name the cases that should be here and are not.

`DIR/.karat/SESSION/claims/*.json`: what `karat.captures` writes while tests run. The newest claim of a case
decides: a failed capture of last week that this week's replaced is nobody's business any more.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from karat.findings import Finding, Severity


class _Identity(msgspec.Struct, frozen=True):
    suite: str
    flow: str
    test: str
    subtest: str = ""


class _Claim(msgspec.Struct, frozen=True):
    """All of a claim that matters here; a state not known yet is told as such."""

    identity: _Identity
    path: str
    state: str


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The newest claim of a case."""

    path: str
    label: str
    test: str
    state: str
    session: str
    root: str
    when: int


def newest_claims(roots: Iterable[str]) -> dict[str, Claimed]:
    """Case path → its newest claim in any of the capture directories."""
    newest: dict[str, Claimed] = {}
    for root in roots:
        for claimed in _claims(root):
            known = newest.get(claimed.path)
            if known is None or claimed.when > known.when:
                newest[claimed.path] = claimed
    return newest


def _claims(root: str) -> Iterator[Claimed]:
    for path in sorted(Path(root).glob(".karat/*/claims/*.json")):
        try:
            claim = msgspec.json.decode(path.read_bytes(), type=_Claim)
            when = path.stat().st_mtime_ns
        except (OSError, msgspec.DecodeError):
            continue  # withdrawn, or just being written
        who = claim.identity
        subtest = f" ({who.subtest})" if who.subtest else ""
        yield Claimed(
            path=claim.path,
            label=f"{who.test}{subtest} [{who.suite}/{who.flow}]",
            test=who.test,
            state=claim.state,
            session=path.parts[-3],
            root=root,
            when=when,
        )


def missing_cases(
    claims: Mapping[str, Claimed], sessions: Mapping[str, frozenset[str]]
) -> Iterator[Finding]:
    """What was to be captured and is not there; `sessions`: case path → sessions that captured it."""
    for path, claimed in sorted(claims.items()):
        there = sessions.get(path, frozenset())
        if claimed.state == "published" and there:
            continue
        if claimed.state == "staged" and claimed.session in there:
            continue  # published, and then there was no room for the mark
        yield Finding(
            kind="incomplete-case",
            severity=Severity.FAIL,
            message=f"{claimed.label}: {_what(claimed, stale=bool(there))}",
            path=path,
            where=claimed.root,
            next=shlex.join(["pytest", f"--karat-capture={claimed.root}", claimed.test]),
        )


def _what(claimed: Claimed, *, stale: bool) -> str:
    where = f"session {claimed.session} in {claimed.root}"
    there = "found only that of an earlier session" if stale else "found no such folder"
    if claimed.state == "published":
        return f"expected the case that {where} captured, {there}"
    if claimed.state == "failed":
        return f"expected the case of a test that passed in {where}, but writing it failed; {there}"
    return f"expected {where} to have ended, but this case is still {claimed.state}; {there}"
