"""Online: whether the newest observations of a series are a change.

In: a `Series`. Out: `Newest`. Pure.

A change is one that the detector reports, and that began with the newest few. A newest point that is off, and that the
detector cannot report yet, is `unsure`: one point never makes a level.
"""

from __future__ import annotations

from statistics import NormalDist

import msgspec
import numpy as np

from karat.changes.change import Analysis, Level, Newest
from karat.changes.detecting import FEWEST, analyse
from karat.changes.options import DetectOptions
from karat.changes.robust import mean, robust_spread
from karat.changes.scanning import Floats
from karat.changes.series import Observation, Outcome, Series

_DEFAULT = DetectOptions()
_OFF = 0.05
"""A newest point is off where chance puts fewer than this share of points so far out."""
_MOST_NEEDED = 6


def newest(series: Series, options: DetectOptions = _DEFAULT, *, recent: int = 5) -> Newest:
    """Whether the newest observations, of which up to `recent` count as new, are a change."""
    last = series.observations[-1] if series.observations else None
    if last is None:
        return Newest(verdict="unsure", p_value=None, step=None, message="the series is empty")
    if last.outcome is not Outcome.OK or not last.values:
        return _without_value(series, last)
    analysis = analyse(series, options)
    if sum(level.count for level in analysis.levels) < FEWEST:
        note = "; ".join(analysis.notes)
        return Newest(verdict="unsure", p_value=None, step=None, message=note)
    step = analysis.steps[-1] if analysis.steps else None
    if step is not None and step.after.count <= recent:
        number = len(analysis.steps) - 1
        message = next(change.message for change in analysis.changes if number in change.steps)
        return Newest(verdict="change", p_value=step.p_value, step=step, message=message)
    return _by_newest_point(series, analysis, options)


def _without_value(series: Series, last: Observation) -> Newest:
    if last.outcome not in {Outcome.CRASH, Outcome.HANG}:
        why = "" if last.outcome is Outcome.OK else f": it is {last.outcome.value}"
        message = f"{last.label} has no value{why}"
        return Newest(verdict="unsure", p_value=None, step=None, message=message)
    before = [
        item
        for item in series.observations[:-1]
        if item.outcome not in {Outcome.MISSING, Outcome.BROKEN}
    ]
    known = bool(before) and (before[-1].outcome, before[-1].signature) == (
        last.outcome,
        last.signature,
    )
    verb = "hung" if last.outcome is Outcome.HANG else "crashed"
    what = f"{last.label} {verb}{f': {last.signature}' if last.signature else ''}"
    if known:
        return Newest(
            verdict="same", p_value=None, step=None, message=f"{what}, as the one before it"
        )
    return Newest(verdict="change", p_value=None, step=None, message=what)


def _by_newest_point(series: Series, analysis: Analysis, options: DetectOptions) -> Newest:
    """One point against the level it should be on."""
    label = series.observations[-1].label
    home = analysis.levels[-1]
    values = _values(series, home)
    p_value = _far_out(values)
    metric = series.metric
    where = f"{metric} at {label} is {values[-1]:.6g}, on a level of {home.value:.6g}"
    if p_value > _OFF:
        return Newest(verdict="same", p_value=p_value, step=None, message=where)
    needed = _needed(series, options)
    if needed is None:
        return Newest(verdict="same", p_value=p_value, step=None, message=where)
    word = "point" if needed == 1 else "points"
    return Newest(
        verdict="unsure",
        p_value=p_value,
        step=None,
        message=f"{where}: too far off for chance, too few to tell; {needed} more {word} like it would",
        points_needed=needed,
    )


def _values(series: Series, level: Level) -> Floats:
    items = series.observations[level.first : level.last + 1]
    return np.array(
        [mean(item.values) for item in items if item.outcome is Outcome.OK and item.values]
    )


def _far_out(values: Floats) -> float:
    """The share of points that chance puts as far from the middle of the others as the last one is.

    Counted; where the others are few, also as a normal distribution of twice their spread has it.
    """
    others = values[:-1]
    if others.size == 0:
        return 1.0
    distances = np.abs(others - np.median(others))
    distance = abs(float(values[-1] - np.median(others)))
    counted = float((1 + np.count_nonzero(distances >= distance)) / (others.size + 1))
    spread = robust_spread(distances)
    if spread <= 0:
        return 0.0 if distance > 0 and others.size >= FEWEST else counted
    return min(counted, 2 * NormalDist().cdf(-distance / (2 * spread)))


def _needed(series: Series, options: DetectOptions) -> int | None:
    """How many more points like the newest the detector would need to report a change; None: many."""
    grown = series
    for more in range(1, _MOST_NEEDED + 1):
        grown = msgspec.structs.replace(
            grown, observations=(*grown.observations, series.observations[-1])
        )
        analysis = analyse(grown, options)
        if analysis.steps and analysis.steps[-1].after.count <= more + 2:
            return more
    return None
