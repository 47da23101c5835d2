"""User gradients: what the author of a test says the gradient is; weak evidence, for nobody checked it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from karat.findings import UsageError
from karat.gradients import tolerances
from karat.gradients.asked import Asked, Purpose
from karat.gradients.directions import mixed
from karat.gradients.flattened import Flat, Vector, shaped, size, vector
from karat.gradients.report import Comparison, GradVerdict


def compare(flat: Flat, asked: Asked, grads: Any) -> list[Comparison]:
    """Each input's gradient against the author's.

    A function is asked for a drawn cotangent; arrays are taken for those of the mean loss, as the original has it:
    the mean over outputs of their means.
    """
    wanted = sorted(asked.outputs)
    given = _cotangents(flat, asked, mean=not callable(grads))
    try:
        found = flat.vjp(given)
    except Exception:  # noqa: BLE001 - the double leg has said so already
        return []
    expected = _expected(flat, asked, grads, given)
    return [
        _comparison(flat, asked, i, k, found[i], theirs)
        for i, theirs in zip(sorted(asked.inputs), expected, strict=True)
        if theirs is not None
        for k in wanted
    ]


def _cotangents(flat: Flat, asked: Asked, *, mean: bool) -> list[Vector | None]:
    given: list[Vector | None] = []
    for k, slot in enumerate(flat.outputs):
        if k not in asked.outputs:
            given.append(None)
        elif mean:
            width = 2 if slot.complex else 1
            one = np.zeros(size(slot))
            one[::width] = 1.0 / (max(1, size(slot) // width) * len(asked.outputs))
            given.append(one)
        else:
            given.append(mixed(size(slot), asked.draw(Purpose.COTANGENTS, k, 1)))
    return given


def _expected(
    flat: Flat, asked: Asked, grads: Any, given: Sequence[Vector | None]
) -> list[Vector | None]:
    if callable(grads):
        cotangents = tuple(
            None if one is None else shaped(one, slot)
            for one, slot in zip(given, flat.outputs, strict=True)
        )
        point = tuple(shaped(one, slot) for one, slot in zip(flat.point, flat.inputs, strict=True))
        grads = grads(point, cotangents)
    listed = list(grads) if isinstance(grads, list | tuple) else [grads]
    wanted = sorted(asked.inputs)
    if len(listed) != len(wanted):
        raise UsageError(
            f"gradcheck: grads: expected a gradient for each of {len(wanted)} inputs, found {len(listed)}",
            next_command="grads=(…) in the order of the inputs, None for those without",
        )
    return [_fitting(one, flat, i) for one, i in zip(listed, wanted, strict=True)]


def _fitting(one: Any, flat: Flat, i: int) -> Vector | None:
    if one is None:
        return None
    slot, array = flat.inputs[i], np.asarray(one)
    if array.shape != slot.shape:
        # As many elements in another order would be compared with those of other places.
        turned = ", which is transposed" if array.shape == slot.shape[::-1] else ""
        raise UsageError(
            f"gradcheck: grads: expected shape {slot.shape} for {slot.name}, found {array.shape}{turned}",
            next_command="grads=(…) with the shapes of the inputs",
        )
    return vector(array.astype(np.complex128) if slot.complex else array)


def _comparison(
    flat: Flat, asked: Asked, i: int, k: int, found: Vector | None, theirs: Vector
) -> Comparison:
    computes = flat.problem.computes
    scale = float(np.max(np.abs(theirs), initial=0.0))
    tolerance = max(tolerances.cap(computes), asked.rtol or 0.0)
    gap = float(np.max(np.abs((0.0 if found is None else found) - theirs), initial=0.0))
    error = gap / scale if scale else gap
    fine = error <= tolerance
    return Comparison(
        input=flat.inputs[i].name,
        output=flat.outputs[k].name,
        dtype=computes,
        order=asked.order,
        verdict=GradVerdict.PASS if fine else GradVerdict.FAIL,
        reason="" if fine else f"differs from the given gradient by {error:.2g} of its size",
        oracle="user",
        strength="weak",
        error=error,
        tolerance=tolerance,
        scale=scale,
        smallest_error=tolerance,
        probes=1,
        widened=asked.rtol if tolerance > tolerances.cap(computes) else None,
    )
