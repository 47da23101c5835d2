"""float32, float16, bfloat16 and float8 gradients against the verified double run.

Never against themselves: the double run is made at the very inputs and cotangents that the low one got, rounded, so
that rounding those is no error. What is left is the backward's own arithmetic, and `low_precision_judgement` says how
much of it rounding explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import msgspec
import numpy as np

from karat.findings import suggest
from karat.gradients import low_precision_judgement as judgement
from karat.gradients.adapters.calls import FLOATS
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.draws import CheckPlan, Purpose
from karat.gradients.examine import Pair
from karat.gradients.low_precision_judgement import ForwardBehaviour, Precision, RunStack, precision_of, rms, rounded
from karat.gradients.problem import Array, Gradients, Unsupported, error_line, misuse, size
from karat.gradients.references import KernelProblem, NumpyReference
from karat.gradients.report import GradComparison, GradVerdict, Property
from karat.gradients.roundoff import AUTOCAST, coarseness, eps_of

# Of every input: low, double, double a rounding away, and a plain implementation in low precision (else double again).
GradientRun = tuple[Gradients, Gradients, Gradients, Gradients]

FIRST = 4
_FLAT = 1024.0  # units in the last place of the cotangent that are nothing where the function is flat
_HOPELESS = 4.0  # how far out of its limit a deviation must be where the limit itself is nearly all of the gradient
_NOTHING = 4.0  # how many times its own size a gradient may be off where it is taken for zero
MORE = 8  # made only where the first ones failed: few samples make a poor estimate of a spread


class LowCase(msgspec.Struct, frozen=True, kw_only=True):
    """One output's cotangent in one precision."""

    problem: FrameworkProblem
    output: int
    cotangent: Any
    precision: Precision
    rng: Any

    @property
    def plain(self) -> FrameworkProblem | None:
        """The reference of a kernel, which can be run in low precision, too: so far a plain implementation strays."""
        return self.problem.reference if isinstance(self.problem, KernelProblem) and not self.steady else None

    @property
    def steady(self) -> bool:
        """Whether all runs stay at the point: the gradient of a numpy reference is dear, for whatever cotangents."""
        return isinstance(self.problem, KernelProblem) and isinstance(self.problem.reference, NumpyReference)

    @property
    def point(self) -> list[Array]:
        return [rounded(one, self.precision.name) for one in self.problem.point]

    @property
    def reach(self) -> float:
        """Several roundings, so that branches that a rounding may flip are seen to flip; one in float8."""
        return float(np.clip(0.02 / self.precision.roundoff, 1.0, 4.0))

    def vjp(
        self, at: Sequence[Array], cotangent: Array, dtype: str | None = None, of: FrameworkProblem | None = None
    ) -> Gradients:
        given = [cotangent if i == self.output else None for i in range(len(self.problem.outputs))]
        return (of or self.problem).vjp(at, given, dtype=dtype)

    def neighbour(self, i: int) -> tuple[list[Array], Array]:
        """Run 0: the given point and cotangent, rounded. Others: a rounding or two away, with other signs and sizes."""
        name = self.precision.name
        if i == 0:
            return self.point, rounded(self.cotangent, name)
        signs = self.rng.choice([-1.0, 1.0], self.cotangent.shape)
        sizes = self.rng.uniform(0.5, 1.5, self.cotangent.shape)
        at = self.point if self.steady else [rounded(self.moved(one, 2.0), name) for one in self.point]
        return at, rounded(self.cotangent * signs * sizes, name)

    def beside(self, at: Sequence[Array]) -> list[Array]:
        rng = np.random.default_rng(len(at)) if self.steady else self.rng
        return [self.moved(one, self.reach, rng) for one in at]

    def moved(self, array: Array, reach: float, rng: Any = None) -> Array:
        """Every element by up to `reach` roundings of its own size."""
        size, rng = reach * self.precision.roundoff, rng or self.rng
        if np.iscomplexobj(array):
            real, imag = (rng.uniform(-size, size, array.shape) for _ in range(2))
            return np.asarray(array.real * (1 + real) + 1j * array.imag * (1 + imag))
        return np.asarray(array * (1 + rng.uniform(-size, size, array.shape)))


