"""Reference: a float64 numpy function as the oracle's own, in place of the one that is checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from karat.findings import UsageError
from karat.gradients import tolerances
from karat.gradients.flattened import Array, Flat, Vector, shaped, vector
from karat.gradients.naming import goes_by_order
from karat.gradients.nesting import Leaf, filled, taken
from karat.gradients.report import GradVerdict, Property
from karat.gradients.scales import natural_sizes

if TYPE_CHECKING:
    from karat.gradients.opened import OpenedProblem

# How far two implementations of one forward may be apart, relative to the elements' sizes.
_APART = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 5e-2}


class ReferenceFlat(Flat):
    """The reference at the same point, seen the same way. It has no backward."""

    problem: OpenedProblem

    def __init__(
        self,
        problem: OpenedProblem,
        reference: Callable[..., Any],
        at: Sequence[Vector] | None = None,
    ) -> None:
        super().__init__(problem, at)
        self.reference = reference
        self.forwards = 0

    def forward(self, at: Sequence[Vector]) -> list[Vector]:
        try:
            return self._run([shaped(one, slot) for one, slot in self._with_slots(at)])
        except Exception:  # noqa: BLE001 - a step may leave the domain
            return [np.full(one.size, np.nan) for one in self.base()]

    def base(self) -> list[Vector]:
        return self._run([shaped(one, slot) for one, slot in self._with_slots(self.point)])

    def at(self, point: Sequence[Vector]) -> Flat:
        return ReferenceFlat(self.problem, self.reference, point)

    def moved_complex(self, index: int, step: Vector) -> list[NDArray[np.complex128]]:
        at: list[Array] = [shaped(one, slot) for one, slot in self._with_slots(self.point)]
        at[index] = at[index] + 1j * step.reshape(self.inputs[index].shape)
        return [np.asarray(one).reshape(-1) for one in self._outputs(at)]

    def _with_slots(self, at: Sequence[Vector]) -> list[tuple[Vector, Any]]:
        return list(zip(at, self.inputs, strict=True))

    def _run(self, at: Sequence[Array]) -> list[Vector]:
        found = self._outputs(at)
        for one, slot in zip(found, self.outputs, strict=True):
            if one.shape != slot.shape:
                raise UsageError(
                    f"reference: expected shape {slot.shape} for {slot.name}, found {one.shape}",
                    next_command="return from the reference what the function returns, as float64 arrays",
                )
        return [
            vector(one.astype(np.complex128) if slot.complex else one)
            for one, slot in zip(found, self.outputs, strict=True)
        ]

    def _outputs(self, at: Sequence[Array]) -> list[Array]:
        """What the reference returns, without what has no gradient."""
        self.forwards += 1
        call = self.problem.call
        leaves = self._bound()
        for index, one in zip(call.chosen, at, strict=True):
            leaves[index] = one
        args, kwargs = (filled(one, leaves) for one in call.form)
        if kwargs and goes_by_order(self.reference, len(args) + len(kwargs)):
            args, kwargs = (*args, *kwargs.values()), {}
        result = self.reference(*args, **kwargs)
        found: list[Leaf] = []
        taken(result, _is_number, "", found)
        arrays = [np.asarray(one.value) for one in found]
        if len(arrays) == len(self.outputs):
            return arrays
        chosen = call.outputs or ()
        if max(chosen, default=-1) >= len(arrays):
            raise UsageError(
                f"reference: expected {len(self.outputs)} outputs, found {len(arrays)}",
                next_command="return from the reference what the function returns, as float64 arrays",
            )
        return [arrays[index] for index in chosen]

    def _bound(self) -> list[Any]:
        """Tensors that are not differentiated, as the reference takes them: numpy arrays of their own dtype."""
        adapter = self.problem.adapter
        return [_plain(adapter, leaf.value) for leaf in self.problem.call.leaves]


def _is_number(value: object) -> bool:
    return isinstance(value, np.ndarray | np.generic | float | int | complex)


def _plain(adapter: Any, value: Any) -> Array:
    array: Array = adapter.to_numpy(value)
    dtype = str(adapter.dtype_of(value))
    return array.astype(dtype) if dtype.startswith(("int", "uint", "bool")) else array


def same_forward(ours: Sequence[Vector], theirs: Sequence[Vector], precision: str) -> Property:
    """Whether the function and its reference give the same outputs at the point."""
    bound = _APART.get(precision, 5e-2)
    with np.errstate(all="ignore"):
        gaps = [_gap(one, two) for one, two in zip(ours, theirs, strict=True)]
    worst = max(gaps, default=0.0)
    fine = worst <= bound
    detail = "" if fine else f"the forward differs from its reference by {worst:.3g} of its size"
    return Property(
        name="reference-forward",
        verdict=GradVerdict.PASS if fine else GradVerdict.FAIL,
        detail=detail,
        measured=worst,
        bound=bound,
        dtype=precision,
    )


def _gap(one: Vector, two: Vector) -> float:
    if not one.size:
        return 0.0
    same = (one == two) | (np.isnan(one) & np.isnan(two))
    gap = np.where(same, 0.0, np.abs(one - two) / np.maximum(natural_sizes(two), tolerances.TINY))
    return float(np.max(np.where(np.isnan(gap), np.inf, gap)))
