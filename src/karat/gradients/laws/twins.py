"""Laws about the same function in another form: in place, compiled, jitted or fused; a batch at once; as a registered custom op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from karat.gradients.laws.trial import Trial, TwoWays, describe_difference, largest, largest_gap
from karat.gradients.problem import Array, Unsupported, error_line
from karat.gradients.report import GradVerdict, Property

_ELSEWHERE = 2.0**-7  # how far away, relatively, the second point of a batch is


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
