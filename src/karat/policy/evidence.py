"""Evidence: journals of workers, shards and CI jobs merged into what is known of each test.

Journals are trusted to be JSON and nothing more. What is in two of them counts once. In a folder with journals of CI
runs only one run counts, and elsewhere the newest session that ran a test: yesterday's evidence is not today's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from karat.findings import Finding, fail, info
from karat.policy.journal import (
    Collected,
    Evidence,
    EvidenceJournal,
    ItemOutcome,
    NoGradAsked,
    OpTested,
    Record,
    Reported,
    read_journal,
)
from karat.report.words import count, few
from karat.system.command import Command
from karat.system.hashes import sha256_file

_RANK = {"failed": 2, "passed": 1, "skipped": 0}


class KnownTest(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one test: a class, or a function."""

    test: str
    collected: tuple[Collected, ...] = ()
    declared: tuple[OpTested, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    reports: tuple[Reported, ...] = ()
    no_grads: tuple[NoGradAsked, ...] = ()
    outcomes: tuple[ItemOutcome, ...] = ()
    """One per item; what failed anywhere has failed, what passed anywhere was not skipped."""

    @property
    def is_op_test(self) -> bool:
        """By its class, or because it declared an op."""
        return bool(self.declared) or any(one.op_test for one in self.collected)

    @property
    def total(self) -> int:
        """How many items it has, selected or not; 0 where nobody counted them."""
        return max((one.selected + one.deselected for one in self.collected), default=0)

    @property
    def ran(self) -> int:
        """How many of them finished."""
        return len(self.outcomes)

    @property
    def is_whole(self) -> bool:
        """Whether all of it was run; without a count there is nothing to doubt."""
        return self.ran >= self.total

    @property
    def ops(self) -> tuple[str, ...]:
        """The ops that it tests; one that never was set up may have named its op when it was collected."""
        named = {one.op for one in self.declared} or {one.op for one in self.collected if one.op}
        return tuple(sorted(named))


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What all journals say together."""

    tests: dict[str, KnownTest] = msgspec.field(default_factory=dict)
    journals: int = 0
    sessions: int = 0
    ran: int = 0  # Tests of any kind that were run, over all sessions.
    whole: bool = False  # No session was narrowed, and each finished.
    findings: tuple[Finding, ...] = ()


def merge(
    places: Sequence[Path], *, session: str | None = None, run: str | None = None, commit: str | None = None
) -> Merged:
    """What the journals in folders say together; with `session`, only those of one pytest session.

    `run` is the CI run that asks: where it left journals, only they count. `commit` is the one that is judged:
    journals of another, or of none, are refused.
    """
    found: list[Finding] = []
    journals: list[EvidenceJournal] = []
    for place in places:
        files = [place] if place.is_file() else sorted(place.rglob("evidence-*.jsonl"))
        here = [read_journal(path) for path in files if path.is_file()]
        chosen = [one for one in here if session is None or one.session in {session, ""}]
        if not chosen:
            what = "none" if place.exists() else "no such folder"
            text = f"{place}: expected journals of evidence (evidence-*.jsonl), found {what}"
            after = Command("pytest", f"--karat-evidence={place}")
            found.append(fail("nothing-compared", text, path=str(place), next=str(after)))
        kept = current(chosen, run)
        if len(kept) < len(chosen):
            left = len(chosen) - len(kept)
            text = f"{count(left, 'journal')} of other runs or sessions ignored: only the CI run's count"
            found.append(info("superseded", text, numbers={"journals": left}))
        journals += kept
    found += (finding for journal in journals for finding in journal.findings)
    found += _mixed(journals, commit)
    ends = [one.ended for one in journals if one.ended]
    return Merged(
        tests=_tests(journals),
        journals=len(journals),
        sessions=len({one.session for one in journals if one.session}),
        ran=sum(end.ran for end in ends),
        whole=bool(ends) and all(one.ended and one.ended.whole for one in journals),
        findings=tuple(found),
    )


def starts(journals: Iterable[EvidenceJournal]) -> dict[str, str]:
    """Run or session → when its first journal began."""
    first: dict[str, str] = {}
    for journal in journals:
        if journal.began:
            at = journal.began.started
            first[journal.origin] = min(first.get(journal.origin, at), at)
    return first


def current(journals: Sequence[EvidenceJournal], run: str | None = None) -> list[EvidenceJournal]:
    """In a folder with journals of CI runs those of one: of `run`, which asks, or of the newest.

    A runner that is not cleaned up keeps the evidence of earlier runs, and anybody can commit a journal.
    """
    started = starts(journals)
    runs = [(one.began.run == run, started[one.origin], one.origin) for one in journals if one.began and one.run]
    if not runs:
        return list(journals)
    _, _, newest = max(runs)
    return [one for one in journals if one.began is None or one.origin == newest]


def _mixed(journals: Sequence[EvidenceJournal], judged: str | None) -> Iterator[Finding]:
    """Journals of another commit or of several, and of several suites that have tests of one name."""
    commits = sorted({one.began.commit or "" for one in journals if one.began})
    named = few([commit[:12] or "an unknown one" for commit in commits], 5)
    if judged and commits and commits != [judged]:
        what = f"expected evidence of {judged[:12]}, the commit that is judged, found journals of {named}"
        again = f"{Command('pytest', f'--karat-evidence={journals[0].group}')}  # in an empty folder, at that commit"
        yield replace(_foreign(what, journals[0]), next=again)
    elif len(list(filter(None, commits))) > 1:
        yield _foreign(f"expected evidence of one commit, found journals of {named}", journals[0])
    roots: dict[str, str] = {}
    for journal in journals:
        mine = journal.began.root if journal.began else ""
        for test in {getattr(record, "test", "") for _, record in journal.lines} - {""}:
            other = roots.setdefault(test, mine)
            if other != mine:
                yield _foreign(
                    f"expected one test of this name, found {test} in {other or '.'} and in {mine or '.'}", journal
                )
                return


def changed_sources(merged: Merged, top: Path) -> Iterator[Finding]:
    """Files of ops and tests that are not as they were when the evidence was recorded; those that are not here are left out."""
    told: dict[str, set[str]] = {}
    for known in merged.tests.values():
        for name, digest in (item for report in known.reports for item in report.sources.items()):
            told.setdefault(name, set()).add(digest)
    inside = [name for name in sorted(told) if not name.startswith("/") and ".." not in name.split("/")]
    changed = [name for name in inside if (top / name).is_file() and told[name] != {sha256_file(top / name)}]
    if changed:
        text = f"expected {few(changed, 3)} as tested, found other contents; the evidence is of another version"
        yield fail("evidence-foreign", text, path=changed[0], next="git status  # and run the tests again")


def _foreign(what: str, journal: EvidenceJournal) -> Finding:
    return fail(
        "evidence-foreign",
        f"{what}; evidence for one says nothing about the other",
        next=f"{Command('ls', '-l', journal.group)}  # gate each on its own",
    )


def _tests(journals: Sequence[EvidenceJournal]) -> dict[str, KnownTest]:
    started = starts(journals)
    said = [
        (journal, test, line, record)
        for journal in journals
        for line, record in journal.lines
        if isinstance(test := getattr(record, "test", None), str)
    ]
    newest: dict[tuple[str, str], tuple[str, str]] = {}
    """(folder, test) → the newest run or session that ran the test there, after its start."""
    for journal, test, _, record in said:
        if not isinstance(record, Collected):
            key, mine = (journal.group, test), (started.get(journal.origin, ""), journal.origin)
            newest[key] = max(newest.get(key, mine), mine)
    kept: dict[str, dict[bytes, Record]] = {}
    for journal, test, line, record in said:
        if newest.get((journal.group, test), ("", journal.origin))[1] == journal.origin:
            kept.setdefault(test, {})[line] = record
    tests: dict[str, KnownTest] = {}
    for test in sorted(kept):
        kinds: dict[type, list[Any]] = {}
        for record in kept[test].values():
            kinds.setdefault(type(record), []).append(record)
        outcomes: dict[str, ItemOutcome] = {}
        for one in kinds.get(ItemOutcome, ()):
            first = outcomes.setdefault(one.item, one)
            if _RANK[one.outcome] > _RANK[first.outcome]:
                outcomes[one.item] = one
        tests[test] = KnownTest(
            test=test,
            collected=tuple(kinds.get(Collected, ())),
            declared=tuple(kinds.get(OpTested, ())),
            evidence=tuple(kinds.get(Evidence, ())),
            reports=tuple(kinds.get(Reported, ())),
            no_grads=tuple(kinds.get(NoGradAsked, ())),
            outcomes=tuple(outcomes.values()),
        )
    return tests
