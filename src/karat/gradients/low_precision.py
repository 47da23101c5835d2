"""Low precision: float32, float16, bfloat16 and float8 gradients against the verified double run.

Never against themselves: the double run is made at the very inputs and cotangents that the low one got, rounded,
so that rounding those is no error. What is left is the backward's own arithmetic, and `low_judging` says how much
of it rounding explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from karat.gradients.low_controls import controls
from karat.gradients.low_judging import (
    Calm,
    Judgement,
    Limits,
    Runs,
    allowance_of,
    judge,
    limits_of,
    rms,
)
from karat.gradients.problem import Problem, Unsupported
from karat.gradients.report import Comparison, GradVerdict
from karat.gradients.rounding import Precision, precision_of, rounded

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]
    Gradients = Sequence[Array | None]

_RUNS = 4
_MORE_RUNS = 8
"""Made only where the first ones failed: few samples make a poor estimate of a spread."""


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One output's cotangent in one precision."""

    problem: Any
    output: int
    cotangent: Any
    precision: Precision
    rng: Any

    def cotangents(self, one: Array) -> list[Array | None]:
        return [one if i == self.output else None for i in range(len(self.problem.outputs))]


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """The gradients of every input: low, double, and double a rounding away."""

    low: Any
    double: Any
    near: Any


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
    precision = precision_of(dtype)
    if precision.roundoff <= precision_of(problem.computes).roundoff:
        return ()
    found: list[Comparison] = []
    # A numpy function that overflows says so by its result; a warning would end it where warnings are errors.
    with np.errstate(all="ignore"):
        for i, cotangent in enumerate(cotangents):
            if cotangent is not None and cotangent.size:
                asked = _Asked(
                    problem=problem, output=i, cotangent=cotangent, precision=precision, rng=rng
                )
                found += _of_output(asked, double)
    return tuple(found)


def rounded_run(problem: Problem, dtype: str, cotangents: Gradients) -> tuple[Gradients, Gradients]:
    """The gradients in a low precision and in double, both at the rounded inputs and cotangents."""
    at = [rounded(one, dtype) for one in problem.point]
    given = [None if one is None else rounded(one, dtype) for one in cotangents]
    return problem.vjp(at, given, dtype=dtype), problem.vjp(at, given)


def _of_output(asked: _Asked, double: Gradients) -> Iterator[Comparison]:
    wanted = [i for i, gradient in enumerate(double) if gradient is None or gradient.size]
    refusal = _refusal(asked)
    if refusal:
        yield from (_inconclusive(asked, i, refusal) for i in wanted)
        return
    calm = _calm(asked)
    try:
        runs = list(_runs(asked, range(_RUNS)))
    except Exception as error:  # noqa: BLE001 - whatever a backward raises is what it does
        why = f"the backward raises in {asked.precision.name}: {_first_line(error)}"
        yield from (_comparison(asked, i, GradVerdict.FAIL, why) for i in wanted)
        return
    if not runs:
        why = "the double gradient is not finite at the rounded inputs"
        yield from (_inconclusive(asked, i, why) for i in wanted)
        return
    for i in wanted:
        compared = _of_input(asked, i, runs, calm)
        if compared is not None and compared.verdict is GradVerdict.FAIL:
            runs += _runs(asked, range(_RUNS, _RUNS + _MORE_RUNS))
            compared = _of_input(asked, i, runs, calm)
        if compared is not None:
            yield compared


def _refusal(asked: _Asked) -> str:
    """Why the forward cannot be computed in this precision at all; nothing if it can."""
    at = _rounded_point(asked)
    if not all(np.isfinite(one).all() for one in at):
        largest = asked.precision.largest
        return f"an input overflows {asked.precision.name}, whose largest number is {largest:g}"
    try:
        asked.problem.forward(at, dtype=asked.precision.name)
    except Exception as error:  # noqa: BLE001 - frameworks raise what they like for a kernel they lack
        said = _first_line(error)
        kind = "" if isinstance(error, Unsupported) else f"{type(error).__name__}: "
        return f"the forward cannot be computed in {asked.precision.name}: {kind}{said}"
    return ""


def _calm(asked: _Asked) -> Calm:
    """What the forward tells of roundings."""
    low, double, near = (np.stack(side) for side in zip(*_forwards(asked), strict=True))
    usable = np.isfinite(double) & np.isfinite(low) & np.isfinite(near)
    lost = np.isfinite(double) & ~np.isfinite(low)
    precision = asked.precision
    tiny = (double != 0) & (np.abs(double) < precision.smallest_normal)
    low, double, near = (np.where(usable, one, 0.0) for one in (low, double, near))
    moved, own = rms(near - double) / _reach(precision), precision.roundoff * rms(double)
    strayed = rms(low - double) / (np.hypot(moved, own) + precision.smallest)
    return Calm(
        unrest=max(1.0, float(np.quantile(strayed, 0.9))),
        each=strayed,
        outputs=strayed.size,
        level=_size(double),
        overflows=int(lost.any(0).sum()),
        underflows=int(tiny.any(0).sum()),
    )


def _forwards(asked: _Asked) -> Iterator[tuple[Array, Array, Array]]:
    """The output in low precision, in double, and in double some roundings away."""
    for i in range(_RUNS):
        at, _ = _neighbour(asked, i)
        moved = [_moved(one, _reach(asked.precision), asked) for one in at]
        low = asked.problem.forward(at, dtype=asked.precision.name)
        double, near = asked.problem.forward(at), asked.problem.forward(moved)
        yield _parts(low[asked.output]), _parts(double[asked.output]), _parts(near[asked.output])


