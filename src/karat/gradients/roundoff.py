"""Round-off: what it explains in each precision, natural step sizes, how noisy a forward is, which precision it computes in."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from math import log2, sqrt
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from karat.gradients.problem import Array, FlatProblem, Vector, vector
from karat.tensors.device_array import drawn, in_blocks, random_signs
from karat.tensors.dtypes import TABLE

if TYPE_CHECKING:
    from karat.gradients.adapters.framework_problem import FrameworkProblem

# Unit round-off, and the widest tolerance (relative to the derivative that was compared) that still certifies.
_PRECISIONS: Mapping[str, tuple[float, float]] = {
    "float64": (2.0**-53, 1e-5),
    "complex128": (2.0**-53, 1e-5),
    "float32": (2.0**-24, 3e-3),
    "complex64": (2.0**-24, 3e-3),
    "float16": (2.0**-11, 5e-3),
    "bfloat16": (2.0**-8, 5e-3),
}
AUTOCAST = "autocast-"  # before the name of a dtype: float32 inputs, and operations in that dtype or float32
TINY = float(np.finfo(np.float64).tiny)
_SAFE = 2.0**-900  # sums of squares beyond this may have lost terms to underflow or overflow
NOTHING = 2.0**-930  # a derivative below this is lost to underflow somewhere
INACCURATE = 4e-9  # a double-precision gradient that is off by no more than this share is inaccurate, not wrong
ULPS = 4.0  # how many units in the last place a forward may be off at each element; libraries promise 1 to 4
DEVIATIONS = 6.5  # standard deviations that independently drawn signs leave room for: missed once in 10⁹ draws


def unit(precision: str) -> float:
    """The unit round-off of a precision; float16's for those that are not listed."""
    return _PRECISIONS.get(precision, _PRECISIONS["float16"])[0]


def cap(precision: str) -> float:
    """The widest relative tolerance that still certifies."""
    return _PRECISIONS.get(precision, _PRECISIONS["float16"])[1]


def combined(errors: Vector) -> float:
    """What a sum of errors with random signs stays below."""
    return DEVIATIONS * norm(errors)


def places(mask: Array) -> Any:
    """Where a mask is true, to index with; no copy is made where that is everywhere, as nearly always."""
    return slice(None) if mask.all() else mask


def norm(values: Vector) -> float:
    # No dot product: its threads cost more than they save where many tests run at once.
    squared = float(np.square(values).sum())
    if _SAFE < squared < 1 / _SAFE:
        return sqrt(squared)
    largest = float(np.abs(values).max(initial=0.0))
    if largest == 0 or not np.isfinite(largest):
        return largest
    return largest * float(np.sqrt(np.square(values / largest).sum()))


def analytic_floor(precision: str, size: float, count: int, unrest: float = 0.0) -> float:
    """The backward's own round-off: a few units for each level of the sums that made it, or what it was seen to do.

    `unrest` is the share of the gradient that a step of a few units in the last place moves; a large one buys no more
    than a small part of what still certifies.
    """
    depth = 1.0 + log2(max(2, count))
    share = 16 * depth * unit(precision) + 4 * min(unrest, cap(precision) / 1000)
    return float(DEVIATIONS * share * size)


# Elements this much smaller than the typical one are of another scale on purpose; between, they are just near zero.
OTHER_SCALE = 2.0**-24
_ENOUGH = 2**14


def power_of_two(values: Vector) -> Vector:
    """The power of two at or below each value; 0 stays 0."""
    # What is left of a number without its mantissa.
    found: Vector = (values.view(np.int64) & 0x7FF0000000000000).view(np.float64)
    return np.where(values > 0, found, 0.0)


