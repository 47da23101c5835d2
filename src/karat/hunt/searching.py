"""Searching: which points to run next, and what is known so far.

In: what has been observed of n points, and what is in flight. Out: a `Decision`. Pure: a strategy is a function of what was
observed, so that a hunt that was killed goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from karat.changes.change import Analysis
from karat.changes.series import Better, Outcome


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that was observed at one point, over all its attempts."""

    values: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    """Metric → samples of the attempts that were ok."""
    outcomes: tuple[Outcome, ...] = ()
    """One per attempt."""
    signatures: tuple[str, ...] = ()
    """One per attempt; empty for those that did not crash."""


class Metric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the search looks at."""

    name: str
    better: Better | None = None
    threshold: float | None = None
    """For bisect: worse than this is bad."""
    binary: bool = False
    """Good or bad, 0 or 1: a test, a crash; may be flaky."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A change as a search found it: after `good`, at or before `bad`."""

    metric: str
    good: int
    bad: int
    """Neighbours, or with nothing between them that can be run."""
    before: float | None
    after: float | None
    confidence: float
    kind: str
    """regression, improvement, shift, crash."""
    between: tuple[int, ...] = ()
    """Points between them that are broken or missing: the change may be any of them."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One run that is wanted next."""

    index: int
    why: str
    """In a few words: `grid`, `end point`, `midpoint of 12 and 24`, `again: unsure`."""


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """What could not have been seen, and what ruling it out would cost."""

    longest_dip: int
    """Dips of up to this many points, between two tested ones, could have been missed."""
    runs_to_rule_out: int
    message: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to run next, and what is known."""

    asks: tuple[Ask, ...]
    """Best first; at most as many as were asked for. None, and nothing in flight: the search is over."""
    likely_next: tuple[int, ...] = ()
    """For fetching ahead."""
    expected_left: int | None = None
    """Runs still to come, as far as can be said."""
    spans: tuple[Span, ...] = ()
    analyses: tuple[Analysis, ...] = ()
    flake_rate: float | None = None
    missed: Missed | None = None
    notes: tuple[str, ...] = ()
    """Sentences: an end point that does not hold, a flake that explains everything."""


class Strategy(Protocol):
    """A way to search."""

    def decide(self, seen: Mapping[int, Seen], in_flight: Mapping[int, int], room: int) -> Decision:
        """What to run next: `in_flight` is point → runs under way, `room` how many more may start."""
