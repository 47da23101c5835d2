"""Sides: the elements of a tensor block by block, from memory or from where they lie."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from karat.tensors.decoding import Bits
from karat.tensors.dtypes import nbytes
from karat.tensors.outcome import within
from karat.tensors.tensor import Damaged, Extent, Reader, Tensor, TensorExtent


class Blocks(Protocol):
    """One thread's way to the bytes of a side."""

    def block(self, start: int, stop: int) -> Bits:
        """The bytes from `start` to `stop`; good until as many calls later as there are buffers."""

    def close(self) -> None:
        """Lets go of the reader."""


class InMemory:
    """The bytes themselves; nothing is copied."""

    def __init__(self, data: memoryview) -> None:
        self.bits: Bits = np.frombuffer(data, np.uint8)

    def block(self, start: int, stop: int) -> Bits:
        """A view."""
        return self.bits[start:stop]

    def close(self) -> None:
        """Nothing is held."""


class Read:
    """Bytes that are read into the same memory again and again, because fresh memory is slow to touch."""

    def __init__(self, extent: Extent, size: int, buffers: int) -> None:
        self.buffers = [np.empty(min(size, extent.size), np.uint8) for _ in range(buffers)]
        self.reader: Reader = extent.open()

    def block(self, start: int, stop: int) -> Bits:
        """Reads it over the block that was read longest ago."""
        self.buffers.append(self.buffers.pop(0))
        found = self.buffers[-1][: stop - start]
        self.reader.read_into(start, found.data)
        return found

    def close(self) -> None:
        """Closes the reader."""
        self.reader.close()


def open_side(tensor: Tensor | TensorExtent, block: int, buffers: int = 1) -> Blocks:
    """A way to the bytes, for one thread and blocks of up to so many; the last `buffers` blocks stay."""
    if isinstance(tensor, Tensor):
        return InMemory(tensor.data)
    return Read(tensor.extent, block, buffers)


def is_seekable(tensor: Tensor | TensorExtent) -> bool:
    """Whether several threads may read different parts at once."""
    return isinstance(tensor, Tensor) or tensor.extent.seekable


def require_whole(tensor: Tensor | TensorExtent, name: str, side: str) -> None:
    """`Damaged` unless there are as many bytes as dtype and shape say."""
    expected = nbytes(tensor.dtype, tensor.shape)
    found = len(tensor.data) if isinstance(tensor, Tensor) else tensor.extent.size
    if found != expected:
        raise Damaged(
            f"{within(name)}expected {expected} bytes of {tensor.dtype} {list(tensor.shape)} on the"
            f" {side} side, found {found}"
        )
