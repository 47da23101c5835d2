"""Inference: where a noisy number moved, or a test began to fail, from few runs at few points. Pure.

Levels: a hidden Markov model. The level stays or jumps anywhere between two tested points, the likelier the more points lie
between. So every run on a level speaks for the whole level: a single run at a new place is evidence of "same" as good as
a second one at an old place. A number may be an outlier, so that one alone proves little. The spread is learned from the
residuals, with a weak prior that comes from `smallest`. Builds of one level may differ among themselves, however often each
is run: every share of the spread that may be theirs is tried, and weighs as much as it explains.

Flakes: the same with two states, good and bad. How often a good point fails and a bad one passes is not known beforehand:
every pair of a list of rates is tried, and weighs as much as it explains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from karat.hunts.model import Metric, Noise, Observed
from karat.hunts.search.noise import Circumstances, Surroundings, extraneous
from karat.hunts.search.observations import Values, samples

Array = NDArray[np.float64]

OUTLIERS = 0.02  # How many numbers come from somewhere else, as far as is known beforehand.
EXPECTED = 3.0  # How many changes a history has, as far as is known beforehand.
COUNTS = 0.7
"""A change counts from this share of the smallest one that is wanted, so that one just as large is not lost."""
PRIOR_WEIGHT = 3.0
PRIOR_SPREAD = 0.25
"""The spread is expected to be this share of the smallest change that is wanted, as if from so many runs."""
SHARES = ((0.0, 0.5), (0.25, 0.15), (0.5, 0.15), (0.75, 0.1), (0.97, 0.1))
"""Of the variance: how much is from build to build rather than from run to run, and how much that is believed beforehand."""
_TELLS = 3.0  # So many standard deviations of builds apart, one build in fifteen is nearer to the other level.
_BINS = 2.0
_RATES = np.array([0.0005, 0.005, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4])
_WEIGHTS = np.array([0.4, 0.1, 0.1, 0.1, 0.1, 0.06, 0.06, 0.05, 0.03])


class _Fit(NamedTuple):
    """The model at one spread."""

    chance: Array
    off: Array  # Each number's distance from its point's level.
    squares: float
    freedom: float
    sigma: float  # Of one run of one build: what runs and builds do together.
    share: float  # Of its square: what is the build's, and the same in all its runs.
    evidence: float  # Logarithm of how well this spread explains everything.


class ChangeMap(NamedTuple):
    """What is known of one metric's changes."""

    positions: tuple[int, ...]  # Tested points that have numbers, in order.
    chance: Array  # Of a change between a position and the next.
    spread: float  # Standard deviation of one run, relative to the level; of a binary metric 0.
    sure: bool  # Whether the spread is known well.
    needed: int
    """Runs that both neighbours of a change need: one where there is next to no spread, or flakes are reckoned with."""
    odd: tuple[int, ...] = ()
    """Points whose few numbers are off the level they seem to be on: outliers, or a dip that nobody expected."""
    repeats: int = 10
    """So often a point is run at most: where builds differ, more runs of one say nothing more of its level."""
    builds: float = 0.0  # Of the spread: standard deviation from build to build, relative.
    pinned: float = 0.0  # Changes from this size on are pinned to two neighbours by a few runs of each.
    worker: float = 0.0
    time: float = 0.0  # Standard deviations from worker to worker and over time, which were taken out.
    clean: Values | None = None  # The numbers without what was taken out; None: nothing was.
    flakes: float | None = None  # Of a binary metric: how often a good point fails; 0 where none was seen to.

    def noise(self, metric: str) -> Noise | None:
        """What moves the metric besides changes, as far as is known; None of one that is good or bad."""
        if not self.spread or not self.sure:
            return None
        run = math.sqrt(max(self.spread**2 - self.builds**2, 0.0))
        return Noise(metric=metric, run=run, build=self.builds, worker=self.worker, time=self.time)


