"""A function of very many outputs as one of some hundreds of sums: what `level="quick"` asks first of large tensors.

The outputs f are cut into blocks, and F sums v·f over each, with a drawn v. F has few outputs, has slopes where f has, and its
gradient for a cotangent w is that of f for v∘w (each block's v times its w). So F is checked like any function, and of each
point along a line nothing is kept but its sums. Where f would have eight outputs at once, F has one.

Why a PASS of F is one of f, with every element checked:

- ⟨Jᵀ(v∘w), u⟩ is a sum over all elements of the gradient, and u moves every element by at least half of its scale. One
  that is off by d moves it by d·u; what the report says would have been seen is the tolerance over that.
- The tolerance bounds what is not known of the sums' slopes, each with a sign of its own from w. Round-off of a sum is that of
  its terms, whose signs v drew: ULPS of the root of the sum of their squares, or what the sums were seen to do beside
  the point, if that is more. Sums of a block are pairwise, and lose less. So it is the bound that f's own slopes have.
- Where f has no slope (x·√|x| at 0), two (|x|), or steps that cross a kink, the block's slopes disagree from step to
  step or from side to side; steps of a whole number or of float32 are rough along the short line. Any of this, in any
  block, and all that is not PASS, is no answer: then f is looked at element by element, which alone says FAIL.
- Two elements of one block may hide each other's kink if their v·u are exactly opposite (once in 10⁴ such pairs);
  a wrong gradient they cannot hide that way, because their slopes would have to cancel in the same manner.
- Outputs of very different sizes are brought to one size, or an error in the small ones could not be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
import numpy as np

from karat.gradients import roundoff
from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.draws import CheckPlan, Purpose, random_weights
from karat.gradients.problem import Array, FlatProblem, Rows, Unsupported, Vector, shaped, size, vector
from karat.gradients.roundoff import power_of_two, scales_of
from karat.tensors.device_array import BLOCK, in_blocks

SHARP = 1e-9  # a tolerance, as a share of the derivative, up to which elements would hardly say more
_MANY = 2**19  # from so many outputs on; there are enough blocks to tell what is typical of them
_BESIDE = 2.0**-20  # a relative step that tells how large slopes are
_UNEVEN = 2.0**12  # outputs whose sizes differ by more are brought to one size
_ROUGH = 64 * roundoff.unit("float64")  # a share of a sum's size up to which it goes smoothly along a short line
_WIDEST = 2.0**100  # sizes that float32 holds, which v is kept in


class Sums(FlatProblem):
    """Sums of v·f over blocks, as outputs. Runs at points in memory that is used again and again."""

    def __init__(self, whole: FlatProblem) -> None:
        super().__init__(whole.problem, whole.point)
        self.whole, self.scales = whole, whole.scales
        self._points: list[Vector] = []

    def weigh(self, weights: Array, base: Vector) -> None:
        """From now on the sums have these weights; and what they are at the point."""
        self.weights = weights
        found = self._summed(base)
        (self._sizes,) = in_blocks(lambda weights, values: (roundoff.norm(weights * values),), weights, base)
        self.known, self.outputs = [found], (msgspec.structs.replace(self.whole.outputs[0], shape=found.shape),)

    def sizes(self, base: Sequence[Vector]) -> list[Vector]:
        """Of a sum the root of its squared terms: what is left of large ones may be small."""
        return [self._sizes] if self.known and base[0] is self.known[0] else super().sizes(base)

    def forward(self, at: Sequence[Vector]) -> list[Vector]:
        return self._run(at, {}, 0.0)

    def along(self, line: Mapping[int, Vector | float], distances: Sequence[float]) -> list[Rows]:
        return list(zip(*(self._run(self.point, line, h) for h in distances), strict=True))

    def moved_complex(self, index: int, step: Vector) -> list[Array]:  # noqa: ARG002
        raise Unsupported("complex points would take twice the memory")

    def vjp(self, cotangents: Sequence[Vector | None]) -> list[Vector | None]:
        self._points = []
        given = self.weights.astype(np.float64)
        for n, one in enumerate(cotangents[0] if cotangents[0] is not None else ()):
            given[n * BLOCK : (n + 1) * BLOCK] *= one
        return self.whole.vjp([given])

    def beside(self, at: Sequence[Vector], line: Mapping[int, Vector | float], distance: float) -> Vector | None:
        """The one output at a distance along a line, to be used before the next run; None where the function refuses."""

        def step(point: Vector, start: Vector, way: Vector) -> tuple[float]:
            np.multiply(way, distance, out=point)
            np.add(point, start, out=point)
            return (0.0,)

        self._points = self._points or [np.empty(one.size) for one in at]
        for n, (point, start) in enumerate(zip(self._points, at, strict=True)):
            in_blocks(step, point, start, np.broadcast_to(line.get(n, 0.0), start.shape))
        lent = [shaped(one, slot, copy=False) for one, slot in zip(self._points, self.inputs, strict=True)]
        (found,) = self.problem.glimpses([lent], lent=True)
        return vector(found[0]) if found and found[0].shape == self.whole.outputs[0].shape else None

    def _run(self, at: Sequence[Vector], line: Mapping[int, Vector | float], distance: float) -> list[Vector]:
        values = self.beside(at, line, distance)
        return [np.full(self.outputs[0].shape, np.nan) if values is None else self._summed(values)]

    def _summed(self, values: Vector) -> Vector:
        (found,) = in_blocks(lambda weights, values: ((weights * values).sum(),), self.weights, values)
        return cast("Vector", found)


def sums_of(problem: FrameworkProblem, plan: CheckPlan) -> Sums | None:
    """The sums of a large function on the host that goes smoothly along a short line in float64; None for any other."""
    flat, slots = problem.here, (*problem.inputs, *problem.outputs)
    if (
        len(problem.outputs) != 1
        or plan.outputs != {0}
        or size(slots[-1]) < _MANY
        or any(slot.complex or not size(slot) for slot in slots)
        or not problem.device.startswith("cpu")
        or not problem.looked
        or problem.looked[0][0] != "float64"
    ):
        return None
    base, problem.looked = vector(problem.looked[0][1]), []
    scales = [scales_of(flat, n) for n in range(len(flat.point))]
    if not all(one.all() for one in scales):
        return None
    made = Sums(flat)
    beside = made.beside(flat.point, dict(enumerate(scales)), _BESIDE)
    if beside is None:
        return None

    def sizes(values: Vector, moved: Vector) -> tuple[Vector, float, float]:
        found = np.maximum(np.abs(values), np.abs(moved - values) / _BESIDE)
        return found, found.max(), found.min(initial=np.inf, where=found > 0)

    each, most, least = in_blocks(sizes, base, beside)
    del beside
    if not 1 / _WIDEST < least.min() <= most.max() < _WIDEST:
        return None
    common = roundoff.typical_size(each) if most.max() > _UNEVEN * least.min() else None

    def even(weights: Vector, sizes: Vector) -> tuple[Array]:
        by = 1.0 if common is None else power_of_two(np.where(sizes > 0, sizes, common))
        return ((weights / by).astype(np.float32),)

    made.weigh(in_blocks(even, random_weights(base.size, plan.draw(Purpose.COTANGENTS, 0, 3)), each)[0], base)
    del base, each
    made.line = roundoff.fourth_differences(made)
    sizes_of_sums, rough = made.sizes(made.base()), made.line[0][0]
    if not (roundoff.is_straight(made.line, sizes_of_sums) and (rough <= _ROUGH * sizes_of_sums[0]).all()):
        return None
    problem.computes = "float64"
    return made
