"""Laws about the same function in another form: compiled, jitted or fused; a batch at once; as a registered custom op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from karat.gradients.adapters.calls import BoundCall
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.laws.trial import Trial, TwoWays, largest, needs_framework
from karat.gradients.problem import Array, Unsupported, error_line
from karat.gradients.report import GradVerdict, Property

_ELSEWHERE = 2.0**-7  # how far away, relatively, the second point of a batch is


def twin(trial: Trial, name: str, other: Callable[..., Any]) -> Property | None:
    """A twin gives the outputs and gradients of the function, up to round-off."""
    native = trial.native
    if native is None:
        return None
    call, label = native.call, f"twin {name}"
    bound = BoundCall(other, call.form, call.leaves, call.chosen, native.adapter)
    bound.outputs, bound.random_on = call.outputs, call.random_on
    flat = bound.flat(native.precision(None))

    def outputs(at: Sequence[Array]) -> list[Array]:
        with native.adapter.scope():
            found = native.adapter.forward(flat, native.natives(at, None))
            return [native.adapter.to_numpy(one) for one in found]

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        with native.adapter.scope():
            gradients = native.gradients(native.linearise(native.natives(at, None), flat=flat), cotangents)
        return TwoWays(gradients, trial.usual(at, cotangents), (trial.gradients,))

    try:
        found = trial.judge_outputs(label, "its outputs", outputs)
        if found.verdict is GradVerdict.PASS and native.backward is None:
            found = trial.judge(label, "its gradients", attempt, moving=True)
    except Exception as error:  # noqa: BLE001 - a compiler may raise anything
        return trial.outcome(label, f"where the function does not, it raises {error_line(error)}")
    size = max((largest(one) for one in trial.gradients), default=0.0)
    if found.verdict is GradVerdict.PASS and found.bound is not None and found.bound > 0.1 * size > 0:
        hidden = f"rounding in {found.dtype} hides what the two may differ by"
        return msgspec.structs.replace(found, verdict=GradVerdict.INCONCLUSIVE, detail=hidden)
    return found


@needs_framework
def batched(trial: Trial, native: FrameworkProblem) -> Property | None:
    """The gradients of a batch at once (vmap) are those of one after the other."""
    if native.call.random_on is not None or native.backward is not None:
        return None
    # The same in every attempt: what differs between two is taken for round-off.
    others, away = trial.draw(), [1 + _ELSEWHERE * trial.signs(one) for one in trial.problem.point]

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        points = [at, [one * factor for one, factor in zip(at, away, strict=True)]]
        given = (cotangents, others)
        with native.adapter.scope():
            tensors = [native.natives(one, None) for one in points]
            ran = native.linearise(tensors[0])
            pairs = [native.native_cotangents(ran, one) for one in given]
            found, together = native.adapter.batched(native.flat(None), tensors, pairs)
            gradients = [native.arrays(one) for one in found]
        points = points if together else [at, at]
        loop = [trial.problem.vjp(one, v) for one, v in zip(points, given, strict=True)]
        sides = [[_stacked(each) for each in zip(*side, strict=True)] for side in (gradients, loop)]
        return TwoWays(sides[0], sides[1])

    try:
        return trial.judge("batched", "for a batch at once", attempt)
    except Unsupported as error:
        why, dtype = error_line(error), trial.problem.computes
        return Property(name="batched", verdict=GradVerdict.INCONCLUSIVE, detail=why, dtype=dtype)


def _stacked(runs: Sequence[Array | None]) -> Array | None:
    there = [one for one in runs if one is not None]
    return np.stack([np.zeros_like(there[0]) if one is None else one for one in runs]) if there else None


@needs_framework
def opcheck(trial: Trial, native: FrameworkProblem) -> Property | None:
    """What the framework itself checks of the custom ops that the function calls: torch.library.opcheck."""
    with native.adapter.scope():
        found = native.adapter.op_faults(native.flat(None), native.natives(native.point, None))
    return None if found is None else trial.outcome("opcheck", "; ".join(found))
