"""Reports: everything a hunt found, as data; `hunt.report_*` write it down.

Made from the journal alone, so that it can be had at any moment, also of a hunt that was killed. Schema karat.hunt/1.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from karat.changes.change import Analysis
from karat.changes.series import Better, Outcome
from karat.hunt.attempt import Attempt
from karat.hunt.point import Point, Suspect
from karat.hunt.searching import Missed, Span


class PointReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One point of a stage."""

    point: Point
    outcome: Outcome | None = None
    """None: not tried."""
    values: Mapping[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    log: str = ""
    """The end of the last log, of a point that did not succeed."""
    flags: tuple[str, ...] = ()
    """`same binary as 2023-08-24: nothing was rebuilt`, `shared with …`, `flaky: 1 of 4 failed`."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What swapping and confirming said of a change."""

    part: str = ""
    """The repository that made it; empty: not known."""
    interaction: bool = False
    """It takes both: neither alone makes the change."""
    tried: tuple[str, ...] = ()
    """Sentences: `new xla with old jax: 537 (as new)`."""
    parts: tuple[str, ...] = ()
    """Every repository that has a share in it, or that it takes: one, where `part` says so."""
    shares: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Of those that make a part of it each: how much of it, alone."""
    message: str = ""
    """One sentence: `xla alone makes it`."""
    confirmed: bool | None = None
    """Whether the culprit and its parent, run again, still differ; None: not tried."""
    confidence: float = 0.0


class ChangeReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of one stage, with what finer stages made of it."""

    span: Span
    old: Point
    new: Point
    kind: str
    """regression, improvement, shift, dip, crash."""
    dip: int | None = None
    """Changes with the same number are the two ends of one dip."""
    verdict: Verdict = Verdict()
    suspects: tuple[Suspect, ...] = ()
    zoom: str = ""
    """The key of the stage that looked into it."""
    message: str = ""
    reproduce: str = ""
    """One command."""


class StageReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One stage: a timeline, searched once."""

    key: str
    title: str
    timeline: str
    state: str
    """done, running, stopped."""
    points: tuple[PointReport, ...]
    changes: tuple[ChangeReport, ...] = ()
    analyses: tuple[Analysis, ...] = ()
    missed: Missed | None = None
    runs: int = 0
    seconds: float = 0.0
    flake_rate: float | None = None
    notes: tuple[str, ...] = ()


class Culprit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of one line of stages: as close as the hunt came."""

    change: ChangeReport
    stage: str
    path: tuple[str, ...]
    """Stage keys, coarse to fine."""
    metric: str
    better: Better | None = None
    suspects: tuple[Suspect, ...] = ()
    message: str = ""


class HuntReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a hunt found."""

    schema: str = "karat.hunt/1"
    karat: str = ""
    name: str
    file: str
    journal: str
    command: tuple[str, ...] = ()
    """The probe's."""
    state: str
    """done, running, stopped: by the budget, by a person, by a kill."""
    units: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Metric → unit, of those that have one."""
    betters: Mapping[str, Better] = msgspec.field(default_factory=dict)
    """Metric → which direction is better, where somebody said so."""
    stages: tuple[StageReport, ...]
    culprits: tuple[Culprit, ...] = ()
    runs: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    resume: str = ""
    """The command that goes on with it, where it is stopped."""
