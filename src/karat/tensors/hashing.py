"""Hashing beside comparing: both digests in the same pass, each in a thread of its own.

sha256 is slower than everything else that is done to a block, and lets go of the interpreter's lock.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from karat.tensors.decoding import Bits
from karat.tensors.digest import digest_of, start
from karat.tensors.outcome import within
from karat.tensors.tensor import Damaged, Tensor, TensorExtent

Either = Tensor | TensorExtent


class Hashing:
    """The digests of both sides, block by block in order, one block behind the comparison at most."""

    BUFFERS = 2
    """Blocks of a side that must stay as they are at any time."""

    def __init__(self, expected: Either, actual: Either) -> None:
        self.running = [start(side.dtype, side.shape) for side in (expected, actual)]
        # One thread a side: that keeps the blocks in order.
        self.pools = [ThreadPoolExecutor(1, thread_name_prefix="karat-hash") for _ in range(2)]
        self.pending: list[Future[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pool in self.pools:
            pool.shutdown(wait=True)

    def begin(self, expected: Bits, actual: Bits) -> None:
        """Hashes a block of each side from now on; the block before is done with."""
        before = self.pending
        self.pending = [
            pool.submit(running.update, bits.data)
            for pool, running, bits in zip(
                self.pools, self.running, (expected, actual), strict=True
            )
        ]
        for future in before:
            future.result()

    def require(self, name: str, digests: tuple[str, str]) -> None:
        """`Damaged` unless both sides are what they are said to be."""
        for future in self.pending:
            future.result()
        _require(name, digests, (self.running[0].hexdigest(), self.running[1].hexdigest()))


def find_damage(name: str, expected: Either, actual: Either, digests: tuple[str, str]) -> None:
    """`Damaged` unless both sides are what they are said to be."""
    with ThreadPoolExecutor(2, thread_name_prefix="karat-hash") as pool:
        found = list(pool.map(digest_of, (expected, actual)))
    _require(name, digests, (found[0], found[1]))


def _require(name: str, said: tuple[str, str], found: tuple[str, str]) -> None:
    wrong = [
        f"expected sha256 {one} on the {side} side, found {other}"
        for side, one, other in zip(("expected", "actual"), said, found, strict=True)
        if one != other
    ]
    if wrong:
        raise Damaged(f"{within(name)}{' and '.join(wrong)}")
