"""Segments: where a row of values changes its level. Pure.

Top down: the whole row is scanned first, and if it has no step nothing is reported: this keeps the promised rate of
false alarms. Pieces are scanned again, each at its share of that rate, until none has a step. Then every cut is moved to
where it fits best, and those that the pieces beside them do not confirm are dropped, the weakest first. A long row is cut
twice: in means of neighbours, which shows small lasting steps, and in chunks, which shows short ones; the two share the
rate of false alarms.

Steps look like autocorrelation and autocorrelation looks like steps. So a first, generous cut sets everything aside that
might be a step, and neighbours are compared within its pieces only, by differences, which no level enters. Pieces that
were cut out of plain autocorrelated noise hide some of it: how much was found by simulation, and is added back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from karat.changepoints.detector.scan import (
    CLIP,
    Floats,
    NoisyRow,
    clearest,
    explained_by_split,
    fit,
    locate,
    robust_spread,
    scan_piece,
    scan_whole,
)
from karat.changepoints.series import RAREST, DetectOptions

_GENEROUS = 3.7
_GENEROUS_NEAR = 6.5
_FAR = (5, 6, 7, 8)  # lags at which neighbours are taken to be strangers
_GIVEN_BACK = 10.0  # of the autocorrelation, per piece and point, that cutting hides
_CAREFUL = 0.8  # standard errors that are added to an autocorrelation, where there clearly is one
_SWITCHES = 6
_POINTS_PER_SWITCH = 12  # jumps between the same two modes that often are noise rather than steps
_APART = 3.2  # standard deviations between two modes that are two
_FAR_OFF = 0.6
LONG = 2048  # Pieces longer than this are asked near their cut first, and then in means of their values.
_BESIDE = 40
_TELL_NOISE = 8  # values beside a cut that its noise is known by: the nearest, and no fewer than can tell
_NOISIER = 2.0
_CLEAR = 3.7  # Standard errors between two levels of unlike noise: what the best of a hundred splits has by chance.
_SWEEPS = 4
_CHUNK = 1024
_STRIDE = 768  # chunks overlap, so that every step is well inside of one
_SAMPLED = 8  # chunks of a long row that its autocorrelation is taken from


def generous_cuts(values: Floats, fewest: int) -> list[int]:
    cuts: list[int] = []
    near = robust_spread(np.diff(values)) / np.sqrt(2)
    waiting = [(0, values.shape[0])]
    while waiting:
        start, stop = waiting.pop()
        centred = values[start:stop] - np.median(values[start:stop])
        spread = robust_spread(centred)
        if spread <= 0:
            continue
        row = np.clip(centred, -CLIP * spread, CLIP * spread)
        row -= row.mean()
        own_spread = float(row.std())
        height, found = clearest(row, spread=own_spread, fewest=fewest)
        # Clear by the spread of the values, or clearer by that of their differences, which steps do not enter.
        if found and (height > _GENEROUS or height * own_spread > _GENEROUS_NEAR * near > 0):
            own = fit(values, [start + cut for cut in found], start, stop, fewest)
            edges = [start, *own, stop]
            waiting.extend(pairwise(edges))
            cuts.extend(edges[1:-1])
    return sorted(cuts)


def autocorrelation(values: Floats, fewest: int) -> float:
    """The correlation of neighbours to reckon with, 0 to 0.95."""
    n = values.shape[0]
    if n < 20:
        return 0.0
    cuts = [] if two_modes(values) else generous_cuts(values, fewest)
    found = _within(values, cuts) * (1 + _GIVEN_BACK * len(cuts) / n)
    # It is known to about 1/√n only, and too little of it does more harm than too much.
    error = 1 / np.sqrt(n)
    return float(min(0.95, found + _CAREFUL * error * min(1.0, found / (1.5 * error))))


def _within(values: Floats, cuts: Sequence[int]) -> float:
    """From differences within the pieces: those of neighbours against those of strangers."""
    n = values.shape[0]
    piece = np.zeros(n, dtype=np.int64)
    piece[list(cuts)] = 1
    piece = np.cumsum(piece)
    level = np.concatenate([np.full(part.shape[0], np.median(part)) for part in np.split(values, cuts)])
    residuals = values - level
    spread = robust_spread(residuals)
    residuals = np.clip(residuals, -CLIP * spread, CLIP * spread)

    def difference(lag: int) -> tuple[float, int]:
        inside = piece[lag:] == piece[:-lag]
        return float((((residuals[lag:] - residuals[:-lag]) ** 2)[inside]).sum()), int(inside.sum())

    near, pairs = difference(1)
    far = [difference(lag) for lag in _FAR if lag < n]
    total, strangers = sum(part[0] for part in far), sum(part[1] for part in far)
    if strangers < 20 or total <= 0 or pairs == 0:
        return 0.0
    return max(0.0, 1 - near / pairs * strangers / total)


def two_modes(values: Floats) -> bool:
    """Whether values jump to and fro between two modes that are clearly apart, too often to be steps."""
    upper = _upper_mode(values)
    if upper is None:
        return False
    switches = int(np.count_nonzero(upper[1:] != upper[:-1]))
    if switches < max(_SWITCHES, len(values) // _POINTS_PER_SWITCH):
        return False
    # One mode mostly on one side of a split and the other on the other is a step with wild values.
    explained, left = explained_by_split(upper, 1)
    return bool(explained.max() <= left.min())


def _upper_mode(values: Floats) -> npt.NDArray[np.bool_] | None:
    """Which values are of the upper of two modes; None where there are not two."""
    ordered = np.sort(values)
    n = ordered.shape[0]
    tenth = max(2, n // 10)
    gaps = np.diff(ordered)[tenth - 1 : n - tenth]
    if gaps.size == 0:
        return None
    place = int(np.argmax(gaps)) + tenth
    low, high = ordered[:place], ordered[place:]
    apart = float(np.median(high) - np.median(low))
    inner = max(robust_spread(low - np.median(low)), robust_spread(high - np.median(high)))
    # More levels than two make two wide groups: hardly a value of a mode is farther off than from mode to mode.
    far = np.abs(np.concatenate([low - np.median(low), high - np.median(high)])) > _FAR_OFF * apart
    clear = apart > 0 and apart >= _APART * inner and far.mean() <= 0.05
    return values >= ordered[place] if clear else None


class LevelCut(NamedTuple):
    """One place where the level changes: before position `at`."""

    at: int
    low: int
    high: int  # The positions it may be at.
    p_value: float


def drop_weak_cuts(row: NoisyRow, cuts: Sequence[int]) -> tuple[LevelCut, ...]:
    """The cuts that stand, the weakest taken back first."""
    kept = [LevelCut(cut, cut, cut, 1.0) for cut in sorted(set(cuts))]
    for _ in range(2):
        for number in range(len(kept)):
            _settle(row, kept, number)
    for number in range(len(kept)):
        _judge(row, kept, number)
    while kept:
        weakest = max(range(len(kept)), key=lambda number: kept[number].p_value)
        if kept[weakest].p_value <= row.options.false_alarms:
            return tuple(cut._replace(p_value=max(cut.p_value, RAREST)) for cut in kept)
        del kept[weakest]
        # Only its neighbours see other pieces now.
        near = [number for number in (weakest - 1, weakest) if 0 <= number < len(kept)]
        for number in near:
            _settle(row, kept, number)
        for number in range(max(0, weakest - 2), min(len(kept), weakest + 2)):
            _judge(row, kept, number)
    return ()


def _sides(row: NoisyRow, kept: Sequence[LevelCut], number: int) -> tuple[int, int]:
    start = kept[number - 1].at if number else 0
    stop = kept[number + 1].at if number + 1 < len(kept) else row.values.shape[0]
    return start, stop


def _settle(row: NoisyRow, kept: list[LevelCut], number: int) -> None:
    """A cut where it fits best between its neighbours."""
    (start, stop), options = _sides(row, kept, number), row.options
    place = locate(row.values[start:stop], options.min_points, rho=row.rho, floor=row.floor, sure=options.location)
    kept[number] = LevelCut(place.at + start, place.low + start, place.high + start, 1.0)


def _judge(row: NoisyRow, kept: list[LevelCut], number: int) -> None:
    """The p-value of a cut between its neighbours, for a row of this length."""
    start, stop = _sides(row, kept, number)
    n = row.values.shape[0]
    cut = kept[number]
    left, right = row.values[start : cut.at], row.values[cut.at : stop]
    before, after = float(np.median(left)), float(np.median(right))
    # A cut that is smaller than anyone wants to know, or the work of one wild value or of noise, is no step.
    small = abs(after - before) < row.options.smallest * abs(before)
    if small or _one_wild(left, after) or _one_wild(right, before) or _only_noisier(row, left, right):
        p_value = 2.0
    elif stop - start > LONG:
        p_value = min(1.0, _long_pair(row, start, cut.at, stop))
    elif start == 0 and stop == n:
        p_value = min(1.0, scan_whole(row).p_value)
    else:
        at = [other.at for other in kept]
        p_value = min(1.0, scan_piece(row, at, start, stop).p_value * n / (stop - start))
    kept[number] = cut._replace(p_value=p_value)


def _long_pair(row: NoisyRow, start: int, cut: int, stop: int) -> float:
    """Of two long pieces: by the values near the cut, or, where they do not tell, by means of all of them."""
    n = row.values.shape[0]
    left, right = max(start, cut - LONG // 2), min(stop, cut + LONG // 2)
    here = scan_whole(row._replace(values=row.values[left:right])).p_value
    near = float(here * n / (right - left))
    if near <= row.options.false_alarms:
        return near
    size = -(-(stop - start) // (LONG // 2))
    means = block_means(row.values[start:stop], size)
    coarse = row._replace(values=means, rho=autocorrelation(means, row.options.min_points))
    return scan_whole(coarse).p_value


def block_means(values: Floats, size: int) -> Floats:
    """Means of `size` neighbours each, single wild values clipped; the last, shorter block is left out."""
    count = values.shape[0] // size
    blocks = values[: count * size].reshape(count, size)
    middle = np.median(blocks, axis=1, keepdims=True)
    spread = CLIP * robust_spread(blocks - middle)
    return np.asarray(np.clip(blocks, middle - spread, middle + spread).mean(axis=1))


def _only_noisier(row: NoisyRow, left: Floats, right: Floats) -> bool:
    """Whether one side is clearly noisier, and its level, by its own noise, no other.

    Permutations take noise for the same everywhere: a noisy end has sums that they hardly ever have.
    """
    left, right = left[-_BESIDE:], right[:_BESIDE]
    if min(left.shape[0], right.shape[0]) < _TELL_NOISE:
        return False
    calm, noisy = sorted(max(robust_spread(x - np.median(x)), row.floor) for x in (left, right))
    if noisy < _NOISIER * calm:
        return False
    error = np.hypot(*(robust_spread(x - np.median(x)) / np.sqrt(x.shape[0]) for x in (left, right)))
    alike = np.sqrt((1 + row.rho) / (1 - row.rho))
    return bool(abs(left.mean() - right.mean()) < _CLEAR * max(float(error), row.floor) * alike)


def _one_wild(few: Floats, other: float) -> bool:
    """Whether two values have their level from one of them alone: one stayed where the others are."""
    distances = np.abs(few - other)
    return few.shape[0] == 2 and float(distances.min()) < 0.4 * float(distances.max())


class Segmented(NamedTuple):
    """A row cut into levels."""

    cuts: tuple[LevelCut, ...]
    rho: float
    noise: float  # Robust standard deviation of the values about their levels.


def segment(values: Floats, options: DetectOptions, *, floor: float = 1e-12) -> Segmented:
    """Cut a row of finite values into levels; `floor` is noise that the values do not show."""
    if values.shape[0] > LONG:
        starts = np.linspace(0, values.shape[0] - _CHUNK, _SAMPLED).astype(int)
        rho = np.median([autocorrelation(values[i : i + _CHUNK], options.min_points) for i in starts])
        row = NoisyRow(values, float(rho), floor, options)
        found = _coarse(row) | _fine(row)
    else:
        row = NoisyRow(values, autocorrelation(values, options.min_points), floor, options)
        found = set(_top_down(row))
    # Without those that are nearer to the one before than a level is long: chunks find one step twice.
    apart: list[int] = []
    for cut in sorted(found):
        if min(cut - (apart[-1] if apart else 0), values.shape[0] - cut) >= options.min_points:
            apart.append(cut)
    cuts = drop_weak_cuts(row, apart)
    parts = [part - np.median(part) for part in np.split(row.values, [cut.at for cut in cuts])]
    return Segmented(cuts, row.rho, max(robust_spread(np.concatenate(parts)), row.floor))


def _top_down(row: NoisyRow) -> list[int]:
    n = row.values.shape[0]
    whole = scan_whole(row)
    if whole.p_value > row.options.false_alarms or not whole.cuts:
        return []
    cuts = fit(row.values, whole.cuts, 0, n, row.options.min_points)
    for _ in range(_SWEEPS):
        new: list[int] = []
        for start, stop in pairwise([0, *cuts, n]):
            new.extend(_inside(row, cuts, start, stop))
        if not new:
            break
        cuts = sorted({*cuts, *new})
    return cuts


def _inside(row: NoisyRow, cuts: Sequence[int], start: int, stop: int) -> list[int]:
    """Cuts of one piece, and of its pieces."""
    n = row.values.shape[0]
    found = scan_piece(row, cuts, start, stop)
    if found.p_value > row.options.false_alarms * (stop - start) / n or not found.cuts:
        return []
    own = fit(row.values, [start + cut for cut in found.cuts], start, stop, row.options.min_points)
    cuts = sorted({*cuts, *own})
    edges = [start, *own, stop]
    for left, right in pairwise(edges):
        own.extend(_inside(row, cuts, left, right))
    return own


def _coarse(row: NoisyRow) -> set[int]:
    """Steps of a long row in means of neighbours, each then looked for among the values."""
    n = row.values.shape[0]
    size = -(-n // _CHUNK)
    means = block_means(row.values, size)
    options = msgspec.structs.replace(row.options, false_alarms=row.options.false_alarms / 2)
    rho = autocorrelation(means, options.min_points)
    found = set()
    for cut in _top_down(NoisyRow(means, rho, row.floor, options)):
        start, stop = max(0, (cut - 2) * size), min(n, (cut + 2) * size)
        found.update(fit(row.values, [cut * size], start, stop, options.min_points))
    return found


def _fine(row: NoisyRow) -> set[int]:
    """Steps within chunks of a long row."""
    n = row.values.shape[0]
    share = row.options.false_alarms / 2 * _STRIDE / n
    options = msgspec.structs.replace(row.options, false_alarms=share)
    found: set[int] = set()
    for start in range(0, n - _CHUNK + _STRIDE, _STRIDE):
        left = min(start, n - _CHUNK)
        chunk = row._replace(values=row.values[left : left + _CHUNK], options=options)
        found.update(left + cut for cut in _top_down(chunk))
    return found
