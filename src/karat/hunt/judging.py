"""Judging: do two points differ, from a few runs of each?

Pure. The same model as the search's (`levels`, `flakes`), with two points and an even chance beforehand.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from karat.hunt.flakes import judge_tallies
from karat.hunt.levels import solve
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
        found = solve([before, after], np.array([0.5]), (0, 1), least, spread)
        probability = float(found.chance[0])
    return Judgement(verdict=_verdict(probability, confidence), probability=probability)


def _verdict(probability: float, confidence: float) -> Literal["differ", "same", "unsure"]:
    if probability >= confidence:
        return "differ"
    return "same" if probability <= 1 - confidence else "unsure"
