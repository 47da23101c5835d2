"""Laws about state: a backward depends on its own forward and on nothing else, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from karat.gradients.adapters.calls import BoundCall
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.laws.form import unmodified
from karat.gradients.laws.trial import Trial, TwoWays, describe_difference, largest, largest_gap, needs_framework
from karat.gradients.problem import Array, Gradients, TensorSlot, Unsupported
from karat.gradients.report import GradVerdict, Property
from karat.gradients.roundoff import eps_of

_ANY_ORDER = 8.0  # units in the last place that each term of a sum may be off when it is added up in another order
_ELSEWHERE = 2.0**-7  # how far away, relatively, the second forward of an interleaved pair runs


def deterministic_backward(trial: Trial) -> Property:
    """The same backward gives the same gradient, up to the stated bound and the order of additions."""
    return _deterministic(trial, "deterministic-backward", trial.problem.inputs, trial.gradients, trial.repeated)


def deterministic_forward(trial: Trial) -> Property:
    """The same inputs give the same outputs, up to the same."""
    problem = trial.problem
    again = [problem.forward(problem.point) for _ in range(trial.runs - 1)]
    return _deterministic(trial, "deterministic-forward", problem.outputs, trial.outputs, again)


def _deterministic(
    trial: Trial, name: str, slots: Sequence[TensorSlot], first: Gradients, others: Sequence[Gradients]
) -> Property:
    """What repetition changes at most, relative to the largest element; a sum in any order is a fact, and no fault."""
    measured, where, of = 0.0, "", "gradient of " if name.endswith("backward") else ""
    for run in others:
        for slot, one, usual in zip(slots, run, first, strict=True):
            relative = largest_gap(one, usual) / (largest(usual) or 1.0)
            if relative > measured:
                measured, where = relative, describe_difference(slot.name, one, usual, of)
    # A function that trembles may look as if it computed in bfloat16; so only those that say so are taken for it.
    said = max(eps_of("float32"), *(eps_of(slot.dtype) for slot in (*trial.problem.inputs, *trial.problem.outputs)))
    explained = _ANY_ORDER * trial.another_order * min(1.0, said / trial.eps)
    bound = trial.allowed if trial.strict else max(trial.allowed, explained)
    found = f"{trial.runs} runs differ by {measured:.2g}, relative to the largest element: {where}"
    if measured > bound:
        by_design = f"if that is by design, say nondeterminism_bound={2 * measured:.1g}"
        return trial.outcome(name, f"{found}; {by_design}", measured, trial.allowed)
    told = f"{found}; additions in another order explain that" if measured > trial.allowed else ""
    return msgspec.structs.replace(trial.outcome(name, "", measured, trial.allowed), detail=told)


@needs_framework
def inputs_unmodified(trial: Trial, native: FrameworkProblem) -> Property | None:
    """Neither forward nor backward writes to the inputs."""
    if native.adapter.pure:  # nothing can write to them
        return None
    labels = [slot.name for slot in native.inputs]
    with native.adapter.scope():
        inputs = native.natives(native.point, None)
        before = [native.adapter.to_numpy(one) for one in inputs]
        native.run(inputs, None)
        after = [native.adapter.to_numpy(one) for one in inputs]
        found = unmodified(trial, "inputs-unmodified", labels, before, after)
        if found.verdict is not GradVerdict.PASS:
            return found
        ran = native.linearise(inputs)
        native.pull(ran, native.native_cotangents(ran, trial.cotangents))
        after = [native.adapter.to_numpy(one) for one in inputs]
    return unmodified(trial, "inputs-unmodified", labels, before, after)


@needs_framework
def interleaving(trial: Trial, native: FrameworkProblem) -> Property | None:
    """A forward elsewhere, between a forward and its backward, does not matter."""
    moved = [one + _ELSEWHERE * trial.signs(one) * np.where(one == 0, 1.0, np.abs(one)) for one in native.point]
    with native.adapter.scope():
        try:
            native.linearise(native.natives(moved, None))
        except Exception:  # noqa: BLE001 - the point elsewhere may be outside of the domain
            return None

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> TwoWays:
        with native.adapter.scope():
            ran = native.linearise(native.natives(at, None))
            native.linearise(native.natives(moved, None))
            found = native.gradients(ran, cotangents)
        return TwoWays(found, trial.usual(at, cotangents))

    return trial.judge("interleaving", "after a forward at another point", attempt)


@needs_framework
def accumulation(trial: Trial, native: FrameworkProblem) -> Property | None:
    """A backward adds its gradient, once, to what was there."""
    if native.backward is not None or any(one is None for one in trial.gradients):
        return None
    adapter = native.adapter
    held = [
        trial.normal(slot.shape, is_complex=slot.complex) * (largest(one) or 1.0)
        for slot, one in zip(native.inputs, trial.gradients, strict=True)
    ]
    law: Property | None = None
    for times, word in ((1, "one backward"), (2, "two backwards")):

        def attempt(at: Sequence[Array], cotangents: Sequence[Array], times: int = times) -> TwoWays:
            once = trial.usual(at, cotangents)
            expected = [before if one is None else before + times * one for before, one in zip(held, once, strict=True)]
            with adapter.scope():
                inputs = native.natives(at, None)
                outputs = native.run(inputs, None)
                sides = zip(cotangents, outputs, strict=True)
                given = [adapter.from_numpy(one, adapter.dtype_of(out), out) for one, out in sides]
                native.forwards += times
                native.backwards += times
                before = native.natives(held, None)
                found = adapter.accumulate(native.flat(None), inputs, given, before, times)
                return TwoWays(native.arrays(found), expected, (held, once))

        law = trial.judge("accumulation", f"{word} onto a gradient that was there", attempt)
        if not law.verdict.holds:
            break
    return law


def in_place(trial: Trial, variant: Callable[..., Any]) -> Property | None:
    """The variant that writes to its input gives the same bits, outputs and gradients."""
    native = trial.native
    if native is None:
        return None
    adapter, call = native.adapter, native.call
    other = BoundCall(variant, call.form, call.leaves, call.chosen, adapter)
    other.outputs, other.random_on = call.outputs, call.random_on

    def written(inputs: Any) -> tuple[Any, ...]:
        copies = [adapter.in_graph(one) for one in inputs]
        precision = native.precision(None)
        args, kwargs = other.arguments(copies, precision)
        result = other.invoke(args, kwargs, precision)
        # numpy's habit: what is written in place is not returned.
        return other.differentiable(other.results(copies if result is None else result))

    with adapter.scope():
        inputs = native.natives(native.point, None)
        try:
            outputs = adapter.forward(written, inputs)
        except Unsupported:
            return None
        usual = native.run(native.natives(native.point, None), None)
        found: list[Array | None] = [adapter.to_numpy(one) for one in outputs]
        expected: list[Array | None] = [adapter.to_numpy(one) for one in usual]
        labels = [slot.name for slot in native.outputs]
        if native.backward is None:
            ran = native.linearise(native.natives(native.point, None), flat=written)
            found += native.gradients(ran, trial.cotangents)
            expected += trial.gradients
            labels += [f"gradient of {slot.name}" for slot in native.inputs]
    for label, have, want in zip(labels, found, expected, strict=True):
        one = np.zeros_like(want) if have is None and want is not None else have
        two = np.zeros_like(one) if want is None and one is not None else want
        if one is None or two is None:
            continue
        if one.shape != two.shape:
            failure = f"{label}: expected shape {two.shape}, found {one.shape}"
            return trial.outcome("in-place", f"the in-place variant differs: {failure}", None, 0.0)
        if not np.array_equal(one, two, equal_nan=True):
            failure = f"the in-place variant differs: {describe_difference(label, one, two, '')}"
            return trial.outcome("in-place", failure, largest_gap(one, two), 0.0)
    return trial.outcome("in-place", measured=0.0, bound=0.0)
