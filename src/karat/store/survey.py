"""Survey: the cases of all capture directories, each once, and what is missing or in doubt.

Missing cases are known from the claims that capture sessions leave in `DIR/.karat/SESSION/claims/*.json`. The newest
claim of a case decides: a capture that failed last week and was replaced this week does not matter any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from karat.bundles.cases import Case, cases
from karat.bundles.layout import SUMS
from karat.bundles.manifest import NAME as MANIFEST, Identity, read
from karat.bundles.places import Place, open_place, require_root
from karat.bundles.verify import strays
from karat.findings import Finding, Severity, UsageError, fail, warn
from karat.system.command import Command
from karat.tensors.tensor import Damaged


class CaseClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a claim that matters here, and where it was found; an unknown state is reported as such."""

    identity: Identity
    path: str
    state: str
    session: str = ""
    root: str = ""
    when: int = 0


def newest_claims(roots: Iterable[str]) -> dict[str, CaseClaim]:
    """Case path → its newest claim in any of the capture directories."""
    newest: dict[str, CaseClaim] = {}
    for root in roots:
        for path in sorted(Path(root).glob(".karat/*/claims/*.json")):
            try:
                claim = msgspec.json.decode(path.read_bytes(), type=CaseClaim)
                when = path.stat().st_mtime_ns
            except (OSError, ValueError, RecursionError):
                continue  # withdrawn, or just being written
            if claim.path not in newest or when > newest[claim.path].when:
                found = {"session": path.parts[-3], "root": root, "when": when}
                newest[claim.path] = replace(claim, **found)
    return newest


def missing_cases(claims: Mapping[str, CaseClaim], sessions: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    """Cases that were to be captured and are absent; `sessions`: case path → sessions that captured it."""
    for path, claim in sorted(claims.items()):
        there = sessions.get(path, frozenset())
        # A staged claim of a session that captured it: published, and then there was no room for the mark.
        if there and (claim.state == "published" or (claim.state == "staged" and claim.session in there)):
            continue
        where = f"session {claim.session} in {claim.root}"
        found = "found only that of an earlier session" if there else "found no such folder"
        if claim.state == "published":
            said = f"expected the case that {where} captured, {found}"
        elif claim.state == "failed":
            said = f"expected the case of a test that passed in {where}, but writing it failed; {found}"
        else:
            said = f"expected {where} to have ended, but this case is still {claim.state}; {found}"
        then = _capture(claim.root, claim.identity.test)
        yield fail("incomplete-case", f"{claim.identity.label}: {said}", path=path, where=claim.root, next=then)


def lost_cases(place: Place) -> Iterator[Finding]:
    """Cases that the sessions of one capture directory claim, and that are not there."""
    claims = newest_claims([place.name])
    sessions: dict[str, frozenset[str]] = {}
    for path, claim in claims.items():
        if f"{path}/{MANIFEST}" in place.files():
            sessions[path] = frozenset({claim.session})
            with suppress(Damaged):  # which verifying the case says
                if claim.state != "published":
                    sessions[path] = frozenset({read(place.read(f"{path}/{MANIFEST}")).session})
    yield from missing_cases(claims, sessions)


class Survey(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Everything found, sorted by path; findings are about what cannot be packed."""

    places: tuple[Place, ...]
    candidates: tuple[Case, ...]
    findings: tuple[Finding, ...]
    found: int  # Cases, packable or not.

    def close(self) -> None:
        for place in self.places:
            place.close()


def survey(roots: Sequence[str], *, require_program: bool = False) -> Survey:
    """Read the manifests of capture directories, and no tensor."""
    known: dict[Path, str] = {}  # the same folder twice would be two captures of everything
    for root in roots:
        path = Path(root).resolve()
        for other, typed in known.items():
            if path == other or path.is_relative_to(other) or other.is_relative_to(path):
                said = f"expected capture directories apart from each other, found {typed} and {root}"
                raise UsageError(said, next_command="karat pack --help")
        known[path] = root
    places = []
    by_path: dict[str, list[Case]] = defaultdict(list)
    for root in roots:
        place = open_place(root)
        if place.kind != "folder" or SUMS in place.files():
            place.close()
            filled = "zip" if place.kind == "zip" else "folder that `karat pack` filled"
            said = f"{root}: expected a capture directory, found a {filled}"
            raise UsageError(said, next_command=_verify(root))
        require_root(place, lambda roots: ["karat", "pack", *roots])
        places.append(place)
        for case in cases(place):
            by_path[case.path].append(case)
    groups = [by_path[path] for path in sorted(by_path)]
    alone = [group[0] for group in groups if len(group) == 1]
    sessions = {path: frozenset(c.manifest.session for c in g) for path, g in by_path.items()}
    findings = [
        *(finding for place in places for finding in (*place.findings(), *_told(strays(place), place))),
        *(replace(one, path=case.path) for case in alone for one in _told(case.findings, case.place)),
        *(_twice(group) for group in groups if len(group) > 1),
        *missing_cases(newest_claims(roots), sessions),
    ]
    # Cases without a program: odd beside others of their suite and flow that have one.
    usual = {_flow(case) for case in alone if case.readable and case.manifest.program is not None}
    why = "as --require-program says" if require_program else "as other cases of its suite and flow have"
    report = fail if require_program else warn
    for case in alone:
        if case.readable and case.manifest.program is None and (require_program or _flow(case) in usual):
            root, test = case.place.name, case.manifest.identity.test
            said = f"{case.path}: expected a program, {why}; it was captured without one"
            then = _capture(root, test)
            findings.append(report("incomplete-case", said, path=case.path, where=root, next=then))
    refused = {f.path for f in findings if f.severity is Severity.FAIL}
    refused |= {case.path for case in alone if case.findings}
    return Survey(
        places=tuple(places),
        candidates=tuple(case for case in alone if case.path not in refused),
        findings=tuple(findings),
        found=sum(len(group) for group in groups),
    )


def _told(found: Iterable[Finding], place: Place) -> Iterator[Finding]:
    """Findings of a place, which say how to look at it."""
    for one in found:
        then = one.next if one.kind == "cannot-read" else _verify(place.name)
        yield replace(one, where=place.name, next=then)


def _twice(group: Sequence[Case]) -> Finding:
    path, where = group[0].path, " and ".join(case.place.name for case in group)
    said = f"{path}: expected one capture of this case, found it in {where}; neither is packed"
    then = Command("karat", "diff", *(case.place.name for case in group[:2]))
    return fail("captured-twice", said, path=path, where=where, next=str(then))


def _verify(root: str) -> str:
    return str(Command("karat", "verify", root))


def _capture(root: str, test: str) -> str:
    return str(Command("pytest", f"--karat-capture={root}", test))


def _flow(case: Case) -> tuple[str, str]:
    return case.manifest.identity.suite, case.manifest.identity.flow