def forward_runs(case: LowCase, far: float = 0.0) -> RunStack:
    """The forward in low precision, in double, and in double a rounding away; `far`: every second run that share away."""
    runs, forward = [], case.problem.forward
    for i in range(FIRST):
        at, _ = case.neighbour(i)
        if far and i % 2:
            at = [rounded(case.moved(one, far / case.precision.roundoff), case.precision.name) for one in case.point]
        found = [forward(at, dtype=case.precision.name), forward(at), forward(case.beside(at))]
        found.append(found[1])
        if case.plain is not None:
            with suppress(Exception):
                found[3] = case.plain.forward(at, dtype=case.precision.name)
        runs.append([real_parts(one[case.output]) for one in found])
    return _stack(runs, case, ForwardBehaviour(level=0.0), 1.0)


def _stack(runs: Sequence[Sequence[Array]], case: LowCase, forward: ForwardBehaviour, share: float) -> RunStack:
    low, double, near, plain = (np.stack(side) for side in zip(*runs, strict=True))
    # Where only the moved point left the domain, or plain arithmetic its range, that run says nothing of the spread.
    near, plain = (np.where(np.isfinite(one), one, double) for one in (near, plain))
    return RunStack(low=low, double=double, near=near, plain=plain, reach=case.reach, forward=forward, share=share)


def forward_behaviour(case: LowCase) -> ForwardBehaviour:
    """How the forward responds to roundings."""
    runs, precision = forward_runs(case), case.precision
    known, usable = np.isfinite(runs.double), np.isfinite(runs.double) & np.isfinite(runs.low)
    tiny = (runs.double != 0) & (np.abs(runs.double) < precision.smallest_normal)
    low, double, near, plain = (np.where(usable, one, 0.0) for one in (runs.low, runs.double, runs.near, runs.plain))
    sizes = rms(double)
    if case.problem.outputs[case.output].complex:
        # The parts of a complex number are rounded together, and are as uncertain as the whole.
        sizes = np.broadcast_to(np.sqrt(np.square(sizes).sum(-1, keepdims=True)), sizes.shape)
    moved = np.hypot(rms(near - double) / case.reach, rms(plain - double))
    strayed = rms(low - double) / (np.hypot(moved, precision.roundoff * sizes) + precision.smallest)
    return ForwardBehaviour(
        unrest=max(1.0, float(np.quantile(strayed, 0.9))),
        each=strayed,
        outputs=strayed.size,
        level=rms_size(double),
        overflows=int((known & ~usable).any(0).sum()),
        underflows=int(tiny.any(0).sum()),
    )


def run_gradients(case: LowCase, numbers: range, *, doubted: bool = False) -> Iterator[GradientRun]:
    """Runs whose double gradients are finite; the first of them at the point itself.

    Where a gradient is in doubt: also with what rounding does to all that is saved, and to the sum of two cotangents.
    """
    for i in numbers:
        at, cotangent = case.neighbour(i)
        double = plain = case.vjp(at, cotangent)
        if not all(one is None or np.isfinite(one).all() for one in double):
            continue
        low = case.vjp(at, cotangent, case.precision.name)
        jitter: AbstractContextManager[object] = nullcontext()
        if case.plain is not None or (doubted and not case.steady):
            # What is saved for a backward in double precision is a rounding away.
            size, seed = case.reach * case.precision.roundoff, int(case.rng.integers(2**31))
            jitter = case.problem.adapter.jittered(size, seed)
        with jitter:
            near = case.vjp(case.beside(at), case.moved(cotangent, case.reach))
        with suppress(Exception):
            if case.plain is not None:
                plain = case.vjp(at, cotangent, case.precision.name, case.plain)
            elif doubted:
                # Exact in any precision: twice the cotangent, and 0.
                signs = case.rng.choice([-1.0, 1.0], cotangent.shape)
                other, both = (case.vjp(at, cotangent * by, case.precision.name) for by in (signs, 1 + signs))
                sides = zip(double, low, other, both, strict=True)
                plain = [None if d is None or a is None else d + (c - a - b) for d, a, b, c in sides]
        yield low, double, near, plain


def real_parts(array: Array) -> Array:
    """Real numbers alone: a complex array with a last axis for its two parts."""
    if np.iscomplexobj(array):
        return np.stack([array.real, array.imag], -1)
    return np.asarray(array, np.float64)


def rms_size(array: Array) -> float:
    """The root mean square of all elements; 0 where there are none."""
    return float(np.sqrt(np.square(np.abs(array)).mean())) if array.size else 0.0


