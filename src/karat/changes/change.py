"""Changes: what the detector says of a series.

A *step* is one move from one level to another. A *change* is what a person would call it: a regression is one step, a
dip is two (there, and back), a crash range and a gap are none.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ChangeKind(StrEnum):
    """What a person would call it."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    SHIFT = "shift"
    """A level change where nobody said which direction is better, or that equal is."""
    DIP = "dip"
    """It left its level and came back to it, in either direction."""
    CRASH = "crash"
    """Neighbouring points that failed, or hung, in the same way."""
    GAP = "gap"
    """Neighbouring points that are not there, or could not be tried."""


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a series on one level."""

    value: float
    low: float
    high: float
    """Bounds of the level itself, at the detector's confidence."""
    spread: float
    """Robust standard deviation of the values about it."""
    count: int
    first: int
    last: int
    """Indices of its first and last observation that has values."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One move from one level to another."""

    last_good: int
    first_bad: int
    """Neighbours among the observations that have values; what lies between has none."""
    earliest: int
    latest: int
    """The step came after observation `earliest` and not after `latest`, at the detector's confidence."""
    before: Level
    after: Level
    absolute: float
    relative: float | None
    """Against the level before; None where that is zero."""
    p_value: float
    """Of a step this clear anywhere in a series of this length without one; the choice of the split is counted in."""
    confidence: float


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened in a series."""

    kind: ChangeKind
    metric: str
    steps: tuple[int, ...] = ()
    """Indices into the analysis's steps."""
    first: int
    last: int
    """Indices of the first and last observation concerned."""
    signature: str = ""
    confidence: float = 1.0
    message: str = ""
    """One sentence."""


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is said of one series."""

    metric: str
    steps: tuple[Step, ...]
    levels: tuple[Level, ...]
    changes: tuple[Change, ...]
    outliers: tuple[int, ...] = ()
    """Single points far off their level, which are no change."""
    noise: str = ""
    """What the noise looks like, where it is not plain: autocorrelated, two modes, heavy tails."""
    notes: tuple[str, ...] = ()
    """What could not be judged, and why."""


class Newest(msgspec.Struct, frozen=True, kw_only=True):
    """Online: whether the newest points are a change."""

    verdict: str
    """change, same, unsure."""
    p_value: float | None
    step: Step | None
    message: str
    points_needed: int | None = None
    """Of an unsure one: how many more points would decide, if they are like the newest."""
