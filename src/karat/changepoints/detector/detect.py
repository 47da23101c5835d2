"""Levels: what a stretch of values says of the level it is on.

In: values of one stretch, and the noise of the whole series. Out: `Level`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import hypot
from statistics import NormalDist
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from karat.changepoints.detector.scan import Floats, mean, robust_spread, sum_variance
from karat.changepoints.detector.segments import Cut, Segmented, segment, two_modes
from karat.changepoints.series import (
    Analysis,
    Better,
    Change,
    ChangeKind,
    DetectOptions,
    Level,
    Newest,
    Observation,
    Outcome,
    Series,
    Step,
)

_CLIP = 2.5


def level(values: Floats, first: int, last: int, *, noise: float, rho: float, sure: float) -> Level:
    """The level of one stretch, from the index of its first observation to that of its last."""
    count = values.shape[0]
    middle = float(np.median(values))
    spread = robust_spread(values - middle)
    # A few values say little about their own spread.
    trusted = spread if count >= 8 else max(spread, noise)
    value = mean(np.clip(values, middle - _CLIP * trusted, middle + _CLIP * trusted))
    error = trusted * float(np.sqrt(sum_variance(count, rho))) / count
    reach = _quantile(sure, count) * error
    return Level(
        value=value, low=value - reach, high=value + reach, spread=spread, count=count, first=first, last=last
    )  # fmt: skip


def _quantile(sure: float, count: int) -> float:
    """Of Student's t, by its expansion about the normal one; few values share the noise of the series."""
    z = NormalDist().inv_cdf(0.5 + sure / 2)
    degrees = max(count - 1, 4)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


# DOC-HERE scaling: Scaling: values as the detector can reckon with them.
#
# In: one number per observation. Out: the same about 1 in size, and the noise that they cannot show: rounding. Pure.

_FLOAT_NOISE = 1e-12
"""Relative differences below this are arithmetic, not measurement."""
_QUANTISED = 0.2887
"""The standard deviation of rounding to whole steps: 1/√12 of a step."""
_DIGITS = 12
_LARGEST = 1e6
_DIMMEST = 1e-100
"""A usual size this far below the largest is none: nearly all values are zero."""


class ScaledValues(NamedTuple):
    """Values about 1 in size."""

    values: Floats
    scale: float
    floor: float
    """Noise that there is, seen or not, in the scaled values."""


def scale(values: Floats) -> ScaledValues:
    """Values in units of their usual size, so that squares neither overflow nor vanish.

    What differs by less than arithmetic does is made equal; a few that are a million times as large as usual are large
    enough.
    """
    sizes = np.abs(values)
    scale = _usual(sizes) if values.size else 0.0
    if scale < _DIMMEST * sizes.max(initial=0.0) or scale == 0:
        scale = float(sizes.max(initial=0.0))
    if scale == 0:
        return ScaledValues(np.zeros_like(values), 1.0, _FLOAT_NOISE)
    ratios = np.round(np.clip(values, -_LARGEST * scale, _LARGEST * scale) / scale, _DIGITS)
    return ScaledValues(
        ratios, scale, max(_FLOAT_NOISE, _QUANTISED * _resolution(ratios * scale, scale) / scale)
    )


def _usual(sizes: Floats) -> float:
    """The middle size; more where a tenth of all are too large for it: they are levels, and two of them may differ."""
    middle, upper = np.quantile(sizes, [0.5, 0.9])
    return float(max(middle, upper / _LARGEST if middle > 0 else 0.0))


def _resolution(values: Floats, scale: float) -> float:
    """The power of ten that all values are multiples of; 0 where they are not rounded that anyone could see."""
    if np.unique(values).size > 0.7 * values.size or not 1e-200 < scale < 1e200:
        return 0.0
    top = int(np.floor(np.log10(scale)))
    for exponent in range(top, top - _DIGITS, -1):
        steps = values / 10.0**exponent
        if np.abs(steps - np.round(steps)).max() < 1e-6:
            return float(10.0**exponent)
    return 0.0


# DOC-HERE naming: Naming: what a person would call what happened in a series.
#
# In: a series, its steps and levels. Out: `Change`s in their order. Pure.
#
# A dip left its level and came back: to within the noise of the two levels, or a tenth of its depth; and it is short: at
# most a quarter of the series, or shorter than the levels on both sides of it. Every other step is a regression, an
# improvement, or, where nobody said which is better, a shift. Neighbours that crashed or hung in the same way are one
# crash range; those that are missing or broken are one gap.

_DEPTH = 0.1
_SHORT = 0.25
_STEPS_OF_A_DIP = 4
_FAILED = (Outcome.CRASH, Outcome.HANG)
_UNKNOWN = (Outcome.BROKEN, Outcome.MISSING)


def name_changes(
    series: Series, steps: Sequence[Step], levels: Sequence[Level]
) -> tuple[Change, ...]:
    """Dips, regressions, improvements, shifts, crash ranges and gaps, by their first observation."""
    changes = [*_of_levels(series, steps, levels), *_crashes(series), *_gaps(series)]
    return tuple(sorted(changes, key=lambda change: (change.first, change.last)))


def _of_levels(series: Series, steps: Sequence[Step], levels: Sequence[Level]) -> Iterator[Change]:
    total = sum(level.count for level in levels)
    number = 0
    while number < len(steps):
        back = _back(steps, levels, number, total)
        if back is None:
            yield _moved(series, steps, number)
            number += 1
        else:
            yield _dip(series, steps, number, back)
            number = back + 1


