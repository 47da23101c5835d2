"""Laws of a backward by itself: what it gives and takes, in any memory layout, and that it depends on its own forward alone.

Then those of the same function in another form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from karat.gradients.adapters import graph_nodes
from karat.gradients.laws.trial import MARGIN, RUNS, Trial, TwoWays, describe_difference, largest, largest_gap
from karat.gradients.problem import Array, Gradients, Unsupported, error_line
from karat.gradients.report import GradVerdict, Property
from karat.gradients.roundoff import eps_of

_MOST = 4  # outputs, or inputs, that are tried one by one
_ANY_ORDER = 8.0  # units in the last place that each term of a sum may be off when it is added up in another order
_ELSEWHERE = 2.0**-7  # how far away, relatively, the second point of an interleaved pair, or of a batch, is


def deterministic(trial: Trial, *, backward: bool) -> Property:
    """The same inputs give the same outputs, and the same backward the same gradient, up to the stated bound.

    It is relative to the largest element; a sum in any order is a fact, and no fault.
    """
    problem, name, of, measured, where = trial.problem, "deterministic-forward", "", 0.0, ""
    if backward:
        name, of, slots, others = "deterministic-backward", "gradient of ", problem.inputs, trial.repeated
    else:
        slots, others = problem.outputs, [problem.forward(problem.point) for _ in range(RUNS - 1)]
    first: Gradients = trial.gradients if backward else trial.outputs
    for run in others:
        for slot, one, usual in zip(slots, run, first, strict=True):
            relative = largest_gap(one, usual) / (largest(usual) or 1.0)
            if relative > measured:
                measured, where = relative, describe_difference(slot.name, one, usual, of)
    # A function that trembles may look as if it computed in bfloat16; so only those that say so are taken for it.
    said = max(eps_of("float32"), *(eps_of(slot.dtype) for slot in (*problem.inputs, *problem.outputs)))
    explained = _ANY_ORDER * trial.another_order * min(1.0, said / trial.eps)
    bound = trial.allowed if trial.strict else max(trial.allowed, explained)
    found = f"{RUNS} runs differ by {measured:.2g}, relative to the largest element: {where}"
    if measured > bound:
        by_design = f"if that is by design, say nondeterminism_bound={2 * measured:.1g}"
        return trial.outcome(name, f"{found}; {by_design}", measured, trial.allowed)
    told = f"{found}; additions in another order explain that" if measured > trial.allowed else ""
    return msgspec.structs.replace(trial.outcome(name, "", measured, trial.allowed), detail=told)


def inputs_unmodified(trial: Trial) -> Property | None:
    """Neither forward nor backward writes to the inputs."""
    problem = trial.problem
    if problem.adapter.pure:  # nothing can write to them
        return None
    labels = [slot.name for slot in problem.inputs]
    with problem.adapter.scope():
        inputs = problem.natives(problem.point, None)
        before = [problem.adapter.to_numpy(one) for one in inputs]
        problem.run(inputs, None)
        after = [problem.adapter.to_numpy(one) for one in inputs]
    found = unmodified(trial, "inputs-unmodified", labels, before, after)
    return watched(trial)["inputs-unmodified"] if found.verdict is GradVerdict.PASS else found


def interleaving(trial: Trial) -> Property | None:
    """A forward elsewhere, between a forward and its backward, does not matter."""
    problem = trial.problem
    moved = [one + _ELSEWHERE * trial.signs(one) * np.where(one == 0, 1.0, np.abs(one)) for one in problem.point]

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        with problem.adapter.scope():
            ran = problem.linearise(problem.natives(at, None))
            try:
                problem.linearise(problem.natives(moved, None))
            except Exception as error:
                raise Unsupported("the point elsewhere may be outside of the domain") from error
            found = problem.gradients(ran, cotangents)
        return TwoWays(found, trial.usual(at, cotangents))

    return trial.judge("interleaving", "after a forward at another point", attempt)


def accumulation(trial: Trial) -> Property | None:
    """A backward adds its gradient, once, to what was there."""
    problem = trial.problem
    if problem.backward is not None or any(one is None for one in trial.gradients):
        return None
    adapter = problem.adapter
    sides = zip(problem.inputs, trial.gradients, strict=True)
    held = [trial.normal(slot.shape, is_complex=slot.complex) * (largest(one) or 1.0) for slot, one in sides]
    watched(trial)

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        once = trial.usual(at, cotangents)
        expected = [before if one is None else before + 2 * one for before, one in zip(held, once, strict=True)]
        with adapter.scope():
            problem.forwards += 2
            problem.backwards += 2
            tensors, before = problem.natives(at, None), problem.natives(held, None)
            given = problem.native_cotangents(trial.native_outputs, cotangents)
            found = adapter.accumulate(problem.flat(None), tensors, given, before, 2)
            return TwoWays(problem.arrays(found), expected, (held, once))

    return trial.judge("accumulation", "two backwards onto a gradient that was there", attempt)


def zero_cotangent(trial: Trial) -> Property:
    """A zero cotangent gives a zero gradient, not NaN."""
    problem = trial.problem
    gradients = problem.vjp(problem.point, [np.zeros_like(one) for one in trial.cotangents])
    for slot, found, usual in zip(problem.inputs, gradients, trial.gradients, strict=True):
        if found is None:
            continue
        # Where the derivative itself is infinite, zero times it may be anything.
        looked = found if usual is None else np.where(np.isfinite(usual), found, 0.0)
        if np.any(looked != 0):
            zeros = np.zeros_like(looked)
            failure = f"the cotangent is zero: {describe_difference(slot.name, looked, zeros)}"
            return trial.outcome("zero-cotangent", failure, largest_gap(looked, zeros), 0.0)
    return trial.outcome("zero-cotangent", measured=0.0, bound=0.0)


def linearity(trial: Trial) -> Property:
    """The gradient for a·v + b·w is a times that for v plus b times that for w."""
    problem, others = trial.problem, trial.draw()
    # Neither a power of two nor of one sign: a factor that is lost or squared shows.
    a, b = 1.37, -0.61

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        first, second = trial.usual(at, cotangents), problem.vjp(at, others)
        mixed = [a * v + b * w for v, w in zip(cotangents, others, strict=True)]
        expected: list[Array | None] = []
        for g, h in zip(first, second, strict=True):
            parts = [factor * part for factor, part in ((a, g), (b, h)) if part is not None]
            expected.append(sum(parts[1:], parts[0]) if parts else None)
        return TwoWays(problem.vjp(at, mixed), expected, (first, second))

    return trial.judge("linearity", f"for {a}·v {b}·w", attempt)


def absent_cotangent(trial: Trial) -> Property | None:
    """An output that takes no part in the loss is one whose cotangent is zero."""
    problem = trial.problem
    if len(problem.outputs) < 2 or not problem.adapter.omits:
        return None
    last: Property | None = None
    for chosen in range(min(len(problem.outputs), _MOST)):

        def attempt(at: Sequence[Array], cotangents: Sequence[Array], chosen: int = chosen) -> TwoWays:
            absent = [one if n == chosen else None for n, one in enumerate(cotangents)]
            zeros = [one if n == chosen else np.zeros_like(one) for n, one in enumerate(cotangents)]
            return TwoWays(problem.vjp(at, absent), problem.vjp(at, zeros), (trial.gradients,))

        last = trial.judge("absent-cotangent", f"with {problem.outputs[chosen].name} alone in the loss", attempt)
        if not last.verdict.holds:
            break
    return last


def laid_out_cotangent(trial: Trial, *, expanded: bool) -> Property | None:
    """A cotangent with gaps, or of one number over all elements (stride 0), as a sum has it, is an ordinary one."""
    problem = trial.problem
    name, what = "non-contiguous-cotangent", "cotangents that are not contiguous"
    layout = problem.adapter.strided
    if expanded:
        name, what, layout = "expanded-cotangent", "expanded cotangents (stride 0)", problem.adapter.expanded

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        with problem.adapter.scope():
            ran = problem.linearise(problem.natives(at, None))
            given = problem.native_cotangents(ran.outputs, cotangents)
            made = [layout(one) for one in given]
            if all(one is None for one in made):
                raise Unsupported("there is no other layout")
            odd = [plain if one is None else one for plain, one in zip(given, made, strict=True)]
            # Plain ones with the same numbers.
            plain = [problem.adapter.to_numpy(one) for one in odd]
            found = problem.arrays(problem.pull(ran, odd))
        same = all(np.array_equal(one, own) for one, own in zip(plain, cotangents, strict=True))
        return TwoWays(found, trial.usual(at, cotangents if same else plain), (trial.gradients,))

    return trial.judge(name, what, attempt)


def unmodified(trial: Trial, name: str, labels: Sequence[str], before: Sequence[Any], after: Sequence[Any]) -> Property:
    """Whether arrays are, bit for bit, what they were."""
    for label, old, new in zip(labels, before, after, strict=True):
        if not np.array_equal(old, new, equal_nan=True):
            change = describe_difference(label, new, old).partition(": ")[2]
            return trial.outcome(name, f"{label} was written to: {change}", largest_gap(new, old), 0.0)
    return trial.outcome(name, measured=0.0, bound=0.0)


def watched(trial: Trial) -> dict[str, Property]:
    """What one run shows, if all of its tensors are looked at before and after; its gradients are one more repetition."""
    if trial.watched:
        return trial.watched
    problem, adapter = trial.problem, trial.problem.adapter

    def form(tensor: Any) -> dict[str, object]:
        shape, dtype, device = adapter.shape_of(tensor), adapter.dtype_of(tensor), adapter.device_of(tensor)
        return {"shape": shape, "dtype": dtype, "device": device}

    with adapter.scope():
        inputs = problem.natives(problem.point, None)
        # Asked before the run, in which a function of jax may use its inputs up; and nothing can write to those.
        forms, held = [form(one) for one in inputs], [] if adapter.pure else [adapter.to_numpy(one) for one in inputs]
        ran = problem.linearise(inputs)
        trial.native_outputs = ran.outputs
        given = problem.native_cotangents(ran.outputs, trial.cotangents)
        before = [adapter.to_numpy(one) for one in given]
        found = problem.pull(ran, given)
        names = [slot.name for slot in problem.inputs], [slot.name for slot in problem.outputs]
        for name, labels, old, new in (
            ("inputs-unmodified", names[0][: len(held)], held, inputs[: len(held)]),
            ("cotangents-unmodified", names[1], before, given),
        ):
            trial.watched[name] = unmodified(trial, name, labels, old, [adapter.to_numpy(one) for one in new])
        failure = ""
        for slot, one, wanted in zip(problem.inputs, found, forms, strict=True):
            have = form(one) if one is not None and adapter.owns(one) else wanted
            what = next((what for what in have if have[what] != wanted[what]), None)
            if what and not failure:
                told = f"expected {what} {wanted[what]}, as the input has, found {have[what]}"
                failure = f"gradient of {slot.name}: {told}"
        trial.watched["gradient-form"] = trial.outcome("gradient-form", failure)
        trial.again.append(problem.arrays(found))
    return trial.watched


def finite(trial: Trial) -> Property | None:
    """Where the outputs are finite the gradient is no NaN; an infinite one may be right."""
    problem = trial.problem
    if all(one is None or np.isfinite(one).all() for one in trial.gradients):
        return trial.outcome("finite")
    if not all(np.isfinite(out).all() for out in trial.outputs):
        return None
    for slot, one in zip(problem.inputs, trial.gradients, strict=True):
        if one is not None and np.isnan(one).any():
            at = [int(n) for n in np.argwhere(np.isnan(one))[0]]
            failure = f"gradient of {slot.name}{at}: expected a number, as the outputs are finite, found NaN"
            return trial.outcome("finite", failure)
    detail = "a gradient is infinite where the outputs are finite"
    return Property(name="finite", verdict=GradVerdict.INCONCLUSIVE, detail=detail, dtype=problem.computes)


def non_contiguous(trial: Trial) -> Property | None:
    """Inputs that are not contiguous are the same inputs. A function may refuse them, but aloud."""
    problem = trial.problem
    # Random numbers are drawn in the order of memory, so that another layout gives other ones.
    if problem.call.random_on is not None:
        return None
    name, what = "non-contiguous", "for inputs that are not contiguous"

    def gapped(at: Sequence[Array]) -> list[Any]:
        plain = problem.natives(at, None)
        made = [problem.adapter.strided(one) for one in plain]
        return [one if gap is None else gap for one, gap in zip(plain, made, strict=True)]

    def outputs(at: Sequence[Array]) -> list[Array]:
        with problem.adapter.scope():
            return [problem.adapter.to_numpy(one) for one in problem.run(gapped(at), None)]

    with problem.adapter.scope():
        plain = problem.natives(problem.point, None)
        if all(problem.adapter.strided(one) is None for one in plain):
            return None
    try:
        first = outputs(problem.point)
    except Exception:  # noqa: BLE001 - a refusal is no wrong answer
        return None
    found = trial.judge_outputs(name, what, lambda at: first if at is problem.point else outputs(at))
    if not found.verdict.holds:
        with problem.adapter.scope():
            nodes = graph_nodes(problem.linearise(plain).graph)
        # What as_strided means is the strides of its input.
        return None if any(node.startswith("AsStrided") for node in nodes) else found

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        with problem.adapter.scope():
            gradients = problem.gradients(problem.linearise(gapped(at)), cotangents)
        return TwoWays(gradients, trial.usual(at, cotangents))

    return trial.judge(name, what, attempt, moving=True)


def subset(trial: Trial) -> Property | None:
    """The gradient of one input alone is the one computed along with the others'."""
    problem = trial.problem
    if problem.backward is not None or len(problem.inputs) < 2:
        return None

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        usual = trial.usual(at, cotangents)
        found = list(usual)
        for chosen in range(min(len(problem.inputs), _MOST)):
            wanted = [n == chosen for n in range(len(problem.inputs))]
            with problem.adapter.scope():
                ran = problem.linearise(problem.natives(at, None), wanted=wanted)
                alone = problem.pull(ran, problem.native_cotangents(ran.outputs, cotangents))
                found[chosen] = problem.arrays(alone, [problem.inputs[chosen]])[0]
        return TwoWays(found, usual)

    return trial.judge("subset", "asked for alone", attempt)


