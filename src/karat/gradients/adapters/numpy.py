"""numpy: functions whose backward a person wrote.

The backward is karat's caller's (`karat.gradients.adapters.calls`); there is no forward mode, and no second order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from karat.gradients.adapters import Adapter, FlatFunction, Linearised
from karat.gradients.adapters.calls import Leaf, flatten, unflatten
from karat.gradients.problem import Array, Unsupported

# ruff: noqa: ARG002 - an adapter answers everything it may be asked, if only to refuse


class NumpyAdapter(Adapter):
    name = "numpy"

    def owns(self, value: object) -> bool:
        return isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fciubV"

    def dtype_of(self, value: Any) -> str:
        return str(value.dtype.name)

    def device_of(self, value: Any) -> str:
        return "cpu"

    def to_numpy(self, value: Any) -> Array:
        return np.array(value, dtype=np.complex128 if value.dtype.kind == "c" else np.float64, order="C")

    def from_numpy(self, array: Array, dtype: str, like: Any | None) -> Any:
        return np.array(array, dtype=_dtype(dtype), order="C")

    def cast(self, value: Any, dtype: str) -> Any:
        return np.array(value, dtype=_dtype(dtype))

    def fresh(self, value: Any) -> Any:
        return value.copy()

    def function(self, fn: Callable[..., Any], dtype: str | None) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            """What it returns, with arrays of no axes for Python's own floats; a list of them is not a tensor."""
            result = fn(*args, **kwargs)
            if isinstance(result, list):
                return result
            found: list[Leaf] = []
            form = flatten(result, lambda one: isinstance(one, float | complex), "", found)
            return unflatten(form, [np.asarray(leaf.value) for leaf in found])

        return run

    def linearise(self, function: FlatFunction, inputs: Sequence[Any], wanted: Sequence[bool]) -> Linearised:
        instead = "pass backward=f with f(inputs, outputs, cotangents) -> gradients"
        raise Unsupported(f"numpy functions have no gradient of their own; {instead}")

    def differentiated(self, function: FlatFunction, takes: int, gives: int) -> FlatFunction:
        raise Unsupported("numpy cannot differentiate a backward that a person wrote")

    def in_graph(self, value: Any) -> Any:
        return value.copy()

    def strided(self, value: Any) -> Any | None:
        if not value.size or not value.ndim:
            return None
        gapped = np.full((*reversed(value.shape), 2), 7, dtype=value.dtype)
        gapped[..., 0] = value.T
        return gapped[..., 0].T

    def expanded(self, value: Any) -> Any | None:
        return np.broadcast_to(value.flat[0], value.shape) if value.size > 1 else None


def _dtype(name: str) -> Any:
    if name.startswith(("bfloat", "float8")):
        with suppress(ImportError):
            import_module("ml_dtypes")  # numpy knows them once it is imported
    try:
        return np.dtype(name)
    except TypeError as error:
        raise Unsupported(f"numpy has no {name} (pip install ml_dtypes)") from error


ADAPTER = NumpyAdapter()
