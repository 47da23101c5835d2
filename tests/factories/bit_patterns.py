"""Tensors with every bit pattern that a dtype has, or many of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from karat.tensors.dtypes import TABLE, nbytes
from karat.tensors.tensor import Reader, Tensor, TensorExtent

NUMERIC = tuple(name for name, dtype in TABLE.items() if dtype.kind != "opaque")
REAL_FLOATS = tuple(name for name, dtype in TABLE.items() if dtype.kind == "float" and dtype.layout is not None)
ODD_NAMES = ("<U7", "|S5", "|V3", "<M8[ns]", "<m8[25s]", '[["a","<f4"],["b","|i1",[2,2]]]')


def patterns(dtype: str, shape: tuple[int, ...], seed: int = 0) -> NDArray[np.uint8]:
    """Random bytes that are elements of the dtype: no stray bits in what is narrower than its bytes."""
    of = TABLE.get(dtype)
    raw = np.random.default_rng(seed).integers(0, 256, nbytes(dtype, shape), dtype=np.uint8)
    if of is not None and 0 < of.width < 8 and dtype != "float4_e2m1fn_x2":
        raw &= np.uint8((1 << of.width) - 1)
    if dtype in {"float80", "complex160"}:
        parts = raw.reshape(-1, 16)
        parts[:, 10:] = 0
        parts[:, 7] |= 0x80  # x87's leading one is a bit of its own, and without it there is no number
    if dtype.startswith("<U"):
        raw = (raw.view(np.uint32) % 0xD000).astype("<u4").view(np.uint8)
    return raw


def tensor(dtype: str, shape: tuple[int, ...] = (3, 4), *, seed: int = 0, framework: str = "numpy") -> Tensor:
    """Random bits as a tensor."""
    return Tensor(dtype=dtype, shape=shape, data=patterns(dtype, shape, seed).data, framework=framework)


def torch_value(torch: Any, dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Random bits as a torch tensor on the CPU, made without karat."""
    wanted = getattr(torch, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # half complex is experimental
        if not prod(shape):
            return torch.empty(shape, dtype=wanted)
        return torch.from_numpy(patterns(dtype, shape, seed)).view(wanted).reshape(shape)


def torch_dtypes(torch: Any) -> Iterator[str]:
    """The dtypes that this torch has and karat knows."""
    return (name for name in TABLE if isinstance(getattr(torch, name, None), torch.dtype))


class Bytes:
    """An extent in memory that counts its readers, and can be cut, changed, or read forward only."""

    def __init__(self, data: bytes, *, seekable: bool = True) -> None:
        self.data, self.seekable = data, seekable
        self.open_readers = self.opened = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def open(self) -> Reader:
        self.open_readers += 1
        self.opened += 1
        return _BytesReader(self)


class _BytesReader:
    def __init__(self, extent: Bytes) -> None:
        self.extent, self.at = extent, 0

    def read_into(self, start: int, buffer: memoryview) -> None:
        if not self.extent.seekable:
            assert start == self.at, f"expected to be read on from {self.at}, found {start}"
            assert self.extent.open_readers == 1
        buffer[:] = self.extent.data[start : start + len(buffer)]
        self.at = start + len(buffer)

    def close(self) -> None:
        self.extent.open_readers -= 1


def extent_of(of: Tensor, *, seekable: bool = True) -> TensorExtent:
    """The same tensor as bytes that lie somewhere."""
    return TensorExtent(dtype=of.dtype, shape=of.shape, extent=Bytes(bytes(of.data), seekable=seekable))