def compare_low(
    problem: FrameworkProblem, dtype: str, *, rng: np.random.Generator, cotangents: Gradients
) -> Iterator[GradComparison]:
    """Each input against each output in a low precision; nothing for one that is no narrower than the double run's.

    Inputs without a gradient in the double run are left out unless the low run has one.
    """
    if coarseness(dtype) <= coarseness(problem.computes):
        return
    precision = precision_of(dtype)
    for k, cotangent in enumerate(cotangents):
        if cotangent is not None and cotangent.size:
            yield from _of_output(LowCase(problem=problem, output=k, cotangent=cotangent, precision=precision, rng=rng))


def _of_output(case: LowCase) -> Iterator[GradComparison]:
    wanted = [i for i, slot in enumerate(case.problem.inputs) if size(slot)]
    name, at = case.precision.name, case.point
    verdict, why = GradVerdict.INCONCLUSIVE, ""
    if not all(np.isfinite(one).all() for one in at):
        why = f"an input overflows {name}, whose largest number is {case.precision.largest:g}"
    else:
        try:
            case.problem.forward(at, dtype=name)
        except Exception as error:  # noqa: BLE001 - frameworks raise what they like for a kernel they lack
            why = f"the forward cannot be computed in {name}: {error_line(error)}"
    if not why:
        behaviour = forward_behaviour(case)
        try:
            runs = list(run_gradients(case, range(FIRST)))
            why = "" if runs else "the double gradient is not finite at the rounded inputs"
        except Unsupported as error:
            why = error_line(error)
        except Exception as error:  # noqa: BLE001 - whatever a backward raises is what it does
            verdict, why = GradVerdict.FAIL, f"the backward raises in {name}: {error_line(error)}"
    if why:
        yield from (_comparison(case, i, verdict, why) for i in wanted)
        return
    for i in wanted:
        compared = _of_input(case, i, runs, behaviour)
        if compared is not None and compared.verdict is GradVerdict.FAIL:
            if len(runs) <= FIRST:
                runs = list(run_gradients(case, range(FIRST + MORE), doubted=True))
            compared = _of_input(case, i, runs, behaviour)
        if compared is not None:
            yield compared


def _of_input(case: LowCase, i: int, runs: Sequence[GradientRun], behaviour: ForwardBehaviour) -> GradComparison | None:
    sides: list[list[Any]] = [[run[side][i] for run in runs] for side in range(4)]
    first, usual = sides[0][0], sides[1][0]
    if usual is None:
        # Then there is none, or zero, in low precision.
        if first is None or not np.any(first):
            return None
        why = f"a gradient in {case.precision.name}, where float64 has none"
        return _comparison(case, i, GradVerdict.FAIL, why, error=rms_size(first))
    if any(one is None or one.shape != other.shape for one, other in zip(sides[0], sides[1], strict=True)):
        why = f"no gradient in {case.precision.name}, where float64 has one"
        if first is not None:
            why = f"the gradient has another shape in {case.precision.name}: {first.shape}"
        return _comparison(case, i, GradVerdict.FAIL, why, scale=rms_size(usual))
    sides[3] = [one if one is not None and one.shape == usual.shape else usual for one in sides[3]]
    # Where more of what rounding does is known, less must be allowed for.
    share = 1.0 if case.plain is None else 0.4
    stacks = _stack([[real_parts(one) for one in run] for run in zip(*sides, strict=True)], case, behaviour, share)
    if case.plain is None:
        # What is the same in every run is no rounding, but an offset.
        constant = (stacks.plain - stacks.double).mean(0, keepdims=True)
        stacks = msgspec.structs.replace(stacks, plain=stacks.plain - constant)
    return _lost(case, i, stacks) or _judged(case, i, stacks)


def _lost(case: LowCase, i: int, runs: RunStack) -> GradComparison | None:
    """What became infinite, NaN or zero on the way."""
    name, precision, low, double = case.precision.name, case.precision, runs.low, runs.double
    top, gone = float(np.abs(double).max(initial=0.0)), ~np.isfinite(low)
    verdict, error, why = GradVerdict.INCONCLUSIVE, float("nan"), ""
    if top > precision.largest:
        why = f"the gradient overflows {name}: up to {top:.3g}, but the largest number is {precision.largest:g}"
    elif gone.any():
        kind, over = "NaN" if np.isnan(low).any() else "infinite", runs.forward.overflows
        verdict, error = GradVerdict.INCONCLUSIVE if over else GradVerdict.FAIL, float("inf")
        tail = f"; the forward overflows in {over:,} places" if over else ", while the forward is finite"
        why = f"{int(gone.any(0).sum()):,} elements of the gradient are {kind} in {name}, where float64 has up to {np.abs(double[gone]).max():.3g}{tail}"
    elif 0 < top < precision.smallest_normal:
        why = f"the gradient underflows {name}: at most {top:.3g}, but the smallest normal number is {precision.smallest_normal:.3g}"
    return _comparison(case, i, verdict, why, scale=rms_size(double), error=error) if why else None