def sample(values: Vector) -> Vector:
    """The values, or some thousands of them from everywhere, where there are so many that a median would take long."""
    # An odd stride falls into step with no power of two.
    return values[:: values.size // _ENOUGH | 1] if values.size > 4 * _ENOUGH else values


def median(values: Vector) -> float:
    """The median of numbers that are not NaN; numpy's own takes its time with few."""
    if values.size > _ENOUGH // 4:
        return float(np.median(values))
    ordered, half = np.sort(values), values.size // 2
    return float(ordered[half] if values.size % 2 else (ordered[half - 1] + ordered[half]) / 2)


def typical_size(values: Vector) -> float:
    """The median size of the elements that are not zero; 1 if there are none."""
    for part in (sample(values), values):
        sizes = np.abs(part)
        known = sizes[(sizes > 0) & (sizes < np.inf)]
        if known.size:
            return median(known)
    return 1.0


def natural_sizes(values: Vector, common: float | None = None) -> Vector:
    """The size of each element, or a quarter of the typical one for those that just happen to be near zero."""
    common = typical_size(values) if common is None else common
    sizes = np.abs(values)
    other = sizes < common * OTHER_SCALE
    own = sizes >= common / 4
    return np.where(own | (other & (sizes > 0)) if other.any() else own, sizes, common / 4)


def element_scales(point: Vector) -> Vector:
    """A power of two for each element: its own size, or a share of the typical one if it is near zero.

    Elements that are not finite get 0: there is no stepping from there.
    """
    common = typical_size(point)

    def part(point: Vector) -> tuple[Vector]:
        scales = power_of_two(natural_sizes(point, common))
        return (np.where(np.isfinite(point), np.clip(scales, 2.0**-960, 2.0**960), 0.0),)

    (found,) = in_blocks(part, point)
    return cast("Vector", found)


def scales_of(flat: FlatProblem, index: int) -> Vector:
    """The scales of an input's elements, found once."""
    if index not in flat.scales:
        flat.scales[index] = element_scales(flat.point[index])
    return flat.scales[index]


# How noisy a forward is shows in what its values do that no smooth function does: one that adds large numbers and takes
# them away again is off by far more than its outputs' last place.
# So short that smooth functions are straight, so long that even float32 takes notice; and, if it looks rough, shorter.
_STEPS = (2.0**-23, 2.0**-33)
_ASIDE = 32  # so many steps beside the point: kinks like to be at the point itself
_FOURTH = np.array([1.0, -4.0, 6.0, -4.0, 1.0])
_SPREAD = sqrt(70.0)  # their norm
_ROOM = 4.0
_CLEAR = 16.0
_MANY = 2**16  # from so many elements on each run is dear
_TELLING = 8  # so few elements may be smooth by chance


def noise(source: FlatProblem, base: Sequence[Vector], precision: str) -> list[Vector]:
    """What each element of a forward may be off: units in the last place, observed roughness, what two runs differ by."""
    again = source.forward(source.point)
    sizes = source.sizes(base)
    places = [ULPS * unit(precision) * one for one in sizes]
    far, source.line = source.line or fourth_differences(source), []
    rough = [_typical_roughness(one, at) for (one, _, _), at in zip(far, sizes, strict=True)]
    below = np.inf if precision == "float64" else 2.0**24
    stairs = [_whole(below, at, end) & (way >= 1) for (_, way, end), at in zip(far, base, strict=True)]
    # A few out of very many, which cross zero, are worth no more runs.
    few = [one.size / (16 if one.size > _MANY else 4096) for one in rough]
    unclear = any(np.count_nonzero(one > _CLEAR * at) > n for one, at, n in zip(rough, places, few, strict=True))
    if unclear or any(np.any(one) for one in stairs):
        # What looks rough may be steep: a closer look tells, where the function still moves clearly.
        for k, (less, way, _) in enumerate(fourth_differences(source, _STEPS[1])):
            known, moved = np.isfinite(less) & np.isfinite(way), way > _CLEAR * less
            if np.count_nonzero(known & moved) > 0.5 * np.count_nonzero(known):
                rough[k] = np.minimum(rough[k], _typical_roughness(less, sizes[k]))
            # Whole numbers that stay where they are: from afar stairs have a slope (floor at 1e8), and yet there is none.
            places[k] = np.where(stairs[k] & (way == 0), np.inf, places[k])
    gaps = [np.abs(one - two) for one, two in zip(base, again, strict=True)]
    return [
        np.maximum(np.maximum(least, _ROOM * seen), grain(values)) + float(gap.max(initial=0.0, where=np.isfinite(gap)))
        for least, seen, gap, (_, _, values) in zip(places, rough, gaps, far, strict=True)
    ]


def _whole(below: float, *values: Array) -> Any:
    """Where values are whole numbers, or thousandths, on purpose: below a bound, or not those that float32 has there."""

    def even(one: Array) -> Any:
        thousandths, eighths = (np.rint(by * one.real) / by == one for by in (1e3, 8))
        # Eighths are what bfloat16 has.
        return (one == np.rint(one.real)) | (thousandths & ~eighths)

    if not np.any(even(sample(values[0].reshape(-1)))):
        return np.False_
    narrow = reduce(operator.and_, (one.real.astype(np.float32) == one for one in values))
    return reduce(operator.and_, map(even, values), (np.abs(values[0]) < below) | ~narrow)


def grain(values: Vector, designed: float = 2.0**-8) -> Vector:
    """Half of the last bit that each value uses, where it leaves the last twenty unused; else 0.

    What cancellation leaves of two large numbers (x - tanh x) moves in steps of their last place, and between two steps
    it looks perfectly smooth. Steps from `designed` on (halves, quarters, whole numbers) are there on purpose.
    """

    def part(values: Vector) -> tuple[Vector, float]:
        found = np.zeros_like(values)
        coarse = ((values.view(np.int64) & 0xFFFFF) == 0) & (values != 0) & np.isfinite(values)
        if not coarse.any():
            return found, np.inf
        mantissas, exponents = np.frexp(values[coarse])
        whole = np.ldexp(mantissas, 53).astype(np.int64)
        last = np.ldexp((whole & -whole).astype(np.float64), exponents - 53)
        found[coarse] = np.where(last < designed, last / 2, 0.0)
        return found, found.min(initial=np.inf, where=found > 0)

    found, each = in_blocks(part, values)
    # What such a function rounds to nothing (a distribution in its tail) was rounded by as much.
    least = float(np.min(each))
    return np.where(values == 0, least, found) if np.isfinite(least) else found


def fourth_differences(source: FlatProblem, step: float = _STEPS[0]) -> list[tuple[Vector, Vector, Vector]]:
    """Per output, fourth differences along a short line, which smooth functions have none of; the way it went, and its end."""
    # Steps that fit a grid would hide that the function has one, so they have long mantissas.
    steps = drawn(lambda count, rng, _like: rng.uniform(0.5, 1.0, count), 4, source.point)
    line = {n: one * scales_of(source, n) for n, one in enumerate(steps)}
    runs = source.along(line, [step * (_ASIDE + k) for k in range(len(_FOURTH))])
    weighed = (_FOURTH @ one if isinstance(one, np.ndarray) else sum(map(operator.mul, _FOURTH, one)) for one in runs)
    sides = zip(weighed, runs, strict=True)
    return [(np.abs(rough) / _SPREAD, np.abs(one[-1] - one[0]), one[-1]) for rough, one in sides]


def is_straight(line: Sequence[tuple[Vector, Vector, Vector]], sizes: Sequence[Vector]) -> bool:
    """Whether the outputs, and enough of them to tell, go along a short line as numbers of float64 do: far, and smoothly."""
    for (rough, way, end), at in zip(line, sizes, strict=True):
        place = ULPS * unit("float64") * at
        moved = way > 2.0**10 * place
        count = np.count_nonzero(moved)
        # What is rounded more coarsely goes smoothly now and then; not so nearly all of several.
        smooth = np.count_nonzero(moved & (rough <= _CLEAR * place))
        if count < _TELLING or 2 * count < at.size or smooth < 0.95 * count or _is_narrow(end):
            return False
    return bool(sizes)


def _typical_roughness(rough: Vector, sizes: Vector) -> Vector:
    """What is typical, absolutely or as a share, whichever is less: one element may be rough for a reason of its own."""
    seen, size = sample(rough), sample(sizes)
    known = np.isfinite(seen) & np.isfinite(size) & (size > 0)
    if not known.any():
        return np.zeros_like(sizes)
    common = median(seen[known])
    share = np.minimum(median(seen[known] / size[known]) * sizes, common)
    # An element that is small by cancellation is rough by more than its share.
    return np.maximum(share, np.minimum(np.where(np.isfinite(rough), rough, 0.0), common))


# A kernel may take float64 and work in float32 inside. It is found by what it does: a tiny step of the input, far
# above float64's resolution and far below float32's, must move the output by as much as a larger step predicts;
# and outputs that all happen to be numbers of float32 do not happen.
# Relative steps: below float32's resolution, above it, and above bfloat16's.
_TINY_STEP, SMALL, LARGE = 2.0**-30, 2.0**-17, 2.0**-6
_BENT = {SMALL: 0.5, LARGE: 2.0}
# What is rounded jumps by no more than this, relatively; what jumps further does so by design.
_QUANTUM = 2.0**-6
# By how much of a change, at what part of an output's elements, steps disagree where inputs are then moved alone.
_ODD = (0.01, 0.25)
_EPS = float(np.finfo(np.float64).eps)


def coarseness(dtype: str) -> int:
    """How few bits the mantissa has: larger is coarser."""
    of = TABLE.get(dtype.removeprefix(AUTOCAST))
    return -of.layout.mantissa if of is not None and of.layout is not None else -52


def eps_of(dtype: str) -> float:
    """The distance from 1 to the next number."""
    return float(2.0 ** coarseness(dtype))


@np.errstate(all="ignore")
def effective_precision(problem: FrameworkProblem) -> str:
    """The precision of a double-precision run, by karat's name for the real type."""
    if not problem.double:
        return _real(problem.lowest)
    adapter, seen = problem.adapter, problem.looked
    if not seen:
        with adapter.scope():
            outputs = problem.run(problem.natives(problem.point, None), None)
            seen = [(adapter.dtype_of(out), adapter.to_numpy(out)) for out in outputs]
    base, problem.looked = [one for _, one in seen], []
    problem.here.known = [vector(one) for one in base]
    coarsest = max((_real(dtype) for dtype, _ in seen), key=coarseness, default="float64")
    if coarsest != "float64":
        return coarsest
    problem.here.line = fourth_differences(problem.here)
    if is_straight(problem.here.line, problem.here.sizes(problem.here.known)):
        return "float64"
    # A few more runs: no change where one was predicted means that it was rounded away.
    try:
        tiny, small = _Step(problem, _TINY_STEP), _Step(problem, SMALL)
        if any(all(map(_is_narrow, both)) for both in zip(tiny.ahead, small.ahead, strict=True)):
            return "float32"
        narrow = _rounded_away(base, tiny, small)
        if not narrow and len(problem.point) > 1 and _rounded_away(base, tiny, small, *_ODD):
            # An input that is not rounded may move the outputs beside one that is.
            inputs = range(len(problem.point))
            narrow = any(_rounded_away(base, _Step(problem, _TINY_STEP, i), _Step(problem, SMALL, i)) for i in inputs)
        if _mostly_differ(base, small) and not narrow:
            return "float64"
        # It rounds, perhaps more coarsely still; or hardly anything moved: that, or it is flat.
        large = _Step(problem, LARGE)
    except Exception:  # noqa: BLE001 - a point beside this one may be outside of the domain
        return "float64"
    if _mostly_differ(base, large) and _rounded_away(base, small, large):
        return "bfloat16"
    return "float32" if narrow else "float64"


class _Step:
    """The outputs a step ahead and a step back, and half of what differs: curvature is gone from that."""

    def __init__(self, problem: FrameworkProblem, size: float, only: int | None = None) -> None:
        self.size = size
        rng = np.random.default_rng(5)
        signs = [random_signs(one.size, rng, one).reshape(one.shape) for one in problem.point]
        steps = [one * np.where(at == 0, 1.0, np.abs(at)) for one, at in zip(signs, problem.point, strict=True)]
        self.ahead, self.back = (
            problem.forward([at + (h if only in {None, i} else 0.0) * steps[i] for i, at in enumerate(problem.point)])
            for h in (size, -size)
        )
        self.change = [np.abs(a - b) / 2 for a, b in zip(self.ahead, self.back, strict=True)]


def _mostly_differ(base: list[Array], step: _Step) -> bool:
    return any(np.mean(one != here) > 0.5 for one, here in zip(step.ahead, base, strict=True) if one.size)


def _is_narrow(output: Array) -> bool:
    """Whether no number needs more than float32's mantissa, and most need nearly all of it: that is no coincidence."""
    flat = sample(output.reshape(-1))
    parts = np.concatenate([flat.real, flat.imag]) if np.iscomplexobj(flat) else flat
    parts = parts[np.isfinite(parts) & (np.abs(parts) > 1e-30) & (np.abs(parts) < 1e30)]
    if not parts.size or (parts.astype(np.float32) != parts).any():
        return False
    mantissas = np.frexp(parts)[0] * 2.0**16
    return bool(np.mean((mantissas != np.rint(mantissas)) & ~_whole(2.0**23, parts)) > 0.5)


def _rounded_away(outputs: list[Array], near: _Step, far: _Step, share: float = 0.25, part: float = 0.5) -> bool:
    for k, base in enumerate(outputs):
        seen, predicted = near.change[k], far.change[k] * (near.size / far.size)
        # What moves by less than float64 can show says nothing; nor do whole numbers, which are rounded on purpose.
        telling = np.isfinite(predicted) & (predicted > 256 * _EPS * np.abs(base))
        whole = _whole(2.0**23, base, far.ahead[k], far.back[k])
        # Of one output all whole numbers are on purpose, if those are that could not be float32's.
        telling &= ~(_whole(np.inf, base, far.ahead[k]) if (whole & (predicted > 0)).any() else whole)
        # What bends on the way predicts nothing; rounding to bfloat16 bends a little by itself.
        bent = np.abs(far.ahead[k] + far.back[k] - 2 * base) > _BENT[far.size] * far.change[k]
        off = (np.abs(seen - predicted) > share * predicted) & (seen < _QUANTUM * np.abs(base))
        off = (off & (~bent | (seen == 0)))[telling]
        if off.size and np.mean(off) > part:
            return True
    return False


def _real(dtype: str) -> str:
    return {"complex128": "float64", "complex64": "float32", "complex32": "float16"}.get(dtype, dtype)
