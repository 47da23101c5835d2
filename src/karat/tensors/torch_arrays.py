"""torch tensors as `Tensor`, and back; torch is only imported to make one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from karat.tensors.dtypes import MOST_DIMENSIONS, TABLE
from karat.tensors.tensor import CannotStore, Tensor

_NUMPY = "pass the tensor as a numpy array, or its parts"


def is_torch(value: object) -> bool:
    """Whether it is a torch tensor, of whatever subclass."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    return kind is not None and isinstance(value, kind)


def tensor_of_torch(value: Any) -> Tensor:
    """A torch tensor as a tensor; its gradient is not part of it."""
    name = str(value.dtype).removeprefix("torch.")
    _refuse(value, name)
    try:
        with _quiet():
            plain = value.detach().resolve_conj().resolve_neg()
            data = _bytes(plain)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise CannotStore(
            f"expected a torch tensor whose memory can be read, found {type(value).__name__}: {error}"
        ) from error
    return Tensor(
        dtype=name,
        shape=tuple(value.shape),
        data=data,
        strides=None if value.is_contiguous() else tuple(value.stride()),
        framework="torch",
        device=str(value.device),
    )


def _refuse(value: Any, name: str) -> None:
    torch = sys.modules["torch"]
    kind = type(value).__name__
    if value.device.type == "meta" or kind == "FakeTensor":
        raise CannotStore(
            f"expected a torch tensor with elements, found a {kind} on {value.device}, which has none;"
            " run the program on real tensors"
        )
    if value.is_quantized:
        raise CannotStore(
            f"expected a plain torch tensor, found {name} with a quantizer;"
            " pass value.int_repr(), value.q_scale() and value.q_zero_point(), or value.dequantize()"
        )
    if value.layout != torch.strided or value.is_nested:
        found = "a nested tensor" if value.is_nested else f"the layout {value.layout}"
        raise CannotStore(
            f"expected a dense torch tensor, found {found};"
            " pass its parts as plain tensors, or value.to_dense()"
        )
    if name not in TABLE:
        raise CannotStore(f"expected a dtype that karat knows, found torch.{name}; {_NUMPY}")
    if value.dim() > MOST_DIMENSIONS:
        raise CannotStore(
            f"expected at most {MOST_DIMENSIONS} dimensions, which is all that numpy has, found {value.dim()};"
            " pass value.reshape(…)"
        )
    if _is_wrapper(value):
        raise CannotStore(
            f"expected a torch tensor with memory of its own, found the wrapper {kind}; {_NUMPY}"
        )


def _is_wrapper(value: Any) -> bool:
    """Subclasses that hold other tensors (DTensor, quantised weights) have elements but no memory."""
    return hasattr(value, "__tensor_flatten__") and hasattr(type(value), "__tensor_unflatten__")


def _bytes(plain: Any) -> memoryview:
    """The elements in C order on the host; moved as integers, so that no kernel can touch their bits."""
    torch = sys.modules["torch"]
    bare = plain.as_subclass(torch.Tensor)
    if bare.dtype == torch.complex128:
        bare = torch.view_as_real(bare)
    flat = bare.view(_integers(bare.dtype)).contiguous().reshape(-1)
    host: memoryview = flat.cpu().numpy().view(np.uint8).data
    return host


def _integers(dtype: Any) -> Any:
    """Integers of the same size, for which torch has every kernel; there are none of 16 bytes."""
    torch = sys.modules["torch"]
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return sizes.get(dtype.itemsize, dtype)


def value_in_torch(tensor: Tensor, *, copy: bool = True) -> tuple[Any, str | None]:
    """The tensor in torch on the CPU, or None and the sentence that says why not."""
    try:
        import torch  # noqa: PLC0415 - an extra, and seconds to import
    except ImportError:
        return None, "expected torch (pip install torch), found none"
    dtype = getattr(torch, tensor.dtype, None)
    if not isinstance(dtype, torch.dtype):
        return None, f"expected a torch with {tensor.dtype}, found torch {torch.__version__}"
    raw = np.frombuffer(tensor.data, np.uint8)
    # A copy is aligned and writable; torch wants both.
    usable = not copy and raw.flags.writeable and raw.ctypes.data % 16 == 0
    with _quiet():
        if not raw.size:
            return torch.empty(tensor.shape, dtype=dtype), None
        flat = torch.from_numpy(raw if usable else raw.copy()).view(_integers(dtype))
        return _laid_out(flat.reshape(tensor.shape), tensor.strides).view(dtype), None


def _laid_out(value: Any, strides: tuple[int, ...] | None) -> Any:
    """With the strides it had, if they are those of a dense tensor (channels last, transposed)."""
    if strides is None or not _is_dense(tuple(value.shape), strides):
        return value
    order = sorted(range(len(strides)), key=lambda axis: -strides[axis])
    back = [order.index(axis) for axis in range(len(strides))]
    return value.permute(order).contiguous().permute(back)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    if len(shape) != len(strides) or 0 in shape:
        return False
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings: torch says that half complex is experimental, and karat only moves bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
