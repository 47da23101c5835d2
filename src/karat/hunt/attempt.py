"""Attempts: one run of the probe at one point, read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from karat.changes.series import Outcome


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of the probe at one point."""

    stage: str
    """The stage's key: `0`, or of a zoom `0.2/1` (change 2 of stage 0, zoomed into at stage 1)."""
    point: str
    number: int
    """Of this point: 1, 2, …"""
    outcome: Outcome
    samples: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    """Metric → one value per repeat."""
    signature: str = ""
    hunted: bool | None = None
    """Where a crash is hunted: whether this is it. A crash of another kind is broken, not good and not bad."""
    identity: Mapping[str, str] = msgspec.field(default_factory=dict)
    identity_key: str = ""
    shared_with: str = ""
    """The point whose results these are, because the very same thing was under test."""
    seconds: float = 0.0
    started: float = 0.0
    where: str = ""
    why: str = ""
    """What it was run for, in a few words: `grid`, `midpoint of 12 and 24`, `old jax with new xla`."""
    note: str = ""
    """One sentence: what went wrong, or what is odd."""
