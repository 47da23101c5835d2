"""Laws about form: cotangents, gradients and inputs in any memory layout, and forward mode against reverse mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from karat.gradients.adapters import Adapter, graph_nodes
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.laws.trial import MARGIN, Trial, TwoWays, describe_difference, largest_gap, needs_framework
from karat.gradients.problem import Array, Unsupported, error_line
from karat.gradients.report import GradVerdict, Property

_MOST = 4  # outputs, or inputs, that are tried one by one
# A tensor in another layout, and a plain one with the same numbers.
Layout = Callable[[Adapter, Any], tuple[Any, Any] | None]


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
    if len(problem.outputs) < 2 or (trial.native is not None and not trial.native.adapter.omits):
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


@needs_framework
def non_contiguous_cotangent(trial: Trial, native: FrameworkProblem) -> Property | None:
    """A cotangent that is not contiguous is the same cotangent."""

    def strided(adapter: Adapter, tensor: Any) -> tuple[Any, Any] | None:
        made = adapter.strided(tensor)
        return None if made is None else (made, tensor)

    return _laid_out(trial, native, "non-contiguous-cotangent", "cotangents that are not contiguous", strided)


@needs_framework
def expanded_cotangent(trial: Trial, native: FrameworkProblem) -> Property | None:
    """A cotangent of one number over all elements (stride 0), as a sum has it, is an ordinary one."""

    def expanded(adapter: Adapter, tensor: Any) -> tuple[Any, Any] | None:
        made = adapter.expanded(tensor)
        if made is None:
            return None
        return made, adapter.from_numpy(adapter.to_numpy(made), adapter.dtype_of(tensor), tensor)

    return _laid_out(trial, native, "expanded-cotangent", "expanded cotangents (stride 0)", expanded)


def _laid_out(trial: Trial, native: FrameworkProblem, name: str, what: str, layout: Layout) -> Property | None:
    with native.adapter.scope():
        outputs = native.run(native.natives(native.point, None), None)
        if all(layout(native.adapter, out) is None for out in outputs):
            return None

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        with native.adapter.scope():
            ran = native.linearise(native.natives(at, None))
            given = native.native_cotangents(ran, cotangents)
            pairs = [layout(native.adapter, one) or (one, one) for one in given]
            found = native.arrays(native.pull(ran, [odd for odd, _ in pairs]))
            again = native.linearise(native.natives(at, None))
            expected = native.arrays(native.pull(again, [plain for _, plain in pairs]))
        return TwoWays(found, expected, (trial.gradients,))

    try:
        return trial.judge(name, what, attempt)
    except Unsupported:
        return None
    except Exception as error:  # noqa: BLE001 - a backward may raise anything
        return trial.outcome(name, f"{what}: {error_line(error)}")


@needs_framework
def cotangents_unmodified(trial: Trial, native: FrameworkProblem) -> Property:
    """A backward does not write to its cotangent, which others may still need."""
    with native.adapter.scope():
        ran = native.linearise(native.natives(native.point, None))
        given = native.native_cotangents(ran, trial.cotangents)
        before = [native.adapter.to_numpy(one) for one in given]
        native.pull(ran, given)
        after = [native.adapter.to_numpy(one) for one in given]
    return unmodified(trial, "cotangents-unmodified", [slot.name for slot in native.outputs], before, after)


def unmodified(trial: Trial, name: str, labels: Sequence[str], before: Sequence[Any], after: Sequence[Any]) -> Property:
    """Whether arrays are, bit for bit, what they were."""
    for label, old, new in zip(labels, before, after, strict=True):
        if not np.array_equal(old, new, equal_nan=True):
            change = describe_difference(label, new, old).partition(": ")[2]
            return trial.outcome(name, f"{label} was written to: {change}", largest_gap(new, old), 0.0)
    return trial.outcome(name, measured=0.0, bound=0.0)


@needs_framework
def gradient_form(trial: Trial, native: FrameworkProblem) -> Property:
    """A gradient has the shape, the dtype and the device of its input."""
    adapter = native.adapter

    def form(tensor: Any) -> dict[str, object]:
        shape, dtype, device = adapter.shape_of(tensor), adapter.dtype_of(tensor), adapter.device_of(tensor)
        return {"shape": shape, "dtype": dtype, "device": device}

    with adapter.scope():
        inputs = native.natives(native.point, None)
        # Asked before the run, in which a function of jax may use its inputs up.
        forms = [form(one) for one in inputs]
        ran = native.linearise(inputs)
        found = native.pull(ran, native.native_cotangents(ran, trial.cotangents))
        for slot, one, wanted in zip(native.inputs, found, forms, strict=True):
            if one is None or not adapter.owns(one):
                continue
            for what, have in form(one).items():
                if have != wanted[what]:
                    failure = f"gradient of {slot.name}: expected {what} {wanted[what]}, as the input has, found {have}"
                    return trial.outcome("gradient-form", failure)
    return trial.outcome("gradient-form")


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


@needs_framework
def non_contiguous(trial: Trial, native: FrameworkProblem) -> Property | None:
    """Inputs that are not contiguous are the same inputs. A function may refuse them, but aloud."""
    # Random numbers are drawn in the order of memory, so that another layout gives other ones.
    if native.call.random_on is not None:
        return None
    name, what = "non-contiguous", "for inputs that are not contiguous"

    def gapped(at: Sequence[Array]) -> list[Any]:
        plain = native.natives(at, None)
        made = [native.adapter.strided(one) for one in plain]
        return [one if gap is None else gap for one, gap in zip(plain, made, strict=True)]

    def outputs(at: Sequence[Array]) -> list[Array]:
        with native.adapter.scope():
            return [native.adapter.to_numpy(one) for one in native.run(gapped(at), None)]

    with native.adapter.scope():
        plain = native.natives(native.point, None)
        if all(native.adapter.strided(one) is None for one in plain):
            return None
        try:
            native.run(gapped(native.point), None)
        except Exception:  # noqa: BLE001 - a refusal is no wrong answer
            return None
    found = trial.judge_outputs(name, what, outputs)
    if not found.verdict.holds:
        with native.adapter.scope():
            nodes = graph_nodes(native.linearise(plain).graph)
        # What as_strided means is the strides of its input.
        return None if any(node.startswith("AsStrided") for node in nodes) else found

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        with native.adapter.scope():
            gradients = native.gradients(native.linearise(gapped(at)), cotangents)
        return TwoWays(gradients, trial.usual(at, cotangents))

    try:
        return trial.judge(name, what, attempt, moving=True)
    except Exception as error:  # noqa: BLE001 - a backward may raise anything
        refused = "the forward takes inputs that are not contiguous, the backward does not"
        return trial.outcome(name, f"{refused}: {error_line(error)}")


@needs_framework
def subset(trial: Trial, native: FrameworkProblem) -> Property | None:
    """The gradient of one input alone is the one computed along with the others'."""
    if native.backward is not None or len(native.inputs) < 2:
        return None

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        usual = trial.usual(at, cotangents)
        found = list(usual)
        for chosen in range(min(len(native.inputs), _MOST)):
            wanted = [n == chosen for n in range(len(native.inputs))]
            with native.adapter.scope():
                ran = native.linearise(native.natives(at, None), wanted=wanted)
                alone = native.pull(ran, native.native_cotangents(ran, cotangents))
                found[chosen] = native.arrays(alone, [native.inputs[chosen]])[0]
        return TwoWays(found, usual)

    try:
        return trial.judge("subset", "asked for alone", attempt)
    except Unsupported:
        return None
    except Exception as error:  # noqa: BLE001 - a backward may raise anything
        raised = "the backward raised where one input alone wants a gradient, as with a frozen one"
        return trial.outcome("subset", f"{raised}: {error_line(error)}")


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
    bound = MARGIN * trial.eps * size + 2.0 * sum(
        noise * float(np.sum(np.abs(u))) for noise, u in zip(trial.noise, along, strict=True)
    )
    if gap > bound:
        # How much the difference of the products changes under changes that only round-off notices.
        moved = 0.0
        for _ in range(4):
            # The point moves too: what each mode keeps of it is rounded in its own way.
            at = trial.nudged(problem.point, 2.0**-20)
            beside = trial.nudged(trial.cotangents, 256 * trial.eps)
            try:
                one, two, _ = _both_products(trial, at, along, beside)
            except Exception:  # noqa: BLE001 - a point beside this one may be outside of the domain
                break
            if np.isfinite(one - two):
                moved = max(moved, abs(one - two - (left - right)))
        bound += 4.0 * moved
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
