"""Detecting: where a series changed its level, and what a person would call it.

In: a `Series`. Out: an `Analysis`. Pure; the same series gives the same answer.

Only observations that have values are looked at, in their order; what lies between two of them stays unknown, and
is part of a step's range. Several samples of one observation count as their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from karat.changes.change import Analysis, Level, Step
from karat.changes.dependence import two_modes
from karat.changes.levels import level
from karat.changes.naming import name_changes
from karat.changes.options import DetectOptions
from karat.changes.robust import mean, robust_spread
from karat.changes.scaling import scaled
from karat.changes.scanning import Floats
from karat.changes.segmenting import Segmented, segment
from karat.changes.series import Outcome, Series
from karat.changes.taking_back import Cut

FEWEST = 5
"""Observations with values, below which nothing can be told."""
_WILD = 5.0
_DEFAULT = DetectOptions()


def analyse(series: Series, options: DetectOptions = _DEFAULT) -> Analysis:
    """Everything that can be said of one series."""
    known = [
        index
        for index, item in enumerate(series.observations)
        if item.outcome is Outcome.OK and item.values
    ]
    samples = [series.observations[index].values for index in known]
    values = np.array([mean(item) for item in samples], dtype=np.float64)
    found = _segmented(values, options, _sampling_noise(samples))
    levels = _levels(values, known, found, options)
    steps = _steps(found, known, levels)
    return Analysis(
        metric=series.metric,
        steps=steps,
        levels=levels,
        changes=name_changes(series, steps, levels),
        outliers=_outliers(values, known, found),
        noise=_noise(values, found),
        notes=_notes(len(known)),
    )


def steps(values: npt.ArrayLike, options: DetectOptions = _DEFAULT) -> tuple[Cut, ...]:
    """Where plain finite values change their level: the fast way, without names and levels."""
    return _segmented(np.asarray(values, dtype=np.float64), options, 0.0).cuts


def _segmented(values: Floats, options: DetectOptions, sampling: float) -> Segmented:
    plain = scaled(values)
    if values.shape[0] < FEWEST:
        noise = robust_spread(plain.values - np.median(plain.values)) if values.shape[0] else 0.0
        return Segmented((), 0.0, noise * plain.scale)
    found = segment(plain.values, options, floor=max(plain.floor, sampling / plain.scale))
    return found._replace(noise=found.noise * plain.scale)


def _sampling_noise(samples: Sequence[Sequence[float]]) -> float:
    """The standard error of an observation's mean, from the samples of those that have several."""
    errors = [_standard_error(np.asarray(item)) for item in samples if len(item) > 1]
    return float(np.median(errors)) if errors else 0.0


def _standard_error(samples: Floats) -> float:
    """Of the mean; in units of the samples, for their squares may overflow."""
    size = float(np.abs(samples).max())
    return float((samples / size).std(ddof=1) / np.sqrt(samples.size) * size) if size > 0 else 0.0


def _levels(
    values: Floats, known: Sequence[int], found: Segmented, options: DetectOptions
) -> tuple[Level, ...]:
    if not known:
        return ()
    edges = [0, *(cut.at for cut in found.cuts), len(known)]
    return tuple(
        level(
            values[start:stop], known[start], known[stop - 1],
            noise=found.noise, rho=found.rho, sure=1 - options.false_alarms,
        )
        for start, stop in pairwise(edges)
    )  # fmt: skip


def _steps(found: Segmented, known: Sequence[int], levels: Sequence[Level]) -> tuple[Step, ...]:
    return tuple(
        _step(cut, known, before, after)
        for cut, before, after in zip(found.cuts, levels, levels[1:], strict=False)
    )


def _step(cut: Cut, known: Sequence[int], before: Level, after: Level) -> Step:
    absolute = after.value - before.value
    relative = absolute / abs(before.value) if before.value else None
    return Step(
        last_good=known[cut.at - 1],
        first_bad=known[cut.at],
        earliest=known[cut.low - 1],
        latest=known[cut.high],
        before=before,
        after=after,
        absolute=absolute,
        relative=relative if relative is not None and np.isfinite(relative) else None,
        p_value=cut.p_value,
        confidence=1 - cut.p_value,
    )


def _residuals(values: Floats, found: Segmented) -> Floats:
    parts = np.split(values, [cut.at for cut in found.cuts])
    return np.concatenate([part - np.median(part) for part in parts])


def _outliers(values: Floats, known: Sequence[int], found: Segmented) -> tuple[int, ...]:
    if len(known) < FEWEST or found.noise <= 0:
        return ()
    far = np.abs(_residuals(values, found)) > _WILD * found.noise
    return tuple(known[int(index)] for index in np.flatnonzero(far))


def _noise(values: Floats, found: Segmented) -> str:
    """What the noise looks like, where it is not plain."""
    if values.shape[0] < 20 or found.noise <= 0:
        return ""
    words = []
    residuals = _residuals(values, found)
    if two_modes(residuals):
        words.append("two modes")
    if found.rho >= 0.25:
        words.append(f"neighbours are alike (autocorrelation {found.rho:.1f})")
    if np.mean(np.abs(residuals) > 3.5 * found.noise) > 0.02:
        words.append("heavy tails")
    return ", ".join(words)


def _notes(known: int) -> tuple[str, ...]:
    if known < FEWEST:
        word = "observation has" if known == 1 else "observations have"
        return (f"{known} {word} a value; a change can be told from {FEWEST} on",)
    return ()
