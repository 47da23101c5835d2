"""A low-precision gradient against the double run, judged by what rounding explains and no more.

Looks at the same runs, because each sees what the others cannot:

- element by element: the deviation over all runs against how far the double gradient moves when inputs and
  cotangents move by a rounding (so cancellation is allowed for where it is, and only there);
- the slope of low on double, over the whole tensor and along each line: a factor 1.01 hides in every bfloat16
  element, and shows here, even if only a few rows have it;
- means along each axis: a missing mean term is small everywhere, and has the same sign along a line.

Negative controls get the same judgement on gradients that were made wrong. A bfloat16 element cannot show 1%, so the
corruptions are as large as the precision needs and no larger than a limit per dtype; their names say how large. What
goes unnoticed at the limit makes the evidence vacuous.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from karat.gradients.problem import Array
from karat.gradients.roundoff import AUTOCAST
from karat.tensors.dtypes import dtype_named


class Precision(msgspec.Struct, frozen=True, kw_only=True):
    """What numbers of a dtype can tell apart."""

    name: str
    roundoff: float  # half the distance from 1 to the next number: the relative error of one rounding
    mantissa: int
    largest: float
    smallest_normal: float
    smallest: float  # the smallest positive number, subnormal where there are such
    infinite: bool


@lru_cache(maxsize=64)
def precision_of(dtype: str) -> Precision:
    """The precision of a float's name, or of the parts of a complex one; `UnknownDtype` for any other name."""
    layout = dtype_named(dtype.removeprefix(AUTOCAST)).layout
    if layout is None:
        raise ValueError(f"expected a floating or complex dtype, found {dtype!r}")
    normal, step = 2.0 ** (1 - layout.bias), 2.0**-layout.mantissa
    # The largest finite number: how many codes the special values take decides. Where one code of the largest exponent
    # is NaN, it is the number below that.
    fraction = 2 - step - (step if layout.special == "nan_only" else 0)
    top = (1 << layout.exponent) - (2 if layout.special in {"ieee", "all_ones"} else 1)
    return Precision(
        name=dtype,
        roundoff=2.0 ** -(layout.mantissa + 1),
        mantissa=layout.mantissa,
        largest=fraction * 2.0 ** (top - layout.bias),
        smallest_normal=normal,
        smallest=normal * step,
        infinite=layout.special == "ieee",
    )


def rounded(array: Array, dtype: str) -> Array:
    """The array as the dtype would hold it, widened again; complex numbers part by part.

    Round to nearest, ties to even, subnormals kept; beyond the largest number it is what the dtype has: an infinity,
    or NaN where there is none.
    """
    dtype = dtype.removeprefix(AUTOCAST)
    if np.iscomplexobj(array):
        return np.asarray(rounded(array.real, dtype) + 1j * rounded(array.imag, dtype))
    values = np.asarray(array, np.float64)
    if dtype_named(dtype).name in {"float64", "complex128"}:
        return values.copy()
    if dtype in {"float32", "float16"}:
        return values.astype(dtype).astype(np.float64)
    precision = precision_of(dtype)
    _, exponent = np.frexp(values)
    lowest = int(np.log2(precision.smallest_normal)) + 1
    step = np.ldexp(1.0, np.maximum(exponent, lowest) - 1 - precision.mantissa)
    found = np.rint(values / step) * step
    beyond = np.abs(found) > precision.largest
    lost = np.copysign(np.inf, values) if precision.infinite else np.nan
    return np.asarray(np.where(beyond, lost, found))


_SIGMAS = 6.0
_STRAY = 5.0  # how many times further than a plain implementation a right one may stray
_LEAST_LINE = 16  # shorter lines are left to the other two looks: a mean over few elements knows no more than they do


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """How much a correct implementation in a dtype may differ, in units of one rounding."""

    element: float
    common: float  # of a whole tensor: constants and saved statistics are rounded, too, and every element shares that
    cap: float  # relative to the gradient: where more would be allowed than this, the check is inconclusive


# float32's special functions are approximations that stray by tens of roundings; narrower types compute in float32
# inside, mostly, and round at the end.
_ALLOWANCES = {
    "float32": Allowance(element=64.0, common=64.0, cap=1e-2),
    "float16": Allowance(element=16.0, common=4.0, cap=0.25),
    "bfloat16": Allowance(element=16.0, common=2.0, cap=0.5),
}
_PARTS = {"complex64": "float32", "complex32": "float16", "bcomplex32": "bfloat16"}


def allowance_of(dtype: str) -> Allowance:
    """What is allowed in a dtype; the same for float8 of every kind."""
    dtype = dtype.removeprefix(AUTOCAST)
    return _ALLOWANCES.get(_PARTS.get(dtype, dtype), Allowance(element=4.0, common=2.0, cap=1.0))


class ForwardBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What the forward shows of a function's arithmetic in low precision; a wrong backward does not touch it."""

    unrest: float = 1.0  # how many times more the low forward strays than a rounding of its inputs explains; at least 1
    each: Any = 1.0  # the same, output element by output element
    outputs: int = 1
    level: float = 1.0  # the size of the outputs: a backward may use one that was saved, rounded, in an exponent
    overflows: int = 0
    underflows: int = 0  # outputs below the smallest normal number, which have lost digits or all


class RunStack(msgspec.Struct, frozen=True, kw_only=True):
    """The same gradient several times, at neighbouring points and with other cotangents: run × element…"""

    low: Any
    double: Any
    near: Any  # the double gradient where inputs and cotangents were moved by roundings
    plain: Any  # that of a plain implementation in the same low precision, where there is one; else the double one
    reach: float  # by how many roundings
    share: float = 1.0  # of what is allowed for an element
    forward: ForwardBehaviour


class LowJudgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the looks came to; `error` and `tolerance` are of the look that is closest to its limit."""

    failed: bool
    look: str
    error: float
    tolerance: float
    index: int  # of the worst element, counted in C order
    ratio: float


class LowLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What may deviate how much; made once, used for the gradient and for every corruption of it."""

    element: Any
    slope: float
    line: float
    moved: tuple[Any, Any]  # what a rounding of the inputs does, and a plain implementation strays by: run × element…


def limits_of(runs: RunStack, precision: Precision) -> LowLimits:
    allowed, forward = allowance_of(precision.name), runs.forward
    moved = rms(runs.near - runs.double) / runs.reach
    size = precision.roundoff * rms(runs.double)
    own = size / np.sqrt(3)
    # Of an elementwise function each element has its own unrest: 1 + tanh(x) loses all digits at one end alone.
    fits = np.shape(forward.each) == np.shape(own)
    unrest = np.maximum(forward.unrest, forward.each) if fits else forward.unrest
    saved = min(16.0, 2 * forward.level) * (1.0 if runs.share == 1 else 0.25)
    # The size of an element's neighbours: that of its line along whichever long axis has the smallest. A saved output
    # that is nearly 1 leaves no digits of 1 − y², and an element that is small by cancellation is as uncertain as those
    # beside it; one whose whole row is small is not.
    around = np.hypot(np.hypot(moved, own), 1.5 * _smoothed(size))
    strayed = runs.plain - runs.double
    element = unrest * (runs.share * allowed.element * around + saved * size) + 2 * precision.smallest
    element = np.maximum(element, _STRAY * _smoothed(rms(strayed)))
    unit = precision.roundoff * forward.unrest
    slope = unit * (allowed.common + saved / np.sqrt(forward.outputs))
    shifts = (runs.near - runs.double) / runs.reach, strayed
    return LowLimits(element=element, slope=slope, line=unit * (allowed.common + saved), moved=shifts)


def _smoothed(size: Array) -> Array:
    """The size of an element's line, along whichever long axis has the smallest; that of the whole where none is long."""
    found = np.asarray(np.sqrt(np.square(size).mean())) if size.size else np.zeros(())
    for axis, length in enumerate(size.shape):
        if length >= 64:
            found = np.minimum(found, np.sqrt(np.square(size).mean(axis, keepdims=True)))
    return found


def judge_low(low: Array, double: Array, limits: LowLimits) -> LowJudgement:
    """The gravest of all looks at finite arrays."""
    deviation = low - double
    error, limit = rms(deviation).reshape(-1), limits.element.reshape(-1)
    looks = [_judgement("element", 0.0, 0.0, -1)]
    if error.size:
        worst = int(np.argmax(np.where(error > 0, error / limit, 0.0)))
        looks = [_judgement("element", float(error[worst]), float(limit[worst]), worst)]
    if double.size:
        looks.append(_slope(deviation, double, limits, None))
        long = [axis for axis, length in enumerate(double.shape[1:]) if length >= _LEAST_LINE]
        looks += [_line(deviation, double, limits, axis) for axis in long]
        # The one line of a vector is the whole of it.
        looks += [_slope(deviation, double, limits, axis) for axis in long if double.ndim > 2]
    return max(looks, key=lambda look: look.ratio)


