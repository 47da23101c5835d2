"""Arrays of any framework as `Tensor`, and back.

A framework that is not imported cannot have made the value at hand, so none is imported to look at one; it is only
imported to make a value. Bits are moved, never converted: NaN payloads and −0.0 come back as they went. Memory in C
order is not copied; memory of a device is copied to the host once.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import replace

from karat.tensors.device.on_device import DeviceTensor, stays
from karat.tensors.dtypes import MOST_DIMENSIONS, TABLE
from karat.tensors.numpy_arrays import array_of, tensor_of_numpy
from karat.tensors.tensor import CannotStore, Tensor, layout_of

_NUMPY = "pass the tensor as a numpy array, or its parts"


def is_tensor(value: object) -> bool:
    """Whether the value is an array of some framework, storable or not."""
    return isinstance(value, np.ndarray | np.generic) or is_torch(value) or is_jax(value) or _speaks_array(value)


def tensor_of(value: Any) -> Tensor:
    """The value as dtype, shape and bytes; `CannotStore` says what has no such form, and what to pass instead.

    The bytes are the value's own if it lies in C order on the host: writing to the value afterwards writes to the
    tensor.
    """
    if isinstance(value, np.ndarray | np.generic):
        return tensor_of_numpy(value)
    if is_torch(value):
        return tensor_of_torch(value)
    if is_jax(value):
        return tensor_of_jax(value)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if not _speaks_array(value):
        raise CannotStore(f"expected an array, found {kind}")
    # A library that karat does not know, through the protocols that it speaks.
    torch, errors = sys.modules.get("torch"), []
    attempts: list[Callable[[], Tensor | None]] = []
    if hasattr(value, "__dlpack__"):
        attempts.append(lambda: tensor_of_numpy(np.from_dlpack(value)))
        if torch is not None:  # for memory of a device, or a dtype that numpy does not take over
            attempts.append(lambda: replace(tensor_of_torch(torch.from_dlpack(value)), framework="numpy", strides=None))
    if hasattr(value, "__array__"):
        # numpy wraps what has no array to give as one object.
        attempts.append(lambda: None if (made := np.asarray(value)).dtype.hasobject else tensor_of_numpy(made))
    for attempt in attempts:
        try:
            found = attempt()
        except CannotStore:
            raise
        except Exception as error:  # noqa: BLE001 - another library's code may raise anything
            errors.append(f"{type(error).__name__}: {error}")
            continue
        if found is not None:
            return found
    raise CannotStore(
        f"expected an array that DLPack or __array__ hands over, found {kind}"
        f" ({'; '.join(errors) or 'neither works'}); pass it as a numpy array"
    )


def value_of(tensor: Tensor, framework: str | None = None, *, copy: bool = True) -> Any:
    """The tensor as a value of the framework it came from, or of the one named; see `value_and_note`."""
    return value_and_note(tensor, framework, copy=copy)[0]


def value_and_note(tensor: Tensor, framework: str | None = None, *, copy: bool = True) -> tuple[Any, str | None]:
    """The value, and a sentence if it is not what was asked for.

    numpy stands in for a framework that is not installed or has no such dtype, and the bits for a dtype that numpy
    does not have. `copy=False` for a caller whose bytes nobody else uses.
    """
    wanted = framework or tensor.framework
    if wanted.startswith("numpy"):
        array, note = array_of(tensor, copy=copy)
        return array[()] if wanted == "numpy-scalar" and not tensor.shape else array, note
    if wanted == "torch":
        value, problem = value_in_torch(tensor, copy=copy)
    elif wanted == "jax":
        value, problem = value_in_jax(tensor)
    else:
        value, problem = None, f"expected numpy, torch or jax, found {wanted!r}"
    if problem is None:
        return value, None
    return array_of(tensor, copy=copy)[0], f"{problem}; the value is a numpy array"


def _speaks_array(value: object) -> bool:
    kind = type(value)
    dlpack = hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__")
    return not isinstance(value, type) and (dlpack or hasattr(kind, "__array__"))


def is_torch(value: object) -> bool:
    """Whether it is a torch tensor, of whatever subclass."""
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(value, kind)


def tensor_of_torch(value: Any) -> Tensor:
    """A torch tensor as a tensor; its gradient is not part of it. One that is large stays on its device."""
    if stays(value):
        return device_tensor(value)
    return _held(value, lambda flat: {"data": flat.cpu().numpy().view(np.uint8).data}, Tensor)


def device_tensor(value: Any) -> DeviceTensor:
    """The same, where it lies; nobody writes to it while it is used, on whatever stream."""
    if value.is_cuda:
        sys.modules["torch"].cuda.current_stream(value.device).synchronize()
    return _held(value, lambda flat: {"data": memoryview(b""), "value": flat}, DeviceTensor)


T = TypeVar("T", bound=Tensor)


def _held(value: Any, form: Callable[[Any], dict[str, Any]], kind: type[T]) -> T:
    torch, name = sys.modules["torch"], str(value.dtype).removeprefix("torch.")
    _refuse_torch(value, name)
    try:
        with _no_warnings():
            bare = value.detach().resolve_conj().resolve_neg().as_subclass(torch.Tensor)
            if bare.dtype == torch.complex128:
                bare = torch.view_as_real(bare)
            # In C order; moved as integers, so that no kernel can touch their bits.
            made = form(bare.view(_integers(bare.dtype)).contiguous().reshape(-1))
    except (RuntimeError, TypeError, NotImplementedError) as error:
        found = type(value).__name__
        raise CannotStore(f"expected a torch tensor whose memory can be read, found {found}: {error}") from error
    shape, device = tuple(value.shape), str(value.device)
    return kind(
        dtype=name, shape=shape, strides=layout_of(shape, value.stride()), framework="torch", device=device, **made
    )


def _refuse_torch(value: Any, name: str) -> None:
    """`CannotStore` for what has elements elsewhere, in another form, or not at all."""
    kind, why = type(value).__name__, ""
    if value.device.type == "meta" or kind == "FakeTensor":
        why = f"a torch tensor with elements, found a {kind} on {value.device}, which has none; run the program on real tensors"
    elif value.is_quantized:
        parts = "value.int_repr(), value.q_scale() and value.q_zero_point(), or value.dequantize()"
        why = f"a plain torch tensor, found {name} with a quantizer; pass {parts}"
    elif value.is_nested or value.layout != sys.modules["torch"].strided:
        found = "a nested tensor" if value.is_nested else f"the layout {value.layout}"
        why = f"a dense torch tensor, found {found}; pass its parts as plain tensors, or value.to_dense()"
    elif name not in TABLE:
        why = f"a dtype that karat knows, found torch.{name}; {_NUMPY}"
    elif value.dim() > MOST_DIMENSIONS:
        most = f"at most {MOST_DIMENSIONS} dimensions, which is all that numpy has"
        why = f"{most}, found {value.dim()}; pass value.reshape(…)"
    # Subclasses that hold other tensors (DTensor, quantised weights) have elements but no memory.
    elif hasattr(value, "__tensor_flatten__") and hasattr(type(value), "__tensor_unflatten__"):
        why = f"a torch tensor with memory of its own, found the wrapper {kind}; {_NUMPY}"
    if why:
        raise CannotStore(f"expected {why}")


def _integers(dtype: Any) -> Any:
    """Integers of the same size, for which torch has every kernel; there are none of 16 bytes."""
    torch = sys.modules["torch"]
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return sizes.get(dtype.itemsize, dtype)


def value_in_torch(tensor: Tensor, *, copy: bool = True) -> tuple[Any, str | None]:
    """The tensor in torch on the CPU, or None and why not."""
    try:
        import torch
    except ImportError:
        return None, "expected torch (pip install torch), found none"
    dtype = getattr(torch, tensor.dtype, None)
    if not isinstance(dtype, torch.dtype):
        return None, f"expected a torch with {tensor.dtype}, found torch {torch.__version__}"
    raw = np.frombuffer(tensor.data, np.uint8)
    # A copy is aligned and writable; torch wants both.
    usable = not copy and raw.flags.writeable and raw.ctypes.data % 16 == 0
    with _no_warnings():
        if not raw.size:
            return torch.empty(tensor.shape, dtype=dtype), None
        flat = torch.from_numpy(raw if usable else raw.copy()).view(_integers(dtype))
        value = flat.reshape(tensor.shape)
        if tensor.strides is not None and (strides := layout_of(tensor.shape, tensor.strides)) is not None:
            value = torch.empty_strided(tensor.shape, strides, dtype=value.dtype).copy_(value)
        return value.view(dtype), None


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Torch warns that half complex is experimental, and karat only moves bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def is_jax(value: object) -> bool:
    """Whether it is a jax array, a tracer or a random key."""
    kind = getattr(sys.modules.get("jax"), "Array", None)
    return kind is not None and isinstance(value, kind)


def tensor_of_jax(value: Any) -> Tensor:
    """A jax array as a tensor; one that is spread over devices of this host is brought together."""
    jax = sys.modules["jax"]
    why = ""
    if isinstance(value, jax.core.Tracer):
        kind = type(value).__name__
        why = f"with elements, found the tracer {kind}; capture outside of jit, vmap and grad"
    elif jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        parts = "jax.random.key_data(value) and the name of its implementation"
        why = f"of numbers, found the random key {value.dtype}; pass {parts}"
    elif value.is_deleted():
        why = "with memory, found one that was donated or deleted; capture it before, or pass a copy"
    elif not value.is_fully_addressable:
        gather = "gather it first (jax.experimental.multihost_utils.process_allgather)"
        why = f"whose parts are all on this host, found one that is spread over several; {gather}"
    if why:
        raise CannotStore(f"expected a jax array {why}")
    try:
        array = np.asarray(value)
    except (RuntimeError, ValueError, TypeError) as error:
        raise CannotStore(f"expected a jax array whose memory can be read, found {value.dtype}: {error}") from error
    return replace(tensor_of_numpy(array, jax_device(value)), framework="jax", strides=None)


def jax_device(value: Any) -> str:
    """`cpu`, `gpu:0`, or all the devices that an array is spread over."""
    found = sorted(value.devices(), key=lambda device: device.id)
    alone = len(found) == 1 and found[0].platform == "cpu"
    return "cpu" if alone else ",".join(f"{device.platform}:{device.id}" for device in found)


def jax_x64() -> AbstractContextManager[object]:
    """Within it jax does not make float32 of float64."""
    jax: Any = importlib.import_module("jax")
    home = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")  # before jax 0.8
    made: AbstractContextManager[object] = home.enable_x64(True)
    return made


def value_in_jax(tensor: Tensor) -> tuple[Any, str | None]:
    """The tensor in jax on its default device, or None and why not."""
    try:
        import jax
    except ImportError:
        return None, "expected jax (pip install jax), found none"
    array, note = array_of(tensor)
    if note is not None:
        return None, note
    try:
        with jax_x64():
            made = jax.numpy.asarray(array)
    except (TypeError, ValueError, RuntimeError) as error:
        return None, f"expected a jax with {tensor.dtype}, found jax {jax.__version__} ({error})"
    if made.dtype != array.dtype:
        return None, f"expected a jax with {tensor.dtype}, found one that makes it {made.dtype}"
    return made, None
