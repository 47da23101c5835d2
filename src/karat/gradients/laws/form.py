"""Laws about cotangents: a backward is linear in them, whatever memory they lie in, and leaves them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from karat.gradients.adapters import Adapter
from karat.gradients.adapters.framework_problem import OpenedProblem
from karat.gradients.laws.trial import MARGIN, Compared, Trial, apart, where
from karat.gradients.problem import Unsupported, said
from karat.gradients.report import GradVerdict, Property

if TYPE_CHECKING:
    from karat.gradients.problem import Array

_MOST_OUTPUTS = 4
Lay = Callable[[Adapter, Any], tuple[Any, Any] | None]
"""A tensor in another layout, and a plain one with the same numbers."""


def zero_cotangent(trial: Trial) -> Property:
    """A zero cotangent gives a zero gradient, not NaN."""
    problem = trial.problem
    zeros = [np.zeros_like(one) for one in trial.cotangents]
    for slot, found, usual in zip(
        problem.inputs, problem.vjp(problem.point, zeros), trial.gradients, strict=True
    ):
        if found is None:
            continue
        # Where the derivative itself is infinite, zero times it is nobody's mistake.
        looked = found if usual is None else np.where(np.isfinite(usual), found, 0.0)
        if np.any(looked != 0):
            told = where(slot.name, looked, np.zeros_like(looked))
            return trial.property(
                "zero-cotangent",
                GradVerdict.FAIL,
                f"the cotangent is zero: {told}",
                apart(looked, np.zeros_like(looked)),
                0.0,
            )
    return trial.property("zero-cotangent", GradVerdict.PASS, measured=0.0, bound=0.0)


def linearity(trial: Trial) -> Property:
    """The gradient for a·v + b·w is a times that for v plus b times that for w."""
    problem, others = trial.problem, trial.draw()
    # Neither a power of two nor of one sign: a factor that is lost or squared shows.
    a, b = 1.37, -0.61

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> Compared:
        first, second = trial.usual(at, cotangents), problem.vjp(at, others)
        mixed = [a * v + b * w for v, w in zip(cotangents, others, strict=True)]
        expected = [_sum(a, g, b, h) for g, h in zip(first, second, strict=True)]
        return Compared(problem.vjp(at, mixed), expected, (first, second))

    return trial.judge("linearity", f"for {a}·v {b}·w", attempt)


def _sum(a: float, one: Array | None, b: float, other: Array | None) -> Array | None:
    parts = [factor * part for factor, part in ((a, one), (b, other)) if part is not None]
    return np.asarray(sum(parts)) if parts else None


def absent_cotangent(trial: Trial) -> Property | None:
    """An output that takes no part in the loss is one whose cotangent is zero."""
    problem = trial.problem
    if len(problem.outputs) < 2:
        return None
    last: Property | None = None
    for chosen in range(min(len(problem.outputs), _MOST_OUTPUTS)):

        def attempt(
            at: Sequence[Array], cotangents: Sequence[Array], chosen: int = chosen
        ) -> Compared:
            absent = [one if n == chosen else None for n, one in enumerate(cotangents)]
            zeros = [one if n == chosen else np.zeros_like(one) for n, one in enumerate(cotangents)]
            return Compared(problem.vjp(at, absent), problem.vjp(at, zeros), (trial.gradients,))

        last = trial.judge(
            "absent-cotangent", f"with {problem.outputs[chosen].name} alone in the loss", attempt
        )
        if last.verdict is not GradVerdict.PASS:
            break
    return last


def non_contiguous_cotangent(trial: Trial) -> Property | None:
    """A cotangent that is not contiguous is the same cotangent."""
    return _laid_out(
        trial, "non-contiguous-cotangent", "cotangents that are not contiguous", _strided
    )


def expanded_cotangent(trial: Trial) -> Property | None:
    """A cotangent of one number over all elements (stride 0), as a sum has it, is an ordinary one."""
    return _laid_out(trial, "expanded-cotangent", "expanded cotangents (stride 0)", _expanded)


def _strided(adapter: Adapter, tensor: Any) -> tuple[Any, Any] | None:
    made = adapter.strided(tensor)
    return None if made is None else (made, tensor)


def _expanded(adapter: Adapter, tensor: Any) -> tuple[Any, Any] | None:
    made = adapter.expanded(tensor)
    if made is None:
        return None
    return made, adapter.from_numpy(adapter.to_numpy(made), adapter.dtype_of(tensor), tensor)


def _laid_out(trial: Trial, name: str, what: str, lay: Lay) -> Property | None:
    native = trial.native
    if native is None:
        return None
    with native.adapter.scope():
        like = native.run(native.natives(native.point, None), None)
        if all(lay(native.adapter, out) is None for out in like):
            return None

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> Compared:
        with native.adapter.scope():
            ran = native.linearise(native.natives(at, None))
            given = native.native_cotangents(ran, cotangents)
            pairs = [lay(native.adapter, one) or (one, one) for one in given]
            found = native.arrays(native.pull(ran, [odd for odd, _ in pairs]))
            again = native.linearise(native.natives(at, None))
            expected = native.arrays(native.pull(again, [plain for _, plain in pairs]))
        return Compared(found, expected, (trial.gradients,))

    try:
        return trial.judge(name, what, attempt)
    except Unsupported:
        return None
    except Exception as error:  # noqa: BLE001 - a backward may raise anything
        return trial.property(name, GradVerdict.FAIL, f"{what}: {said(error)}")


def cotangents_unmodified(trial: Trial) -> Property | None:
    """A backward does not write to its cotangent, which others may still need."""
    native = trial.native
    if native is None:
        return None
    with native.adapter.scope():
        ran = native.linearise(native.natives(native.point, None))
        given = native.native_cotangents(ran, trial.cotangents)
        before = [native.adapter.to_numpy(one) for one in given]
        native.pull(ran, given)
        after = [native.adapter.to_numpy(one) for one in given]
    return unmodified(
        trial, "cotangents-unmodified", [slot.name for slot in native.outputs], before, after
    )


def unmodified(
    trial: Trial,
    name: str,
    labels: Sequence[str],
    before: Sequence[Any],
    after: Sequence[Any],
) -> Property:
    """Whether arrays are, bit for bit, what they were."""
    for label, old, new in zip(labels, before, after, strict=True):
        if not np.array_equal(old, new, equal_nan=True):
            return trial.property(
                name,
                GradVerdict.FAIL,
                f"{label} was written to: {where(label, new, old).partition(': ')[2]}",
                apart(new, old),
                0.0,
            )
    return trial.property(name, GradVerdict.PASS, measured=0.0, bound=0.0)


# DOC-HERE properties_form: Laws about form: what gradients look like, memory layouts of inputs, and forward mode against reverse mode.

_MOST_INPUTS = 4


def gradient_form(trial: Trial) -> Property | None:
    """A gradient has the shape, the dtype and the place of its input."""
    native = trial.native
    if native is None:
        return None
    adapter = native.adapter
    with adapter.scope():
        inputs = native.natives(native.point, None)
        # Asked before the run, in which a function of jax may use its inputs up.
        forms = [_form(adapter, one) for one in inputs]
        ran = native.linearise(inputs)
        found = native.pull(ran, native.native_cotangents(ran, trial.cotangents))
        for slot, one, form in zip(native.inputs, found, forms, strict=True):
            if one is None or not adapter.owns(one):
                continue
            for (what, have), (_, want) in zip(_form(adapter, one), form, strict=True):
                if have != want:
                    return trial.property(
                        "gradient-form",
                        GradVerdict.FAIL,
                        f"gradient of {slot.name}: expected {what} {want}, as the input has, found {have}",
                    )
    return trial.property("gradient-form", GradVerdict.PASS)


def _form(adapter: Adapter, tensor: Any) -> list[tuple[str, object]]:
    return [
        ("shape", adapter.shape_of(tensor)),
        ("dtype", adapter.dtype_of(tensor)),
        ("device", adapter.device_of(tensor)),
    ]


def finite(trial: Trial) -> Property | None:
    """Where the outputs are finite the gradient is no NaN; an infinite one may be right."""
    problem = trial.problem
    if all(one is None or np.isfinite(one).all() for one in trial.gradients):
        return trial.property("finite", GradVerdict.PASS)
    if not all(np.isfinite(out).all() for out in problem.forward(problem.point)):
        return None
    for slot, one in zip(problem.inputs, trial.gradients, strict=True):
        if one is not None and np.isnan(one).any():
            at = tuple(int(n) for n in np.argwhere(np.isnan(one))[0])
            return trial.property(
                "finite",
                GradVerdict.FAIL,
                f"gradient of {slot.name}{list(at)}: expected a number, as the outputs are finite, found NaN",
            )
    return trial.property(
        "finite", GradVerdict.INCONCLUSIVE, "a gradient is infinite where the outputs are finite"
    )


def non_contiguous(trial: Trial) -> Property | None:
    """Inputs that are not contiguous are the same inputs. A function may refuse them, but aloud."""
    native = trial.native
    # Random numbers are drawn in the order of memory, so that another layout gives other ones.
    if native is None or native.call.random_on is not None:
        return None
    with native.adapter.scope():
        plain = native.natives(native.point, None)
        if all(native.adapter.strided(one) is None for one in plain):
            return None
        try:
            native.run(_gapped(native, native.point), None)
        except Exception:  # noqa: BLE001 - a refusal is no wrong answer
            return None
    outputs = trial.judge_outputs(
        "non-contiguous",
        "for inputs that are not contiguous",
        lambda at: _gapped_outputs(native, at),
    )
    if outputs.verdict is not GradVerdict.PASS:
        return outputs

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> Compared:
        with native.adapter.scope():
            ran = native.linearise(_gapped(native, at))
            found = native.arrays(native.pull(ran, native.native_cotangents(ran, cotangents)))
        return Compared(found, trial.usual(at, cotangents))

    try:
        return trial.judge(
            "non-contiguous", "for inputs that are not contiguous", attempt, moving=True
        )
    except Exception as error:  # noqa: BLE001 - a backward may raise anything
        return trial.property(
            "non-contiguous",
            GradVerdict.FAIL,
            f"the forward takes inputs that are not contiguous, the backward does not: {said(error)}",
        )


def _gapped(native: OpenedProblem, at: Sequence[Array]) -> list[Any]:
    plain = native.natives(at, None)
    gapped = [native.adapter.strided(one) for one in plain]
    return [one if gap is None else gap for one, gap in zip(plain, gapped, strict=True)]


def _gapped_outputs(native: OpenedProblem, at: Sequence[Array]) -> list[Array]:
    with native.adapter.scope():
        return [native.adapter.to_numpy(one) for one in native.run(_gapped(native, at), None)]


def subset(trial: Trial) -> Property | None:
    """The gradient of one input alone is the one computed along with the others'."""
    native = trial.native
    if native is None or native.backward is not None or len(native.inputs) < 2:
        return None

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> Compared:
        usual = trial.usual(at, cotangents)
        found = list(usual)
        for chosen in range(min(len(native.inputs), _MOST_INPUTS)):
            found[chosen] = _alone(native, chosen, at, cotangents)
        return Compared(found, usual)

    try:
        return trial.judge("subset", "asked for alone", attempt)
    except Unsupported:
        return None
    except Exception as error:  # noqa: BLE001 - a backward may raise anything
        told = f"the backward raised where one input alone wants a gradient, as with a frozen one: {said(error)}"
        return trial.property("subset", GradVerdict.FAIL, told)


