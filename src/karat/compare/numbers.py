"""The numbers of many (old, new) curves at once.

In: pairs of metrics with their rule. Out: one `Numbers` per pair. Everything is computed over one
long array with a segment per pair, because a golden has hundreds of points and a refresh thousands
of goldens: per-pair numpy calls would spend their time on calling.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from karat.compare.rules import Rule
from karat.goldens.shapes import Metric, Steps, Values

if TYPE_CHECKING:
    from numpy.typing import NDArray

ZERO = 1e-12
"""Below this an old value cannot be divided by; the seed's threshold."""

_SAMPLE = 64
_MAX_DECIMALS = 9


class Numbers(msgspec.Struct, frozen=True, gc=False):
    """What the arithmetic says about one pair of curves. A Struct: thousands are made."""

    n_shared: int
    n_steps: int
    avg: float | None
    mean_abs: float | None
    max_abs: float | None
    max_step: int | None
    max_old: float | None
    max_new: float | None
    first_diff_step: int | None
    bit_equal: int
    both_missing: int
    steps_lost: int
    steps_gained: int
    placeholders_lost: int
    nan_gained: int
    first_nan_step: int | None
    nan_lost: int
    from_zero: int
    """Shared steps whose old value is zero, or nearly, and whose new one is not."""
    tolerance_ratio: float | None
    steady: float | None
    decimals_old: int | None
    decimals_new: int | None


class _Aligned(msgspec.Struct, frozen=True, gc=False):
    steps: Steps
    old: Values
    new: Values
    lost: int
    gained: int
    placeholders_lost: int


def _align(old: Metric, new: Metric) -> _Aligned:
    if old.steps is new.steps or np.array_equal(old.steps, new.steps):
        return _Aligned(old.steps, old.values, new.values, 0, 0, 0)
    shared, at_old, at_new = np.intersect1d(
        old.steps, new.steps, assume_unique=True, return_indices=True
    )
    gone = np.ones(len(old.steps), dtype=bool)
    gone[at_old] = False
    come = np.ones(len(new.steps), dtype=bool)
    come[at_new] = False
    lost = int(np.count_nonzero(np.isfinite(old.values[gone])))
    gained = int(np.count_nonzero(np.isfinite(new.values[come])))
    placeholders = int(np.count_nonzero(gone)) - lost
    return _Aligned(shared, old.values[at_old], new.values[at_new], lost, gained, placeholders)


def score(pairs: Sequence[tuple[Metric, Metric, Rule]]) -> list[Numbers]:
    """The numbers of every pair, in order."""
    if not pairs:
        return []
    aligned = [_align(old, new) for old, new, _ in pairs]
    lengths = np.array([len(a.steps) for a in aligned])
    flat = _Flat.of(aligned, lengths)
    with np.errstate(all="ignore"):
        columns = _columns(flat, [rule for _, _, rule in pairs])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    starts = (flat.ends - flat.lengths).tolist()
    return [
        _numbers(a, rule, row, start)
        for a, (_, _, rule), row, start in zip(aligned, pairs, rows, starts, strict=True)
    ]


