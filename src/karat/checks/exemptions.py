"""CheckExemptions in force: which deviations are known and owned, and which entries have had their day.

An exemption never hides that something is missing unless it says `covers = "missing"`. One that has
expired covers nothing and fails on its own; one that covers nothing is said to be unused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from fnmatch import fnmatchcase

from msgspec import structs

from karat.checks.settings import CheckExemption
from karat.compare.gate.result import ROWS, SHUT, CheckOutcome, MetricResult
from karat.findings import Finding, Severity
from karat.goldens.paths import narrow


class CheckExemptions:
    """The entries that speak of one golden on one day."""

    def __init__(self, entries: Sequence[CheckExemption], path: str, today: date) -> None:
        here = [entry for entry in entries if entry.path == "*" or narrow(path, [entry.path])]
        self._active = [entry for entry in here if entry.expires >= today]
        self._expired = [entry for entry in here if entry.expires < today]

    def covering(self, metric: str, row: str | None) -> int | None:
        """The index of the entry that speaks of this metric, or of this row of it."""
        return next((i for i, e in enumerate(self._active) if _speaks_of(e, metric, row)), None)

    def apply(self, results: Iterable[MetricResult]) -> list[MetricResult]:
        """The results, with those that are covered marked as exempted."""
        applied = []
        for result in results:
            entry = None if result.exemption is None else self._active[result.exemption]
            incomplete = bool(result.missing or result.broken) or result.outcome is not CheckOutcome.FAIL
            if entry is not None and result.outcome in SHUT and (not incomplete or entry.covers == "missing"):
                because = f"{entry.kind} until {entry.expires}: {entry.reason} ({entry.owner}, {entry.link})"
                change = {"outcome": CheckOutcome.EXEMPTED, "exempted": result.outcome, "kind": "exempted"}
                applied.append(structs.replace(result, **change, because=because))
            else:
                applied.append(result)
        return applied

    def findings(self, results: Sequence[MetricResult], *, strict: bool) -> Iterator[Finding]:
        """What there is to say about the entries themselves."""
        for entry in self._expired:
            if any(fnmatchcase(result.metric, entry.metric) for result in results):
                what = f"expired on {entry.expires}; fix the cause, or renew it with a reason"
                yield _about(entry, "exemption-expired", Severity.FAIL, what)
        severity = Severity.FAIL if strict else Severity.WARN
        for index, entry in enumerate(self._active):
            mine = [result for result in results if result.exemption == index]
            if not mine:
                # An entry for all goldens need not speak of each of them.
                mild = Severity.INFO if entry.path == "*" else severity
                yield _about(entry, "exemption-unused", mild, "nothing in this golden is called so")
            elif entry.kind == "expected-failure" and not any(
                r.outcome is CheckOutcome.EXEMPTED or r.outcome in SHUT for r in mine
            ):
                what = "expected to fail, and does not any more; narrow it or remove it"
                yield _about(entry, "exemption-unused", severity, what)


def _speaks_of(entry: CheckExemption, metric: str, row: str | None) -> bool:
    if not fnmatchcase(metric, entry.metric):
        return False
    if metric == ROWS:
        # That a row is there at all is not a matter of values.
        inside = entry.row is None or (row is not None and fnmatchcase(row, entry.row))
        return entry.covers == "missing" and inside
    if entry.row is None:
        return row is None
    return row is not None and fnmatchcase(row, entry.row)


def _about(entry: CheckExemption, kind: str, severity: Severity, what: str) -> Finding:
    where = entry.metric if entry.row is None else f"{entry.metric}, {entry.row}"
    label = f"exemption of {where} ({entry.kind}, {entry.owner}: {entry.reason}; {entry.link})"
    return Finding(
        kind=kind,
        severity=severity,
        metric=entry.metric,
        where=entry.row,
        message=f"{label}: {what}",
        numbers={"expires": entry.expires.isoformat(), "owner": entry.owner},
        next="edit karat.toml  # [[exempt]]",
    )
