"""The wrong axis: a backward that runs along another axis than its function.

One element of the output tells: along which axes does it move with the input, and along which does its gradient reach?
A forward per axis answers the one, a backward for that element alone the other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from karat.gradients.experiments import Wrong
from karat.gradients.flattened import Array

_MOST_AXES = 4
_STEP = 2.0**-10
_MOVES = 1e-8
"""What is more than this of an element is no rounding."""


def other_axis(wrong: Wrong) -> str:
    """Whether the gradient runs along other axes than the function, and as many."""
    shape = wrong.slot.shape
    if wrong.slot.complex or shape != wrong.cotangent.shape or not 2 <= len(shape) <= _MOST_AXES:
        return ""
    middle = tuple(length // 2 for length in shape)
    try:
        ours, right = _gradients(wrong, middle), _functions(wrong, middle)
    except Exception:  # noqa: BLE001 - what a wrong backward raises elsewhere is not what failed here
        return ""
    if not ours or ours == right or len(ours) != len(right):
        return ""
    return f"along the wrong axis: the gradient runs along {_named(ours)}, the function along {_named(right)}"


def _gradients(wrong: Wrong, place: tuple[int, ...]) -> list[int]:
    only = np.zeros_like(wrong.cotangent)
    only[place] = 1.0
    found = wrong.again(only)
    if found is None or not np.isfinite(found).all():
        return []
    sizes = np.abs(found.reshape(wrong.slot.shape))
    largest = sizes.max(initial=0.0)
    lines = _lines(wrong.slot.shape, place)
    return [axis for axis, line in enumerate(lines) if (sizes * line).max() > _MOVES * largest]


def _functions(wrong: Wrong, place: tuple[int, ...]) -> list[int]:
    def there(moved: Array) -> float:
        at = list(wrong.problem.point)
        at[wrong.input] = at[wrong.input] + moved
        return float(np.asarray(wrong.problem.forward(at)[wrong.output])[place])

    shape = wrong.slot.shape
    signs = wrong.rng.choice([-1.0, 1.0], shape) * wrong.rng.uniform(0.5, 1.5, shape)
    step = _STEP * wrong.scales.reshape(shape) * signs
    base = there(np.zeros(shape))
    found = enumerate(_lines(shape, place))
    return [axis for axis, line in found if abs(there(step * line) - base) > _MOVES * abs(base)]


def _lines(shape: tuple[int, ...], place: tuple[int, ...]) -> Iterator[Array]:
    """For each axis, the line along it through an element, without the element."""
    for axis in range(len(shape)):
        line = np.zeros(shape)
        along: list[int | slice] = list(place)
        along[axis] = slice(None)
        line[tuple(along)] = 1.0
        line[place] = 0.0
        yield line


def _named(axes: list[int]) -> str:
    return f"ax{'is' if len(axes) == 1 else 'es'} {' and '.join(map(str, axes))}"
