"""Speakers: which journals of a folder speak of today, and which come from somewhere else. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from karat.findings import Finding, Severity
from karat.policy.journals import Journal
from karat.report.words import count


def starts(journals: Iterable[Journal]) -> dict[str, str]:
    """Speaker → when its first journal began."""
    first: dict[str, str] = {}
    for journal in journals:
        if journal.began:
            at = journal.began.started
            first[journal.speaker] = min(first.get(journal.speaker, at), at)
    return first


def heard(journals: Sequence[Journal], run: str | None = None) -> list[Journal]:
    """Of a place with journals of CI runs, those of one: of `run`, which asks, or of the newest.

    A runner that is not cleaned up keeps the evidence of earlier runs, and anybody can commit a journal.
    """
    started = starts(journals)
    runs = [
        (one.began.run == run, started[one.speaker], one.speaker)
        for one in journals
        if one.began and one.run
    ]
    if not runs:
        return list(journals)
    _, _, speaker = max(runs)
    return [one for one in journals if one.began is None or one.speaker == speaker]


def unheard(journals: Sequence[Journal], heard: Sequence[Journal]) -> Iterator[Finding]:
    """One line for what was left out."""
    left = len(journals) - len(heard)
    if left:
        yield Finding(
            kind="superseded",
            severity=Severity.INFO,
            message=f"{count(left, 'journal')} of other runs or sessions left out, beside those of the CI run",
            numbers={"journals": left},
        )


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
