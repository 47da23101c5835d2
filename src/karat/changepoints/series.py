"""Series: measurements in order, and what the detector says of them.

A point without a value says why; it is never filled in. A *step* is one move from one level to another. A *change* is
what a person would call it: a regression is one step, a dip is two (there and back); a trend, noise, a crash range and a gap
are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

from karat.findings import UsageError, suggest

Better = Literal["higher", "lower", "equal"]
RAREST = 1e-6
"""Smaller p-values are extrapolated further than anyone can vouch for: they are not told, and cannot be asked for."""


def wrong_usage(message: str) -> UsageError:
    """What cannot be done with what was asked of `karat changes`."""
    return UsageError(message, next_command="karat changes --help")


def no_such(option: str, what: str, name: str, known: Sequence[str]) -> UsageError:
    """An option that should be or name one of some things, and is none of them."""
    there = ", ".join(known[:20]) or "none"
    return wrong_usage(f"expected {option} to {what}, found {name!r}{suggest(name, known)}; there are {there}")


class Outcome(StrEnum):
    """What came of a point."""

    OK = "ok"  # It ran, and left values.
    CRASH = "crash"  # What was under test failed; the signature says how.
    HANG = "hang"  # It did not end within its time.
    BROKEN = "broken"  # It could not be tried: it does not build, the image cannot be pulled, the machine was lost.
    MISSING = "missing"  # There is no such point: no image of that night, no value in that row.


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One point of a series: its values, or why it has none."""

    label: str
    outcome: Outcome = Outcome.OK
    values: tuple[float, ...] = ()  # Every sample, finite; empty unless the outcome is ok.
    signature: str = ""  # Of a crash: exception type and normalised message.
    when: datetime | None = None
    log: str = ""  # Where its log is, for a person: a path, or the `Command` that shows a point of a hunt.


class Series(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One metric over an ordered list of points, oldest first."""

    metric: str
    observations: tuple[Observation, ...]
    better: Better | None = None
    unit: str = ""
    source: str = ""


class ChangeKind(StrEnum):
    """What a person would call it."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    SHIFT = "shift"  # A level change where nobody said which direction is better, or that equal is.
    DIP = "dip"  # It left its level and came back to it, in either direction.
    TREND = "trend"  # A slow rise or fall.
    NOISE = "noise"  # The values stray farther from their level than before, or less far.
    CRASH = "crash"  # Neighbouring points that failed, or hung, in the same way.
    GAP = "gap"  # Neighbouring points that are not there, or could not be tried.


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a series on one level."""

    value: float
    low: float
    high: float  # Bounds of the level itself, at the detector's confidence.
    spread: float  # Robust standard deviation of the values about it.
    count: int
    first: int
    last: int  # Indices of its first and last observation that has values.


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One move from one level to another."""

    last_good: int
    first_bad: int  # Neighbours among the observations that have values; what lies between has none.
    earliest: int
    latest: int  # The step came after observation `earliest` and not after `latest`, at the detector's confidence.
    before: Level
    after: Level
    absolute: float
    relative: float | None  # Against the level before; None where that is zero.
    p_value: float
    """Of a step this clear anywhere in a series of this length without one; the choice of the split is counted in."""
    confidence: float


def improves(better: Better | None, rise: float) -> bool | None:
    """Whether a rise, or a fall, is for the better; None where nobody said."""
    return (rise > 0) == (better == "higher") if better in {"higher", "lower"} else None


def step_kind(better: Better | None, step: Step) -> ChangeKind:
    kinds = {None: ChangeKind.SHIFT, True: ChangeKind.IMPROVEMENT, False: ChangeKind.REGRESSION}
    return kinds[improves(better, step.absolute)]


class SeriesChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened in a series."""

    metric: str
    kind: ChangeKind
    first: int
    last: int  # Indices of the first and last observation concerned.
    steps: tuple[int, ...] = ()  # Indices into the analysis's steps.
    before: float | None = None
    after: float | None = None  # Of a trend the levels, of noise its standard deviations.
    p_value: float | None = None  # Of a trend or of noise; steps have their own.
    signature: str = ""
    confidence: float = 1.0
    message: str = ""  # One sentence.


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is said of one series."""

    metric: str
    steps: tuple[Step, ...]
    levels: tuple[Level, ...]
    changes: tuple[SeriesChange, ...]
    outliers: tuple[int, ...] = ()  # Single points far off their level, which are no change.
    noise: str = ""  # What comes again, and was taken off: a season.
    notes: tuple[str, ...] = ()  # What could not be judged, and why.


class Newest(msgspec.Struct, frozen=True, kw_only=True):
    """Online: whether the newest points are a change."""

    verdict: str  # change, same, unsure.
    p_value: float | None
    step: Step | None
    message: str
    points_needed: int | None = None
    """Of an unsure one: how many more points would decide, if they are like the newest."""


class DetectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How sure the detector must be, and what is too small to tell."""

    false_alarms: float = 0.01  # The chance that a series without a change is given one.
    smallest: float = 0.0  # Steps smaller than this, relative to the level before, are not reported.
    min_points: int = 2  # The fewest observations that make a level; a single one never does.
    location: float = 0.95  # The chance that a step lies within its range `earliest` to `latest`.

    def __post_init__(self) -> None:
        for name, wanted, holds in (
            ("false_alarms", f"between {RAREST:g} and 0.5", RAREST <= self.false_alarms <= 0.5),
            ("smallest", "0 or more", 0 <= self.smallest < float("inf")),
            ("min_points", "2 or more", self.min_points >= 2),
            ("location", "between 0.5 and 1", 0.5 <= self.location < 1),
        ):
            if not holds:
                raise wrong_usage(f"detector option {name}: expected {wanted}, found {getattr(self, name)}")
