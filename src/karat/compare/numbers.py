"""The numbers of many (old, new) curves at once.

In: pairs of metrics with their rule. Out: one `CurveNumbers` per pair. Everything is computed over one
long array with a segment per pair, because a golden has hundreds of points and a refresh thousands
of goldens: per-pair numpy calls would spend their time on calling.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from karat.compare.change import Numbers
from karat.compare.rules import Rule
from karat.goldens.shapes import Metric, Steps, Values

if TYPE_CHECKING:
    from numpy.typing import NDArray

ZERO = 1e-12  # Below this an old value cannot be divided by; the seed's threshold.

_SAMPLE = 16
_ENOUGH = 8
_MAX_DECIMALS = 9


class CurveNumbers(Numbers, frozen=True, kw_only=True, gc=False):
    """What the arithmetic says about one pair of curves. A Struct: thousands are made."""

    both_missing: int
    placeholders_lost: int
    first_nan_step: int | None
    zeros: int  # Shared steps whose old value is zero, or nearly, and both are finite.
    from_zero: int  # Those of them whose new value is not zero.
    from_zero_size: float  # The largest such new value, as a multiple of the curve's largest old one; inf if all are 0.
    odd_changed: int  # Shared steps that are not finite on either side, and not alike (NaN → inf, inf → −inf).
    raised: int
    lowered: int  # How many finite values rose and fell; a mean can hide either.
    decimals_old: int | None
    decimals_new: int | None
    suspect: bool  # The new curve may be made of the old one's very digits: worth a closer look, see `explain`.


class Aligned(msgspec.Struct, frozen=True, gc=False):
    """Two curves at the steps that both have."""

    steps: Steps
    old: Values
    new: Values
    lost: int
    gained: int
    placeholders_lost: int


def align(old: Metric, new: Metric) -> Aligned:
    if old.steps is new.steps or np.array_equal(old.steps, new.steps):
        return Aligned(old.steps, old.values, new.values, 0, 0, 0)
    shared, at_old, at_new = np.intersect1d(old.steps, new.steps, assume_unique=True, return_indices=True)
    gone = np.ones(len(old.steps), dtype=bool)
    gone[at_old] = False
    come = np.ones(len(new.steps), dtype=bool)
    come[at_new] = False
    # An infinity is a sample, if a bad one; only NaN stands for "no sample".
    lost = int(np.count_nonzero(~np.isnan(old.values[gone])))
    gained = int(np.count_nonzero(~np.isnan(new.values[come])))
    placeholders = int(np.count_nonzero(gone)) - lost
    return Aligned(shared, old.values[at_old], new.values[at_new], lost, gained, placeholders)


def score(pairs: Sequence[tuple[Metric, Metric, Rule]], *, curves: bool = False) -> list[CurveNumbers]:
    """The numbers of every pair, in order; only `curves` can be suspects, their order means something."""
    if not pairs:
        return []
    aligned = [align(old, new) for old, new, _ in pairs]
    rules = [rule for _, _, rule in pairs]
    lengths = np.array([len(a.steps) for a in aligned])
    flat = _Flat(
        np.concatenate([a.steps for a in aligned]),
        np.concatenate([a.old for a in aligned]),
        np.concatenate([a.new for a in aligned]),
        lengths,
        np.cumsum(lengths),
        np.flatnonzero(lengths),
    )
    with np.errstate(all="ignore"):
        columns = _columns(flat, rules)
        # The last two say how many digits there are.
        columns.append(_suspects(flat, *columns[-2:]) if curves else np.zeros(len(pairs), dtype=bool))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [_numbers(a, rule, row) for a, rule, row in zip(aligned, rules, rows, strict=True)]


class _Flat(msgspec.Struct, frozen=True):
    """All pairs end to end; `ends` bound each one's segment."""

    steps: Steps
    old: Values
    new: Values
    lengths: NDArray[np.int64]
    ends: NDArray[np.int64]
    filled: NDArray[np.int64]  # The segments that are not empty, which reduceat alone would get wrong.

    def reduce(self, how: np.ufunc, column: NDArray[Any], dtype: type) -> NDArray[Any]:
        """Per-segment sums or maxima; 0 for an empty segment."""
        out: NDArray[Any] = np.zeros(len(self.lengths), dtype=dtype)
        if len(self.filled):
            starts = (self.ends - self.lengths)[self.filled]
            out[self.filled] = how.reduceat(column, starts, dtype=dtype)
        return out

    def first(self, hits: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first of the ascending indices `hits` in each segment, −1 where there is none."""
        out = np.full(len(self.lengths), -1, dtype=np.int64)
        if len(hits):
            at = np.searchsorted(hits, self.ends - self.lengths)
            candidate = hits[np.minimum(at, len(hits) - 1)]
            found = (at < len(hits)) & (candidate < self.ends)
            out[found] = candidate[found]
        return out

    def counts(self, hits: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many of the indices fall into each segment."""
        return np.bincount(self.segments(hits), minlength=len(self.lengths))

    def segments(self, hits: NDArray[np.int64]) -> NDArray[np.int64]:
        """The segment that each index falls into."""
        return np.searchsorted(self.ends, hits, side="right")


def _columns(flat: _Flat, rules: Sequence[Rule]) -> list[NDArray[Any]]:
    old, new = flat.old, flat.new
    usable = np.isfinite(old) & np.isfinite(new) & (np.abs(old) >= ZERO)
    # Few values are odd, so they are looked at one by one and the rest in bulk.
    odd = np.flatnonzero(~usable)
    delta = old - new
    rel = delta / old
    rel[odd] = 0.0
    size = np.abs(rel)
    highest = flat.reduce(np.maximum, size, np.float64)
    # Bits, not ==: −0.0 against 0.0 is a difference, NaN against NaN is not.
    equal = old.view(np.int64) == new.view(np.int64)
    odd_old, odd_new = old[odd], new[odd]
    old_ok, new_ok = np.isfinite(odd_old), np.isfinite(odd_new)
    # Two infinities of one sign are as little evidence as two NaN.
    missing = (np.isnan(odd_old) & np.isnan(odd_new)) | (equal[odd] & ~old_ok)
    equal[odd[missing]] = True
    gone = odd[old_ok & ~new_ok]
    zero = odd[old_ok & new_ok]
    left_zero = zero[np.abs(new[zero]) >= ZERO]
    known, far = np.isfinite(delta), np.zeros(len(flat.lengths))
    if len(left_zero):
        np.maximum.at(far, flat.segments(left_zero), np.abs(new[left_zero]))
        finite = np.where(np.isfinite(old), np.abs(old), 0.0)
        far = np.where(far == 0, 0.0, far / flat.reduce(np.maximum, finite, np.float64))
    return [
        flat.reduce(np.add, usable, np.int64),
        flat.reduce(np.add, rel, np.float64),
        flat.reduce(np.add, np.where(old < 0, rel, -rel), np.float64),
        flat.reduce(np.add, size, np.float64),
        highest,
        *_at(flat, flat.first(np.flatnonzero((size == np.repeat(highest, flat.lengths)) & usable))),
        *_at(flat, flat.first(np.flatnonzero(~equal)))[:2],
        flat.reduce(np.add, equal, np.int64),
        flat.counts(odd[missing]),
        flat.counts(gone),
        *_at(flat, flat.first(gone))[:2],
        flat.counts(odd[~old_ok & new_ok]),
        flat.counts(zero),
        flat.counts(left_zero),
        far,
        flat.counts(odd[~old_ok & ~new_ok & ~missing]),
        flat.reduce(np.add, np.where(known, -delta, 0.0), np.float64),
        flat.reduce(np.add, known, np.int64),
        flat.reduce(np.add, delta < 0, np.int64),
        flat.reduce(np.add, delta > 0, np.int64),
        _tolerance_ratio(flat, rules, np.abs(delta)),
        *_decimals(flat),
    ]


def _at(flat: _Flat, index: NDArray[np.int64]) -> list[NDArray[Any]]:
    """Whether each segment has such a place, and the step, old and new value there."""
    if not len(flat.steps):
        return [index, index, index.astype(float), index.astype(float)]
    return [index, flat.steps[index], flat.old[index], flat.new[index]]


def _tolerance_ratio(flat: _Flat, rules: Sequence[Rule], delta: Values) -> Values:
    if not any(rule.rtol is not None for rule in rules):
        return np.full(len(rules), np.nan)
    rtol = np.array([np.nan if rule.rtol is None else rule.rtol for rule in rules])
    atol = np.array([rule.atol for rule in rules])
    allowed = np.repeat(atol, flat.lengths) + np.repeat(rtol, flat.lengths) * np.abs(flat.old)
    # An exact match is within any tolerance, also a zero one; a NaN is not a matter of tolerance.
    ratio = np.where(delta == 0, 0.0, delta / allowed)
    highest = flat.reduce(np.maximum, np.where(np.isnan(delta), -1.0, ratio), np.float64)
    return np.where(np.isnan(rtol) | (highest < 0), np.nan, highest)


def _decimals(flat: _Flat) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Decimals that a sample of each segment needs, old and new; 9 for "more than 8", −1 for unknown."""
    stride = np.maximum(flat.lengths // _SAMPLE, 1)
    counts = -(-flat.lengths // stride)
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    index = np.repeat(flat.ends - flat.lengths, counts) + offsets * np.repeat(stride, counts)
    segment = np.repeat(np.arange(len(counts)), counts)
    old, new = flat.old[index], flat.new[index]
    usable = np.isfinite(old) & np.isfinite(new)
    segment = segment[usable]
    enough = np.bincount(segment, minlength=len(counts)) >= _ENOUGH
    before, after = (_needed(v[usable], segment, len(counts)) for v in (old, new))
    return np.where(enough, before, -1), np.where(enough, after, -1)


FURTHEST = 8  # Steps by which a curve may be shifted.
_PROBES = np.array([[0.15], [0.3], [0.5], [0.65], [0.8]])
_ENDS_IN_ZEROS = (1 << 42) - 1  # The bits of a float that float16 and bfloat16 do not have.


def _suspects(flat: _Flat, before: NDArray[np.int64], after: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which curves look scaled, offset, shifted, reordered, stuck or cut at five places: few, and none that are not."""
    starts, known = flat.ends - flat.lengths, before >= 0
    if not known.any():
        return known
    at = np.where(known, starts + (_PROBES * flat.lengths).astype(np.int64), 0)
    old, new = flat.old[at], flat.new[at]
    error, odd = new - old, ~np.isfinite(old - new)
    unit = np.where(after < _MAX_DECIMALS, 10.0**-after, 0.0) + 1e-9 * np.abs(new)
    factor = new[2] / old[2]
    scaled = np.abs(new - factor * old) <= 2 * (1 + np.abs(factor)) * unit
    offset = np.abs(error - error[2]) <= 4 * unit
    found: NDArray[np.bool_] = ((scaled | odd).all(0) | (offset | odd).all(0)) & (np.abs(error) > unit).any(0)
    coarse = [(values % 100 == 0, values.view(np.int64) & _ENDS_IN_ZEROS == 0) for values in (old, new)]
    for was, now in zip(*coarse, strict=True):
        found |= now.all(0) & ~was.all(0)
    ends = np.maximum(flat.ends - 1, 0)
    found |= (after < before) | (flat.new[ends] == flat.new[np.maximum(ends - 1, 0)])
    for by in range(1, FURTHEST + 1):
        for one, other in ((flat.old, flat.new), (flat.new, flat.old)):
            later = other[np.minimum(at + by, len(other) - 1)]
            found |= ((one[at] == later) | odd | (at + by >= flat.ends)).all(0)
    moved = flat.new - flat.old
    moved[~np.isfinite(moved)] = 0.0
    found |= np.abs(flat.reduce(np.add, moved, np.float64)) <= 1e-9 * flat.lengths * np.fmax.reduce(np.abs(old))
    found &= known & (np.diff(np.sort(old, axis=0), axis=0) != 0).any(0)
    return found


def _needed(values: Values, segment: NDArray[np.int64], segments: int) -> NDArray[np.int64]:
    """The most decimals that any value of each segment needs."""
    needed = np.zeros(segments, dtype=np.int64)
    for places in range(_MAX_DECIMALS):
        inexact = np.round(values, places) != values
        values, segment = values[inexact], segment[inexact]
        if not len(values):
            break
        needed[segment] = places + 1
    return needed


def _numbers(a: Aligned, rule: Rule, row: tuple[Any, ...]) -> CurveNumbers:
    # fmt: off
    (
        n, total, rise, total_abs, highest, at_max, max_step, max_old, max_new, at_diff, diff_step, equal, missing,
        nan_gained, at_nan, nan_step, nan_lost, zeros, from_zero, from_zero_size, odd_changed,
        shift, known, raised, lowered, ratio, decimals_old, decimals_new, suspect,
    ) = row
    steady = _steady(a, rule) if rule.steady else None
    if steady is not None and rule.rtol:
        # Timings are judged by their medians, so their tolerance is, too.
        ratio = abs(steady) / rule.rtol
    moved = at_max >= 0 and highest != 0
    return CurveNumbers(
        n_shared=len(a.steps), n_steps=n, avg_rel_diff=total / n if n else None, change=rise / n if n else None,
        mean_abs_rel_diff=total_abs / n if n else None, max_abs_rel_diff=highest if n else None, max_step=max_step if moved else None,
        max_old=max_old if moved else None, max_new=max_new if moved else None,
        first_diff_step=diff_step if at_diff >= 0 else None, bit_equal=equal - missing, both_missing=missing,
        steps_lost=a.lost, steps_gained=a.gained, placeholders_lost=a.placeholders_lost, nan_gained=nan_gained,
        first_nan_step=nan_step if at_nan >= 0 else None, nan_lost=nan_lost, zeros=zeros, from_zero=from_zero,
        from_zero_size=from_zero_size, odd_changed=odd_changed, mean_diff=shift / known if known else None,
        raised=raised, lowered=lowered, tolerance_ratio=None if isnan(ratio) else ratio, steady_rel_diff=steady,
        decimals_old=decimals_old if decimals_old >= 0 else None,
        decimals_new=decimals_new if decimals_new >= 0 else None, suspect=suspect,
    )
    # fmt: on


def _steady(a: Aligned, rule: Rule) -> float | None:
    """(old − new) / old of the medians after warm-up, over steps that both sides have."""
    begin = int(len(a.steps) * rule.warm_up)
    ok = np.isfinite(a.old) & np.isfinite(a.new)
    if ok[begin:].any():
        ok[:begin] = False  # a side that ended during warm-up is better judged by that than not
    if not ok.any():
        return None
    before, after = median_of(a.old[ok]), median_of(a.new[ok])
    return (before - after) / before if abs(before) >= ZERO else None


def median_of(values: Values) -> float:
    """The median of at least one number; NaN if one of them is. np.median spends ten times as long on its options."""
    ordered = np.sort(values)
    middle = len(ordered) // 2
    if len(ordered) % 2 or isnan(ordered[-1]):  # NaN comes last
        return float(ordered[-1] if isnan(ordered[-1]) else ordered[middle])
    return (float(ordered[middle - 1]) + float(ordered[middle])) / 2
