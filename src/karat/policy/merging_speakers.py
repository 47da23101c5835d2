"""Speakers: which journals of a folder speak of today, and which come from somewhere else. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from karat.findings import Finding, Severity
from karat.policy.journals import Journal


def starts(journals: Iterable[Journal]) -> dict[str, str]:
    """Speaker → when its first journal began."""
    first: dict[str, str] = {}
    for journal in journals:
        if journal.began:
            at = journal.began.started
            first[journal.speaker] = min(first.get(journal.speaker, at), at)
    return first


def newest_runs(journals: Sequence[Journal]) -> list[Journal]:
    """Without what earlier CI runs left in a folder: a runner that is not cleaned up keeps their evidence."""
    started = starts(journals)
    newest: dict[str, str] = {}
    for journal in journals:
        if journal.run:
            speakers = (newest.get(journal.group, journal.speaker), journal.speaker)
            newest[journal.group] = max(speakers, key=lambda one: (started[one], one))
    return [one for one in journals if not one.run or newest[one.group] == one.speaker]


def strangers(journals: Sequence[Journal]) -> Iterator[Finding]:
    """Journals of several commits, and of several suites that have tests of one name."""
    commits = sorted({one.began.commit for one in journals if one.began and one.began.commit})
    if len(commits) > 1:
        named = ", ".join(commit[:12] for commit in commits[:5])
        yield _foreign(f"expected evidence of one commit, found journals of {len(commits)}: {named}", journals)  # fmt: skip
    roots: dict[str, str] = {}
    for journal in journals:
        mine = journal.began.root if journal.began else ""
        for test in {getattr(record, "test", "") for _, record in journal.lines} - {""}:
            other = roots.setdefault(test, mine)
            if other != mine:
                said = f"expected one test of this name, found {test} in {other or '.'} and in {mine or '.'}"
                yield _foreign(said, [journal])
                return


def _foreign(said: str, journals: Sequence[Journal]) -> Finding:
    return Finding(
        kind="evidence-foreign",
        severity=Severity.FAIL,
        message=f"{said}; what one of them proves is not known of the other",
        next=f"ls -l {shlex.quote(journals[0].group)}  # gate each on its own",
    )
