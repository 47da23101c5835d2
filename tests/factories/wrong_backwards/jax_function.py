"""A jax.custom_vjp of a forward and a backward, and double-precision jax arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from factories.wrong_backwards.pair import Array, Backward, Shelf


def op(forward: Callable[..., Any], backward: Backward) -> Callable[..., Any]:
    """The function whose derivative is what the backward says."""

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def inner(*inputs: Any) -> Any:
        return forward(*inputs)

    def saving(*inputs: Any) -> Any:
        output = forward(*inputs)
        return output, (output, inputs)

    def back(saved: Any, cotangent: Any) -> Any:
        output, inputs = saved
        return backward(cotangent, output, *inputs)

    inner.defvjp(saving, back)

    @functools.wraps(forward)
    def fn(*inputs: Any) -> Any:
        return inner(*inputs)

    return fn


def tensor(array: Array, device: str) -> Any:
    """An array of the given dtype; jax would narrow it without being asked."""
    platform = "gpu" if device.startswith("cuda") else device
    with jax.enable_x64(True):
        return jax.device_put(array, jax.devices(platform)[0])


def shelf() -> Shelf:
    """An empty shelf of jax pairs."""
    return Shelf("jax", op, tensor)
