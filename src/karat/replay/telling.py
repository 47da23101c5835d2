"""Telling what became of a case that did not get as far as a comparison."""

from __future__ import annotations

from karat.bundles.cases import Case
from karat.findings import Finding, Severity
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
