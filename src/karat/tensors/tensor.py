"""A tensor as karat sees it: the name of its dtype, its shape, and its elements as bytes.

Names of dtypes are those that numpy, ml_dtypes, torch and jax share: `float32`, `bfloat16`,
`float8_e4m3fn`, `int4`, `complex64`. What only numpy has goes by numpy's own string: `<M8[ns]`, `<U12`,
`|S5`; a structured dtype by its `descr` as JSON. `karat.tensors.dtypes` holds the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from math import prod
from typing import Any, Protocol

import msgspec

BLOCK = 1 << 20


class Tensor(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Elements in C order, little-endian, one after the other; nobody writes to them."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview  # flat bytes, as many as dtype and shape say; sub-byte integers take a byte each
    strides: tuple[int, ...] | None = None  # in elements, where elements lie without gaps in another order than C's
    framework: str = "numpy"  # `numpy`, `numpy-scalar`, `torch` or `jax`: what the value is to become again
    big_endian: bool = False  # whether the numpy array it came from was; `data` is not
    device: str = "cpu"

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.data)

    def reader(self, block: int) -> Callable[[int, int], Any] | None:  # noqa: ARG002 - for those that have one
        """What brings the bytes from … to … into memory, for one thread, up to so many at once; None if they are there."""
        return None


def layout_of(shape: tuple[int, ...], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The strides of elements that lie without gaps and overlaps, in another order than C's: transposed, channels last."""
    apart, elements = 1, prod(shape)
    if len(shape) != len(strides) or not elements:
        return None
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if stride != apart if size > 1 else not 0 <= stride <= elements:
            return None
        apart *= size
    in_order = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return None if [*strides] == in_order else tuple(strides)


class Extent(Protocol):
    """Bytes somewhere: a file, a range of one, a member of an archive, an object in a store."""

    @property
    def size(self) -> int:
        """In bytes."""

    @property
    def seekable(self) -> bool:
        """Whether any part is as cheap to read as the next one; if not, read forward, with one reader."""

    def open(self) -> Reader:
        """A reader for one thread; several may be open at once."""


class Reader(Protocol):
    """Reads an extent, for one thread."""

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill the buffer with the bytes from `start` on; `Damaged` if they are not there or not whole."""

    def close(self) -> None:
        """Close the file."""


def read_blocks(extent: Extent, block: int = BLOCK) -> Iterator[memoryview]:
    """The bytes of an extent in order; each block is overwritten by the next."""
    with closing(extent.open()) as reader:
        yield from read_range(reader, 0, extent.size, block)


def read_range(reader: Reader, start: int, size: int, block: int = BLOCK) -> Iterator[memoryview]:
    """The same for some of the bytes, with a reader that stays open."""
    buffer = memoryview(bytearray(min(block, size)))
    for at in range(0, size, block):
        part = buffer[: min(block, size - at)]
        reader.read_into(start + at, part)
        yield part


class TensorExtent(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor whose elements are not in memory."""

    dtype: str
    shape: tuple[int, ...]
    extent: Extent


class CannotStore(Exception):  # noqa: N818 - a property of the value
    """A value has no form in a bundle; the message says what was found and what to pass instead."""


class Damaged(Exception):  # noqa: N818 - a state of the bytes
    """Bytes are not what they were said to be; the message says what was expected and found."""