def level_map(
    values: Values, count: int, *, smallest: float, under: Circumstances | None = None, weights: Sequence[float] = ()
) -> ChangeMap:
    """The changes of a metric that has levels; `under`: when and where each number was measured."""
    every = tuple(sorted(values))
    apart, positions = builds_of(every, under)
    hazards = _hazards(every, min(EXPECTED / max(count, 8), 0.25), weights)[apart]
    flat = to_scale([value for position in positions for value in values[position]])
    owner = np.repeat(np.arange(len(positions)), [len(values[position]) for position in positions])
    met = [each for position in positions for each in (under or {}).get(position, ())]
    builds = [each.build for each in met] if len(met) == len(flat) else []
    found = solve(Lots.of(flat, owner, builds), hazards, positions, smallest)
    # What has no spread has nothing to be explained.
    around = Surroundings.of(owner, met) if builds and found.needed > 1 else None
    if around is None:
        return _whole(found, every, apart)
    off = np.zeros_like(flat)
    for _ in range(3):
        # Levels, as far as is known; a number far off counts as one that is just off.
        level = _levels_of(found.chance)[owner]
        clean, limit = flat - off, 4 * found.spread
        middles = np.array([np.median(clean[level == k]) for k in range(level[-1] + 1)])[level]
        clipped = off + middles + np.clip(clean - middles, -limit, limit)
        taken, lost, worker, time = extraneous(clipped, level, around, found.spread)
        if not taken.any() and not off.any():
            break
        off, before = taken, found
        found = solve(Lots.of(flat - off, owner, builds), hazards, positions, smallest, lost=lost)
        found = found._replace(worker=worker, time=time, clean=_shifted(values, positions, off))
        if np.array_equal(_levels_of(found.chance), _levels_of(before.chance)):
            break
    return _whole(found, every, apart)


def builds_of(every: tuple[int, ...], under: Circumstances | None) -> tuple[NDArray[np.bool_], tuple[int, ...]]:
    """Between which neighbours there are two builds, and the first point of each: where the very same runs count, it is one."""
    met = [(under or {}).get(at) for at in every]
    apart = np.array([not a or a != b for a, b in pairwise(met)], dtype=np.bool_)
    return apart, every[:1] + tuple(at for at, two in zip(every[1:], apart, strict=True) if two)


def _whole(found: ChangeMap, every: tuple[int, ...], apart: NDArray[np.bool_]) -> ChangeMap:
    chance = np.zeros(len(apart))
    chance[apart] = found.chance
    firsts = np.concatenate([[0], np.cumsum(apart)])
    clean = found.clean and {at: found.clean[found.positions[k]] for at, k in zip(every, firsts, strict=True)}
    return found._replace(positions=every, chance=chance, clean=clean)


def _levels_of(chance: Array) -> NDArray[np.intp]:
    """Which level each point is on, numbered: a change whose place is in doubt parts them where it is as likely before as after."""
    passed = np.rint(np.cumsum(np.where(chance > 0.05, chance, 0.0)))
    return np.unique(np.concatenate([[0.0], passed]), return_inverse=True)[1]


def _shifted(values: Values, positions: Sequence[int], off: Array) -> Values:
    """Numbers without what is off in them, relative to their level."""
    every = np.array([value for position in positions for value in values[position]])
    unit, by = (0.0 if every.min() > 0 else np.median(np.abs(every)) or np.abs(every).max()), iter(off.tolist())
    return {k: tuple(x - unit * next(by) if unit else x * math.exp(-next(by)) for x in values[k]) for k in positions}


def _hazards(positions: Sequence[int], each: float, weights: Sequence[float]) -> Array:
    """Of a change between each two positions, where `each` is that of a point of weight 1; no weights: all have that."""
    passed = np.cumsum(weights)[list(positions)] if weights else np.array(positions, dtype=np.float64)
    return np.asarray(1.0 - np.power(1.0 - each, np.diff(passed)))


