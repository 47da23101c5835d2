"""How a curve moved, in one sentence, where one says it: old and new values at the same steps → `Explanation`. Pure.

Two strengths. *Exact*: the new curve is the old one scaled, moved by some steps, cut to fewer digits, in another order or
stuck, down to the last digit that is written. No run does that, so it is wrong whatever its size. *Roughly*: the sentence
takes nine tenths of the difference away, or says which values it is about; wrong are only a late drift, and a shift of all that
goes up and down from batch to batch. Nothing is claimed of fewer than `ENOUGH` different values: they agree with anything. Of two sentences that fit, the simpler one is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import frexp, inf, isfinite, sqrt

import numpy as np

from karat.compare.change import Explanation
from karat.compare.numbers import FURTHEST, median_of
from karat.goldens.shapes import Flags, Steps, Values
from karat.report.words import count

ENOUGH = 8  # Different values that a claim about a whole curve needs.
_FITS = 0.9  # Share of the difference that a sentence must take away.
_CLEAR = 10  # A difference is so many times as large as the last digit, or the sentence is about rounding.
_FINE = 1000  # A value is so many times as large as its last digit, or it says little that the digits agree.
_ROUGHLY = 0.999
_TAIL, _QUIET, _ONE_SIDE = 6, 0.05, 0.95
"""A late drift: so many values at least, behind others that moved by this share of it at most, nearly all to one side."""
_SEED = 24  # Values that it takes to tell another seed from noise.


@np.errstate(all="ignore")
def explain(
    steps: Steps, old: Values, new: Values, *, off: Flags | None = None, drift: float = inf, decimals: int | None = None
) -> Explanation | None:
    """How finite values moved, roughly; `off` marks those that matter, without it they are the large differences.

    A curve that leaves the old one late, and by `drift` or more, is wrong; with so few `decimals` that it could
    have left before without a trace, it is not.
    """
    error = new - old
    size = np.abs(error)
    total = float(size.sum())
    if not (0 < total < inf):
        return None
    if len(old) > 2 and (level := _one_level(old, new, error, total)) is not None:
        return level
    if (shifted := _ups_and_downs(steps, old, new)) is not None:
        return shifted
    given = off is not None
    off = size > 0.1 * float(size.max()) if off is None else off
    at = np.flatnonzero(off)
    if not len(at):
        return None
    onset, share = int(at[0]), min(float(size[off].sum()) / total, _ROUGHLY)
    # Who marks values knows why; large ones are the story only if they are nearly all of it.
    if given or share >= _FITS:
        if len(at) == 1:
            return Explanation("outlier", f"a single step ({steps[onset]}) is off, the others are not", share)
        if onset > (0 if given else 2) and _share(off[onset:]) >= 0.8:
            trace = 0.0 if decimals is None else _CLEAR * _last_digit(decimals) / (median_of(np.abs(old)) or inf)
            return _left(steps, old, error, onset, share, max(drift, trace))
        if len(at) <= 0.1 * len(steps):
            return Explanation("outliers", f"spikes at {len(at)} of {len(steps)} steps, the others hold", share)
    return _all_along(old, new, error, off)


def _share(flags: Flags) -> float:
    """How many of so many; the mean of flags, at a fifth of its price."""
    return float(np.count_nonzero(flags) / len(flags))  # numpy 2 counts in its own numbers, which no JSON takes


def _bends(values: Values) -> Values:
    """Differences of differences."""
    slopes = values[1:] - values[:-1]
    return slopes[1:] - slopes[:-1]


def _one_level(old: Values, new: Values, error: Values, total: float) -> Explanation | None:
    """One factor or one offset for all steps."""
    square = float(old @ old)
    offset, factor = float(error.mean()), float(old @ new) / square if square else 0.0
    fits = [1 - float(np.abs(rest).sum()) / total for rest in (error - offset, new - factor * old)]
    if not max(fits) >= _FITS:
        return None
    if fits[0] >= fits[1]:
        return Explanation("offset", f"offset by {offset:+.6g} at every step", min(fits[0], _ROUGHLY))
    return Explanation("rescaled", f"scaled by {_said(factor)} at every step", min(fits[1], _ROUGHLY))


def _said(factor: float) -> str:
    """A factor; nobody understands `scaled by 1`."""
    away = factor - 1
    return f"{factor:.6g}" if abs(away) >= 1e-4 else f"1 {'-' if away < 0 else '+'} {abs(away):.2g}"


def _left(steps: Steps, old: Values, error: Values, onset: int, share: float, drift: float) -> Explanation:
    first = int(np.flatnonzero(error)[0])
    onset = first if first >= 0.8 * onset else onset  # it leaves slowly
    moved = error / np.abs(old)
    tail = moved[onset:]
    mean = float(np.abs(tail).mean())
    before = "equal" if onset == first else "close"
    sides = max(_share(tail > 0), _share(tail < 0))
    late = onset >= len(steps) / 2 and len(tail) >= _TAIL and sides >= _ONE_SIDE
    wrong = late and inf > mean >= drift and float(np.abs(moved[:onset]).mean()) <= _QUIET * mean
    ends = f" by {median_of(tail):+.2%} at the median" if isfinite(mean) and sides >= _ONE_SIDE else ""
    sentence = f"{before} up to step {steps[onset - 1]}, then apart{ends}"
    return Explanation("late-drift" if wrong else "apart", sentence, share, wrong)


def _all_along(old: Values, new: Values, error: Values, off: Flags) -> Explanation:
    """Off from end to end: another level, more noise, or another seed."""
    ups = _share(error[off] > 0)
    middle = median_of(np.abs(error[off]))
    one_way = abs(float(error.sum())) / float(np.abs(error).sum())
    if not 0.2 <= ups <= 0.8:
        word = "higher" if ups > 0.5 else "lower"
        return Explanation("level", f"{word} all along, by {middle:.3g} at the median", min(one_way, _ROUGHLY))
    if len(old) >= _SEED:
        was, now = _bends(old), _bends(new)
        rougher = sqrt(float(now @ now) / float(was @ was)) if was.any() else 1.0
        if off[0] and 0.5 <= rougher <= 2 and (alike := _share(np.sign(was) == np.sign(now))) < 0.65:
            sentence = "another seed: as rough and on the same level, but nothing in it is where it was"
            return Explanation("seed", sentence, 1 - abs(2 * alike - 1))
        if rougher > 2:
            times = f"{rougher:.2g} times as rough" if rougher < 100 else "the old curve was smooth"
            return Explanation("noise", f"only noise grew, around the same level: {times}", 1 - one_way)
    return Explanation("noise", f"off in both directions all along, by {middle:.3g} at the median", 1 - one_way)


def _ups_and_downs(steps: Steps, old: Values, new: Values) -> Explanation | None:
    """All that goes up and down from batch to batch is there, some steps off; noise is on top."""
    # Differences of differences do not see the trend, and their signs no outlier.
    if len(old) < 2 * _SEED:
        return None
    was, now = np.sign(_bends(old)), np.sign(_bends(new))
    if _share(was == now) > 0.65 or _share(was == 0) > 0.1 or abs(was.mean()) > 0.5:
        return None
    for by in range(1, FURTHEST + 1):
        for one, other, word in ((was, now, "later"), (now, was, "earlier")):
            if (fit := _share(one[:-by] == other[by:])) >= _ONE_SIDE:
                sentence = f"the old values, {count(int(steps[by] - steps[0]), 'step')} {word}, and noise"
                return Explanation("shifted", sentence, min(fit, _ROUGHLY), wrong=True)
    return None


@np.errstate(all="ignore")
def exactly(
    steps: Steps, old: Values, new: Values, decimals: tuple[int | None, int | None], noun: str = "step"
) -> Explanation | None:
    """How the new curve was made of the old one, to the last digit; values may be missing on either side.

    `decimals` are those in use, old and new; None: too few values to say.
    """
    before, after = decimals
    if before is None or after is None:
        return None
    usable = np.isfinite(old) & np.isfinite(new)
    x, y = (old, new) if usable.all() else (old[usable], new[usable])
    error = y - x
    size = np.abs(error)
    if not 0 < float(size.max(initial=0.0)) < inf:
        return None
    return (
        _shift(steps, old, new, _last_digit(before), noun)
        or _linear(x, y, error, before, after, noun)
        or _cut(x, y, size, before, after)
        or _order(x, y, error)
        or _stuck(steps[usable], x, y, before, noun)
    )


def _varies(values: Values, unit: float = 0.0) -> bool:
    """Whether there are enough different values, and from step to step they differ by many times the unit."""
    if len(values) < ENOUGH or (unit and not median_of(np.abs(np.diff(values))) >= _CLEAR * unit):
        return False
    return len(np.unique(values)) >= ENOUGH


def _linear(x: Values, y: Values, error: Values, before: int, after: int, noun: str) -> Explanation | None:
    """Every value times or plus one constant; whole numbers (bytes, counts) may move by a constant of their own accord."""
    unit = max(_last_digit(after), 1e-9 * float(np.abs(y).max()))
    square = float(x @ x)
    factor = float(x @ y) / square if square else 0.0
    tolerance = (1 + abs(factor)) * unit
    offset = float(error.mean())
    spread = float(np.abs(error - offset).max())
    words = ""
    if factor and float(np.abs(y - factor * x).max()) <= tolerance and (before or spread >= _CLEAR * tolerance):
        words = f"scaled by {_said(factor)}"
    elif before and spread <= 2 * unit:
        words = f"offset by {offset:+.6g}"
    # The last digit has to be finer than what runs differ by, and the difference plain to see at enough places.
    plain = np.count_nonzero(np.abs(error) >= _CLEAR * tolerance) >= ENOUGH
    if not words or not plain or median_of(np.abs(x)) < _FINE * tolerance or not _varies(x, tolerance):
        return None
    return Explanation("rescaled", f"{words} at every {noun}", 1.0, wrong=True)


def _last_digit(decimals: int) -> float:
    return 10.0**-decimals if decimals < 9 else 0.0


def _shift(steps: Steps, old: Values, new: Values, unit: float, noun: str) -> Explanation | None:
    n = len(old)
    probes = [n // 4, n // 2, 3 * n // 4]
    for by in range(1, min(FURTHEST, n // 3) + 1):
        for one, other, word in ((old, new, "later"), (new, old, "earlier")):
            # A look at three places spares nearly every curve the rest.
            if any(one[i] != other[i + by] and one[i] == one[i] for i in probes if i + by < n):
                continue
            a, b = one[:-by], other[by:]
            known = np.isfinite(a) & np.isfinite(b)
            a, b = a[known], b[known]
            if _varies(a, unit) and (a == b).mean() >= _FITS and (old == new).mean() <= 0.5:
                moved = int(steps[by] - steps[0])
                sentence = f"the old values, {count(moved, noun)} {word}"
                return Explanation("shifted", sentence, float((a == b).mean()), wrong=True)
    return None


def _cut(x: Values, y: Values, size: Values, before: int, after: int) -> Explanation | None:
    """Fewer digits: every value is less than one unit of its last digit away, and most of the old ones needed more."""
    for words, unit in _grids(x, y, before, after):
        if (size <= unit * (1 + 1e-6)).all() and _on_grid(y, unit).all() and _on_grid(x, unit).mean() <= 0.5:
            return Explanation("precision-cut", f"cut to {words}", 1.0, wrong=True) if _varies(x) else None
    return None


def _on_grid(values: Values, unit: Values | float) -> Flags:
    return np.abs(values - np.rint(values / unit) * unit) <= 1e-6 * unit


def _grids(x: Values, y: Values, before: int, after: int) -> Iterator[tuple[str, Values | float]]:
    """What the new values could have been cut to; three of them say whether it is worth a try."""
    if after < before:
        yield count(after, "decimal"), _last_digit(after)
    at = [len(x) // 4, len(x) // 2, 3 * len(x) // 4]
    was, now = x[at].tolist(), y[at].tolist()
    for digits in range(1, 6):
        if all(float(f"{value:.{digits - 1}e}") == value for value in now):
            if any(float(f"{value:.{digits - 1}e}") != value for value in was):
                yield count(digits, "significant digit"), 10.0 ** (np.floor(np.log10(np.abs(x))) - digits + 1)
            break
    for bits, name in ((8, "bfloat16"), (11, "float16")):
        if all((frexp(value)[0] * 2**bits).is_integer() for value in now):
            if not all((frexp(value)[0] * 2**bits).is_integer() for value in was):
                yield name, 2.0 ** (np.frexp(x)[1] - bits)
            break


def _order(x: Values, y: Values, error: Values) -> Explanation | None:
    if abs(float(error.sum())) > 1e-9 * float(np.abs(x).sum()) or not np.array_equal(np.sort(x), np.sort(y)):
        return None
    moved = x[error != 0]
    values, times = np.unique(x, return_counts=True)
    # Values that are there once: what is there more often may change places by itself (levels of memory).
    single = int(np.count_nonzero(times[np.searchsorted(values, moved)] == 1))
    if single < 2 or len(values) < ENOUGH:
        return None
    sentence = f"the same values in another order, {len(moved)} of {len(x)} moved"
    return Explanation("reordered", sentence, 1.0, wrong=True)


def _stuck(steps: Steps, x: Values, y: Values, before: int, noun: str) -> Explanation | None:
    """One value from some step on, where the old curve went on varying; whole numbers do stay where they are."""
    if not before or y[-1] != y[-2]:
        return None
    differs = np.flatnonzero(y != y[-1])
    start = int(differs[-1]) + 1 if len(differs) else 0
    if not _varies(x[start:], _last_digit(before)):
        return None
    where = f"from {noun} {steps[start]} on" if start else f"at every {noun}"
    return Explanation("stuck", f"the same value ({y[-1]:.6g}) {where}", 1.0, wrong=True)


def decimals_of(values: Values) -> int | None:
    """Decimals that finite values need, as `score` counts them; None for too few."""
    known = values[np.isfinite(values)]
    if len(known) < ENOUGH:
        return None
    return next((places for places in range(9) if np.array_equal(np.round(known, places), known)), 9)
