"""Curves as text, for a terminal and a log: two over one another, and how far they are apart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

from karat.report.words import BLOCKS, number

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Curve(Protocol):
    """Values at ascending steps."""

    @property
    def steps(self) -> NDArray[np.int64]: ...
    @property
    def values(self) -> NDArray[np.float64]: ...


def overlay(old: Curve | None, new: Curve | None, *, width: int, height: int) -> tuple[list[str], str]:
    """`o` old, `x` new, `*` both, with axes; and whether the scale is logarithmic, in words. Nothing without a number."""
    curves = [(mark, curve) for mark, curve in (("o", old), ("x", new)) if curve is not None and len(curve.steps)]
    finite = np.concatenate([curve.values[np.isfinite(curve.values)] for _, curve in curves] or [np.empty(0)])
    if not len(finite):
        return [], ""
    # What falls by orders of magnitude is a line along the bottom unless the scale is one of them.
    orders = bool((finite > 0).all()) and float(finite.max()) > 100 * float(finite.min())
    low, high = float(finite.min()), float(finite.max())
    floor, top = (math.log(low), math.log(high)) if orders else (low, high)
    first, last = (int(pick([curve.steps[at] for _, curve in curves])) for pick, at in ((min, 0), (max, -1)))
    wide = min(width, last - first + 1)
    grid = [[" "] * wide for _ in range(height)]
    for mark, curve in curves:
        columns = (curve.steps - first) * wide // max(last - first + 1, 1)
        for column in np.unique(columns).tolist():
            values = curve.values[columns == column]
            values = values[np.isfinite(values)]
            if len(values):  # a column is as high as the mean of its values
                values = np.log(values) if orders else values
                # Halves first: two huge values may be further apart than a float can say.
                share = (float(np.mean(values / 2)) - floor / 2) / (top / 2 - floor / 2) if top > floor else 0.5
                row = height - 1 - round(min(max(share, 0.0), 1.0) * (height - 1))
                grid[row][column] = mark if grid[row][column] in {" ", mark} else "*"
    labels = [f"{high:.5g}", *[""] * (height - 2), f"{low:.5g}"]
    room = max(map(len, labels))
    drawn = [f"{label:>{room}} |{''.join(cells)}".rstrip() for label, cells in zip(labels, grid, strict=True)]
    end = str(last)
    drawn += [
        f"{'':>{room}} +{'-' * wide}",
        f"{'':>{room}}  {first}{end.rjust(max(wide - len(str(first)), len(end) + 1))}",
    ]
    return drawn, " (logarithmic)" if orders else ""


def distance(old: Curve, new: Curve, *, width: int) -> str:
    """How far each step moved, relative to its old value, as blocks up to the largest; nothing where none did."""
    shared, before, after = np.intersect1d(old.steps, new.steps, return_indices=True)
    with np.errstate(all="ignore"):
        moved = np.abs(new.values[after] / old.values[before] - 1)
    known = np.isfinite(moved)
    if not known.any() or not float(moved[known].max()):
        return ""
    shared, moved = shared[known], moved[known]
    wide = max(min(width, len(shared)), 1)
    parts = [float(part.max()) for part in np.array_split(moved, wide)]
    most = max(parts)
    drawn = "".join(BLOCKS[min(int(part / most * len(BLOCKS)), len(BLOCKS) - 1)] if part else " " for part in parts)
    return f"{drawn}  up to {number(most)} at {int(shared[int(moved.argmax())])}"
