"""Cells: what stands in a table, read as a number, or as the reason why there is none. Pure."""

from __future__ import annotations

import math
from typing import Any, Literal

from karat.changes.series import Outcome
from karat.changes.sheets import BROKEN, INFINITE, MISSING, NOT_A_NUMBER, Mark
from karat.goldens.series_block import text_number

_NOTHING = frozenset({"", "-", "--", "na", "n/a", "null", "none", "missing", "<na>"})


def is_nothing(cell: Any) -> bool:
    """Whether a cell says that nothing was measured."""
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in _NOTHING)


def number(cell: Any) -> float | None:
    """The number in a cell, also one that is not finite; None if there is no number."""
    return text_number(cell.strip() if isinstance(cell, str) else cell)


def read(cell: Any, *, nan: Literal["crash", "missing"] = "crash") -> tuple[float, ...] | Mark:
    """The samples in a cell, or why there are none; BROKEN is a cell that nobody understands."""
    if is_nothing(cell):
        return MISSING
    if isinstance(cell, list | tuple):
        return _several([read(item, nan=nan) for item in cell])
    value = number(cell)
    return BROKEN if value is None else of_number(value, nan=nan)


def of_number(
    value: float, *, nan: Literal["crash", "missing"] = "crash"
) -> tuple[float, ...] | Mark:
    """A number as samples; what is not finite is no value, and is not passed over either."""
    if math.isfinite(value):
        return (value,)
    if nan == "missing":
        return MISSING
    return Mark(Outcome.CRASH, NOT_A_NUMBER if math.isnan(value) else INFINITE)


def _several(parts: list[tuple[float, ...] | Mark]) -> tuple[float, ...] | Mark:
    """Repeats of one point: the samples that there are; without any, the gravest reason."""
    samples = tuple(value for part in parts if not isinstance(part, Mark) for value in part)
    return samples or gravest([part for part in parts if isinstance(part, Mark)])


def gravest(marks: list[Mark]) -> Mark:
    """Of several reasons the one that says most: a crash, then a hang, then broken, then missing."""
    ranks = list(Outcome)
    return min(marks, key=lambda mark: ranks.index(mark.outcome), default=MISSING)
