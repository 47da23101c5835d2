"""Oracles: expected slopes along directions, from whichever source knows best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from karat.findings import UsageError
from karat.gradients import roundoff, slopes as complex_step
from karat.gradients.adapters.calls import Leaf, filled, goes_by_order, taken
from karat.gradients.draws import Asked, Purpose, directions, mixed
from karat.gradients.problem import Flat, FlattenedArray as Array, Vector, shaped, vector
from karat.gradients.report import Comparison, GradVerdict, Mode, Oracle, Property
from karat.gradients.roundoff import element_scales, natural_sizes, power_of_two
from karat.gradients.slopes import Ladder, Line, Slopes, ladders, sweep, unresolved

if TYPE_CHECKING:
    from karat.gradients.adapters.framework_problem import OpenedProblem


@dataclass(frozen=True, slots=True)
class Probe:
    """One direction of one input, and how every output changes along it."""

    direction: Vector
    slopes: list[Slopes]
    oracle: Oracle
    sees_kinks: bool
    """Complex steps do not: they take one side without saying so."""
    dense: bool = False
    """Whether it moves every element that can be moved."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What every probe at a point starts from."""

    flat: Flat
    """The function that is checked."""
    source: Flat
    """The function whose slopes are believed: the same one, or a reference."""
    base: list[Vector]
    noise: list[Vector]
    """What each element of a forward may be off."""
    computes: str
    """The precision of the gradient that is checked."""
    precision: str
    """The precision of the source."""
    steps: tuple[Ladder, ...]

    @property
    def oracle(self) -> Oracle:
        """What the source's differences are called in a report."""
        return "differences" if self.source is self.flat else "reference"

    @property
    def exactly(self) -> Oracle:
        """What the source's complex steps are called."""
        return "complex-step" if self.source is self.flat else "reference"


def ground(flat: Flat, source: Flat | None = None, *, delta: float | None = None) -> Ground:
    """The forward at the point, and how rough it is."""
    computes = flat.problem.computes
    own = source is None or source is flat
    source = flat if source is None else source
    precision = computes if own else "float64"
    with np.errstate(all="ignore"):
        base = source.base()
        rough = roundoff.noise(source, base, precision)
    return Ground(flat, source, base, rough, computes, precision, ladders(precision, delta))


def line(source: Flat, index: int, direction: Vector) -> Line:
    """The outputs along one direction of one input."""

    def outputs(distance: float) -> list[Vector]:
        with np.errstate(all="ignore"):
            return source.moved(index, distance * direction)

    return outputs


def along(at: Ground, index: int, direction: Vector) -> list[Slopes]:
    """The slopes of all outputs along any direction, by differences."""
    unit = roundoff.unit(at.precision)
    return sweep(line(at.source, index, direction), at.base, at.noise, at.steps, unit=unit)


def shift(at: Ground) -> tuple[float, list[Slopes]]:
    """The slopes where everything moves by the same: what is tied stays tied, and a maximum has one slope again.

    The first is the distance that counts as one.
    """
    scales = [element_scales(one) for one in at.flat.point]
    unit = min(float(np.median(one[one > 0])) for one in scales if np.any(one > 0))

    def outputs(distance: float) -> list[Vector]:
        with np.errstate(all="ignore"):
            return at.source.shifted(distance * unit)

    rounding = roundoff.unit(at.precision)
    return unit, sweep(outputs, at.base, at.noise, at.steps, unit=rounding)


def probes(at: Ground, index: int, rng: np.random.Generator, *, whole: bool = True) -> list[Probe]:
    """The probes of one input: the first by differences, the rest by complex steps if those agree with it.

    `whole` looks at the whole Jacobian where it is small.
    """
    point = at.flat.point[index]
    scales = element_scales(point)
    chosen = directions(at.flat.inputs[index], point, rng, whole=whole)
    drawn = [scales * one for one in chosen]
    if not any(one.any() for one in drawn):
        return []
    first = along(at, index, drawn[0])
    exact = _exactly(at, index, drawn[0])
    known = None if exact is None else complex_step.trusted(exact, first)
    if exact is None or known is None:
        made = [Probe(drawn[0], first, at.oracle, sees_kinks=True)]
        made += [_by_differences(at, index, one) for one in drawn[1:]]
    else:
        kept = [complex_step.merged(*each) for each in zip(exact, first, known, strict=True)]
        made = [Probe(drawn[0], kept, at.exactly, sees_kinks=True)]
        made += [_by_complex_steps(at, index, one, known) for one in drawn[1:]]
    movable = np.count_nonzero(scales)
    return [replace(one, dense=np.count_nonzero(one.direction) == movable) for one in made]


def _by_differences(at: Ground, index: int, direction: Vector) -> Probe:
    return Probe(direction, along(at, index, direction), at.oracle, sees_kinks=True)


def _by_complex_steps(
    at: Ground, index: int, direction: Vector, known: Sequence[complex_step.Mask]
) -> Probe:
    found = _exactly(at, index, direction)
    if found is None:
        return _by_differences(at, index, direction)
    kept = [complex_step.confined(*each) for each in zip(found, known, strict=True)]
    return Probe(direction, kept, at.exactly, sees_kinks=False)


def _exactly(at: Ground, index: int, direction: Vector) -> list[Slopes] | None:
    """Complex steps here and a hair's breadth away."""
    found = complex_step.slopes_complex_step(at.source, index, direction, at.base, at.precision)
    if found is None:
        return None
    jostled = at.source.jostled(roundoff.unit(at.precision), np.random.default_rng(index))
    again = complex_step.slopes_complex_step(
        jostled, index, direction, at.base, at.precision, strict=False
    )
    return complex_step.honest(found, again)


