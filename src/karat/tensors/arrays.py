"""Arrays of any framework as `Tensor`, and back.

A framework that is not imported cannot have made the value at hand, so none is imported to look at one.
Bits are moved, never converted: NaN payloads and −0.0 come back as they went. Memory that already lies in
C order is not copied; memory of a device is copied to the host once.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from karat.tensors import jax_arrays, numpy_arrays, torch_arrays
from karat.tensors.tensor import CannotStore, Tensor


def is_tensor(value: object) -> bool:
    """Whether the value is an array of some framework, storable or not."""
    return (
        isinstance(value, np.ndarray | np.generic)
        or torch_arrays.is_torch(value)
        or jax_arrays.is_jax(value)
        or _speaks_array(value)
    )


def tensor_of(value: Any) -> Tensor:
    """The value as dtype, shape and bytes; `CannotStore` says what has no such form, and what to pass instead.

    The bytes are the value's own where it lies in C order on the host: whoever writes to the value
    afterwards writes to the tensor.
    """
    if isinstance(value, np.ndarray | np.generic):
        return numpy_arrays.tensor_of_numpy(value)
    if torch_arrays.is_torch(value):
        return torch_arrays.tensor_of_torch(value)
    if jax_arrays.is_jax(value):
        return jax_arrays.tensor_of_jax(value)
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
        made = torch_arrays.value_in_torch(tensor, copy=copy)
    elif wanted == "jax":
        made = jax_arrays.value_in_jax(tensor)
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
    made = torch_arrays.tensor_of_torch(torch.from_dlpack(value))
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