def forward_reverse(trial: Trial) -> Property | None:
    """⟨J·u, v⟩ by forward mode is ⟨u, Jᵀv⟩ by reverse mode."""
    problem = trial.problem
    along = [trial.normal(one.shape, is_complex=np.iscomplexobj(one)) for one in problem.point]
    try:
        left, right, size = _both_products(trial, problem.point, along, trial.cotangents)
    except Unsupported:
        return None
    if not np.isfinite([left, right]).all():
        return None
    gap = abs(left - right)
    trembles = (noise * float(np.sum(np.abs(u))) for noise, u in zip(trial.noise, along, strict=True))
    bound = MARGIN * trial.eps * size + 2.0 * sum(trembles)
    if gap > bound:
        # How much the difference of the products changes under changes that only round-off notices.
        moved = [0.0]
        with suppress(Exception):  # a point beside this one may be outside of the domain
            for _ in range(4):
                # The point moves too: what each mode keeps of it is rounded in its own way.
                at, beside = trial.nudged(problem.point, 2.0**-20), trial.nudged(trial.cotangents, 256 * trial.eps)
                one, two, _ = _both_products(trial, at, along, beside)
                moved += [abs(one - two - (left - right))] if np.isfinite(one - two) else []
        bound += 4.0 * max(moved)
    failure = f"expected the same from both modes, found ⟨J·u, v⟩ = {left:.9g} and ⟨u, Jᵀv⟩ = {right:.9g}"
    return trial.outcome("forward-reverse", failure if gap > bound else "", gap, bound, size)


