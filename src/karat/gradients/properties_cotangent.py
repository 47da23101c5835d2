"""Laws about cotangents: a backward is linear in them, whatever memory they lie in, and leaves them alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from karat.gradients.adapter import Adapter
from karat.gradients.problem import Unsupported
from karat.gradients.properties_trial import Compared, Trial, apart, where
from karat.gradients.report import GradVerdict, Property
from karat.gradients.wording import said

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
