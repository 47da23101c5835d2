"""The kit of a hunt: what every part of it works with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from karat.engines.engine import Engine
from karat.hunt.journal import Journal
from karat.hunt.listening import Listener
from karat.hunt.point import Point, Window
from karat.hunt.searching import Metric
from karat.hunt.settings import HuntSettings
from karat.hunt.timeline import Place, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What every part of a hunt works with."""

    settings: HuntSettings
    place: Place
    engine: Engine
    journal: Journal
    listener: Listener
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStage:
    """A stage at work: its timeline is open, its points are in the journal."""

    key: str
    depth: int
    title: str
    timeline: Timeline
    points: Sequence[Point]
    window: Window | None = None


class Stopped(Exception):  # noqa: N818 - it is what was asked for, not a bug
    """The hunt ends before its answer: the budget is spent, or a person said so."""