def solve(
    data: Lots,
    hazards: Array,
    positions: tuple[int, ...],
    smallest: float,
    known: float | None = None,
    lost: float = 0.0,
) -> ChangeMap:
    """The model, with the spread that fits best. `known`: the spread.

    `lost`: as if so many numbers were spent on what was taken out of all of them.
    """
    flat, owner = data.flat, data.owner
    least = COUNTS * math.log1p(smallest)
    floor = max(0.125 * smallest, 1e-12)
    weight = PRIOR_WEIGHT if smallest else 0.0
    apart = np.diff(flat)[np.diff(data.lot) == 0]  # runs of one and the same build

    def settle(sigma: float, share: float) -> _Fit:
        """The spread that agrees with the residuals it leaves, from a first guess on."""
        sigma = max(sigma, floor)
        fit = _pass(data, hazards, sigma, share, least)
        for _ in range(4):
            squares = weight * (PRIOR_SPREAD * smallest) ** 2 + fit.squares
            better = max(math.sqrt(squares / max(weight + fit.freedom - lost, 1.0 if lost else 1e-9)), floor)
            if abs(better - sigma) <= 0.1 * sigma:
                break
            sigma = better
            fit = _pass(data, hazards, sigma, share, least)
        return fit

    if known is not None:
        fit = _pass(data, hazards, max(known, floor), 0.0, least)
        chance = fit.chance
    else:
        fit = settle(_first_spread(flat, np.abs(apart)), 0.0)
        # From points that were run several times, outliers and all; 0: too few of them.
        within = math.sqrt(float((apart * apart).mean()) / 2) if len(apart) >= 2 else 0.0
        if within > 3 * fit.sigma:
            # Runs of one and the same point disagree: two modes, perhaps, that are no two levels.
            wider = settle(within, 0.0)
            again = np.bincount(owner)[owner] > 1
            strays = int((np.abs(fit.off[again]) > 4 * fit.sigma).sum())
            unexplained = strays >= 3 and strays > 0.08 * len(owner)
            fit = wider if unexplained or wider.evidence > fit.evidence else fit
        # Of a few points nobody knows what builds of one level do among themselves.
        several = len(apart) and len(positions) > 5
        fits = [fit, *(settle(fit.sigma, share) for share, _ in SHARES[1:] if several)]
        logs = np.array([each.evidence + math.log(SHARES[k][1]) for k, each in enumerate(fits)])
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        chance = np.array([each.chance for each in fits]).T @ weights
        fit = fits[int(np.argmax(weights))]
    sure = known is not None or fit.freedom >= 6
    runs = np.bincount(owner)
    means = np.bincount(owner, fit.off) / runs
    # So far off its level, a number is odd: one in eighty is, by chance.
    error = fit.sigma * np.sqrt(fit.share + (1 - fit.share) / runs)
    odd = (np.abs(means) > np.maximum(2.5 * error, least)) & (runs <= 3)
    # More, where runs of one point disagree: any few numbers of two modes look like changes, until each is run again.
    disagree = int((np.abs(apart) > max(4 * fit.sigma, least)).sum()) >= 2
    exact = sure and not lost and not fit.share and fit.sigma <= 2 * floor
    needed = 4 if disagree else 1 if exact else 2
    # Beyond that, the mean of a build's runs is off its level by what the build is.
    alone = fit.share and len(data.points) == len(data.starts)  # else a point is built again and again
    enough = min(max(math.ceil(8 * (1 / fit.share - 1)), needed), 10) if alone else 10
    spread, off, builds = fit.sigma, _where(positions, odd), fit.sigma * math.sqrt(fit.share)
    # By ten runs of one; where builds differ, two of a level are never told from two levels that are closer than this. But what
    # seem to be builds may be many changes: those are not given up.
    pinned = max(spread, min(_TELLS * builds, 2 * smallest)) if alone else spread
    return ChangeMap(positions, chance, spread, sure, needed, off, enough, builds, pinned)


def to_scale(values: Sequence[float]) -> Array:
    """Logarithms where all are positive, so that differences are relative."""
    flat = np.array(values, dtype=np.float64)
    scale = float(np.median(np.abs(flat))) or float(np.max(np.abs(flat))) or 1.0
    return np.log(flat) if np.all(flat > 0) else flat / scale


