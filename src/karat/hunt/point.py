"""Points: what can be put under test, in order of time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that can be put under test."""

    id: str
    """Unique in its stage, and the same in every run of a hunt: `2023-08-24`, `xla@1a2b3c4 jax@5d6e7f8`, `1.26.0`."""
    label: str
    """For a person; short."""
    when: datetime | None = None
    """Time zone aware."""
    parts: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What it is made of: repository → commit id, `image` → reference, package → version, `value` → text."""
    missing: str = ""
    """Why it cannot be had; empty: it can."""


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Between two points of a coarser stage: where a finer one looks."""

    old: Point
    new: Point
    old_identity: Mapping[str, str] = msgspec.field(default_factory=dict)
    new_identity: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What was really under test there; `commit.NAME` is the commit of repository NAME."""


class Suspect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A commit, release or image that may have made the change."""

    part: str
    """The repository or package."""
    id: str
    title: str = ""
    author: str = ""
    when: datetime | None = None
    link: str = ""
