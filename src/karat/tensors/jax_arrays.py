"""jax arrays as `Tensor`, and back; jax is only imported to make one."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import numpy as np

from karat.tensors.numpy_arrays import array_of, tensor_of_numpy
from karat.tensors.tensor import CannotStore, Tensor


def is_jax(value: object) -> bool:
    """Whether it is a jax array, a tracer or a random key."""
    jax = sys.modules.get("jax")
    kind = getattr(jax, "Array", None)
    return kind is not None and isinstance(value, kind)


def tensor_of_jax(value: Any) -> Tensor:
    """A jax array as a tensor; one that is spread over devices of this host is brought together."""
    _refuse(value)
    try:
        array = np.asarray(value)
    except (RuntimeError, ValueError, TypeError) as error:
        raise CannotStore(
            f"expected a jax array whose memory can be read, found {value.dtype}: {error}"
        ) from error
    made = tensor_of_numpy(array, device=_device(value))
    return msgspec.structs.replace(made, framework="jax", strides=None)


def _refuse(value: Any) -> None:
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
