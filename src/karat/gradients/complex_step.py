"""Complex step: a slope with no subtraction, so no round-off of one: Im f(x + ih·u) / h.

It holds for analytic functions only, and many functions take complex numbers without being analytic (abs,
conjugates, comparisons). So it is believed only where it agrees with differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from karat.gradients import tolerances
from karat.gradients.differences import Slopes
from karat.gradients.flattened import Flat, Vector
from karat.gradients.scales import natural_sizes

STEP = 2.0**-66
"""About 1e-20: its square is far below round-off."""
_UNDERFLOW = tolerances.TINY / STEP
_ULPS = 32.0
_MOST_UNREST = 1e-9
_VAGUE = 1e-3

Mask = NDArray[np.bool_]


def slopes(
    flat: Flat,
    index: int,
    direction: Vector,
    base: Sequence[Vector],
    precision: str,
    *,
    strict: bool = True,
) -> list[Slopes] | None:
    """The slopes of all outputs along a direction; None where the function cannot do that.

    `strict` expects the real parts to be the outputs at the point.
    """
    if precision != "float64" or any(slot.complex for slot in (*flat.inputs, *flat.outputs)):
        return None
    try:
        with np.errstate(all="ignore"):
            found = flat.moved_complex(index, STEP * direction)
    except Exception:  # noqa: BLE001 - functions refuse complex numbers in many ways
        return None
    if len(found) != len(base):
        return None
    made = [_slopes(one, at, strict=strict) for one, at in zip(found, base, strict=True)]
    return None if any(one is None for one in made) else [one for one in made if one is not None]


def _slopes(
    found: np.ndarray[tuple[int, ...], np.dtype[np.complex128]], base: Vector, *, strict: bool
) -> Slopes | None:
    if not np.iscomplexobj(found) or found.shape != base.shape:
        return None
    unit = tolerances.unit("float64")
    with np.errstate(all="ignore"):
        real = np.abs(found.real - base) <= 64 * unit * natural_sizes(base)
        if strict and not bool(np.all(real | ~np.isfinite(base))):
            return None
        value = found.imag / STEP
        # What is exactly 0 did not move at all; its neighbours' sizes say nothing of it.
        sizes = np.where(value == 0, 0.0, natural_sizes(value))
        floor = _ULPS * unit * (sizes + np.abs(base)) + _UNDERFLOW
    error = np.where(np.isfinite(floor), floor, np.inf)
    return Slopes(value, error, np.zeros_like(value), floor)


def honest(found: Sequence[Slopes], nearby: Sequence[Slopes] | None) -> list[Slopes]:
    """The slopes with what they change by a few units in the last place away added to their errors.

    Complex steps round off as little as the function does, and that may be a lot: a variance far from zero.
    """
    if nearby is None:
        return list(found)
    return [_honest(one, two) for one, two in zip(found, nearby, strict=True)]


def _honest(one: Slopes, two: Slopes) -> Slopes:
    with np.errstate(all="ignore"):
        change = np.abs(one.value - two.value)
        sizes = np.abs(one.value)
        shares = np.where(np.isfinite(change) & (sizes > 0), change / sizes, 0.0)
        # One element may change little by chance; what they change by typically goes for all.
        typical = min(tolerances.norm(shares) / np.sqrt(max(1, shares.size)), _MOST_UNREST)
        change = np.maximum(np.where(np.isfinite(change), change, 0.0), typical * sizes)
    return replace(one, error=one.error + 8 * change)


def trusted(exact: Sequence[Slopes], differences: Sequence[Slopes]) -> list[Mask] | None:
    """Per output, where complex steps were confirmed by differences; None where they say something else, or nothing was."""
    found = [_confirmed(two) for two in differences]
    agree = all(
        bool(np.all(_near(one, two) | ~known))
        for one, two, known in zip(exact, differences, found, strict=True)
    )
    return found if agree and all(known.any() for known in found if known.size) else None


def _confirmed(other: Slopes) -> Mask:
    """Where differences know enough to confirm anything: not at kinks, nor next to nothing."""
    known: Mask = (other.error <= _VAGUE * natural_sizes(other.value)) & ~other.kinked
    return known


def _near(exact: Slopes, other: Slopes) -> Mask:
    near: Mask = np.abs(exact.value - other.value) <= 8 * (other.error + exact.error)
    return near


def merged(exact: Slopes, differences: Slopes, known: Mask) -> Slopes:
    """Complex steps where they were confirmed; elsewhere differences, which alone can see kinks."""
    return Slopes(
        np.where(known, exact.value, differences.value),
        np.where(known, exact.error, differences.error),
        differences.jump,
        np.where(known, exact.floor, differences.floor),
    )


def confined(exact: Slopes, known: Mask) -> Slopes:
    """Complex steps where they were confirmed along another direction; elsewhere no slope is known."""
    unmoved = exact.value == 0
    return replace(exact, error=np.where(known | unmoved, exact.error, np.inf))
