"""Frameworks of op tests: which one a function is of, without importing any; and the devices they compute on."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import ModuleType
from typing import Any

KNOWN = ("paddle", "torch", "jax", "numpy")


def framework_of(function: Callable[..., Any], *, backward: object = None, paddle_style: bool = False) -> str:
    """The framework of a function: where it is defined, else what its own code refers to.

    What hints at nothing computes with what it is given, numpy's arrays; in a test that is written as for Paddle
    (`paddle_style`), it is Paddle's, where that is imported at all.
    """
    if backward is not None:
        return "numpy"
    layers = list(_layers(function))
    # Modules that it is of: its own, and those of what it is or is bound to, `jit` and `Function.apply`.
    made_by = [_module_of(layer) for layer in layers]
    for owner in (*layers, *(getattr(layer, "__self__", None) for layer in layers)):
        kind = owner if isinstance(owner, type) else type(owner)
        made_by += [base.__module__ for base in kind.__mro__]
    for hints in (made_by, _used(layers[-1])):
        found = {hint.partition(".")[0] for hint in hints}
        for name in KNOWN:
            if name in found or (name == "jax" and "jaxlib" in found):
                return name
    return "paddle" if paddle_style and "paddle" in sys.modules else "numpy"


def _layers(function: Any) -> Iterator[Any]:
    """A function and what it wraps, the innermost last."""
    for _ in range(20):  # some objects have every attribute, and so wrap without end
        yield function
        if isinstance(function, partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif hasattr(function, "__func__"):
            function = function.__func__
        else:
            return


def _used(function: Any) -> Iterator[str]:
    """Modules that a function's own code refers to."""
    with suppress(TypeError, ValueError):  # not written in Python; a name that is not bound yet
        found = inspect.getclosurevars(function)
        yield from map(_module_of, (*found.nonlocals.values(), *found.globals.values()))


def _module_of(value: object) -> str:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return name if isinstance(name, str) else ""


_PADDLE = re.compile(r"Place\(([^)]*)\)")
_GPU = {"torch": "cuda", "paddle": "gpu", "jax": "gpu"}


def device_name(place: Any, framework: str) -> str:
    """`cpu` or `cuda:0`, in the framework's own words; no place is the CPU."""
    if place is None:
        return "cpu"
    if hasattr(place, "platform") and hasattr(place, "id"):  # a device of jax
        return f"{place.platform}:{place.id}"
    text = str(place).strip()
    found = _PADDLE.fullmatch(text)
    kind, colon, number = (found[1] if found else text).lower().partition(":")
    if kind in {"gpu", "cuda"}:
        kind = _GPU.get(framework, kind)
    return f"{kind}{colon}{number}"


def absence_reason(device: str, framework: str) -> str | None:
    """Why nothing can be computed there; None if it can."""
    if device.partition(":")[0] == "cpu":
        return None
    try:
        with device_scope(device, framework):
            return None
    except Exception as error:  # noqa: BLE001 - frameworks raise anything for a device that is not there
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"{framework} has no {device} here: {first[:200]}"


@contextmanager
def device_scope(device: str, framework: str) -> Iterator[Any]:
    """Within it the framework computes there, eagerly; gives a tensor that lies there. The framework's error if it cannot."""
    if framework == "paddle":
        import paddle
        from paddle.base import dygraph

        with dygraph.guard(_paddle_place(device)):
            yield paddle.zeros([1])
    elif framework == "torch":
        import torch

        yield torch.zeros(1, device=device)
    elif framework == "jax":
        import jax

        kind, _, number = device.partition(":")
        yield jax.device_put(0.0, jax.devices(kind)[int(number or 0)])
    elif device != "cpu":
        raise ValueError("it computes on the CPU only")
    else:
        yield None


def _paddle_place(device: str) -> Any:
    import paddle

    kind, _, number = device.partition(":")
    if kind == "cpu":
        return paddle.CPUPlace()
    if kind == "gpu":
        if not paddle.is_compiled_with_cuda():  # asked first: Paddle prints a page otherwise
            raise ValueError("this Paddle is built without CUDA")
        return paddle.CUDAPlace(int(number or 0))
    if kind not in paddle.device.get_all_custom_device_type():
        raise ValueError(f"no device of the kind {kind!r} is registered")
    return paddle.CustomPlace(kind, int(number or 0))
