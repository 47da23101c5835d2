"""Placing findings: each says which case it is of, and the gravest comes first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from karat.findings import Finding, Severity


def placed(findings: Iterable[Finding], path: str) -> tuple[Finding, ...]:
    """The findings of one case; a comparison that compared nothing is none."""
    named = (f if f.path else replace(f, path=path) for f in findings)
    return tuple(sorted(named, key=lambda f: f.severity.rank))


def nothing_compared(path: str, why: str) -> Finding:
    """Running without comparing must not look like a match."""
    return Finding(
        kind="nothing-compared",
        severity=Severity.FAIL,
        path=path,
        message=f"the program ran, but {why}, so nothing was compared",
        next="karat replay --help",
    )
