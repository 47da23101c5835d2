"""Options of the detector: how sure it must be, and what is too small to tell."""

from __future__ import annotations

import msgspec

from karat.findings import UsageError

RAREST = 1e-6
"""Smaller p-values are extrapolated further than anyone can vouch for: they are not told, and cannot be asked for."""


class DetectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How sure the detector must be, and what is too small to tell."""

    false_alarms: float = 0.01
    """The chance that a series without a change is given one."""
    smallest: float = 0.0
    """Steps smaller than this, relative to the level before, are not reported."""
    min_points: int = 2
    """The fewest observations that make a level; a single one never does."""
    location: float = 0.95
    """The chance that a step lies within its range `earliest` to `latest`."""

    def __post_init__(self) -> None:
        """Say no to what cannot be meant."""
        sane = RAREST <= self.false_alarms <= 0.5
        _require("false_alarms", self.false_alarms, f"between {RAREST:g} and 0.5", sane)
        _require("smallest", self.smallest, "0 or more", 0 <= self.smallest < float("inf"))
        _require("min_points", self.min_points, "2 or more", self.min_points >= 2)
        _require("location", self.location, "between 0.5 and 1", 0.5 <= self.location < 1)


def _require(name: str, value: float, wanted: str, holds: bool) -> None:  # noqa: FBT001 - a condition, not a mode
    if not holds:
        raise UsageError(
            f"detector option {name}: expected {wanted}, found {value}",
            next_command="karat changes --help",
        )
