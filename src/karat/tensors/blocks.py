"""The elements of a tensor block by block, from memory or from a file, and their digest.

The digest is sha256 over dtype, shape and bytes, so that no part can change unnoticed.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from typing import Any, Self

import numpy as np

from karat.tensors.bits import Bits
from karat.tensors.comparison import within
from karat.tensors.dtypes import nbytes
from karat.tensors.tensor import Damaged, Reader, Tensor, TensorExtent, read_blocks

Either = Tensor | TensorExtent


def start_digest(dtype: str, shape: tuple[int, ...]) -> Any:
    """A sha256 that has seen dtype and shape; update it with the elements in order."""
    sizes = "x".join(map(str, shape))
    return sha256(f"karat.tensor/1\0{dtype}\0{sizes}\0".encode())


def digest_of(tensor: Either) -> str:
    """The digest of a tensor; `Damaged` if it cannot be read whole."""
    running = start_digest(tensor.dtype, tensor.shape)
    for chunk in (tensor.data,) if isinstance(tensor, Tensor) else read_blocks(tensor.extent):
        running.update(chunk)
    return str(running.hexdigest())


class TensorBlocks:
    """The bytes of one side, for one thread, in blocks of up to so many bytes; the last `buffers` blocks stay.

    What is not in memory is read into the same buffers again and again, because fresh memory is slow to touch.
    """

    def __init__(self, tensor: Either, block: int, buffers: int = 1) -> None:
        self._reader: Reader | None = None
        if isinstance(tensor, Tensor):
            self._whole: Bits = np.frombuffer(tensor.data, np.uint8)
        else:
            size = min(block, tensor.extent.size)
            self._buffers = [np.empty(size, np.uint8) for _ in range(buffers)]
            self._reader = tensor.extent.open()

    def block(self, start: int, stop: int) -> Bits:
        if self._reader is None:
            return self._whole[start:stop]
        self._buffers.append(self._buffers.pop(0))
        found = self._buffers[-1][: stop - start]
        self._reader.read_into(start, found.data)
        return found

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def is_seekable(tensor: Either) -> bool:
    """Whether several threads may read different parts at once."""
    return isinstance(tensor, Tensor) or tensor.extent.seekable


def require_whole(tensor: Either, name: str, side: str) -> None:
    """`Damaged` unless there are as many bytes as dtype and shape say."""
    expected = nbytes(tensor.dtype, tensor.shape)
    found = len(tensor.data) if isinstance(tensor, Tensor) else tensor.extent.size
    if found != expected:
        what = f"{expected} bytes of {tensor.dtype} {list(tensor.shape)}"
        raise Damaged(f"{within(name)}expected {what} on the {side} side, found {found}")


class Hashing:
    """The digests of both sides, beside comparing them: in order, one block behind the comparison at most.

    sha256 is slower than everything else that is done to a block, and releases the interpreter's lock.
    """

    BUFFERS = 2  # blocks of a side that must stay as they are at any time

    def __init__(self, expected: Either, actual: Either) -> None:
        self.running = [start_digest(side.dtype, side.shape) for side in (expected, actual)]
        # One thread a side: that keeps the blocks in order.
        self.pools = [ThreadPoolExecutor(1, thread_name_prefix="karat-hash") for _ in range(2)]
        self.pending: list[Future[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in self.pools:
            pool.shutdown(wait=True)

    def begin(self, expected: Bits, actual: Bits) -> None:
        """Start hashing a block of each side; wait for the block before."""
        before = self.pending
        self.pending = [
            pool.submit(running.update, bits.data)
            for pool, running, bits in zip(self.pools, self.running, (expected, actual), strict=True)
        ]
        for future in before:
            future.result()

    def require(self, name: str, digests: tuple[str, str]) -> None:
        """`Damaged` unless both sides have their recorded digests."""
        for future in self.pending:
            future.result()
        _require(name, digests, (self.running[0].hexdigest(), self.running[1].hexdigest()))


def find_damage(name: str, expected: Either, actual: Either, digests: tuple[str, str]) -> None:
    """`Damaged` unless both sides have their recorded digests."""
    with ThreadPoolExecutor(2, thread_name_prefix="karat-hash") as pool:
        found = list(pool.map(digest_of, (expected, actual)))
    _require(name, digests, (found[0], found[1]))


def _require(name: str, recorded: tuple[str, str], found: tuple[str, str]) -> None:
    wrong = [
        f"expected sha256 {one} on the {side} side, found {other}"
        for side, one, other in zip(("expected", "actual"), recorded, found, strict=True)
        if one != other
    ]
    if wrong:
        raise Damaged(f"{within(name)}{' and '.join(wrong)}")