class Lots(NamedTuple):
    """Numbers by the builds they are of, and every way in which a few numbers of a build may be outliers."""

    flat: Array
    owner: NDArray[np.intp]  # The point of each number.
    lot: NDArray[np.intp]  # The build of each number.
    points: NDArray[np.intp]  # Where each point's lots begin.
    starts: NDArray[np.intp]  # Where each lot's ways begin.
    inside: Array  # Of each way: how many numbers are no outliers, …
    outside: Array  # … how many are, …
    mean: Array
    squares: Array  # … and the mean of the former, and their squares about it.

    @classmethod
    def of(cls, flat: Array, owner: NDArray[np.intp], builds: Sequence[str] = ()) -> Lots:
        keys = list(zip(owner.tolist(), builds or [""] * len(owner), strict=True))
        order = sorted(range(len(keys)), key=keys.__getitem__)
        flat, lot = flat[order], np.zeros(len(owner), dtype=np.intp)
        lot[1:] = np.cumsum([keys[a] != keys[b] for a, b in pairwise(order)])
        first = np.flatnonzero(np.diff(lot, prepend=-1))
        ways: list[tuple[float, float, float, float]] = []
        starts = []
        for numbers in np.split(flat, first[1:]):
            starts.append(len(ways))
            # Up to two are outliers, or all of them; of a few, any.
            size = len(numbers)
            for left in (size, size - 1, size - 2, 0) if size > 4 else range(size, -1, -1):
                for kept in combinations(numbers.tolist(), left):
                    mean = sum(kept) / max(left, 1)
                    ways.append((left, size - left, mean, sum((x - mean) ** 2 for x in kept)))
        inside, outside, mean, squares = np.array(ways).T
        points = np.flatnonzero(np.diff(owner[first], prepend=-1))
        return cls(flat, owner, lot, points, np.array(starts), inside, outside, mean, squares)


