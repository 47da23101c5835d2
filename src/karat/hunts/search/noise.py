"""Noise: what workers and the hours of the day add to every number, taken out of it; and what is left, in words. Pure.

A number is its point's level, what its build, its worker and its time make of it, and the luck of one run. How much each of
them does is estimated together (restricted maximum likelihood: squares of what is left once each level has its own mean), from
points that were run again, on another worker or at another time, and from neighbours of one level. What is expected of the
worker and the time is then taken out. Where they explain next to nothing, nothing is taken out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LENGTHS = (4.0, 40.0)  # Over so many runs a machine forgets: a warm neighbour, a slow drift.
_DAY = 86_400.0  # Seconds: the same hour of another day is alike.
_FEWEST, _MOST = 12, 300  # With fewer numbers nothing is known; with more, what one hour did is lost among the others.
_GAIN = 3.0  # So much likelier, as a logarithm, it must be with workers and time than without.


class Circumstance(NamedTuple):
    """What one number was measured under."""

    started: float = 0.0
    where: str = ""
    build: str = ""  # Which build of its point, where there are several.


Circumstances = Mapping[int, Sequence[Circumstance]]  # A point's place → one per number.


class Surroundings(NamedTuple):
    """How alike the circumstances of each two numbers are."""

    build: Array
    worker: Array | None  # None: there is but one.
    times: tuple[Array, ...]

    @classmethod
    def of(cls, owner: NDArray[np.intp], under: Sequence[Circumstance]) -> Surroundings | None:
        """None where too little was run, or very much, or nothing is known of when and where."""
        started = np.array([each.started for each in under])
        if not _FEWEST <= len(under) <= _MOST or np.ptp(started) <= 0:
            return None
        keys = [(point, each.build) for point, each in zip(owner.tolist(), under, strict=True)]
        order = np.sort(started)
        gaps = np.diff(order)
        # By the clock, in units of a run; a long pause counts as twenty.
        steps = np.minimum(gaps / max(float(np.median(gaps[gaps > 0])), 1e-9), 20.0)
        clock = np.concatenate([[0.0], np.cumsum(steps)])[np.searchsorted(order, started)]
        apart = np.abs(clock[:, None] - clock[None, :])
        here = _alike([each.where for each in under])
        # Machines drift together (one room, one network) and each by itself.
        hours = np.exp(-2 * np.sin(np.pi / _DAY * (started[:, None] - started[None, :])) ** 2)
        times = (*(np.exp(-apart / length) for length in _LENGTHS), hours)
        own = tuple(one * (0.5 + 0.5 * here) for one in times)
        return cls(_alike(keys), None if here.all() else here, own)


def _alike(names: Sequence[object]) -> Array:
    numbers = {name: k for k, name in enumerate(dict.fromkeys(names))}
    code = np.array([numbers[name] for name in names])
    return np.asarray(code[:, None] == code[None, :], dtype=np.float64)


def extraneous(
    flat: Array, level: NDArray[np.intp], around: Surroundings, spread: float
) -> tuple[Array, float, float, float]:
    """What workers and time do to numbers of which `level` says who shares one; `spread`: of one run, to begin with.

    What is to be taken out of each number, as if so many numbers were spent on it, and the standard deviations of workers and time.
    """
    kinds = [np.eye(len(flat)), around.build]
    extra = [*([] if around.worker is None else [around.worker]), *around.times]
    means = (level[:, None] == np.unique(level)[None, :]).astype(np.float64)
    without, *_ = _fitted(flat, means, kinds, spread)
    likely, parts, rest, projected = _fitted(flat, means, [*kinds, *extra], spread)
    if likely - without < _GAIN:
        return np.zeros_like(flat), 0.0, 0.0, 0.0
    own = parts[len(kinds) :]
    taken, workers = np.tensordot(own, np.array(extra), 1), len(extra) - len(around.times)
    worker, time = (float(np.sqrt(part.sum())) for part in (own[:workers], own[workers:]))
    return taken @ rest, float((taken * projected).sum()), worker, time


def _fitted(flat: Array, means: Array, kinds: Sequence[Array], spread: float) -> tuple[float, Array, Array, Array]:
    """How likely (a logarithm), the variance of each kind, what is left of each number over its variance, and what makes that of them."""
    parts = np.full(len(kinds), 0.3 * spread**2)
    parts[0] = spread**2
    for left in range(6, -1, -1):
        variance = np.tensordot(parts, np.array(kinds), 1)
        inverse = np.linalg.inv(variance)
        cross = inverse @ means
        inside = means.T @ cross
        projected = inverse - cross @ np.linalg.solve(inside, cross.T)
        rest = projected @ flat
        if left:
            # Fisher scoring: where the squares are what they are expected to be.
            moved = [projected @ kind for kind in kinds]
            gain = np.array([rest @ kind @ rest - np.trace(m) for kind, m in zip(kinds, moved, strict=True)])
            curve = np.array([[float((a * b.T).sum()) for b in moved] for a in moved])
            step = np.linalg.lstsq(curve, gain, rcond=1e-9)[0]
            parts = np.maximum(parts + np.clip(step, -0.9 * parts, 3 * parts + spread**2), 1e-4 * spread**2)
    likely = -0.5 * (np.linalg.slogdet(variance)[1] + np.linalg.slogdet(inside)[1] + flat @ rest)
    return float(likely), parts, rest, projected