def _alone(
    native: OpenedProblem, chosen: int, at: Sequence[Array], cotangents: Sequence[Array]
) -> Array | None:
    wanted = [n == chosen for n in range(len(native.inputs))]
    with native.adapter.scope():
        ran = native.linearise(native.natives(at, None), wanted=wanted)
        alone = native.pull(ran, native.native_cotangents(ran, cotangents))
        return native.arrays(alone, [native.inputs[chosen]])[0]


def forward_reverse(trial: Trial) -> Property | None:
    """⟨J·u, v⟩ by forward mode is ⟨u, Jᵀv⟩ by reverse mode."""
    problem = trial.problem
    along = [trial.normal(one.shape, is_complex=np.iscomplexobj(one)) for one in problem.point]
    try:
        left, right, size = _both(trial, problem.point, along, trial.cotangents)
    except Unsupported:
        return None
    if not np.isfinite([left, right]).all():
        return None
    bound = MARGIN * trial.eps * size + 2.0 * sum(
        noise * float(np.sum(np.abs(u))) for noise, u in zip(trial.noise, along, strict=True)
    )
    if abs(left - right) > bound:
        bound += 4.0 * _dots_moved_by(trial, along, left - right)
    failed = abs(left - right) > bound
    return trial.property(
        "forward-reverse",
        GradVerdict.FAIL if failed else GradVerdict.PASS,
        f"expected the same from both modes, found ⟨J·u, v⟩ = {left:.9g} and ⟨u, Jᵀv⟩ = {right:.9g}"
        if failed
        else "",
        abs(left - right),
        bound,
    )


