"""Sheets: what a reader found, before it is put in order: rows with a label and a cell per metric."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from karat.changes.series import Better, Outcome
from karat.findings import Finding

Which = Literal["first", "last", "mean", "median", "min", "max", "all"]


class Mark(msgspec.Struct, frozen=True):
    """Why a row has no value of a metric."""

    outcome: Outcome
    signature: str = ""


MISSING = Mark(Outcome.MISSING)
BROKEN = Mark(Outcome.BROKEN)
NOT_A_NUMBER = "the value is not a number (nan)"
INFINITE = "the value is infinite"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a table, one log, one version of a golden."""

    label: str
    cells: Mapping[str, tuple[float, ...] | Mark]
    """Metric → finite samples, or why there are none; a metric that is not named is missing."""
    at: datetime | float | None = None
    """What rows are ordered by: a moment, or a number; all rows have the same kind, or none has any."""
    when: datetime | None = None
    """When, as far as it is known: a file name without a year orders rows, and does not say when."""
    log: str = ""


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of one source."""

    source: str
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    units: Mapping[str, str] = msgspec.field(default_factory=dict)
    better: Mapping[str, Better] = msgspec.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    """How it was understood, in sentences."""
    ordered: bool = False
    """Whether the rows stand in their order already (a hunt's points, a history), whatever their moments say."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a series is read."""

    x: str = ""
    """The column of labels; empty: guessed."""
    time: str = ""
    """The column of moments, by which rows are ordered; empty: guessed."""
    metrics: tuple[str, ...] = ()
    """Columns, metrics of a golden, or regular expressions for logs; none: all there are."""
    which: Which = "last"
    """Which match counts, where a log has several."""
    name_pattern: str = ""
    """Named groups that read a log's name: date, year, month, day, hour, minute, commit, number, label."""
    year: int | None = None
    """Of names that only have month and day."""
    table: str = ""
    stage: str = ""
    step: str = "last"
    """Of a golden's curves: last, mean, or a step."""
    nan: Literal["crash", "missing"] = "crash"
    newest_first: bool = False
    since: str = ""
    until: str = ""
    better: Mapping[str, Better] = msgspec.field(default_factory=dict)
    """Metric → which direction is better; the empty name is every other metric's."""
    root: Path = Path()
    """What paths are seen from."""