def _slope(deviation: Array, double: Array, limits: LowLimits, axis: int | None) -> LowJudgement:
    """Regression through the origin of a whole tensor, or of each line of an axis; small elements count as much as large."""
    parts: tuple[Array, ...] = (deviation, double, *limits.moved, limits.element[None])
    common, name = limits.line, f"slope along axis {axis}"
    if axis is None:
        parts, common, name = tuple(one.reshape(len(one), -1) for one in parts), limits.slope, "slope"
    axis = 1 if axis is None else axis + 1
    weight = 1 / np.maximum(parts[-1], np.finfo(np.float64).tiny)
    off, seen, *shifts = (one * weight for one in parts[:-1])
    energy = np.square(seen).sum(axis)
    total = energy.sum(0)
    slope = (seen * off).sum((0, axis)) / total
    rest = off - np.expand_dims(slope, (0, axis)) * seen
    spread = np.sqrt(np.square(seen * rest).sum((0, axis))) / total
    each = (seen * off).sum(axis) / energy
    # Elements of one run share roundings (a saved statistic), so runs are a second witness of the spread.
    between = np.std(each, axis=0, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else np.zeros_like(spread)
    # Where cancellation leaves little of a line, a rounding of the inputs moves all of it.
    carried = sum(rms(np.where(energy > 0, (seen * one).sum(axis) / energy, 0.0)) for one in shifts)
    limit = common + _SIGMAS * np.fmax(spread, between) + _STRAY * carried
    ratio = np.where(np.isfinite(slope) & np.isfinite(limit), np.abs(slope) / limit, 0.0).reshape(-1)
    worst = int(np.argmax(ratio))
    if ratio[worst] == 0:
        return _judgement("slope", 0.0, 0.0, -1)
    return _judgement(name, float(np.abs(slope).reshape(-1)[worst]), float(limit.reshape(-1)[worst]), worst)


def _line(deviation: Array, double: Array, limits: LowLimits, axis: int) -> LowJudgement:
    """The mean deviation along each line of an axis; the worst line, over all runs."""
    length = limits.element.shape[axis]
    means = deviation.mean(axis + 1)
    mean = rms(means)
    noise = np.sqrt(np.maximum(np.square(deviation).mean((0, axis + 1)) - np.square(means).mean(0), 0))
    size = np.sqrt(np.square(double).mean((0, axis + 1)))
    limit = limits.line * size + _SIGMAS * noise / np.sqrt(length) + limits.element.min(axis) / length
    limit = limit + _STRAY * rms(limits.moved[1].mean(axis + 1))
    ratio = np.where(mean > 0, mean / limit, 0.0).reshape(-1)
    worst = int(np.argmax(ratio))
    error, bound = float(mean.reshape(-1)[worst]), float(limit.reshape(-1)[worst])
    return _judgement(f"mean along axis {axis}", error, bound, -1)


def _judgement(look: str, error: float, tolerance: float, index: int) -> LowJudgement:
    ratio = 0.0 if error == 0 else error / tolerance if tolerance > 0 else float("inf")
    return LowJudgement(failed=bool(ratio > 1), look=look, error=error, tolerance=tolerance, index=index, ratio=ratio)


def rms(stack: Array) -> Array:
    return np.asarray(np.sqrt(np.square(stack).mean(0)))


_FACTORS = (1.01, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0)
# Unit roundoff up to … → the largest factor that may be needed to be seen on the whole tensor; on one element alone.
_LARGEST_FACTORS = {1e-6: (1.01, 1.1), 1e-3: (1.1, 1.5), 1e-2: (1.25, 2.0)}


def low_controls(
    low: Array, double: Array, limits: LowLimits, precision: Precision, rng: np.random.Generator
) -> Mapping[str, bool]:
    """Corruption → whether it was noticed."""
    if not np.any(double):
        return {}

    def fails(corrupted: Array) -> bool:
        return judge_low(corrupted, double, limits).failed

    tried = {"zero": fails(np.zeros_like(low)), "sign": fails(-low)}

    def grow(name: str, needed: float, most: float, where: int, length: int) -> None:
        """One line of that length times the smallest factor of a fixed list that is noticed, or the largest that may be tried."""
        allowed = [one for one in _FACTORS if one <= most]
        # Smaller ones than the limit cannot be noticed.
        for factor in [one for one in allowed if one - 1 > needed] or allowed[-1:]:
            changed = low.copy()
            changed.reshape(len(low), -1, length)[:, where] *= factor
            seen = fails(changed)
            if seen or factor == most:
                tried[f"{name}{factor:g}"] = seen
                return

    within = (most for roundoff, most in _LARGEST_FACTORS.items() if precision.roundoff <= roundoff)
    most_of_all, most_of_one = next(within, (3.0, 3.0))
    grow("x", limits.slope, most_of_all, 0, low[0].size)
    # One element, drawn from those of middling size that are no worse conditioned than most.
    size, limit = rms(double).reshape(-1), limits.element.reshape(-1)
    large = np.flatnonzero(size >= np.median(size[size > 0]))
    hidden = limit[large] / size[large]
    place = int(rng.choice(large[hidden <= np.median(hidden)]))

    if low.ndim >= 3 and low.shape[-1] >= _LEAST_LINE:
        # Neither the largest, nor one of those that cancellation has left little of.
        sizes = rms(rms(double).reshape(-1, low.shape[-1]).T)
        row = int(np.argsort(sizes)[-(np.count_nonzero(sizes) // 4 + 1)])
        grow("one row x", limits.line, most_of_one, row, low.shape[-1])
    grow("one element x", float(limit[place] / size[place]), most_of_one, place, 1)
    if low.ndim >= 3 and low.shape[-1] == low.shape[-2] >= 2:
        turned = np.ascontiguousarray(np.swapaxes(low, -1, -2))
        if np.abs(turned - low).max() > 4 * limits.element.max():
            tried["transposed"] = fails(turned)
    return tried