class _Flat(msgspec.Struct, frozen=True):
    """All pairs end to end; `starts` and `ends` bound each one's segment."""

    steps: Steps
    old: Values
    new: Values
    lengths: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, aligned: Sequence[_Aligned], lengths: NDArray[np.int64]) -> _Flat:
        return cls(
            np.concatenate([a.steps for a in aligned]),
            np.concatenate([a.old for a in aligned]),
            np.concatenate([a.new for a in aligned]),
            lengths,
            np.cumsum(lengths),
        )

    def sums(self, column: NDArray[np.generic], dtype: type) -> NDArray[Any]:
        """Per-segment sums; 0 for an empty segment, which reduceat alone would get wrong."""
        out: NDArray[Any] = np.zeros(len(self.lengths), dtype=dtype)
        filled = np.flatnonzero(self.lengths)
        if len(filled):
            starts = (self.ends - self.lengths)[filled]
            out[filled] = np.add.reduceat(column, starts, dtype=dtype)
        return out

    def highest(self, column: Values) -> Values:
        """Per-segment maxima; −1 for an empty segment."""
        out = np.full(len(self.lengths), -1.0)
        filled = np.flatnonzero(self.lengths)
        if len(filled):
            out[filled] = np.maximum.reduceat(column, (self.ends - self.lengths)[filled])
        return out

    def first(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Index of the first True in each segment, −1 where there is none."""
        hits = np.flatnonzero(mask)
        out = np.full(len(self.lengths), -1, dtype=np.int64)
        if len(hits):
            at = np.searchsorted(hits, self.ends - self.lengths)
            candidate = hits[np.minimum(at, len(hits) - 1)]
            found = (at < len(hits)) & (candidate < self.ends)
            out[found] = candidate[found]
        return out


def _columns(flat: _Flat, rules: Sequence[Rule]) -> list[NDArray[np.generic]]:
    old, new = flat.old, flat.new
    old_ok, new_ok = np.isfinite(old), np.isfinite(new)
    both_ok = old_ok & new_ok
    usable = both_ok & (np.abs(old) >= ZERO)
    delta = old - new
    rel = np.where(usable, delta / old, 0.0)
    size = np.where(usable, np.abs(rel), -1.0)
    highest = flat.highest(size)
    # Bits, not ==: −0.0 against 0.0 is a difference, NaN against NaN is not.
    equal_bits = old.view(np.int64) == new.view(np.int64)
    # Two infinities of one sign are as little evidence as two NaN.
    missing = (np.isnan(old) & np.isnan(new)) | (equal_bits & ~old_ok)
    gained = old_ok & ~new_ok
    from_zero = both_ok & ~usable & (np.abs(new) >= ZERO)
    return [
        flat.sums(usable, np.int64),
        flat.sums(rel, np.float64),
        flat.sums(np.abs(rel), np.float64),
        highest,
        flat.first(usable & (size == np.repeat(highest, flat.lengths))),
        flat.first(~(equal_bits | missing)),
        flat.sums(equal_bits & ~missing, np.int64),
        flat.sums(missing, np.int64),
        flat.sums(gained, np.int64),
        flat.first(gained),
        flat.sums(~old_ok & new_ok, np.int64),
        flat.sums(from_zero, np.int64),
        _tolerance_ratio(flat, rules, np.where(both_ok, np.abs(delta), -1.0)),
        *_decimals(flat),
    ]


def _tolerance_ratio(flat: _Flat, rules: Sequence[Rule], delta: Values) -> Values:
    if not any(rule.rtol is not None for rule in rules):
        return np.full(len(rules), np.nan)
    rtol = np.array([np.nan if rule.rtol is None else rule.rtol for rule in rules])
    atol = np.array([rule.atol for rule in rules])
    allowed = np.repeat(atol, flat.lengths) + np.repeat(rtol, flat.lengths) * np.abs(flat.old)
    # An exact match is within any tolerance, also a zero one.
    ratio = np.where(delta == 0, 0.0, delta / allowed)
    highest = flat.highest(np.where(delta < 0, -1.0, ratio))
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
    enough = np.bincount(segment[usable], minlength=len(counts)) >= 8
    needed = []
    for values in (old[usable], new[usable]):
        # Rounding at nine decimals overflows nothing but says nothing either for huge values.
        decimals = np.full(len(values), _MAX_DECIMALS)
        open_ = np.ones(len(values), dtype=bool)
        for places in range(_MAX_DECIMALS):
            exact = open_ & (np.round(values, places) == values)
            decimals[exact] = places
            open_ &= ~exact
            if not open_.any():
                break
        out = np.zeros(len(counts), dtype=np.int64)
        np.maximum.at(out, segment[usable], decimals)
        needed.append(np.where(enough, out, -1))
    return needed[0], needed[1]


def _numbers(a: _Aligned, rule: Rule, row: tuple[Any, ...], start: int) -> Numbers:
    (n, total, total_abs, highest, at_max, at_diff, equal, missing, nan_gained, at_nan, nan_lost,
     from_zero, ratio, decimals_old, decimals_new) = row  # fmt: skip
    worst = at_max - start
    steady = _steady(a, rule) if rule.steady else None
    if steady is not None and rule.rtol:
        # Timings are judged by their medians, so their tolerance is, too.
        ratio = abs(steady) / rule.rtol
    return Numbers(
        n_shared=len(a.steps),
        n_steps=n,
        avg=total / n if n else None,
        mean_abs=total_abs / n if n else None,
        max_abs=highest if n else None,
        max_step=int(a.steps[worst]) if n else None,
        max_old=float(a.old[worst]) if n else None,
        max_new=float(a.new[worst]) if n else None,
        first_diff_step=int(a.steps[at_diff - start]) if at_diff >= 0 else None,
        bit_equal=equal,
        both_missing=missing,
        steps_lost=a.lost,
        steps_gained=a.gained,
        placeholders_lost=a.placeholders_lost,
        nan_gained=nan_gained,
        first_nan_step=int(a.steps[at_nan - start]) if at_nan >= 0 else None,
        nan_lost=nan_lost,
        from_zero=from_zero,
        tolerance_ratio=None if isnan(ratio) else ratio,
        steady=steady,
        decimals_old=decimals_old if decimals_old >= 0 else None,
        decimals_new=decimals_new if decimals_new >= 0 else None,
    )


def _steady(a: _Aligned, rule: Rule) -> float | None:
    """(old − new) / old of the medians after warm-up, over steps that both sides have."""
    begin = int(len(a.steps) * rule.warm_up)
    old, new = a.old[begin:], a.new[begin:]
    ok = np.isfinite(old) & np.isfinite(new)
    if not ok.any():
        return None
    before, after = _median(old[ok]), _median(new[ok])
    return (before - after) / before if abs(before) >= ZERO else None


def _median(values: Values) -> float:
    # np.median spends ten times as long on options that are not used here.
    ordered = np.sort(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[middle])
    return (float(ordered[middle - 1]) + float(ordered[middle])) / 2
