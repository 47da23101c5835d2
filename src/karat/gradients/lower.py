"""Lower precisions: those that were asked for, against the double gradient, where that one stands."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from karat.findings import UsageError, suggest
from karat.gradients.asked import Asked, Purpose
from karat.gradients.calls import is_float
from karat.gradients.directions import mixed
from karat.gradients.examining import Pair
from karat.gradients.flattened import Array, shaped, size
from karat.gradients.low_precision import compare_low
from karat.gradients.problem import Problem
from karat.gradients.report import Comparison, GradVerdict
from karat.tensors.dtypes import TABLE

_DOUBLE = frozenset({"float64", "complex128"})
UNVERIFIED = "there is no verified double gradient to compare with"


def wanted(problem: Problem, dtypes: Sequence[str] | None) -> tuple[str, ...]:
    """The precisions to look at: those asked for, or those the inputs were given in."""
    if dtypes is None:
        named: Sequence[str] = [slot.dtype for slot in problem.inputs]
    else:
        named = [dtypes] if isinstance(dtypes, str) else dtypes
        _refuse_unknown(named)
    return tuple(dict.fromkeys(one for one in named if one not in _DOUBLE))


def _refuse_unknown(names: Sequence[str]) -> None:
    floats = [name for name in TABLE if is_float(name)]
    for name in names:
        if name not in floats:
            raise UsageError(
                f"gradcheck: dtypes: expected floating dtypes, found {name!r}{suggest(str(name), floats)}",
                next_command='dtypes=("float32", "bfloat16")',
            )


def cotangents(problem: Problem, asked: Asked) -> list[Array | None]:
    """One per wanted output, of moderate size, so that low precision can hold it."""
    return [
        shaped(mixed(size(slot), asked.draw(Purpose.LOW, k)), slot) if k in asked.outputs else None
        for k, slot in enumerate(problem.outputs)
    ]


def compare(
    problem: Problem, asked: Asked, dtype: str, pairs: Sequence[Pair]
) -> list[tuple[Comparison, Array | None]]:
    """The comparisons of one precision, each with the cotangent it was made with."""
    given = cotangents(problem, asked)
    double: list[Array | None] = [
        np.zeros(slot.shape) if _has_gradient(i, pairs) else None
        for i, slot in enumerate(problem.inputs)
    ]
    rng = asked.draw(Purpose.LOW, len(problem.outputs), *dtype.encode())
    found = compare_low(problem, dtype, rng=rng, cotangents=given, double=double)
    stands = {
        (one.comparison.input, one.comparison.output): one.comparison
        for one in pairs
        if one.comparison.mode == "reverse"
    }
    index = {slot.name: k for k, slot in enumerate(problem.outputs)}
    return [
        (_relative(_standing(one, stands[one.input, one.output])), given[index[one.output]])
        for one in found
        if (one.input, one.output) in stands
    ]


def _has_gradient(i: int, pairs: Sequence[Pair]) -> bool:
    return any(one.input == i and one.gradient is not None for one in pairs)


def _standing(low: Comparison, double: Comparison) -> Comparison:
    if double.counts or low.verdict is GradVerdict.FAIL:
        return low
    return msgspec.structs.replace(low, verdict=GradVerdict.INCONCLUSIVE, reason=UNVERIFIED)


def _relative(one: Comparison) -> Comparison:
    """As in double: error and tolerance as shares of the size."""
    if not one.scale > 0:
        return one
    return msgspec.structs.replace(
        one,
        error=one.error / one.scale,
        tolerance=one.tolerance / one.scale,
        smallest_error=one.smallest_error / one.scale,
    )
