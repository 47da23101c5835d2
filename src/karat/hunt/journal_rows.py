"""What a journal keeps: stages, commands that ran, what became of a change."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from karat.engines.job import Role
from karat.hunt.attempt import Attempt
from karat.hunt.point import Suspect, Window
from karat.hunt.report import Verdict
from karat.hunt.searching import Decision, Metric

SEARCH = "search"
"""The purpose of attempts that a strategy asked for; others: `swap 2`, `confirm 2` (of change 2), `again`."""


class HuntRow(msgspec.Struct, frozen=True, kw_only=True):
    """The hunt itself, as it was begun."""

    name: str
    file: str
    root: str
    hunt: str
    """The short id that names of containers carry."""
    settings: str
    """As JSON, without secrets."""
    command: tuple[str, ...]
    metrics: tuple[Metric, ...]
    units: Mapping[str, str] = msgspec.field(default_factory=dict)


class StageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: a timeline, searched once."""

    key: str
    title: str
    timeline: str
    state: str = "running"
    """running, done; whether a running one is at work is asked of the lock."""
    parent: str = ""
    """`0.2`: change 2 of stage 0 is what it looks into; empty for the first."""
    levels: Mapping[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    window: Window | None = None
    decision: Decision | None = None
    notes: tuple[str, ...] = ()


class CommandRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One command of an attempt, for whoever wants to run it by hand; no value of the environment is kept."""

    role: Role
    argv: tuple[str, ...]
    name: str = ""
    cwd: str = ""
    env: tuple[str, ...] = ()
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    skipped: bool = False
    error: str = ""
    seconds: float = 0.0


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt with what only the journal keeps of it."""

    attempt: Attempt
    purpose: str = SEARCH
    lost: bool = False
    """Whether the machine was lost: nothing is known of the point then."""


class Found(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a change after the search: by swapping, by confirming, by zooming."""

    verdict: Verdict = Verdict()
    suspects: tuple[Suspect, ...] = ()
    zoom: str = ""
    """The key of the stage that looked into it."""
    swapped: bool = False
    """Whether swapping is over; a verdict without a part is one, too."""
    confirmed: bool = False
    towards: str = ""
    """The mixed point that has the change with one part alone: a finer stage looks no further than that."""