def _judged(case: LowCase, i: int, runs: RunStack) -> GradComparison | None:
    """The comparison; None where the terms of a right gradient cancel, and nothing but rounding is left of it."""
    limits = judgement.limits_of(runs, case.precision)
    found = judgement.judge_low(runs.low, runs.double, limits)
    scale, deviation = rms_size(runs.double), rms(runs.low - runs.double)
    # A slope is relative; errors and tolerances are sizes of a gradient's element.
    unit = scale if found.look.startswith("slope") else 1.0
    tried: Mapping[str, bool] = {}
    vacuous, name, computes = False, case.precision.name, case.problem.computes
    typical = float(np.median(limits.element))
    calm = runs.forward.unrest <= 4 and not isinstance(case.problem, KernelProblem)
    if scale > 0 and typical > _NOTHING * scale and calm and found.ratio <= _HOPELESS:
        return None
    if found.failed and (typical <= judgement.allowance_of(name).cap * scale or found.ratio > _HOPELESS):
        verdict, why = GradVerdict.FAIL, _story(case, runs, found)
        # So few elements are off that outputs which lost their digits may be behind them all.
        few = float((deviation > limits.element).mean())
        lost = runs.forward.underflows
        if found.look == "element" and few <= 2 * lost / max(runs.forward.outputs, 1):
            verdict = GradVerdict.INCONCLUSIVE
            why += f"; the forward underflows in {lost:,} places, which may be why"
    else:
        tried = judgement.low_controls(runs.low, runs.double, limits, case.precision, case.rng)
        missed = ", ".join(control for control, seen in tried.items() if not seen)
        vacuous = scale == 0 or bool(missed)
        verdict, why = GradVerdict.PASS, ""
        # What a gradient within its limits is worth.
        if scale == 0:
            why = "the gradient is zero everywhere it was checked"
        elif typical > judgement.allowance_of(name).cap * scale:
            verdict = GradVerdict.INCONCLUSIVE
            why = f"rounding in {name} may move the gradient by {typical / scale:.0%} of its size here"
            unrest = runs.forward.unrest
            if unrest > 4:
                why += f"; its forward strays {unrest:.0f} times more than a rounding of the inputs explains"
        elif missed:
            why = f"rounding in {name} hides what a check must see: {missed}"
        elif precision_of(computes).roundoff > precision_of("float64").roundoff:
            why = f"compared with the {computes} run, because the function computes in nothing wider"
    return _comparison(
        case,
        i,
        verdict,
        why,
        scale=scale,
        error=found.error * unit,
        tolerance=found.tolerance * unit,
        # The error of one element that would have been found wherever it was, whatever its sign.
        smallest_error=float((limits.element + deviation).max(initial=0.0)),
        probes=len(runs.double),
        controls=tried,
        vacuous=vacuous,
    )


def _story(case: LowCase, runs: RunStack, found: judgement.LowJudgement, what: str = "gradient") -> str:
    name = case.precision.name
    if found.look.startswith("slope"):
        where = found.look.replace("slope along", f"a line of the {what} along")
        whole = f"the whole {what}" if found.look == "slope" else where
        return f"{whole} is off by a factor in {name}: {100 * found.error:.3g}% away from float64, but rounding explains {100 * found.tolerance:.2g}%"
    if found.look != "element":
        return f"the {found.look} of the {what} is off in {name}: by {found.error:.3g}, but rounding explains {found.tolerance:.3g}"
    low, double = (np.asarray(one).reshape(len(one), -1)[0, found.index] for one in (runs.low, runs.double))
    if low == 0 and double != 0:
        lost = f"0 in {name} (underflow, or never written)"
        return f"an element of the {what} is {lost}, where float64 has {double:.3g}"
    return f"an element of the {what} is {low:.6g} in {name} and {double:.6g} in float64; rounding explains {found.tolerance:.2g}"


def _comparison(case: LowCase, i: int, verdict: GradVerdict, why: str, **more: Any) -> GradComparison:
    return GradComparison(
        input=case.problem.inputs[i].name,
        output=case.problem.outputs[case.output].name,
        dtype=case.precision.name,
        verdict=verdict,
        reason=why,
        oracle="reference" if isinstance(case.problem, KernelProblem) else "float64",
        **{"error": float("nan"), **more},
    )