def _both_products(
    trial: Trial, at: Sequence[Array], along: Sequence[Array], cotangents: Sequence[Array]
) -> tuple[float, float, float]:
    """Both products, and the size of their terms."""

    def terms(one: Array, other: Array) -> Array:
        return (np.conj(one) * other).real.reshape(-1)

    pushed = trial.problem.jvp(at, along)
    pulled = trial.usual(at, cotangents)
    forward = [terms(one, v) for one, v in zip(pushed, cotangents, strict=True)]
    reverse = [terms(u, g) for u, g in zip(along, pulled, strict=True) if g is not None]
    left, right = (float(sum(np.sum(one) for one in side)) for side in (forward, reverse))
    # What is far less than the outputs' last place is rounded by as much as they are: a softmax that is all but certain.
    rounded = [terms(out, v) / MARGIN for out, v in zip(trial.outputs, cotangents, strict=True)]
    return left, right, float(sum(np.sum(np.abs(one)) for one in (*forward, *reverse, *rounded)))


# The same function in another form: compiled, jitted or fused; a batch at once; as a registered custom op; in place.


def twin(trial: Trial, name: str, other: Callable[..., Any]) -> Property | None:
    """A twin gives the outputs and gradients of the function, up to round-off."""
    problem = trial.problem
    label, flat = f"twin {name}", problem.call.of(other).flat(problem.precision(None))

    def outputs(at: Sequence[Array]) -> list[Array]:
        with problem.adapter.scope():
            found = problem.adapter.forward(flat, problem.natives(at, None))
            return [problem.adapter.to_numpy(one) for one in found]

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        with problem.adapter.scope():
            gradients = problem.gradients(problem.linearise(problem.natives(at, None), flat=flat), cotangents)
        return TwoWays(gradients, trial.usual(at, cotangents), (trial.gradients,))

    found = trial.judge_outputs(label, "its outputs", outputs)
    if found.verdict is GradVerdict.PASS and problem.backward is None:
        found = trial.judge(label, "its gradients", attempt, moving=True)
    size = max((largest(one) for one in trial.gradients), default=0.0)
    if found.verdict is GradVerdict.PASS and found.bound is not None and found.bound > 0.1 * size > 0:
        hidden = f"rounding in {found.dtype} hides what the two may differ by"
        return msgspec.structs.replace(found, verdict=GradVerdict.INCONCLUSIVE, detail=hidden)
    return found


