"""Judging: do two points differ, from a few runs of each?

Pure. The same model as the search's (`levels`, `flakes`), with two points and an even chance beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import Literal

import msgspec
import numpy as np

from karat.hunt.flakes import judge_tallies
from karat.hunt.levels import PRIOR_SPREAD, PRIOR_WEIGHT, solve
from karat.hunt.readings import samples
from karat.hunt.searching import Metric, Seen


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of two points."""

    verdict: Literal["differ", "same", "unsure"]
    probability: float
    """Of a difference worth finding."""


def judge(
    old: Seen,
    new: Seen,
    metric: Metric,
    *,
    spread: float | None = None,
    smallest: float = 0.01,
    confidence: float = 0.99,
) -> Judgement:
    """Whether two points differ by at least `smallest` (relative). `spread`: standard deviation of one run, relative.

    A point without a value decides nothing.
    """
    before, after = samples(metric, old), samples(metric, new)
    if not before or not after:
        return Judgement(verdict="unsure", probability=0.5)
    if metric.binary:
        probability = judge_tallies(before, after)
    else:
        least = 0.0 if metric.better == "equal" else smallest
        probability = differ(before, after, smallest=least, spread=spread)
    return Judgement(verdict=_verdict(probability, confidence), probability=probability)


def differ(
    before: Sequence[float], after: Sequence[float], *, smallest: float, spread: float | None
) -> float:
    """The probability that two levels differ by at least `smallest`."""
    sigma = _within(before, after, smallest) if spread is None else spread
    return float(solve([before, after], np.array([0.5]), (0, 1), smallest, sigma).chance[0])


def _within(before: Sequence[float], after: Sequence[float], smallest: float) -> float:
    """The spread from the runs of each point by itself, and a weak prior."""
    positive = min(*before, *after) > 0
    scale = 1.0 if positive else median(abs(x) for x in (*before, *after)) or 1.0
    squares, freedom = PRIOR_WEIGHT * (PRIOR_SPREAD * smallest) ** 2, PRIOR_WEIGHT
    for side in (before, after):
        logs = [math.log(x) if positive else x / scale for x in side]
        squares += sum((x - fmean(logs)) ** 2 for x in logs)
        freedom += len(logs) - 1
    return math.sqrt(squares / freedom)


def _verdict(probability: float, confidence: float) -> Literal["differ", "same", "unsure"]:
    if probability >= confidence:
        return "differ"
    return "same" if probability <= 1 - confidence else "unsure"