def reference_forward(problem: FrameworkProblem, plan: CheckPlan, dtype: str) -> Property:
    """Whether a kernel's forward is its reference's, but for what rounding explains: the worst output."""
    name, precision, looks = "reference-forward", precision_of(dtype), []
    for k, slot in enumerate(problem.outputs):
        rng = plan.draw(Purpose.LOW, k, *dtype.encode())
        case = LowCase(problem=problem, output=k, cotangent=np.zeros(slot.shape), precision=precision, rng=rng)
        # A reference that agrees at the point alone could have any slopes.
        runs = forward_runs(case, far=0.25)
        known = np.isfinite(runs.double) & (np.abs(runs.double) <= precision.largest)
        lost = int((known & ~np.isfinite(runs.low)).any(0).sum())
        if lost:
            why = f"{slot.name}: {lost:,} elements are infinite or NaN in {dtype}, where the reference is finite"
            return Property(name=name, verdict=GradVerdict.FAIL, detail=why, dtype=dtype)
        sides = {side: np.where(known, getattr(runs, side), 0.0) for side in ("low", "double", "near", "plain")}
        runs = msgspec.structs.replace(runs, **sides)
        limits = judgement.limits_of(runs, precision)
        found = judgement.judge_low(runs.low, runs.double, limits)
        hopeless = np.median(limits.element) > judgement.allowance_of(dtype).cap * rms_size(runs.double)
        doubt = hopeless and found.ratio <= _HOPELESS
        looks.append((found, doubt, f"{slot.name}: {_story(case, runs, found, 'output')}"))
    if not looks:
        return Property(name=name, verdict=GradVerdict.INCONCLUSIVE, detail="no output to compare", dtype=dtype)
    found, doubt, why = max(looks, key=lambda one: one[0].ratio)
    verdict = GradVerdict.INCONCLUSIVE if doubt else GradVerdict.FAIL
    verdict, why = (verdict, why) if found.failed else (GradVerdict.PASS, "")
    return Property(name=name, verdict=verdict, detail=why, measured=found.error, bound=found.tolerance, dtype=dtype)


def wanted_precisions(problem: FrameworkProblem, dtypes: Sequence[str] | None) -> tuple[str, ...]:
    """The precisions to look at: those asked for, or those the inputs were given in."""
    if dtypes is None:
        named: Sequence[str] = [slot.dtype for slot in problem.inputs]
    else:
        named = [dtypes] if isinstance(dtypes, str) else dtypes
        for name in named:
            if str(name).removeprefix(AUTOCAST) not in FLOATS:
                said = f"dtypes: expected floating dtypes, found {name!r}{suggest(str(name), FLOATS)}"
                raise misuse(said, 'dtypes=("float32", "bfloat16")')
    return tuple(dict.fromkeys(one for one in named if one not in {"float64", "complex128"}))


def compare_precision(
    problem: FrameworkProblem, plan: CheckPlan, dtype: str, verified: Mapping[tuple[str, str], Pair]
) -> list[tuple[GradComparison, Array | None]]:
    """The comparisons of one precision, each with the cotangent it was made with."""
    given = plan.cotangents(problem, Purpose.LOW)
    rng = plan.draw(Purpose.LOW, len(problem.outputs), *dtype.encode())
    index = {slot.name: k for k, slot in enumerate(problem.outputs)}
    found = []
    for low in compare_low(problem, dtype, rng=rng, cotangents=given):
        known = verified.get((low.input, low.output))
        # Where the function is flat, here or nearby as well, the double run has said all that there is to say; what is next
        # to nothing there, the cotangent says.
        largest = float(np.max(np.abs(np.asarray(given[index[low.output]])), initial=0.0))
        nothing = low.verdict is not GradVerdict.FAIL or low.error <= min(_FLAT * eps_of(dtype), 0.1) * largest
        zero = low.verdict is GradVerdict.PASS and low.scale == 0 and not isinstance(problem, KernelProblem)
        if known is None or zero or (known.zero and nothing):
            continue
        if not known.comparison.counts and low.verdict is not GradVerdict.FAIL:
            why = "there is no verified double gradient to compare with"
            low = msgspec.structs.replace(low, verdict=GradVerdict.INCONCLUSIVE, reason=why)  # noqa: PLW2901
        # Errors as shares of the size, as in double.
        unit = low.scale if low.scale > 0 else 1.0
        shares = {name: getattr(low, name) / unit for name in ("error", "tolerance", "smallest_error")}
        found.append((msgspec.structs.replace(low, **shares), given[index[low.output]]))
    return found