def batched(trial: Trial) -> Property | None:
    """The gradients of a batch at once (vmap) are those of one after the other."""
    problem = trial.problem
    if problem.call.random_on is not None or problem.backward is not None:
        return None
    # The same in every attempt: what differs between two is taken for round-off.
    others, away = trial.draw(), [1 + _ELSEWHERE * trial.signs(one) for one in problem.point]

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        points = [at, [one * factor for one, factor in zip(at, away, strict=True)]]
        given = (cotangents, others)
        with problem.adapter.scope():
            tensors = [problem.natives(one, None) for one in points]
            ran = problem.linearise(tensors[0])
            pairs = [problem.native_cotangents(ran.outputs, one) for one in given]
            found, together = problem.adapter.batched(problem.flat(None), tensors, pairs)
            gradients = [problem.arrays(one) for one in found]
        points = points if together else [at, at]
        loop = [problem.vjp(one, v) for one, v in zip(points, given, strict=True)]
        sides = [[_stacked(each) for each in zip(*side, strict=True)] for side in (gradients, loop)]
        return TwoWays(sides[0], sides[1])

    try:
        return trial.judge("batched", "for a batch at once", attempt)
    except Unsupported as error:
        why, dtype = error_line(error), problem.computes
        return Property(name="batched", verdict=GradVerdict.INCONCLUSIVE, detail=why, dtype=dtype)


