"""Stages: the words of `stages`, understood: a timeline, and how coarse it looks."""

from __future__ import annotations

from karat.findings import UsageError, suggest
from karat.hunt import durations
from karat.hunt.settings import HuntSettings, Stage
from karat.hunt.words import EDIT

GROUP = "karat.timelines"
BUILT_IN = ("containers", "checkouts", "commits", "packages", "values")
_STEPPED = ("containers", "checkouts")
"""Those that have a step; `commits by day` would be checkouts."""


def stages(settings: HuntSettings) -> tuple[Stage, ...]:
    """Every stage, coarse to fine."""
    if not settings.stages:
        raise UsageError(
            f"stages: expected at least one of {', '.join(BUILT_IN)}, found none", next_command=EDIT
        )
    return tuple(_stage(text, settings) for text in settings.stages)


def _stage(text: str, settings: HuntSettings) -> Stage:
    words = text.split()
    timeline = words[0] if words else ""
    if timeline not in BUILT_IN and timeline not in _others():
        known = (*BUILT_IN, *_others())
        raise UsageError(
            f"stages: no timeline is called {timeline!r}{suggest(timeline, known)} (known: {', '.join(known)})",
            next_command=EDIT,
        )
    if len(words) == 1:
        return Stage(timeline=timeline, step=_own_step(timeline, settings), text=text)
    step = durations.step(" ".join(words[2:])) if words[1] == "by" else None
    if step is None:
        raise UsageError(
            f"stages: expected {timeline!r} or '{timeline} by day', found {text!r}",
            next_command=EDIT,
        )
    if timeline in BUILT_IN and timeline not in _STEPPED:
        raise UsageError(
            f"stages: expected {timeline!r} without a step, found {text!r}", next_command=EDIT
        )
    return Stage(timeline=timeline, step=step, text=text)


def _own_step(timeline: str, settings: HuntSettings) -> float | None:
    """What the timeline's own table says."""
    if timeline == "containers" and settings.containers is not None:
        return durations.seconds(settings.containers.step)
    if timeline == "checkouts":
        return durations.seconds(settings.checkouts.step)
    return None


def _others() -> tuple[str, ...]:
    """Timelines of third parties."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to import

    return tuple(sorted({e.name for e in entry_points(group=GROUP)} - set(BUILT_IN)))
