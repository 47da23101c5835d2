"""Strips: a series as one line of a terminal: a block per point, × for crashes, · for what is not there. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import isinf
from statistics import fmean, median

from karat.changes.change import Analysis
from karat.changes.series import Observation, Outcome, Series

_BLOCKS = "▁▂▃▄▅▆▇█"
_FAILED = {Outcome.CRASH: "×", Outcome.HANG: "×", Outcome.BROKEN: "?", Outcome.MISSING: "·"}
STEP = "▲"


def strip(series: Series, analysis: Analysis, width: int) -> tuple[str, str]:
    """The points, and below them a mark where a level begins; as many points to a column as must be."""
    points = series.observations
    columns = min(max(width, 1), len(points))
    edges = [n * len(points) // columns for n in range(columns + 1)] if columns else [0]
    low, high = _range(series, analysis)
    drawn = "".join(_column(points[a:b], low, high) for a, b in itertools.pairwise(edges))
    starts = [step.first_bad for step in analysis.steps]
    marks = "".join(
        STEP if any(a <= start < b for start in starts) else " "
        for a, b in itertools.pairwise(edges)
    )
    return drawn, marks.rstrip()


def _range(series: Series, analysis: Analysis) -> tuple[float, float]:
    """From the lowest to the highest value, single outliers apart."""
    wild = set(analysis.outliers)
    values = [
        fmean(point.values)
        for n, point in enumerate(series.observations)
        if point.values and n not in wild
    ]
    return (min(values), max(values)) if values else (0.0, 0.0)


def _column(points: Sequence[Observation], low: float, high: float) -> str:
    values = [fmean(point.values) for point in points if point.values]
    if not values:
        failed = {point.outcome for point in points}
        return next((sign for outcome, sign in _FAILED.items() if outcome in failed), "·")
    if high <= low:
        return _BLOCKS[3]
    # By quarters where the way from lowest to highest is longer than any number.
    part = 0.25 if isinf(high - low) else 1.0
    share = (median(values) * part - low * part) / (high * part - low * part)
    return _BLOCKS[min(max(int(share * len(_BLOCKS)), 0), len(_BLOCKS) - 1)]
