"""Detect: where a series changed its level, what a person would call it, and whether the newest points are a change.

Pure; the same series gives the same answer. Only observations with values are looked at, in their order; what is
between two of them stays unknown, and is part of a step's range. Several samples of one observation count as their mean.

A dip left its level and came back: to within the noise of the two levels, or a tenth of its depth; and it is short: at
most a quarter of the series, or shorter than the levels on both sides of it. A gain that was lost again is only one
where it lasted half as long as either side at most: else the loss is what stands at the end. Every other step is a regression, an
improvement, or, where nobody said which is better, a shift. Neighbours that crashed or hung in the same way are one
crash range; those that are missing or broken are one gap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import hypot
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from msgspec import structs

from karat.changepoints.detector.noise import Floats, mean, robust_spread, sum_variance
from karat.changepoints.detector.segments import LevelCut, Segmented, segment
from karat.changepoints.detector.trends import find_season
from karat.changepoints.series import (
    Analysis,
    ChangeKind,
    DetectOptions,
    Level,
    Newest,
    Outcome,
    Series,
    SeriesChange,
    Step,
    step_kind,
)

FEWEST = 5  # Observations with values, below which nothing can be told.
_DEFAULT = DetectOptions()
_CLIP = 2.5
_WILD = 5.0
_FLOAT_NOISE = 1e-12  # relative differences below this are arithmetic, not measurement
_QUANTISED = 0.2887  # the standard deviation of rounding to whole steps: 1/√12 of a step
_DIGITS = 12
_LARGEST = 1e6
_DIMMEST = 1e-100  # a usual size this far below the largest is none: nearly all values are zero
_DEPTH = 0.1
_SHORT = 0.25
_STEPS_OF_A_DIP = 4
_FAILED = (Outcome.CRASH, Outcome.HANG)
_UNKNOWN = (Outcome.BROKEN, Outcome.MISSING)
_OFF = 0.05  # a newest point is off where chance puts fewer than this share of points so far out
_MOST_NEEDED = 6


def detect(series: Series, options: DetectOptions = _DEFAULT) -> Analysis:
    known = [index for index, item in enumerate(series.observations) if item.outcome is Outcome.OK and item.values]
    samples = [series.observations[index].values for index in known]
    values = np.array([item[0] if len(item) == 1 else mean(item) for item in samples], dtype=np.float64)
    # The standard error of an observation's mean, from those that have several samples.
    # In units of the samples, because their squares may overflow.
    several = [(np.asarray(item), float(np.abs(item).max())) for item in samples if len(item) > 1]
    errors = [float((x / size).std(ddof=1) / np.sqrt(x.size) * size) if size > 0 else 0.0 for x, size in several]
    season = find_season(values, [series.observations[index].when for index in known])
    if season is not None:
        values = values - season.offsets
    found = _segmented(values, options, float(np.median(errors)) if errors else 0.0)
    edges = [0, *(cut.at for cut in found.cuts), len(known)] if known else []
    level_of = partial(level, noise=found.noise, rho=found.rho, sure=1 - options.false_alarms)
    levels = tuple(level_of(values[a:b], known[a], known[b - 1]) for a, b in pairwise(edges))
    # The level beside a step is where a trend leads to, or comes from.
    ends, starts = list(levels), list(levels)
    for trend in found.trends:
        number = sum(cut.at <= trend.first for cut in found.cuts)
        ends[number] = structs.replace(levels[number], value=trend.after)
        starts[number] = structs.replace(levels[number], value=trend.before)
    steps = []
    for cut, before, after in zip(found.cuts, ends[:-1], starts[1:], strict=True):
        absolute = after.value - before.value
        relative = absolute / abs(before.value) if before.value else None
        steps.append(
            Step(
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
        )
    notes: tuple[str, ...] = ()
    far = np.zeros(0, dtype=np.int64)  # Positions of values that are far off their level.
    if len(known) >= FEWEST and found.noise > 0:
        parts = np.split(values, [cut.at for cut in found.cuts])
        far = np.flatnonzero(np.abs(np.concatenate([part - np.median(part) for part in parts])) > _WILD * found.noise)
    if len(known) < FEWEST:
        word = "observation has" if len(known) == 1 else "observations have"
        notes = (f"{len(known)} {word} a value; a change can be told from {FEWEST} on",)
    return Analysis(
        metric=series.metric,
        steps=tuple(steps),
        levels=levels,
        changes=name_changes(series, steps, levels, _slow_and_noisy(series, values, known, found)),
        outliers=tuple(known[index] for index in far.tolist()),
        noise="" if season is None else season.words,
        notes=notes,
    )


def steps(values: npt.ArrayLike, options: DetectOptions = _DEFAULT) -> tuple[LevelCut, ...]:
    """Where plain finite values change their level: the fast way, without names and levels."""
    array = np.asarray(values, dtype=np.float64)
    season = find_season(array)
    return _segmented(array if season is None else array - season.offsets, options, 0.0).cuts


def _segmented(values: Floats, options: DetectOptions, sampling: float) -> Segmented:
    scaled, unit, rounding = scale(values)
    if values.shape[0] < FEWEST:
        noise = robust_spread(scaled - np.median(scaled)) if values.shape[0] else 0.0
        return Segmented((), 0.0, noise * unit)
    found = segment(scaled, options, floor=max(rounding, sampling / unit))
    trends = (t._replace(before=t.before * unit, after=t.after * unit) for t in found.trends)
    return found._replace(noise=found.noise * unit, trends=tuple(trends))


def level(values: Floats, first: int, last: int, *, noise: float, rho: float, sure: float) -> Level:
    """The level of one stretch, from the index of its first observation to that of its last."""
    count = values.shape[0]
    middle = float(np.median(values))
    spread = robust_spread(values - middle)
    # A few values say little about their own spread.
    trusted = spread if count >= 8 else max(spread, noise)
    value = mean(np.clip(values, middle - _CLIP * trusted, middle + _CLIP * trusted))
    error = trusted * float(np.sqrt(sum_variance(count, rho))) / count
    # A quantile of Student's t, by its expansion about the normal one; few values share the noise of the series.
    z = NormalDist().inv_cdf(0.5 + sure / 2)
    degrees = max(count - 1, 4)
    quantile = z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
    low, high = value - quantile * error, value + quantile * error
    return Level(value=value, low=low, high=high, spread=spread, count=count, first=first, last=last)


def scale(values: Floats) -> tuple[Floats, float, float]:
    """Values in units of their usual size, so that squares neither overflow nor vanish; that size; and their rounding:
    noise that there is, seen or not.

    What differs by less than arithmetic does is made equal; values a million times the usual size are large enough.
    """
    sizes = np.abs(values)
    largest = float(sizes.max(initial=0.0))
    scale = 0.0
    if values.size:
        # The middle size; more where a tenth of all are too large for it: they are levels, and two of them may differ.
        middle, upper = np.quantile(sizes, [0.5, 0.9])
        scale = float(max(middle, upper / _LARGEST if middle > 0 else 0.0))
    if scale < _DIMMEST * largest or scale == 0:
        scale = largest
    if scale == 0:
        return np.zeros_like(values), 1.0, _FLOAT_NOISE
    ratios = np.round(np.clip(values, -_LARGEST * scale, _LARGEST * scale) / scale, _DIGITS)
    rounding = _QUANTISED * _resolution(ratios * scale, scale) / scale
    return ratios, scale, max(_FLOAT_NOISE, rounding)


def _resolution(values: Floats, scale: float) -> float:
    """The power of ten that all values are multiples of; 0 where no rounding can be seen."""
    if np.unique(values).size > 0.7 * values.size or not 1e-200 < scale < 1e200:
        return 0.0
    top = int(np.floor(np.log10(scale)))
    for exponent in range(top, top - _DIGITS, -1):
        steps = values / 10.0**exponent
        if np.abs(steps - np.round(steps)).max() < 1e-6:
            return float(10.0**exponent)
    return 0.0


def _slow_and_noisy(series: Series, values: Floats, known: Sequence[int], found: Segmented) -> Iterator[SeriesChange]:
    label = [point.label for point in series.observations]
    made = []
    for first, last, before, after, p_value in found.trends:
        verb, ends = "rose" if after > before else "fell", (known[first], known[last])
        said = f"{verb} slowly from {before:.6g} to {after:.6g} between {label[ends[0]]} and {label[ends[1]]}"
        made.append((ChangeKind.TREND, ends, before, after, p_value, said))
    edges = [0, *(cut.at for cut in found.noise_cuts), len(known)]
    spreads = [robust_spread(np.diff(values[a:b])) / np.sqrt(2) for a, b in pairwise(edges)]
    for cut, end, (before, after) in zip(found.noise_cuts, edges[2:], pairwise(spreads), strict=True):
        more, ends = "noisier" if after > before else "calmer", (known[cut.at], known[end - 1])
        said = f"became {more} at {label[ends[0]]}: ±{before:.3g} before, ±{after:.3g} since"
        made.append((ChangeKind.NOISE, ends, before, after, cut.p_value, said))
    for kind, ends, before, after, p_value, said in made:
        yield SeriesChange(
            kind=kind,
            metric=series.metric,
            first=ends[0],
            last=ends[1],
            before=before,
            after=after,
            p_value=p_value,
            confidence=1 - p_value,
            message=f"{series.metric} {said}",
        )


def name_changes(
    series: Series, steps: Sequence[Step], levels: Sequence[Level], others: Iterable[SeriesChange] = ()
) -> tuple[SeriesChange, ...]:
    """Dips, regressions, improvements, shifts, crash ranges, gaps and others, by their first observation."""
    changes = [*_crashes_and_gaps(series), *others]
    total = sum(level.count for level in levels)
    number = 0
    while number < len(steps):
        gain = step_kind(series.better, steps[number]) is ChangeKind.IMPROVEMENT
        back = _back(steps, levels, number, total, gain=gain)
        last = number if back is None else back
        changes.append(_moved(series, steps, number, last))
        number = last + 1
    return tuple(sorted(changes, key=lambda change: (change.first, change.last)))


def _back(steps: Sequence[Step], levels: Sequence[Level], number: int, total: int, *, gain: bool) -> int | None:
    """The step that comes back from where step `number` went."""
    home = levels[number]
    for last in range(number + 1, min(number + _STEPS_OF_A_DIP, len(steps))):
        away, end = levels[number + 1 : last + 1], levels[last + 1]
        count = sum(level.count for level in away)
        least = min(home.count, end.count)
        short = count <= least / 2 if gain else count <= _SHORT * total or count < least
        same_side = len({level.value > home.value for level in away}) == 1
        depth = max(abs(level.value - home.value) for level in away)
        noise = hypot(home.high - home.low, end.high - end.low) / 2
        # Never by noise alone: a return that makes up for less than half of the way is none.
        returned = abs(end.value - home.value) <= max(_DEPTH * depth, min(noise, depth / 2))
        if short and same_side and returned:
            return last
    return None


def _moved(series: Series, steps: Sequence[Step], number: int, back: int) -> SeriesChange:
    """A step to another level, or a dip, whose last step is `back`."""
    step, last = steps[number], steps[back]
    points = series.observations
    percent = "" if step.relative is None else f" ({100 * step.relative:+.3g}%)".replace("-", "−")
    levels = f"from {step.before.value:.6g} to {step.after.value:.6g}{percent}"
    if back == number:
        kind = step_kind(series.better, step)
        verb = "rose" if step.absolute > 0 else "fell"
        message = f"{verb} {levels} between {points[step.last_good].label} and {points[step.first_bad].label}"
    else:
        kind = ChangeKind.DIP
        stretch = " to ".join(dict.fromkeys((points[step.first_bad].label, points[last.last_good].label)))
        message = f"went {levels} and came back to {last.after.value:.6g}: {stretch}"
    return SeriesChange(
        kind=kind,
        metric=series.metric,
        steps=tuple(range(number, back + 1)),
        first=step.first_bad,
        last=step.after.last if back == number else last.last_good,
        confidence=min(one.confidence for one in steps[number : back + 1]),
        message=f"{series.metric} {message}",
    )


def _crashes_and_gaps(series: Series) -> Iterator[SeriesChange]:
    """Failures of one kind with nothing between them that ran, and points that are missing or could not be tried."""
    verbs = {Outcome.CRASH: "crashed", Outcome.HANG: "hung", Outcome.BROKEN: "could not be tried"}
    # What could not be tried does not part failures.
    for kind, wanted, bridge in ((ChangeKind.CRASH, _FAILED, _UNKNOWN), (ChangeKind.GAP, _UNKNOWN, ())):
        for run in _runs(series, wanted, bridge):
            first, last = series.observations[run[0]], series.observations[run[-1]]
            count = "1 observation" if len(run) == 1 else f"{len(run)} observations"
            verb = verbs.get(first.outcome, "is missing" if len(run) == 1 else "are missing")
            where = f"at {first.label}" if first is last else f"from {first.label} to {last.label}"
            said = f": {first.signature}" if first.signature and kind is ChangeKind.CRASH else ""
            text, why = f"{count} {verb} {where}{said}", first.signature
            yield SeriesChange(kind=kind, metric=series.metric, first=run[0], last=run[-1], signature=why, message=text)


def _runs(series: Series, wanted: Sequence[Outcome], bridge: Sequence[Outcome]) -> Iterator[list[int]]:
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


def newest(
    series: Series, options: DetectOptions = _DEFAULT, *, recent: int = 5, analysis: Analysis | None = None
) -> Newest:
    """Whether the newest observations, of which up to `recent` count as new, are a change; `analysis` is of the series.

    A change is one that the detector reports, and that began with the newest few. A newest point that is off, and that the
    detector cannot report yet, is `unsure`: one point never makes a level.
    """
    last = series.observations[-1] if series.observations else None
    if last is None:
        return Newest(verdict="unsure", p_value=None, step=None, message="the series is empty")
    if last.outcome in _FAILED:
        verb = "hung" if last.outcome is Outcome.HANG else "crashed"
        what = f"{last.label} {verb}{f': {last.signature}' if last.signature else ''}"
        before = [item for item in series.observations[:-1] if item.outcome not in _UNKNOWN]
        if before and (before[-1].outcome, before[-1].signature) == (last.outcome, last.signature):
            return Newest(verdict="same", p_value=None, step=None, message=f"{what}, as the one before it")
        return Newest(verdict="change", p_value=None, step=None, message=what)
    if last.outcome is not Outcome.OK or not last.values:
        why = "" if last.outcome is Outcome.OK else f": it is {last.outcome.value}"
        return Newest(verdict="unsure", p_value=None, step=None, message=f"{last.label} has no value{why}")
    analysis = analysis or detect(series, options)
    if sum(level.count for level in analysis.levels) < FEWEST:
        return Newest(verdict="unsure", p_value=None, step=None, message="; ".join(analysis.notes))
    step = analysis.steps[-1] if analysis.steps else None
    if step is not None and step.after.count <= recent:
        number = len(analysis.steps) - 1
        message = next(change.message for change in analysis.changes if number in change.steps)
        return Newest(verdict="change", p_value=step.p_value, step=step, message=message)
    # One point against the level it should be on.
    home = analysis.levels[-1]
    items = series.observations[home.first : home.last + 1]
    values = np.array([mean(i.values) for i in items if i.outcome is Outcome.OK and i.values])
    p_value = _far_out(values)
    where = f"{series.metric} at {last.label} is {values[-1]:.6g}, on a level of {home.value:.6g}"
    # How many more points like the newest the detector would need to report a change.
    for needed in range(1, _MOST_NEEDED + 1) if p_value <= _OFF else ():
        grown = (*series.observations, *[last] * needed)
        seen = detect(structs.replace(series, observations=grown), options)
        if seen.steps and seen.steps[-1].after.count <= needed + 2:
            break
    else:
        return Newest(verdict="same", p_value=p_value, step=None, message=where)
    points = "1 more point" if needed == 1 else f"{needed} more points"
    said = f"{where}: too far off for chance, too few to tell; {points} like it would"
    return Newest(verdict="unsure", p_value=p_value, step=None, message=said, points_needed=needed)


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
