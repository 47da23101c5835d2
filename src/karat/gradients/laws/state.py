"""Laws about state: a backward depends on its own forward and on nothing else, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from karat.gradients.adapters.calls import Call
from karat.gradients.adapters.framework_problem import OpenedProblem
from karat.gradients.laws.form import unmodified
from karat.gradients.laws.trial import Compared, Trial, apart, size_of, where
from karat.gradients.problem import Unsupported
from karat.gradients.report import GradVerdict, Property

if TYPE_CHECKING:
    from karat.gradients.problem import Array

_ELSEWHERE = 2.0**-7
"""How far away, relatively, the second forward of an interleaved pair runs."""


def deterministic_backward(trial: Trial) -> Property:
    """The same backward gives the same gradient, up to the stated bound, relative to its largest element."""
    first = trial.gradients
    measured, told = 0.0, ""
    for run in trial.repeated:
        for slot, one, usual in zip(trial.problem.inputs, run, first, strict=True):
            off = apart(one, usual)
            relative = off / (size_of(usual) or 1.0)
            if relative > measured:
                measured, told = relative, where(slot.name, one, usual)
    if measured <= trial.allowed:
        return trial.property(
            "deterministic-backward", GradVerdict.PASS, measured=measured, bound=trial.allowed
        )
    return trial.property(
        "deterministic-backward",
        GradVerdict.FAIL,
        f"{trial.runs} runs differ by {measured:.2g}, relative to the largest element: {told};"
        f" if that is by design, say nondeterminism_bound={2 * measured:.1g}",
        measured,
        trial.allowed,
    )


def deterministic_forward(trial: Trial) -> Property:
    """The same inputs give the same outputs, up to the stated bound."""
    problem = trial.problem
    first = problem.forward(problem.point)
    measured, told = 0.0, ""
    for _ in range(trial.runs - 1):
        for slot, one, usual in zip(
            problem.outputs, problem.forward(problem.point), first, strict=True
        ):
            relative = apart(one, usual) / (size_of(usual) or 1.0)
            if relative > measured:
                measured, told = relative, where(slot.name, one, usual).removeprefix("gradient of ")
    failed = measured > trial.allowed
    return trial.property(
        "deterministic-forward",
        GradVerdict.FAIL if failed else GradVerdict.PASS,
        f"{trial.runs} runs differ by {measured:.2g}, relatively: {told}" if failed else "",
        measured,
        trial.allowed,
    )


def inputs_unmodified(trial: Trial) -> Property | None:
    """Neither forward nor backward writes to the inputs."""
    native = trial.native
    if native is None or native.adapter.pure:  # there nobody can
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


def interleaving(trial: Trial) -> Property | None:
    """A forward elsewhere, between a forward and its backward, does not matter."""
    native = trial.native
    if native is None:
        return None
    moved = [
        one + _ELSEWHERE * trial.signs(one) * np.where(one == 0, 1.0, np.abs(one))
        for one in native.point
    ]
    with native.adapter.scope():
        try:
            native.linearise(native.natives(moved, None))
        except Exception:  # noqa: BLE001 - the point elsewhere may be outside of the domain
            return None

    def attempt(at: Sequence[Array], cotangents: Sequence[Array]) -> Compared:
        with native.adapter.scope():
            ran = native.linearise(native.natives(at, None))
            native.linearise(native.natives(moved, None))
            found = native.arrays(native.pull(ran, native.native_cotangents(ran, cotangents)))
        return Compared(found, trial.usual(at, cotangents))

    return trial.judge("interleaving", "after a forward at another point", attempt)


def accumulation(trial: Trial) -> Property | None:
    """A backward adds its gradient, once, to what was there."""
    native = trial.native
    if native is None or native.backward is not None or any(one is None for one in trial.gradients):
        return None
    held = [
        trial.normal(slot.shape, is_complex=slot.complex) * (size_of(one) or 1.0)
        for slot, one in zip(native.inputs, trial.gradients, strict=True)
    ]
    law: Property | None = None
    for times, word in ((1, "one backward"), (2, "two backwards")):

        def attempt(
            at: Sequence[Array], cotangents: Sequence[Array], times: int = times
        ) -> Compared:
            once = trial.usual(at, cotangents)
            expected = [
                before if one is None else before + times * one
                for before, one in zip(held, once, strict=True)
            ]
            return Compared(
                _accumulated(native, at, cotangents, held, times), expected, (held, once)
            )

        law = trial.judge("accumulation", f"{word} onto a gradient that was there", attempt)
        if law.verdict is not GradVerdict.PASS:
            break
    return law


def _accumulated(
    native: OpenedProblem,
    at: Sequence[Array],
    cotangents: Sequence[Array],
    held: Sequence[Array],
    times: int,
) -> tuple[Array | None, ...]:
    adapter = native.adapter
    with adapter.scope():
        inputs = native.natives(at, None)
        like = native.run(inputs, None)
        given = [
            adapter.from_numpy(one, adapter.dtype_of(out), out)
            for one, out in zip(cotangents, like, strict=True)
        ]
        native.forwards += times
        native.backwards += times
        before = native.natives(held, None)
        return native.arrays(adapter.accumulate(native.flat(None), inputs, given, before, times))


def in_place(trial: Trial, variant: Callable[..., Any]) -> Property | None:
    """The variant that writes to its input gives the same bits, outputs and gradients."""
    native = trial.native
    if native is None:
        return None
    adapter, call = native.adapter, native.call
    other = Call(variant, call.form, call.leaves, call.chosen, adapter)
    other.outputs, other.random_on = call.outputs, call.random_on

    def written(inputs: Any) -> tuple[Any, ...]:
        copies = [adapter.in_graph(one) for one in inputs]
        precision = native.precision(None)
        args, kwargs = other.arguments(copies, precision)
        result = other.invoke(args, kwargs, precision)
        # numpy's habit: what is written in place is not returned.
        found = other.results(copies if result is None else result)
        return other.differentiable(found)

    with adapter.scope():
        inputs = native.natives(native.point, None)
        try:
            outputs = adapter.forward(written, inputs)
        except Unsupported:
            return None
        usual = native.run(native.natives(native.point, None), None)
        found = [adapter.to_numpy(one) for one in outputs]
        expected = [adapter.to_numpy(one) for one in usual]
        labels = [slot.name for slot in native.outputs]
        if native.backward is None:
            ran = native.linearise(native.natives(native.point, None), flat=written)
            given = native.native_cotangents(ran, trial.cotangents)
            gradients = native.arrays(native.pull(ran, given))
            found += _zeroed(gradients, native.point)
            expected += _zeroed(trial.gradients, native.point)
            labels += [f"gradient of {slot.name}" for slot in native.inputs]
    return _bitwise(trial, labels, found, expected)


def _zeroed(gradients: Any, point: Any) -> list[Any]:
    return [
        np.zeros_like(at) if one is None else one for one, at in zip(gradients, point, strict=True)
    ]


def _bitwise(trial: Trial, labels: list[str], found: list[Any], expected: list[Any]) -> Property:
    for label, one, usual in zip(labels, found, expected, strict=True):
        if one.shape != usual.shape or not np.array_equal(one, usual, equal_nan=True):
            told = (
                f"{label}: expected shape {usual.shape}, found {one.shape}"
                if one.shape != usual.shape
                else where(label, one, usual).removeprefix("gradient of ")
            )
            return trial.property(
                "in-place",
                GradVerdict.FAIL,
                f"the in-place variant differs: {told}",
                apart(one, usual) if one.shape == usual.shape else None,
                0.0,
            )
    return trial.property("in-place", GradVerdict.PASS, measured=0.0, bound=0.0)
