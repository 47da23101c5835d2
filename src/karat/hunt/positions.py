"""Positions: where one change lies between two ends, when runs may lie.

Pure. In: numbers at some points. Out: the probability of each place, of "no change: they are all as the first", and of "all
as the last". Rates of flakes, or the levels on both sides, are learned on the way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from karat.hunt.flakes import met, rate_pairs
from karat.hunt.levels import OUTLIERS, Array, middle

_NOTHING = 0.1
"""That the change is not there at all, as far as is known beforehand."""


class Belief(NamedTuple):
    """Where the change is, as far as is known. The change at k: point k is the first of the new kind."""

    first: int
    place: Array
    """Of the change at first + 1, first + 2, …"""
    all_old: float
    all_new: float
    """That there is no change: all as the first, or all as the last."""
    wrong_old: float
    wrong_new: float
    """How often a run at a point of either side looks as if it were of the other."""
    flakes: float | None = None


def binary_belief(values: Mapping[int, Sequence[float]], first: int, last: int, old: int) -> Belief:
    """Of a metric that is good (0) or bad (1); `old`: which of them the first end should be."""
    wrong_old, wrong_new, weights = rate_pairs()
    shape = (len(weights), last - first + 1)
    as_old, as_new = np.zeros(shape), np.zeros(shape)
    for at, numbers in values.items():
        if first <= at <= last:
            new = sum((value != 0) != bool(old) for value in numbers)
            same = len(numbers) - new
            as_old[:, at - first] = new * np.log(wrong_old) + same * np.log1p(-wrong_old)
            as_new[:, at - first] = same * np.log(wrong_new) + new * np.log1p(-wrong_new)
    place, all_old, all_new, share = _posterior(as_old, as_new, weights)
    rates = float(share @ wrong_old), float(share @ wrong_new)
    worse = np.cumsum([all_new, *place])
    worse = 1 - worse if old else worse
    false = sum(
        float(1 - worse[at - first]) * sum(value != 0 for value in numbers)
        for at, numbers in values.items()
        if first <= at <= last
    )
    flakes = met(false, rates[1] if old else rates[0])
    return Belief(first, place, all_old, all_new, *rates, flakes=flakes)


def level_belief(
    values: Mapping[int, Sequence[float]], first: int, last: int, spread: float
) -> Belief:
    """Of a metric that has levels: those of both ends, and of all that surely belongs to them."""
    inside = {at: numbers for at, numbers in values.items() if first <= at <= last}
    logs = _relative(inside)
    old, new = middle(logs[first]), middle(logs[last])
    belief = _levels(logs, first, last, (old, new, spread))
    cut = first + 1 + int(np.argmax(belief.place)) if len(belief.place) else last
    sides = [[x for at in logs for x in logs[at] if (at < cut) == side] for side in (True, False)]
    return _levels(logs, first, last, (middle(sides[0]), middle(sides[1]), spread))


def _relative(values: Mapping[int, Sequence[float]]) -> dict[int, list[float]]:
    """Logarithms, where all are positive."""
    flat = [abs(value) for numbers in values.values() for value in numbers]
    if all(value > 0 for numbers in values.values() for value in numbers):
        return {at: [math.log(value) for value in numbers] for at, numbers in values.items()}
    scale = middle(flat) or max(flat) or 1.0
    return {at: [value / scale for value in numbers] for at, numbers in values.items()}


def _levels(
    logs: Mapping[int, Sequence[float]], first: int, last: int, model: tuple[float, float, float]
) -> Belief:
    old, new, spread = model
    as_old, as_new = np.zeros((1, last - first + 1)), np.zeros((1, last - first + 1))
    for at, numbers in logs.items():
        as_old[0, at - first] = sum(_density(x, old, spread) for x in numbers)
        as_new[0, at - first] = sum(_density(x, new, spread) for x in numbers)
    place, all_old, all_new, _ = _posterior(as_old, as_new, np.ones(1))
    apart = abs(new - old) / (2 * spread)
    wrong = max(0.5 * math.erfc(apart / math.sqrt(2)), OUTLIERS / 2)
    return Belief(first, place, all_old, all_new, wrong, wrong)


def _density(x: float, level: float, spread: float) -> float:
    """Logarithm, in units of the spread; an outlier may be anywhere."""
    off = (x - level) / spread
    return math.log((1 - OUTLIERS) * math.exp(-0.5 * off * off) / 2.5 + OUTLIERS / 20)


def _posterior(as_old: Array, as_new: Array, weights: Array) -> tuple[Array, float, float, Array]:
    """Every place at every pair of rates, and both kinds of nothing; the last: how much each pair is believed."""
    old = np.cumsum(as_old, axis=1)
    new = as_new.sum(axis=1, keepdims=True) - np.cumsum(as_new, axis=1)
    places = (old + new)[:, :-1]
    number = max(places.shape[1], 1)
    none_old, none_new = old[:, -1], as_new.sum(axis=1)
    best = max(float(places.max(initial=-np.inf)), float(none_old.max()), float(none_new.max()))
    prior = weights[:, None] * (1 - _NOTHING) / number
    each = prior * np.exp(places - best)
    rest = [weights * _NOTHING / 2 * np.exp(none - best) for none in (none_old, none_new)]
    total = float(each.sum() + rest[0].sum() + rest[1].sum())
    share = (each.sum(axis=1) + rest[0] + rest[1]) / total
    return (
        each.sum(axis=0) / total,
        float(rest[0].sum()) / total,
        float(rest[1].sum()) / total,
        share,
    )