def _runs(asked: _Asked, numbers: range) -> Iterator[_Run]:
    """Runs whose double gradients are finite; the first of them at the point itself."""
    for i in numbers:
        at, cotangent = _neighbour(asked, i)
        reach = _reach(asked.precision)
        double = asked.problem.vjp(at, asked.cotangents(cotangent))
        if not all(one is None or np.isfinite(one).all() for one in double):
            continue
        near = asked.problem.vjp(
            [_moved(one, reach, asked) for one in at],
            asked.cotangents(_moved(cotangent, reach, asked)),
        )
        low = asked.problem.vjp(at, asked.cotangents(cotangent), dtype=asked.precision.name)
        yield _Run(low=low, double=double, near=near)


def _neighbour(asked: _Asked, i: int) -> tuple[list[Array], Array]:
    """Run 0: the given point and cotangent, rounded. Others: a rounding or two away, with other signs and sizes."""
    name = asked.precision.name
    if i == 0:
        return _rounded_point(asked), rounded(asked.cotangent, name)
    signs = asked.rng.choice([-1.0, 1.0], asked.cotangent.shape)
    sizes = asked.rng.uniform(0.5, 1.5, asked.cotangent.shape)
    at = [rounded(_moved(one, 2.0, asked), name) for one in _rounded_point(asked)]
    return at, rounded(asked.cotangent * signs * sizes, name)


def _moved(array: Array, reach: float, asked: _Asked) -> Array:
    """Every element by up to `reach` roundings of its own size."""
    size = reach * asked.precision.roundoff
    if np.iscomplexobj(array):
        real, imag = (asked.rng.uniform(-size, size, array.shape) for _ in range(2))
        return np.asarray(array.real * (1 + real) + 1j * array.imag * (1 + imag))
    return np.asarray(array * (1 + asked.rng.uniform(-size, size, array.shape)))


def _reach(precision: Precision) -> float:
    """Several roundings, so that branches that a rounding may flip are seen to flip; one in float8."""
    return float(np.clip(0.02 / precision.roundoff, 1.0, 4.0))


def _rounded_point(asked: _Asked) -> list[Array]:
    return [rounded(one, asked.precision.name) for one in asked.problem.point]


def _of_input(asked: _Asked, i: int, runs: Sequence[_Run], calm: Calm) -> Comparison | None:
    first = runs[0]
    if first.double[i] is None:
        return _of_none(asked, i, first)
    if first.low[i] is None:
        why = f"no gradient in {asked.precision.name}, where float64 has one"
        return _comparison(asked, i, GradVerdict.FAIL, why, scale=_size(first.double[i]))
    if any(run.low[i] is None or run.low[i].shape != run.double[i].shape for run in runs):
        why = f"the gradient has another shape in {asked.precision.name}: {first.low[i].shape}"
        return _comparison(asked, i, GradVerdict.FAIL, why, scale=_size(first.double[i]))
    low, double, near = (
        np.stack([_parts(getattr(run, side)[i]) for run in runs])
        for side in ("low", "double", "near")
    )
    lost = _lost(asked, i, low, double, calm)
    if lost is not None:
        return lost
    # Where only the moved point left the domain, that run says nothing of the spread.
    near = np.where(np.isfinite(near), near, double)
    stacks = Runs(low=low, double=double, near=near, reach=_reach(asked.precision), calm=calm)
    return _judged(asked, i, stacks)


def _of_none(asked: _Asked, i: int, run: _Run) -> Comparison | None:
    """No gradient in double: then none, or zero, in low."""
    if run.low[i] is None or not np.any(run.low[i]):
        return None
    why = f"a gradient in {asked.precision.name}, where float64 has none"
    return _comparison(asked, i, GradVerdict.FAIL, why, error=_size(run.low[i]))


def _lost(asked: _Asked, i: int, low: Array, double: Array, calm: Calm) -> Comparison | None:
    """What became infinite, NaN or zero on the way."""
    precision, scale = asked.precision, _size(double)
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


def _judged(asked: _Asked, i: int, runs: Runs) -> Comparison:
    limits = limits_of(runs, asked.precision)
    found = judge(runs.low, runs.double, limits)
    if not found.failed:
        return _passed(asked, i, runs, limits, found)
    scale = _size(runs.double)
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


def _passed(asked: _Asked, i: int, runs: Runs, limits: Limits, found: Judgement) -> Comparison:
    scale = _size(runs.double)
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


def _blind(asked: _Asked, relative: float, unrest: float) -> str:
    why = f"rounding in {asked.precision.name} may move the gradient by {relative:.0%} of its size here"
    if unrest > 4:
        why += (
            f"; its forward strays {unrest:.0f} times more than a rounding of the inputs explains"
        )
    return why


def _reference(asked: _Asked) -> str:
    computes = asked.problem.computes
    if precision_of(computes).roundoff <= precision_of("float64").roundoff:
        return ""
    return f"compared with the {computes} run, for the function computes in nothing wider"


def _story(asked: _Asked, runs: Runs, found: Judgement) -> str:
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


def _comparison(asked: _Asked, i: int, verdict: GradVerdict, why: str, **more: Any) -> Comparison:
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


def _inconclusive(asked: _Asked, i: int, why: str) -> Comparison:
    return _comparison(asked, i, GradVerdict.INCONCLUSIVE, why)


def _parts(array: Array) -> Array:
    """Real numbers alone: a complex array with a last axis for its two parts."""
    if np.iscomplexobj(array):
        return np.stack([array.real, array.imag], -1)
    return np.asarray(array, np.float64)


def _size(array: Array) -> float:
    return float(np.sqrt(np.square(np.abs(array)).mean())) if array.size else 0.0


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
