"""Asked: what a check is to do, apart from the function; and its draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from karat.gradients import seeds
from karat.gradients.flattened import Vector


class Purpose(IntEnum):
    """What numbers are drawn for; each has a stream of its own, so that a replay of one part draws the same."""

    DIRECTIONS = 1
    COTANGENTS = 2
    KINKS = 3
    CONTROLS = 4
    NEARBY = 5
    LOW = 6
    PROPERTIES = 7
    DIAGNOSIS = 8
    SECOND_ORDER = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a check was asked to do."""

    seed: int
    inputs: frozenset[int]
    outputs: frozenset[int]
    forward: bool = True
    """Whether forward mode is looked at, where there is one."""
    forward_alone: bool = False
    """Whether only forward mode was asked for: then it must be there."""
    rtol: float | None = None
    atol: float | None = None
    delta: float | None = None
    order: int = 1
    attempt: int = 0
    """0 at the given point, then one more for each point nearby."""
    extra: Sequence[Vector | None] = ()
    """The caller's own cotangents, looked at beside the drawn ones."""

    def draw(self, purpose: Purpose, *which: int) -> np.random.Generator:
        """A generator for one purpose and one input or output."""
        return seeds.generator(self.seed, int(purpose), self.order, self.attempt, *which)

    def at_attempt(self, attempt: int) -> Asked:
        """The same at another point."""
        return replace(self, attempt=attempt)
