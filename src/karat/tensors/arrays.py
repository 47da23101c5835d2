"""torch tensors as `Tensor`, and back; torch is only imported to make one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from karat.tensors import numpy_arrays
from karat.tensors.dtypes import MOST_DIMENSIONS, TABLE
from karat.tensors.numpy_arrays import array_of, tensor_of_numpy
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


# DOC-HERE jax_arrays: jax arrays as `Tensor`, and back; jax is only imported to make one.


def is_jax(value: object) -> bool:
    """Whether it is a jax array, a tracer or a random key."""
    jax = sys.modules.get("jax")
    kind = getattr(jax, "Array", None)
    return kind is not None and isinstance(value, kind)


def tensor_of_jax(value: Any) -> Tensor:
    """A jax array as a tensor; one that is spread over devices of this host is brought together."""
    _refuse_jax_arrays(value)
    try:
        array = np.asarray(value)
    except (RuntimeError, ValueError, TypeError) as error:
        raise CannotStore(
            f"expected a jax array whose memory can be read, found {value.dtype}: {error}"
        ) from error
    made = tensor_of_numpy(array, device=_device(value))
    return msgspec.structs.replace(made, framework="jax", strides=None)


def _refuse_jax_arrays(value: Any) -> None:
    jax = sys.modules["jax"]
    if isinstance(value, jax.core.Tracer):
        raise CannotStore(
            f"expected a jax array with elements, found the tracer {type(value).__name__};"
            " capture outside of jit, vmap and grad"
        )
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        raise CannotStore(
            f"expected a jax array of numbers, found the random key {value.dtype};"
            " pass jax.random.key_data(value) and the name of its implementation"
        )
    if value.is_deleted():
        raise CannotStore(
            "expected a jax array with memory, found one that was donated or deleted;"
            " capture it before, or pass a copy"
        )
    if not value.is_fully_addressable:
        raise CannotStore(
            "expected a jax array whose parts are all on this host, found one that is spread over several;"
            " gather it first (jax.experimental.multihost_utils.process_allgather)"
        )


def _device(value: Any) -> str:
    found = sorted(value.devices(), key=lambda device: device.id)
    kinds = {device.platform for device in found}
    if kinds == {"cpu"} and len(found) == 1:
        return "cpu"
    return ",".join(f"{device.platform}:{device.id}" for device in found)


def value_in_jax(tensor: Tensor) -> tuple[Any, str | None]:
    """The tensor in jax on its default device, or None and the sentence that says why not."""
    try:
        import jax  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        return None, "expected jax (pip install jax), found none"
    array, note = array_of(tensor)
    if note is not None:
        return None, note
    try:
        # Without it jax makes float32 of float64, and says nothing that a program could hear.
        with _wide(jax):
            made = jax.numpy.asarray(array)
    except (TypeError, ValueError, RuntimeError) as error:
        return None, f"expected a jax with {tensor.dtype}, found jax {jax.__version__} ({error})"
    if made.dtype != array.dtype:
        return None, f"expected a jax with {tensor.dtype}, found one that makes it {made.dtype}"
    return made, None


def _wide(jax: Any) -> Any:
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # noqa: PLC0415 - where jax kept it before 0.8

    return enable_x64()


# DOC-HERE arrays: Arrays of any framework as `Tensor`, and back.
#
# A framework that is not imported cannot have made the value at hand, so none is imported to look at one.
# Bits are moved, never converted: NaN payloads and −0.0 come back as they went. Memory that already lies in
# C order is not copied; memory of a device is copied to the host once.


def is_tensor(value: object) -> bool:
    """Whether the value is an array of some framework, storable or not."""
    return (
        isinstance(value, np.ndarray | np.generic)
        or is_torch(value)
        or is_jax(value)
        or _speaks_array(value)
    )


def tensor_of(value: Any) -> Tensor:
    """The value as dtype, shape and bytes; `CannotStore` says what has no such form, and what to pass instead.

    The bytes are the value's own where it lies in C order on the host: whoever writes to the value
    afterwards writes to the tensor.
    """
    if isinstance(value, np.ndarray | np.generic):
        return numpy_arrays.tensor_of_numpy(value)
    if is_torch(value):
        return tensor_of_torch(value)
    if is_jax(value):
        return tensor_of_jax(value)
    if _speaks_array(value):
        return _tensor_of_other(value)
    raise CannotStore(f"expected an array, found {_kind(value)}")


def value_of(tensor: Tensor, framework: str | None = None, *, copy: bool = True) -> Any:
    """The tensor as a value of the framework it came from, or of the one named; see `value_and_note`."""
    return value_and_note(tensor, framework, copy=copy)[0]


def value_and_note(
    tensor: Tensor, framework: str | None = None, *, copy: bool = True
) -> tuple[Any, str | None]:
    """The value, and a sentence if it is not what was asked for.

    A framework that is not installed, or has no such dtype, is stood in for by numpy, and a dtype that
    numpy does not have by its bits. `copy=False` for a caller whose bytes nobody else uses.
    """
    wanted = framework or tensor.framework
    made: tuple[Any, str | None] | None = None
    if wanted == "torch":
        made = value_in_torch(tensor, copy=copy)
    elif wanted == "jax":
        made = value_in_jax(tensor)
    elif not wanted.startswith("numpy"):
        note = f"expected numpy, torch or jax, found {wanted!r}"
        return numpy_arrays.array_of(tensor, copy=copy)[0], f"{note}; the value is a numpy array"
    if made is not None and made[1] is None:
        return made
    array, note_of_numpy = numpy_arrays.array_of(tensor, copy=copy)
    if made is not None:
        return array, f"{made[1]}; the value is a numpy array"
    value = array[()] if wanted == "numpy-scalar" and not tensor.shape else array
    return value, note_of_numpy


def _speaks_array(value: object) -> bool:
    kind = type(value)
    if isinstance(value, type):
        return False
    return (hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__")) or hasattr(
        kind, "__array__"
    )


def _tensor_of_other(value: Any) -> Tensor:
    """An array of a library that karat does not know, through the protocols that it speaks."""
    errors = []
    for attempt in (_by_dlpack, _by_framework, _by_array):
        try:
            made = attempt(value)
        except CannotStore:
            raise
        except Exception as error:  # noqa: BLE001 - another library's code may raise anything
            errors.append(f"{type(error).__name__}: {error}")
            continue
        if made is not None:
            return made
    raise CannotStore(
        f"expected an array that DLPack or __array__ hands over, found {_kind(value)}"
        f" ({'; '.join(errors) or 'neither works'}); pass it as a numpy array"
    )


def _by_dlpack(value: Any) -> Tensor | None:
    if not hasattr(value, "__dlpack__"):
        return None
    return numpy_arrays.tensor_of_numpy(np.from_dlpack(value))


def _by_framework(value: Any) -> Tensor | None:
    """Memory of a device, or a dtype numpy does not take over: whoever is here and can."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(value, "__dlpack__"):
        return None
    made = tensor_of_torch(torch.from_dlpack(value))
    return Tensor(dtype=made.dtype, shape=made.shape, data=made.data, device=made.device)


def _by_array(value: Any) -> Tensor | None:
    if not hasattr(value, "__array__"):
        return None
    made = np.asarray(value)
    # Whoever has no array to give is wrapped by numpy as one object.
    return None if made.dtype.hasobject else numpy_arrays.tensor_of_numpy(made)


def _kind(value: object) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
