"""Flakes: where a test began to fail, when a good point may fail and a bad one may pass.

Pure. As `levels`, with two states instead of many levels. How often a good point fails and a bad one passes is not known
beforehand: every pair of a list of rates is tried, and weighs as much as it explains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from karat.hunt.levels import EXPECTED, Array, Map

RATES = np.array([0.0005, 0.005, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4])
_WEIGHTS = np.array([0.4, 0.1, 0.1, 0.1, 0.1, 0.06, 0.06, 0.05, 0.03])


def rate_pairs() -> tuple[Array, Array, Array]:
    """(a good point fails, a bad point passes, how much the pair is believed beforehand)."""
    fails, passes = np.meshgrid(RATES, RATES, indexing="ij")
    weights = np.outer(_WEIGHTS, _WEIGHTS)
    return fails.ravel(), passes.ravel(), (weights / weights.sum()).ravel()


def tallies(values: Mapping[int, Sequence[float]]) -> tuple[tuple[int, ...], Array, Array]:
    """(positions, failures, passes)."""
    positions = tuple(sorted(values))
    bad = np.array([sum(value != 0 for value in values[at]) for at in positions], dtype=np.float64)
    size = np.array([len(values[at]) for at in positions], dtype=np.float64)
    return positions, bad, size - bad


def flake_map(
    values: Mapping[int, Sequence[float]], count: int, *, hazard: float | None = None
) -> Map:
    """The changes of a metric that is good or bad. `hazard`: of a change from one point to the next."""
    positions, bad, good = tallies(values)
    fails, passes, weights = rate_pairs()
    gaps = np.diff(np.array(positions, dtype=np.float64))
    each = min(EXPECTED / max(count, 8), 0.25) if hazard is None else hazard
    hazards = 1.0 - np.power(1.0 - each, gaps)
    # pairs × points × (good, bad)
    emission = np.exp(np.stack([_log(fails, bad, good), _log(passes, good, bad)], axis=2))
    forward, evidence = _forward(emission, hazards)
    chance, worse = _backward(emission, hazards, forward)
    share = weights * np.exp(evidence - evidence.max())
    share /= share.sum()
    state = share @ worse
    lone = (bad + good == 1) & ((bad == 1) != (state > 0.5))
    odd = tuple(position for position, is_odd in zip(positions, lone, strict=True) if is_odd)
    rate = met(float(bad @ (1 - state)), float(share @ fails))
    return Map(positions, share @ chance, 0.0, True, 1, odd, rate)


def met(flakes: float, rate: float) -> float:
    """The rate, where a flake was seen at all: without one it is what was believed beforehand, which is nobody's news."""
    return rate if flakes >= 0.5 else 0.0


def _log(rate: Array, wrong: Array, right: Array) -> Array:
    """How likely so many wrong and right answers are, for each rate of wrong ones."""
    return np.asarray(
        wrong[None, :] * np.log(rate)[:, None] + right[None, :] * np.log1p(-rate)[:, None]
    )


def _forward(emission: Array, hazards: Array) -> tuple[Array, Array]:
    out = np.empty_like(emission)
    now = 0.5 * emission[:, 0, :]
    evidence = np.zeros(len(emission))
    for i in range(emission.shape[1]):
        if i:
            hazard = hazards[i - 1]
            now = emission[:, i, :] * ((1 - hazard) * now + hazard * now[:, ::-1])
        total = now.sum(axis=1, keepdims=True)
        evidence += np.log(total[:, 0])
        now = now / total
        out[:, i, :] = now
    return out, evidence


def _backward(emission: Array, hazards: Array, forward: Array) -> tuple[Array, Array]:
    """For each pair of rates, the probability of a change between each two neighbours, and of each point being bad."""
    pairs, points, _ = emission.shape
    chance = np.zeros((pairs, max(points - 1, 0)))
    worse = np.empty((pairs, points))
    worse[:, -1] = forward[:, -1, 1]
    beta = np.ones((pairs, 2))
    for i in range(points - 1, 0, -1):
        hazard = hazards[i - 1]
        seen = emission[:, i, :] * beta
        before = forward[:, i - 1, :]
        moved = hazard * (before * seen[:, ::-1]).sum(axis=1)
        stayed = (1 - hazard) * (before * seen).sum(axis=1)
        chance[:, i - 1] = moved / (moved + stayed)
        beta = (1 - hazard) * seen + hazard * seen[:, ::-1]
        beta /= beta.sum(axis=1, keepdims=True)
        at = before * beta
        worse[:, i - 1] = at[:, 1] / at.sum(axis=1)
    return chance, worse


def entropy(probability: float) -> float:
    """Of a yes or no, in bits."""
    if probability <= 0 or probability >= 1:
        return 0.0
    rest = 1 - probability
    return -(probability * math.log2(probability) + rest * math.log2(rest))


def judge_tallies(before: Sequence[float], after: Sequence[float]) -> float:
    """The probability that one of two points is good and the other bad."""
    found = flake_map({0: before, 1: after}, 2, hazard=0.5)
    return float(found.chance[0])