def _where(positions: Sequence[int], flags: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(position for position, flag in zip(positions, flags, strict=True) if flag)


def _first_spread(flat: Array, within: Array) -> float:
    """From the smaller half of the differences of neighbours, which changes leave alone."""
    if len(flat) < 2:
        return 0.0
    differences = np.sort(np.abs(np.diff(flat)))
    low = differences[: max(1, math.ceil(0.7 * len(differences)))]
    middle = float(np.median(low)) / 0.67
    return max(middle, float(np.median(within)) / 0.95) if len(within) >= 3 else middle


def _pass(data: Lots, hazards: Array, total: float, share: float, least: float) -> _Fit:
    flat = data.flat
    base = float(np.min(flat))
    while True:
        # Levels to choose from: half a spread apart, and only where there are numbers.
        bins = np.unique(np.rint((flat - base) / (total / _BINS)))
        levels = base + total / _BINS * np.unique((bins[:, None] + np.arange(-3, 4)[None, :]).ravel())
        if len(levels) <= 4000:
            break
        # Thousands of numbers that all differ by far more than their spread are no levels.
        total *= 2
    sigma, built = total * math.sqrt(1 - share), total * total * share
    # How likely a point's numbers are at each level, scaled to 1 at the best one.
    outlier = OUTLIERS / max(float(np.ptp(flat)) / total, 20.0) * sigma / total
    own = sigma * sigma / np.maximum(data.inside, 1)
    weight = data.inside * math.log((1 - OUTLIERS) / math.sqrt(2 * math.pi)) + data.outside * math.log(outlier)
    weight += 0.5 * np.log(own / (own + built)) * (data.inside > 0) - 0.5 * data.squares / sigma**2
    narrow = np.where(data.inside > 0, 0.5 / (own + built), 0.0)
    ways = weight[:, None] - narrow[:, None] * (data.mean[:, None] - levels[None, :]) ** 2
    top = np.maximum.reduceat(ways, data.starts, axis=0)
    counts = np.diff(data.starts, append=len(ways))
    each = np.log(np.add.reduceat(np.exp(ways - np.repeat(top, counts, axis=0)), data.starts, axis=0)) + top
    likely = np.add.reduceat(each, data.points, axis=0)
    best = likely.max(axis=1, keepdims=True)
    emission, scaled = np.exp(likely - best), float(best.sum()) - len(flat) * math.log(sigma)
    # A jump may go anywhere: 20 spreads wide at least, and a fifth of the level, but no wider than 500 spreads.
    prior = 1.0 / max(len(levels), _BINS * max(20.0, min(0.2 / total, 500.0)))
    forward, ahead, post, evidence = _smoothed(emission, hazards, prior)
    # Between each two neighbours: the probability of a jump of at least `least`, and of any jump. One to the very same level
    # is none, however small `least` is.
    before, after, step = forward[:-1], ahead[1:], hazards * prior
    either = (1.0 - hazards) * (before * after).sum(axis=1) + step
    margin = max(least, 1e-9 * float(np.max(np.abs(levels))), 0.75 * float(levels[1] - levels[0]))
    low = np.searchsorted(levels, levels - margin, side="right")
    high = np.searchsorted(levels, levels + margin, side="left")
    sums = np.concatenate([np.zeros((len(after), 1)), np.cumsum(after, axis=1)], axis=1)
    far = step * np.maximum((before * (1.0 - (sums[:, high] - sums[:, low]))).sum(axis=1), 0.0)
    chance, moved = np.minimum(far / either, 1.0), np.minimum(step / either, 1.0)
    off = flat - (post @ levels)[data.owner]
    density = (1 - OUTLIERS) / math.sqrt(2 * math.pi) * np.exp(-0.5 * (off / total) ** 2)
    inlier = density / (density + outlier * total / sigma)
    freedom = float(inlier.sum() - 1.0 - moved.sum())
    # About each build's own mean, and that mean about the level, each by what it is expected to be.
    runs = np.maximum(np.bincount(data.lot, inlier), 1e-9)
    mean = np.bincount(data.lot, inlier * off) / runs
    inner = float((inlier * (off - mean[data.lot]) ** 2).sum()) / (1 - share)
    squares = inner + float((runs * mean * mean / (1 - share + runs * share)).sum())
    return _Fit(chance, off, squares, max(freedom, 0.0), total, share, scaled + evidence)


def _smoothed(emission: Array, hazards: Array, prior: float) -> tuple[Array, Array, Array, float]:
    """Each point's level given what comes before, seen from the point before given what comes after, and given everything."""
    forward, ahead, post = (np.empty_like(emission) for _ in range(3))
    sums = np.empty(len(emission))
    now = prior * emission[0]
    for i in range(len(emission)):
        if i:
            hazard = hazards[i - 1]
            now = emission[i] * ((1.0 - hazard) * now + hazard * prior)
        total = sums[i] = now.sum()
        now = now / total
        forward[i] = now
    post[-1] = forward[-1]
    beta = np.ones(emission.shape[1])
    for i in range(len(emission) - 1, 0, -1):
        seen = emission[i] * beta
        seen /= seen.sum()
        ahead[i] = seen
        hazard = hazards[i - 1]
        beta = (1.0 - hazard) * seen + hazard * prior
        at = forward[i - 1] * beta
        post[i - 1] = at / at.sum()
    return forward, ahead, post, float(np.log(sums).sum())


def middle(values: Sequence[float]) -> float:
    return float(np.median(np.asarray(values, dtype=np.float64)))


def flake_map(
    values: Values,
    count: int,
    *,
    hazard: float | None = None,
    under: Circumstances | None = None,
    weights: Sequence[float] = (),
) -> ChangeMap:
    """The changes of a metric that is good or bad. `hazard`: of a change from one point to the next."""
    every = tuple(sorted(values))
    apart, positions = builds_of(every, under)
    bad = np.array([sum(value != 0 for value in values[at]) for at in positions], dtype=np.float64)
    good = np.array([len(values[at]) for at in positions], dtype=np.float64) - bad
    # Pairs of rates: a good point fails, a bad point passes, and how much the pair is believed beforehand.
    fails, passes = (one.ravel() for one in np.meshgrid(_RATES, _RATES, indexing="ij"))
    believed = np.outer(_WEIGHTS, _WEIGHTS).ravel() / _WEIGHTS.sum() ** 2
    hazards = _hazards(every, min(EXPECTED / max(count, 8), 0.25) if hazard is None else hazard, weights)[apart]
    # pairs × points × (good, bad)
    emission = np.exp(np.stack([_log(fails, bad, good), _log(passes, good, bad)], axis=2))
    chance, worse, evidence = _two_states(emission, hazards)
    share = believed * np.exp(evidence - evidence.max())
    share /= share.sum()
    state = share @ worse
    lone = (bad + good == 1) & ((bad == 1) != (state > 0.5))
    # Without a flake that was seen, the rate is what was believed beforehand, which is nobody's news.
    rate = float(share @ fails) if bad @ (1 - state) >= 0.5 else 0.0
    found = ChangeMap(positions, share @ chance, 0.0, True, 1, _where(positions, lone), flakes=rate)
    return _whole(found, every, apart)


def _log(rate: Array, wrong: Array, right: Array) -> Array:
    """How likely so many wrong and right answers are, for each rate of wrong ones."""
    return np.asarray(wrong[None, :] * np.log(rate)[:, None] + right[None, :] * np.log1p(-rate)[:, None])


def _two_states(emission: Array, hazards: Array) -> tuple[Array, Array, Array]:
    """For each pair of rates: of a change between each two neighbours, of each point being bad, and the evidence."""
    pairs, points, _ = emission.shape
    forward = np.empty_like(emission)
    now = 0.5 * emission[:, 0, :]
    evidence = np.zeros(pairs)
    for i in range(points):
        if i:
            hazard = hazards[i - 1]
            now = emission[:, i, :] * ((1 - hazard) * now + hazard * now[:, ::-1])
        total = now.sum(axis=1, keepdims=True)
        evidence += np.log(total[:, 0])
        now = now / total
        forward[:, i, :] = now
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
    return chance, worse, evidence


class PairJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of two points."""

    verdict: Literal["differ", "same", "unsure"]
    probability: float  # Of a difference worth finding.


def judge(
    old: Observed,
    new: Observed,
    metric: Metric,
    *,
    spread: float | None = None,
    smallest: float = 0.01,
    confidence: float = 0.99,
) -> PairJudgement:
    """Whether two points differ by at least `smallest` (relative). `spread`: standard deviation of one run, relative.

    A point without a value decides nothing.
    """
    before, after = samples(metric, old), samples(metric, new)
    if not before or not after:
        return PairJudgement(verdict="unsure", probability=0.5)
    if metric.binary:
        probability = float(flake_map({0: before, 1: after}, 2, hazard=0.5).chance[0])
    else:
        least = 0.0 if metric.better == "equal" else smallest
        probability = differ(before, after, smallest=least, spread=spread)
    if probability >= confidence:
        return PairJudgement(verdict="differ", probability=probability)
    return PairJudgement(verdict="same" if probability <= 1 - confidence else "unsure", probability=probability)


def differ(before: Sequence[float], after: Sequence[float], *, smallest: float, spread: float | None) -> float:
    """The probability that two levels differ by at least `smallest`."""
    flat = to_scale([*before, *after])
    if spread is None:
        # From the runs of each point by itself, and a weak prior.
        squares, freedom = PRIOR_WEIGHT * (PRIOR_SPREAD * smallest) ** 2, PRIOR_WEIGHT
        for side in np.split(flat, [len(before)]):
            squares += float(((side - side.mean()) ** 2).sum())
            freedom += len(side) - 1
        spread = math.sqrt(squares / freedom)
    data = Lots.of(flat, np.repeat([0, 1], [len(before), len(after)]))
    return float(solve(data, np.array([0.5]), (0, 1), smallest, spread).chance[0])