def _stacked(runs: Sequence[Array | None]) -> Array | None:
    there = [one for one in runs if one is not None]
    return np.stack([np.zeros_like(there[0]) if one is None else one for one in runs]) if there else None


def opcheck(trial: Trial) -> Property | None:
    """What the framework itself checks of the custom ops that the function calls: torch.library.opcheck."""
    problem = trial.problem
    with problem.adapter.scope():
        found = problem.adapter.op_faults(problem.flat(None), problem.natives(problem.point, None))
    return None if found is None else trial.outcome("opcheck", "; ".join(found))


def in_place(trial: Trial, variant: Callable[..., Any]) -> Property | None:
    """The variant that writes to its input gives the same bits, outputs and gradients."""
    problem = trial.problem
    adapter, other = problem.adapter, problem.call.of(variant)

    def written(inputs: Any) -> tuple[Any, ...]:
        copies = [adapter.in_graph(one) for one in inputs]
        precision = problem.precision(None)
        args, kwargs = other.arguments(copies, precision)
        result = other.invoke(args, kwargs, precision)
        # numpy's habit: what is written in place is not returned.
        return other.differentiable(other.results(copies if result is None else result))

    with adapter.scope():
        outputs = adapter.forward(written, problem.natives(problem.point, None))
        found: list[Array | None] = [adapter.to_numpy(one) for one in outputs]
        expected: list[Array | None] = [*problem.forward(problem.point)]
        labels = [slot.name for slot in problem.outputs]
        if problem.backward is None:
            ran = problem.linearise(problem.natives(problem.point, None), flat=written)
            found += problem.gradients(ran, trial.cotangents)
            expected += trial.gradients
            labels += [f"gradient of {slot.name}" for slot in problem.inputs]
    for label, one, two in zip(labels, found, expected, strict=True):
        if one is not None and two is not None and one.shape != two.shape:
            return trial.outcome("in-place", f"{label}: expected shape {two.shape}, found {one.shape}")
        if gap := largest_gap(one, two):
            return trial.outcome("in-place", describe_difference(label, one, two, ""), gap, 0.0)
    return trial.outcome("in-place", measured=0.0, bound=0.0)
