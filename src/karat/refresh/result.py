"""What a refresh did: one outcome per golden, findings, counts. Pure data for every report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from karat.compare.change import Change
from karat.findings import Finding
from karat.goldens.lock import Provenance
from karat.goldens.provenance import RefreshRecord


class State(StrEnum):
    """What became of a golden that came in."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One golden that came in."""

    path: str
    state: State
    change: Change | None = None
    """Old against new, whether it was taken or not."""
    findings: tuple[Finding, ...] = ()
    artifacts: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    provenance: Provenance | None = None
    metrics: tuple[str, ...] = ()
    """The metrics that were taken, where not all were."""


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, and how many jobs that means."""

    name: str
    """`only-failing` or `all`."""
    jobs: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    """Platform → conclusion → number of jobs."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A whole refresh."""

    source: str
    origin: str
    scope: Scope
    dry_run: bool
    outcomes: tuple[Outcome, ...] = ()
    findings: tuple[Finding, ...] = ()
    """About artifacts, jobs and the whole, rather than one golden."""
    tests: int = 0
    """The seed's first total: tests with golden values."""
    found: int = 0
    """The seed's second total: golden values found."""
    superseded: int = 0
    out_of_scope: int = 0
    unmatched: tuple[str, ...] = ()
    received: int = 0
    """Bytes over the network."""
    reset: tuple[str, ...] = ()
    """Goldens that --reset put back or deleted first."""
    locks: tuple[str, ...] = ()
    """Lock files that were written."""
    record: RefreshRecord | None = None

    def all_findings(self) -> Iterator[Finding]:
        """Every finding, the whole refresh's first."""
        yield from self.findings
        for outcome in self.outcomes:
            yield from outcome.findings

    def in_state(self, state: State) -> list[Outcome]:
        """The outcomes that ended so."""
        return [outcome for outcome in self.outcomes if outcome.state is state]
