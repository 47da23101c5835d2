"""Functions of jax that break one law of a backward each, and no other; with twins that break none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conftest import framework

jax: Any = framework("jax")
jnp = jax.numpy


def _with_backward(function: Callable[[Any], Any], backward: Callable[[Any, Any], Any]) -> Any:
    made = jax.custom_vjp(function)
    made.defvjp(lambda x: (function(x), x), lambda x, v: (backward(x, v),))
    return made


def _nan_at_zero(_x: Any, v: Any) -> Any:
    largest = jnp.abs(v).max()
    return v / largest * 2 * largest


def cases() -> dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]]:
    """Law → the function that breaks it, its twin, and inputs."""
    x = jnp.asarray([[0.3, -1.2, 0.7], [2.1, -0.4, 1.6]])
    holed = jnp.asarray([0.3, 0.0, 0.7])

    def twice(x: Any) -> Any:
        return 2 * x

    right = _with_backward(twice, lambda _x, v: 2 * v)
    return {
        "finite": (lambda x: jnp.sqrt(x * x), jnp.abs, (holed,)),
        "zero-cotangent": (_with_backward(twice, _nan_at_zero), right, (x,)),
        "linearity": (_with_backward(twice, lambda _x, v: 2 * jnp.clip(v, -1, 1)), right, (x,)),
    }
