"""Attempts in memory: the journal's, by point and by what was under test, so that nobody asks the disk at every step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from karat.changes.series import Outcome
from karat.hunt.attempt import Attempt
from karat.hunt.journal import Journal
from karat.hunt.journal_rows import SEARCH, CommandRow, Entry

_EVIDENCE = frozenset({Outcome.OK, Outcome.CRASH, Outcome.HANG})


class Attempted:
    """Every attempt of a hunt so far."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._by_point: dict[tuple[str, str], list[Entry]] = defaultdict(list)
        self._originals: dict[str, list[Attempt]] = defaultdict(list)
        self.runs = 0
        """Those that were really run; shared ones cost nothing."""
        for entry in journal.entries():
            self._keep(entry)

    def add(self, entry: Entry, *, log: bytes = b"", commands: Sequence[CommandRow] = ()) -> None:
        """One more; it is in the journal first."""
        self._journal.attempted(entry, log=log, commands=commands)
        self._keep(entry)

    def _keep(self, entry: Entry) -> None:
        attempt = entry.attempt
        self._by_point[attempt.stage, attempt.point].append(entry)
        self.runs += not attempt.shared_with
        if attempt.identity_key and attempt.outcome in _EVIDENCE and not attempt.shared_with:
            self._originals[attempt.identity_key].append(attempt)

    def count(self, stage: str, point: str) -> int:
        """How many there are of a point."""
        return len(self._by_point.get((stage, point), ()))

    def of(self, stage: str, point: str, retries: int, purpose: str = SEARCH) -> list[Attempt]:
        """Those of one purpose that say something.

        An attempt whose machine was lost says nothing until the point was tried elsewhere, `retries` times.
        """
        entries = [e for e in self._by_point.get((stage, point), ()) if e.purpose == purpose]
        lost = sum(entry.lost for entry in entries)
        return [e.attempt for e in entries if not e.lost or lost > retries]

    def measured(self, stages: frozenset[str]) -> tuple[str, ...]:
        """Identities that were measured in these stages."""
        return tuple(
            key for key, those in self._originals.items() if any(a.stage in stages for a in those)
        )

    def sources(self, identity_key: str) -> list[Attempt]:
        """The attempts of the first point at which this was under test."""
        those = self._originals.get(identity_key, [])
        return [a for a in those if (a.stage, a.point) == (those[0].stage, those[0].point)]
