"""Series: measurements in order, as they were made.

In: what readers, or a hunt, found. Out: what the detector works on. A point that has no value says why; nobody
fills it in.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

import msgspec

Better = Literal["higher", "lower", "equal"]


class Outcome(StrEnum):
    """What came of a point."""

    OK = "ok"
    """It ran, and left values."""
    CRASH = "crash"
    """What was under test failed; the signature says how."""
    HANG = "hang"
    """It did not end within its time."""
    BROKEN = "broken"
    """It could not be tried: it does not build, the image cannot be pulled, the machine was lost."""
    MISSING = "missing"
    """There is no such point: no image of that night, no value in that row."""


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One point of a series: its values, or why it has none."""

    label: str
    outcome: Outcome = Outcome.OK
    values: tuple[float, ...] = ()
    """Every sample, finite; empty unless the outcome is ok."""
    signature: str = ""
    """Of a crash: exception type and normalised message."""
    when: datetime | None = None
    log: str = ""
    """Where its log is, for a person: a path, or a point of a hunt."""


class Series(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One metric over an ordered list of points, oldest first."""

    metric: str
    observations: tuple[Observation, ...]
    better: Better | None = None
    unit: str = ""
    source: str = ""
