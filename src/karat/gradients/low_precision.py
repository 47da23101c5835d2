"""Low precision: float32, float16, bfloat16 and float8 gradients against the verified double run.

Never against themselves: the double run is made at the very inputs and cotangents that the low one got, rounded,
so that rounding those is no error. What is left is the backward's own arithmetic, and `low_judging` says how much
of it rounding explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

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
from karat.gradients.low_runs import (
    FIRST,
    MORE,
    Asked,
    Run,
    calm_of,
    parts,
    reach_of,
    rounded_point,
    runs_of,
    size_of,
)
from karat.gradients.precision import coarseness
from karat.gradients.problem import Problem, Unsupported
from karat.gradients.report import Comparison, GradVerdict
from karat.gradients.rounding import precision_of
from karat.gradients.wording import said

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]
    Gradients = Sequence[Array | None]


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