def _back(steps: Sequence[Step], levels: Sequence[Level], number: int, total: int) -> int | None:
    """The step that comes back from where step `number` went."""
    home = levels[number]
    for last in range(number + 1, min(number + _STEPS_OF_A_DIP, len(steps))):
        away = levels[number + 1 : last + 1]
        count = sum(level.count for level in away)
        short = count <= _SHORT * total or count < min(home.count, levels[last + 1].count)
        same_side = len({level.value > home.value for level in away}) == 1
        if (
            short
            and same_side
            and _same(home, levels[last + 1], max(abs(x.value - home.value) for x in away))
        ):
            return last
    return None


def _same(home: Level, end: Level, depth: float) -> bool:
    noise = hypot(home.high - home.low, end.high - end.low) / 2
    # Never by noise alone: a return that makes up for less than half of the way is none.
    return abs(end.value - home.value) <= max(_DEPTH * depth, min(noise, depth / 2))


def _moved(series: Series, steps: Sequence[Step], number: int) -> Change:
    step = steps[number]
    kind = _kind(series.better, step.absolute)
    verb = "rose" if step.absolute > 0 else "fell"
    return Change(
        kind=kind,
        metric=series.metric,
        steps=(number,),
        first=step.first_bad,
        last=step.after.last,
        confidence=step.confidence,
        message=f"{series.metric} {verb} from {_number(step.before.value)} to {_number(step.after.value)}"
        f"{_percent(step)} {_between(series, step)}",
    )


def _kind(better: Better | None, absolute: float) -> ChangeKind:
    if better not in {"higher", "lower"}:
        return ChangeKind.SHIFT
    return (
        ChangeKind.IMPROVEMENT if (absolute > 0) == (better == "higher") else ChangeKind.REGRESSION
    )


def _dip(series: Series, steps: Sequence[Step], number: int, back: int) -> Change:
    there, last = steps[number], steps[back]
    first_label = series.observations[there.first_bad].label
    last_label = series.observations[last.last_good].label
    stretch = first_label if there.first_bad == last.last_good else f"{first_label} to {last_label}"
    return Change(
        kind=ChangeKind.DIP,
        metric=series.metric,
        steps=tuple(range(number, back + 1)),
        first=there.first_bad,
        last=last.last_good,
        confidence=min(step.confidence for step in steps[number : back + 1]),
        message=f"{series.metric} went from {_number(there.before.value)} to {_number(there.after.value)}"
        f"{_percent(there)} and came back to {_number(last.after.value)}: {stretch}",
    )


def _crashes(series: Series) -> Iterator[Change]:
    """Failures of one kind with nothing between them that ran: what could not be tried does not part them."""
    for run in _runs(series, _FAILED, bridge=_UNKNOWN):
        first, last = series.observations[run[0]], series.observations[run[-1]]
        verb = "hung" if first.outcome is Outcome.HANG else "crashed"
        yield Change(
            kind=ChangeKind.CRASH,
            metric=series.metric,
            first=run[0],
            last=run[-1],
            signature=first.signature,
            message=f"{_count(len(run), 'observation')} {verb}{_at(first, last)}"
            f"{f': {first.signature}' if first.signature else ''}",
        )


def _gaps(series: Series) -> Iterator[Change]:
    for run in _runs(series, _UNKNOWN, bridge=()):
        first, last = series.observations[run[0]], series.observations[run[-1]]
        what = "missing" if first.outcome is Outcome.MISSING else "could not be tried"
        verb = "" if what != "missing" else ("is " if len(run) == 1 else "are ")
        yield Change(
            kind=ChangeKind.GAP,
            metric=series.metric,
            first=run[0],
            last=run[-1],
            signature=first.signature,
            message=f"{_count(len(run), 'observation')} {verb}{what}{_at(first, last)}",
        )


def _runs(
    series: Series, wanted: Sequence[Outcome], bridge: Sequence[Outcome]
) -> Iterator[list[int]]:
    """Stretches of observations of the wanted outcomes with one outcome and signature."""
    run: list[int] = []
    for index, item in enumerate(series.observations):
        if item.outcome in wanted:
            head = series.observations[run[0]] if run else item
            if (head.outcome, head.signature) != (item.outcome, item.signature):
                yield run
                run = []
            run.append(index)
        elif run and item.outcome not in bridge:
            yield run
            run = []
    if run:
        yield run


def _between(series: Series, step: Step) -> str:
    good, bad = series.observations[step.last_good].label, series.observations[step.first_bad].label
    return f"between {good} and {bad}"


def _at(first: Observation, last: Observation) -> str:
    return f" at {first.label}" if first is last else f" from {first.label} to {last.label}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _percent(step: Step) -> str:
    return "" if step.relative is None else f" ({100 * step.relative:+.3g}%)".replace("-", "−")


def _number(value: float) -> str:
    return f"{value:.6g}"


# DOC-HERE detecting: Detecting: where a series changed its level, and what a person would call it.
#
# In: a `Series`. Out: an `Analysis`. Pure; the same series gives the same answer.
#
# Only observations that have values are looked at, in their order; what lies between two of them stays unknown, and
# is part of a step's range. Several samples of one observation count as their mean.

FEWEST = 5
"""Observations with values, below which nothing can be told."""
_WILD = 5.0
_DEFAULT = DetectOptions()


def detect(series: Series, options: DetectOptions = _DEFAULT) -> Analysis:
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
    plain = scale(values)
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


# DOC-HERE online: Online: whether the newest observations of a series are a change.
#
# In: a `Series`. Out: `Newest`. Pure.
#
# A change is one that the detector reports, and that began with the newest few. A newest point that is off, and that the
# detector cannot report yet, is `unsure`: one point never makes a level.

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
    analysis = detect(series, options)
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
        analysis = detect(grown, options)
        if analysis.steps and analysis.steps[-1].after.count <= more + 2:
            return more
    return None
