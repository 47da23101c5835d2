"""Telling what became of a case that did not get as far as a comparison."""

from __future__ import annotations

from karat.bundles.cases import Case
from karat.findings import Finding, KaratError, Severity
from karat.replay.outcome import Outcome, Replayed


def failed(case: Case, message: str, *others: Finding) -> Replayed:
    """The program did not run, or left nothing that can be compared."""
    finding = Finding(
        kind="replay-failed",
        severity=Severity.FAIL,
        path=case.path,
        message=message,
    )
    return Replayed(
        path=case.path,
        identity=case.manifest.identity,
        outcome=Outcome.FAILED,
        findings=(finding, *others),
    )


def out_of_reach(case: Case, error: KaratError | OSError) -> Replayed:
    """It could not be read, or there was no room for it: nothing is known about it."""
    said = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    finding = Finding(
        kind="cannot-read",
        severity=Severity.FAIL,
        path=case.path,
        message=f"expected to prepare the case, but: {said}",
        next=error.next_command if isinstance(error, KaratError) else "df -h",
    )
    return Replayed(
        path=case.path,
        identity=case.manifest.identity,
        outcome=Outcome.NOT_COMPARED,
        findings=(finding,),
    )


def damaged(case: Case, message: str) -> Replayed:
    """Its bytes are not what was captured, so it was not run."""
    finding = Finding(
        kind="bundle-damaged",
        severity=Severity.FAIL,
        path=case.path,
        message=f"{message}; the case was not run",
    )
    return Replayed(
        path=case.path,
        identity=case.manifest.identity,
        outcome=Outcome.DAMAGED,
        findings=(finding,),
    )
