"""Runs in low precision: the same function at the same rounded inputs, low and in double, again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from karat.findings import UsageError, suggest
from karat.gradients.adapters.calls import is_float
from karat.gradients.draws import Asked as LowerAsked, Purpose, mixed
from karat.gradients.examine import Pair
from karat.gradients.low_precision_judgement import (
    Calm,
    Judgement,
    Limits,
    Precision,
    Runs,
    allowance_of,
    controls,
    judge,
    limits_of,
    precision_of,
    rms,
    rounded,
)
from karat.gradients.problem import (
    FlattenedArray as LowerArray,
    Problem,
    Unsupported,
    said,
    shaped,
    size,
)
from karat.gradients.report import Comparison, GradVerdict
from karat.gradients.roundoff import coarseness
from karat.tensors.dtypes import TABLE

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]
    Gradients = Sequence[Array | None]

FIRST = 4
MORE = 8
"""Made only where the first ones failed: few samples make a poor estimate of a spread."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One output's cotangent in one precision."""

    problem: Any
    output: int
    cotangent: Any
    precision: Precision
    rng: Any

    def cotangents(self, one: Array) -> list[Array | None]:
        return [one if i == self.output else None for i in range(len(self.problem.outputs))]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The gradients of every input: low, double, and double a rounding away."""

    low: Any
    double: Any
    near: Any


def rounded_run(problem: Problem, dtype: str, cotangents: Gradients) -> tuple[Gradients, Gradients]:
    """The gradients in a low precision and in double, both at the rounded inputs and cotangents."""
    at = [rounded(one, dtype) for one in problem.point]
    given = [None if one is None else rounded(one, dtype) for one in cotangents]
    return problem.vjp(at, given, dtype=dtype), problem.vjp(at, given)


def calm_of(asked: Asked) -> Calm:
    """What the forward tells of roundings."""
    low, double, near = (np.stack(side) for side in zip(*_forwards(asked), strict=True))
    usable = np.isfinite(double) & np.isfinite(low) & np.isfinite(near)
    lost = np.isfinite(double) & ~np.isfinite(low)
    precision = asked.precision
    tiny = (double != 0) & (np.abs(double) < precision.smallest_normal)
    low, double, near = (np.where(usable, one, 0.0) for one in (low, double, near))
    moved, own = (
        rms(near - double) / reach_of(precision),
        precision.roundoff * _sizes(asked, double),
    )
    strayed = rms(low - double) / (np.hypot(moved, own) + precision.smallest)
    return Calm(
        unrest=max(1.0, float(np.quantile(strayed, 0.9))),
        each=strayed,
        outputs=strayed.size,
        level=size_of(double),
        overflows=int(lost.any(0).sum()),
        underflows=int(tiny.any(0).sum()),
    )


def _sizes(asked: Asked, stack: Array) -> Array:
    """How large each number is; the parts of a complex one are rounded together, and are as uncertain as the whole."""
    each = rms(stack)
    if not asked.problem.outputs[asked.output].complex:
        return each
    return np.broadcast_to(np.sqrt(np.square(each).sum(-1, keepdims=True)), each.shape)


def _forwards(asked: Asked) -> Iterator[tuple[Array, Array, Array]]:
    """The output in low precision, in double, and in double some roundings away."""
    for i in range(FIRST):
        at, _ = _neighbour(asked, i)
        moved = [_moved(one, reach_of(asked.precision), asked) for one in at]
        low = asked.problem.forward(at, dtype=asked.precision.name)
        double, near = asked.problem.forward(at), asked.problem.forward(moved)
        yield parts(low[asked.output]), parts(double[asked.output]), parts(near[asked.output])


def runs_of(asked: Asked, numbers: range) -> Iterator[Run]:
    """Runs whose double gradients are finite; the first of them at the point itself."""
    for i in numbers:
        at, cotangent = _neighbour(asked, i)
        reach = reach_of(asked.precision)
        double = asked.problem.vjp(at, asked.cotangents(cotangent))
        if not all(one is None or np.isfinite(one).all() for one in double):
            continue
        near = asked.problem.vjp(
            [_moved(one, reach, asked) for one in at],
            asked.cotangents(_moved(cotangent, reach, asked)),
        )
        low = asked.problem.vjp(at, asked.cotangents(cotangent), dtype=asked.precision.name)
        yield Run(low=low, double=double, near=near)


def _neighbour(asked: Asked, i: int) -> tuple[list[Array], Array]:
    """Run 0: the given point and cotangent, rounded. Others: a rounding or two away, with other signs and sizes."""
    name = asked.precision.name
    if i == 0:
        return rounded_point(asked), rounded(asked.cotangent, name)
    signs = asked.rng.choice([-1.0, 1.0], asked.cotangent.shape)
    sizes = asked.rng.uniform(0.5, 1.5, asked.cotangent.shape)
    at = [rounded(_moved(one, 2.0, asked), name) for one in rounded_point(asked)]
    return at, rounded(asked.cotangent * signs * sizes, name)


def _moved(array: Array, reach: float, asked: Asked) -> Array:
    """Every element by up to `reach` roundings of its own size."""
    size = reach * asked.precision.roundoff
    if np.iscomplexobj(array):
        real, imag = (asked.rng.uniform(-size, size, array.shape) for _ in range(2))
        return np.asarray(array.real * (1 + real) + 1j * array.imag * (1 + imag))
    return np.asarray(array * (1 + asked.rng.uniform(-size, size, array.shape)))


def reach_of(precision: Precision) -> float:
    """Several roundings, so that branches that a rounding may flip are seen to flip; one in float8."""
    return float(np.clip(0.02 / precision.roundoff, 1.0, 4.0))


def rounded_point(asked: Asked) -> list[Array]:
    return [rounded(one, asked.precision.name) for one in asked.problem.point]


def parts(array: Array) -> Array:
    """Real numbers alone: a complex array with a last axis for its two parts."""
    if np.iscomplexobj(array):
        return np.stack([array.real, array.imag], -1)
    return np.asarray(array, np.float64)


def size_of(array: Array) -> float:
    return float(np.sqrt(np.square(np.abs(array)).mean())) if array.size else 0.0


# DOC-HERE low_precision: Low precision: float32, float16, bfloat16 and float8 gradients against the verified double run.
#
# Never against themselves: the double run is made at the very inputs and cotangents that the low one got, rounded,
# so that rounding those is no error. What is left is the backward's own arithmetic, and `low_judging` says how much
# of it rounding explains.


def compare_low(
    problem: Problem,
    dtype: str,
    *,
    rng: np.random.Generator,
    cotangents: Gradients,
    double: Gradients,
) -> tuple[Comparison, ...]:
    """Each input against each output in a low precision.

    Nothing for a precision that is no narrower than what the double run computes in. Inputs without a gradient in
    the double run (`double[i] is None`) are left out unless the low run has one.
    """
    if coarseness(dtype) <= coarseness(problem.computes):
        return ()
    precision = precision_of(dtype)
    found: list[Comparison] = []
    # A numpy function that overflows says so by its result; a warning would end it where warnings are errors.
    with np.errstate(all="ignore"):
        for i, cotangent in enumerate(cotangents):
            if cotangent is not None and cotangent.size:
                asked = Asked(
                    problem=problem, output=i, cotangent=cotangent, precision=precision, rng=rng
                )
                found += _of_output(asked, double)
    return tuple(found)


def _of_output(asked: Asked, double: Gradients) -> Iterator[Comparison]:
    wanted = [i for i, gradient in enumerate(double) if gradient is None or gradient.size]
    refusal = _refusal(asked)
    if refusal:
        yield from (_inconclusive(asked, i, refusal) for i in wanted)
        return
    calm = calm_of(asked)
    try:
        runs = list(runs_of(asked, range(FIRST)))
    except Exception as error:  # noqa: BLE001 - whatever a backward raises is what it does
        why = f"the backward raises in {asked.precision.name}: {said(error)}"
        yield from (_comparison(asked, i, GradVerdict.FAIL, why) for i in wanted)
        return
    if not runs:
        why = "the double gradient is not finite at the rounded inputs"
        yield from (_inconclusive(asked, i, why) for i in wanted)
        return
    for i in wanted:
        compared = _of_input(asked, i, runs, calm)
        if compared is not None and compared.verdict is GradVerdict.FAIL:
            runs += runs_of(asked, range(FIRST, FIRST + MORE))
            compared = _of_input(asked, i, runs, calm)
        if compared is not None:
            yield compared


def _refusal(asked: Asked) -> str:
    """Why the forward cannot be computed in this precision at all; nothing if it can."""
    at = rounded_point(asked)
    if not all(np.isfinite(one).all() for one in at):
        largest = asked.precision.largest
        return f"an input overflows {asked.precision.name}, whose largest number is {largest:g}"
    try:
        asked.problem.forward(at, dtype=asked.precision.name)
    except Exception as error:  # noqa: BLE001 - frameworks raise what they like for a kernel they lack
        why = str(error) if isinstance(error, Unsupported) else said(error)
        return f"the forward cannot be computed in {asked.precision.name}: {why}"
    return ""


def _of_input(asked: Asked, i: int, runs: Sequence[Run], calm: Calm) -> Comparison | None:
    first = runs[0]
    if first.double[i] is None:
        return _of_none(asked, i, first)
    if first.low[i] is None:
        why = f"no gradient in {asked.precision.name}, where float64 has one"
        return _comparison(asked, i, GradVerdict.FAIL, why, scale=size_of(first.double[i]))
    if any(run.low[i] is None or run.low[i].shape != run.double[i].shape for run in runs):
        why = f"the gradient has another shape in {asked.precision.name}: {first.low[i].shape}"
        return _comparison(asked, i, GradVerdict.FAIL, why, scale=size_of(first.double[i]))
    low, double, near = (
        np.stack([parts(getattr(run, side)[i]) for run in runs])
        for side in ("low", "double", "near")
    )
    lost = _lost(asked, i, low, double, calm)
    if lost is not None:
        return lost
    # Where only the moved point left the domain, that run says nothing of the spread.
    near = np.where(np.isfinite(near), near, double)
    stacks = Runs(low=low, double=double, near=near, reach=reach_of(asked.precision), calm=calm)
    return _judged(asked, i, stacks)


def _of_none(asked: Asked, i: int, run: Run) -> Comparison | None:
    """No gradient in double: then none, or zero, in low."""
    if run.low[i] is None or not np.any(run.low[i]):
        return None
    why = f"a gradient in {asked.precision.name}, where float64 has none"
    return _comparison(asked, i, GradVerdict.FAIL, why, error=size_of(run.low[i]))


def _lost(asked: Asked, i: int, low: Array, double: Array, calm: Calm) -> Comparison | None:
    """What became infinite, NaN or zero on the way."""
    precision, scale = asked.precision, size_of(double)
    top = float(np.abs(double).max(initial=0.0))
    if top > precision.largest:
        why = f"the gradient overflows {precision.name}: up to {top:.3g}, and the largest number is {precision.largest:g}"
        return _comparison(asked, i, GradVerdict.INCONCLUSIVE, why, scale=scale)
    gone = ~np.isfinite(low)
    if gone.any():
        kind = "NaN" if np.isnan(low).any() else "infinite"
        over = calm.overflows
        verdict = GradVerdict.INCONCLUSIVE if over else GradVerdict.FAIL
        tail = (
            f"; the forward overflows in {over:,} places"
            if over
            else ", while the forward is finite"
        )
        why = f"{int(gone.any(0).sum()):,} elements of the gradient are {kind} in {precision.name}, where float64 has up to {np.abs(double[gone]).max():.3g}{tail}"
        return _comparison(asked, i, verdict, why, scale=scale, error=float("inf"))
    if 0 < top < precision.smallest_normal:
        why = f"the gradient underflows {precision.name}: at most {top:.3g}, and the smallest normal number is {precision.smallest_normal:.3g}"
        return _comparison(asked, i, GradVerdict.INCONCLUSIVE, why, scale=scale)
    return None


def _judged(asked: Asked, i: int, runs: Runs) -> Comparison:
    limits = limits_of(runs, asked.precision)
    found = judge(runs.low, runs.double, limits)
    if not found.failed:
        return _passed(asked, i, runs, limits, found)
    scale = size_of(runs.double)
    error, tolerance = _unit(found, scale)
    verdict, why = GradVerdict.FAIL, _story(asked, runs, found)
    if found.look == "element" and _underflows(runs, limits):
        verdict = GradVerdict.INCONCLUSIVE
        why += f"; the forward underflows in {runs.calm.underflows:,} places, which may be why"
    return _comparison(
        asked,
        i,
        verdict,
        why,
        scale=scale,
        error=error,
        tolerance=tolerance,
        smallest_error=_sees(runs, limits),
        probes=len(runs.double),
    )


def _underflows(runs: Runs, limits: Limits) -> bool:
    """Whether so few elements are off that outputs which lost their digits may be behind them all."""
    off = float((rms(runs.low - runs.double) > limits.element).mean())
    return off <= 2 * runs.calm.underflows / max(runs.calm.outputs, 1)


def _passed(asked: Asked, i: int, runs: Runs, limits: Limits, found: Judgement) -> Comparison:
    scale = size_of(runs.double)
    error, tolerance = _unit(found, scale)
    typical = float(np.median(limits.element))
    tried = controls(runs.low, runs.double, limits, asked.precision, asked.rng)
    vacuous = not all(tried.values())
    verdict, why = GradVerdict.PASS, ""
    if scale == 0:
        vacuous, why = True, "the gradient is zero everywhere it was looked"
    elif typical > allowance_of(asked.precision.name).cap * scale:
        verdict = GradVerdict.INCONCLUSIVE
        why = _blind(asked, typical / scale, runs.calm.unrest)
    elif vacuous:
        missed = ", ".join(name for name, seen in tried.items() if not seen)
        why = f"rounding in {asked.precision.name} hides what a check must see: {missed}"
    return _comparison(
        asked,
        i,
        verdict,
        why or _reference(asked),
        scale=scale,
        error=error,
        tolerance=tolerance,
        smallest_error=_sees(runs, limits),
        probes=len(runs.double),
        controls=tried,
        vacuous=vacuous,
    )


def _blind(asked: Asked, relative: float, unrest: float) -> str:
    why = f"rounding in {asked.precision.name} may move the gradient by {relative:.0%} of its size here"
    if unrest > 4:
        why += (
            f"; its forward strays {unrest:.0f} times more than a rounding of the inputs explains"
        )
    return why


def _reference(asked: Asked) -> str:
    computes = asked.problem.computes
    if precision_of(computes).roundoff <= precision_of("float64").roundoff:
        return ""
    return f"compared with the {computes} run, for the function computes in nothing wider"


def _story(asked: Asked, runs: Runs, found: Judgement) -> str:
    name = asked.precision.name
    if found.look == "slope":
        return f"the whole gradient is off by a factor in {name}: {found.error:.2%} away from float64, and rounding explains {found.tolerance:.2%}"
    if found.look != "element":
        return f"the {found.look} of the gradient is off in {name}: by {found.error:.3g}, and rounding explains {found.tolerance:.3g}"
    low, double = (
        np.asarray(one).reshape(len(one), -1)[0, found.index] for one in (runs.low, runs.double)
    )
    if low == 0 and double != 0:
        return f"an element of the gradient is 0 in {name} (underflow, or never written), where float64 has {double:.3g}"
    return f"an element of the gradient is {low:.6g} in {name} and {double:.6g} in float64; rounding explains {found.tolerance:.2g}"


def _unit(found: Judgement, scale: float) -> tuple[float, float]:
    """Error and tolerance as sizes of a gradient element; a slope is relative."""
    if found.look == "slope":
        return found.error * scale, found.tolerance * scale
    return found.error, found.tolerance


def _sees(runs: Runs, limits: Limits) -> float:
    """The error of one element that would have been found wherever it was, whatever its sign."""
    return float((limits.element + rms(runs.low - runs.double)).max(initial=0.0))


def _comparison(asked: Asked, i: int, verdict: GradVerdict, why: str, **more: Any) -> Comparison:
    numbers = {"error": float("nan"), "tolerance": 0.0, "scale": 0.0}
    return Comparison(
        input=asked.problem.inputs[i].name,
        output=asked.problem.outputs[asked.output].name,
        dtype=asked.precision.name,
        verdict=verdict,
        reason=why,
        oracle="float64",
        **{"smallest_error": float("inf"), **numbers, **more},
    )


def _inconclusive(asked: Asked, i: int, why: str) -> Comparison:
    return _comparison(asked, i, GradVerdict.INCONCLUSIVE, why)


# DOC-HERE lower: Lower precisions: those that were asked for, against the double gradient, where that one stands.

_DOUBLE = frozenset({"float64", "complex128"})
UNVERIFIED = "there is no verified double gradient to compare with"


def wanted(problem: Problem, dtypes: Sequence[str] | None) -> tuple[str, ...]:
    """The precisions to look at: those asked for, or those the inputs were given in."""
    if dtypes is None:
        named: Sequence[str] = [slot.dtype for slot in problem.inputs]
    else:
        named = [dtypes] if isinstance(dtypes, str) else dtypes
        _refuse_unknown(named)
    return tuple(dict.fromkeys(one for one in named if one not in _DOUBLE))


def _refuse_unknown(names: Sequence[str]) -> None:
    floats = [name for name in TABLE if is_float(name)]
    for name in names:
        if name not in floats:
            raise UsageError(
                f"gradcheck: dtypes: expected floating dtypes, found {name!r}{suggest(str(name), floats)}",
                next_command='dtypes=("float32", "bfloat16")',
            )


def cotangents(problem: Problem, asked: LowerAsked) -> list[LowerArray | None]:
    """One per wanted output, of moderate size, so that low precision can hold it."""
    return [
        shaped(mixed(size(slot), asked.draw(Purpose.LOW, k)), slot) if k in asked.outputs else None
        for k, slot in enumerate(problem.outputs)
    ]


def compare(
    problem: Problem, asked: LowerAsked, dtype: str, pairs: Sequence[Pair]
) -> list[tuple[Comparison, LowerArray | None]]:
    """The comparisons of one precision, each with the cotangent it was made with."""
    given = cotangents(problem, asked)
    double: list[LowerArray | None] = [
        np.zeros(slot.shape) if _has_gradient(i, pairs) else None
        for i, slot in enumerate(problem.inputs)
    ]
    rng = asked.draw(Purpose.LOW, len(problem.outputs), *dtype.encode())
    found = compare_low(problem, dtype, rng=rng, cotangents=given, double=double)
    stands = {
        (one.comparison.input, one.comparison.output): one.comparison
        for one in pairs
        if one.comparison.mode == "reverse"
    }
    index = {slot.name: k for k, slot in enumerate(problem.outputs)}
    return [
        (_relative(_standing(one, stands[one.input, one.output])), given[index[one.output]])
        for one in found
        if (one.input, one.output) in stands
    ]


def _has_gradient(i: int, pairs: Sequence[Pair]) -> bool:
    return any(one.input == i and one.gradient is not None for one in pairs)


def _standing(low: Comparison, double: Comparison) -> Comparison:
    if double.counts or low.verdict is GradVerdict.FAIL:
        return low
    return msgspec.structs.replace(low, verdict=GradVerdict.INCONCLUSIVE, reason=UNVERIFIED)


def _relative(one: Comparison) -> Comparison:
    """As in double: error and tolerance as shares of the size."""
    if not one.scale > 0:
        return one
    return msgspec.structs.replace(
        one,
        error=one.error / one.scale,
        tolerance=one.tolerance / one.scale,
        smallest_error=one.smallest_error / one.scale,
    )
