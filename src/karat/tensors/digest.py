"""The digest of a tensor: sha256 over its dtype, its shape and its bytes, so that no part can change unseen."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from karat.tensors.tensor import Extent, Tensor, TensorExtent

BLOCK = 1 << 20


def start(dtype: str, shape: tuple[int, ...]) -> Any:
    """A sha256 that has seen dtype and shape; update it with the elements in order."""
    sizes = "x".join(map(str, shape))
    return sha256(f"karat.tensor/1\0{dtype}\0{sizes}\0".encode())


def digest(dtype: str, shape: tuple[int, ...], chunks: Iterable[bytes | memoryview]) -> str:
    """The digest of elements that come in pieces."""
    running = start(dtype, shape)
    for chunk in chunks:
        running.update(chunk)
    return str(running.hexdigest())


def digest_of(tensor: Tensor | TensorExtent) -> str:
    """The digest of a tensor, read in blocks where it lies elsewhere; `Damaged` if it cannot be read whole."""
    if isinstance(tensor, Tensor):
        return digest(tensor.dtype, tensor.shape, (tensor.data,))
    return digest(tensor.dtype, tensor.shape, blocks(tensor.extent))


def blocks(extent: Extent, size: int = BLOCK) -> Iterable[memoryview]:
    """The bytes of an extent in order; each block is overwritten by the next."""
    buffer = memoryview(bytearray(min(size, extent.size)))
    reader = extent.open()
    try:
        for start_at in range(0, extent.size, size):
            block = buffer[: min(size, extent.size - start_at)]
            reader.read_into(start_at, block)
            yield block
    finally:
        reader.close()