def weakest(found: Sequence[Probe]) -> Oracle:
    """The oracle that every probe of an input had at least."""
    return next((one.oracle for one in found if one.oracle != "complex-step"), "complex-step")


# DOC-HERE cotangents: Cotangents: which mixture of an output's elements a backward is asked about.

DRAWN = 2
"""Cotangents per output."""
_SAME_SCALE = 2.0**12
_CERTAIN = 1e9

Mask = NDArray[np.bool_]


def drawn(base: Vector, slopes: Sequence[Slopes], masked: Mask, rng: np.random.Generator) -> Vector:
    """Random signs and magnitudes; 0 where masked. Outputs of very different sizes are brought to one size."""
    cotangent = mixed(base.size, rng) / balance(base, slopes)
    return np.where(masked, 0.0, cotangent)


def balance(base: Vector, slopes: Sequence[Slopes]) -> Vector:
    """What to divide each output element by, so that no large one drowns a small one; mostly ones."""
    sizes = np.where(np.isfinite(base), np.abs(base), 0.0)
    doubt = np.zeros_like(sizes)
    for one in slopes:
        known = np.isfinite(one.error) & np.isfinite(one.value)
        sizes = np.maximum(sizes, np.where(known, np.abs(one.value), 0.0))
        doubt = np.maximum(doubt, np.where(known, one.error, 0.0))
    there = sizes[sizes > 0]
    if not there.size or there.max() <= _SAME_SCALE * there.min():
        return np.ones_like(base)
    common = float(np.median(there))
    # An element whose slope is hardly known must not be made to count more than the others.
    scales = power_of_two(np.maximum(np.where(sizes > 0, sizes, common), _CERTAIN * doubt))
    clipped: Vector = np.clip(scales, 2.0**-960, 2.0**960)
    return clipped


# DOC-HERE seen: Seen: what the probes of one point know, and which output elements they leave open.

_COMPLEX = {"float64": "complex128", "float32": "complex64"}


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the probes of one point know."""

    ground: Ground
    asked: Asked
    probes: list[list[Probe]]
    """Per input; none for those that were not asked for or hold nothing."""
    masks: list[Mask]
    """Per output, elements that the main comparison leaves out: no slope, or two."""
    kinks: list[Mask]
    """Per output, elements that have two slopes."""
    shift: tuple[float, list[Slopes]] | None = None
    """Where there are kinks: the slopes when all inputs move together (see `oracles.shift`)."""

    def slopes(self, output: int) -> list[Slopes]:
        """Of one output, along every direction of every input."""
        return [one.slopes[output] for of_input in self.probes for one in of_input]

    def lost(self, output: int) -> str:
        """What is to be said of an output that is not finite; nothing for others."""
        count = int(np.sum(~np.isfinite(self.ground.base[output])))
        places = "1 place" if count == 1 else f"{count:,} places"
        return f"the forward itself is infinite or NaN in {places}" if count else ""

    def left_out(self, output: int) -> str:
        """What is to be said where an output has elements without any known slope."""
        count = int(np.sum(self.masks[output] & ~self.kinks[output]))
        elements = "1 output element was" if count == 1 else f"{count:,} output elements were"
        return f"{elements} left out: no slope is known there" if count else ""

    def comparison(
        self,
        pair: tuple[int, int],
        verdict: GradVerdict,
        reason: str,
        *,
        mode: Mode = "reverse",
        **more: Any,
    ) -> Comparison:
        """A comparison of one input and one output, with what is the same for all."""
        flat = self.ground.flat
        i, k = pair
        computes = self.ground.computes
        fields = {"error": np.inf, "tolerance": 0.0, "scale": 0.0, "smallest_error": np.inf, **more}
        return Comparison(
            input=flat.inputs[i].name,
            output=flat.outputs[k].name,
            dtype=_COMPLEX.get(computes, computes) if flat.inputs[i].complex else computes,
            mode=mode,
            order=self.asked.order,
            verdict=verdict,
            reason=reason,
            oracle=weakest(self.probes[i]) if self.probes[i] else self.ground.oracle,
            **fields,
        )


def look(ground: Ground, asked: Asked) -> Seen:
    """Every probe's slopes, and what they leave open."""
    found = [
        probes(ground, index, asked.draw(Purpose.DIRECTIONS, index), whole=asked.order == 1)
        if index in asked.inputs and point.size
        else []
        for index, point in enumerate(ground.flat.point)
    ]
    seen = Seen(ground, asked, found, [], [])
    for k, base in enumerate(ground.base):
        unknown = ~np.isfinite(base)
        kink = np.zeros(base.size, np.bool_)
        for probe in (one for of_input in found for one in of_input):
            slopes = probe.slopes[k]
            kink |= slopes.kinked
            # What complex steps leave open at a kink is known from differences.
            excused = kink if not probe.sees_kinks else np.False_
            unknown |= unresolved(slopes, base, ground.precision) & ~excused
        seen.masks.append(unknown | kink)
        seen.kinks.append(kink & ~unknown)
    if any(one.any() for one in seen.kinks):
        return replace(seen, shift=shift(ground))
    return seen


# DOC-HERE reference: Reference: a float64 numpy function as the oracle's own, in place of the one that is checked.

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
    gap = np.where(same, 0.0, np.abs(one - two) / np.maximum(natural_sizes(two), roundoff.TINY))
    return float(np.max(np.where(np.isnan(gap), np.inf, gap)))
