"""Random draws of a check: the same case draws the same numbers, on every machine and in every order.

Signs are Rademacher's. Magnitudes between 1/2 and 1, in steps of 1/256, stand beside them: with signs alone two equal
errors cancel in every second draw, and short magnitudes keep `x + h` exact.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import product
from typing import Any, cast
from zlib import crc32

import numpy as np

from karat.gradients.adapters.framework_problem import FrameworkProblem
from karat.gradients.problem import Array, TensorSlot, Vector, shaped, size
from karat.tensors.device_array import LARGE, drawn, in_blocks, random_bytes, random_signs


def identity_of(problem: FrameworkProblem, given: str | None) -> str:
    """What the probes are drawn from: op, names, shapes and dtypes of the case, and the test's own id."""
    slots = [(slot.name, slot.shape, slot.dtype) for slot in (*problem.inputs, *problem.outputs)]
    return json.dumps([problem.op, slots, given or ""], separators=(",", ":"))


def seed_of(identity: str) -> int:
    """63 bits of the identity's sha256."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8]) >> 1


PROBES = 2  # dense directions per input, each of which sees every element; and cotangents per output


class Purpose(IntEnum):
    """What numbers are drawn for; each has a stream of its own, so that one more draw here moves no draw there."""

    DIRECTIONS = 1
    COTANGENTS = 2
    KINKS = 3
    CONTROLS = 4
    NEARBY = 5
    LOW = 6
    PROPERTIES = 7
    DIAGNOSIS = 8
    ORDERS = 9
    DOUBTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """What a check is to do, apart from the function; and its draws."""

    seed: int
    inputs: frozenset[int]
    outputs: frozenset[int]
    forward: bool = True  # whether forward mode is checked, where there is one
    forward_alone: bool = False  # whether only forward mode was asked for: then it must be there
    rtol: float | None = None
    atol: float | None = None
    strict: bool = False  # whether what is merely inaccurate fails
    probes: int = PROBES
    sums: bool = False  # whether very many outputs are looked at as sums first
    order: int = 1
    attempt: int = 0  # 0 at the given point, then one more for each point nearby
    extra: Sequence[Vector | None] = ()  # the caller's own cotangents, checked besides the drawn ones

    def stream(self, purpose: Purpose, *which: int) -> tuple[int, ...]:
        return self.seed, int(purpose), self.order, self.attempt, *which

    def draw(self, purpose: Purpose, *which: int) -> np.random.Generator:
        return np.random.default_rng(self.stream(purpose, *which))

    def place(self, count: int, *which: int) -> int:
        """One of so many places, for a control."""
        return crc32(repr(self.stream(Purpose.CONTROLS, *which)).encode()) % max(1, count)

    def cotangents(self, problem: FrameworkProblem, purpose: Purpose) -> list[Array | None]:
        """A drawn cotangent of moderate size for each output that was asked for."""
        return [
            shaped(random_weights(size(slot), self.draw(purpose, k)), slot) if k in self.outputs else None
            for k, slot in enumerate(problem.outputs)
        ]


SMALL = 8  # up to so many elements the whole Jacobian is probed, column by column
MOST_BOUNDARY = 16


def random_weights(count: int, rng: np.random.Generator, like: Any = None) -> Vector:
    """Random signs with random magnitudes from 1/2 to just below 1; where the other array lies."""
    if count < LARGE:
        drawn: Vector = random_signs(count, rng) * rng.integers(128, 256, count).astype(np.float64) / 256
        return drawn
    # One byte is both: seven bits of magnitude, and the sign.
    (weights,) = in_blocks(_weights, random_bytes(count, rng, like))
    return cast("Vector", weights)


def _weights(byte: Any) -> tuple[Vector]:
    sizes = (byte | 128).astype(np.float64) / 256
    return (np.where(byte < 128, sizes, -sizes),)


def directions(
    slot: TensorSlot, point: Vector, seed: int | tuple[int, ...], *, whole: bool = True, dense: int = PROBES
) -> Sequence[Vector]:
    """Dense ones first, then the boundary, or every coordinate where there are few; a single dense one stands alone."""
    count = point.size
    weights = drawn(random_weights, seed, [point] * dense)
    if dense == 1:
        return weights
    if count <= SMALL and whole:
        return [weights[0], *([] if count == 1 else np.eye(count))]
    return [*weights, boundary(slot, point, seed)]


def boundary(slot: TensorSlot, point: Vector, seed: int | tuple[int, ...]) -> Vector:
    """The corners and the extreme values alone, so that nothing else drowns them."""
    places = boundary_places(slot, point)
    distinct = (128 + (np.arange(len(places)) * 37) % 128) / 256
    sparse = np.zeros_like(point)
    sparse[places] = drawn(random_signs, seed, [distinct])[0] * distinct
    return sparse


def boundary_places(slot: TensorSlot, point: Vector) -> list[int]:
    """First and last, the ends of every axis, the largest and the smallest |x|."""
    width = 2 if slot.complex else 1
    corners = product(*[(0, extent - 1) for extent in slot.shape[-4:]])
    lead = (0,) * max(0, len(slot.shape) - 4)
    firsts = [int(np.ravel_multi_index(lead + one, slot.shape)) * width for one in corners]
    flat = [first + part for first in firsts for part in range(width)]
    sizes = np.where(np.isfinite(point), np.abs(point), 0.0)
    wanted = [0, point.size - 1, int(sizes.argmax()), int(sizes.argmin()), *flat]
    return list(dict.fromkeys(wanted))[:MOST_BOUNDARY]