def _both(
    trial: Trial, at: Sequence[Array], along: Sequence[Array], cotangents: Sequence[Array]
) -> tuple[float, float, float]:
    """Both products, and the size of their terms."""
    pushed = trial.problem.jvp(at, along)
    pulled = trial.usual(at, cotangents)
    forward = [_products(one, v) for one, v in zip(pushed, cotangents, strict=True)]
    reverse = [_products(u, g) for u, g in zip(along, pulled, strict=True) if g is not None]
    left, right = (float(sum(np.sum(one) for one in side)) for side in (forward, reverse))
    return left, right, float(sum(np.sum(np.abs(one)) for one in (*forward, *reverse)))


def _dots_moved_by(trial: Trial, along: Sequence[Array], first: float) -> float:
    """How much the difference of the products changes under changes that only round-off notices."""
    found = 0.0
    for _ in range(4):
        # The point moves too: what each mode keeps of it is rounded in its own way.
        at = trial.nudged(trial.problem.point, 2.0**-20)
        beside = trial.nudged(trial.cotangents, 256 * trial.eps)
        try:
            left, right, _ = _both(trial, at, along, beside)
        except Exception:  # noqa: BLE001 - a point beside this one may be outside of the domain
            break
        if np.isfinite(left - right):
            found = max(found, abs(left - right - first))
    return found


def _products(one: Array, other: Array) -> Array:
    """The terms of Re⟨one, other⟩."""
    return np.asarray((np.conj(one) * other).real, np.float64).reshape(-1)
