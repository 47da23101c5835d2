"""jax: jax.vjp and jax.jvp under x64, which is as before afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from karat.gradients.adapters import Adapter, FlatFunction, Linearised
from karat.gradients.problem import Array, Unsupported
from karat.tensors.arrays import is_jax, jax_device, jax_x64

# ruff: noqa: ARG002 - an adapter answers everything it may be asked, if only to refuse


_jax = cache(partial(import_module, "jax"))


class JaxAdapter(Adapter):
    name = "jax"
    pure = True

    def owns(self, value: object) -> bool:
        return is_jax(value)

    def dtype_of(self, value: Any) -> str:
        return str(value.dtype)

    def device_of(self, value: Any) -> str:
        return jax_device(value)

    def refusal(self, value: Any) -> str:
        traced = isinstance(value, _jax().core.Tracer)
        return "a tracer: gradcheck runs outside of jit, grad and vmap" if traced else ""

    def to_numpy(self, value: Any) -> Array:
        array = np.asarray(value)
        return np.array(array, dtype=np.complex128 if array.dtype.kind == "c" else np.float64, order="C")

    def from_numpy(self, array: Array, dtype: str, like: Any | None) -> Any:
        with self.scope():
            # Through memory of its own: jax may keep using numpy's, and does not say for how long.
            made = np.array(array, dtype=_dtype(dtype), order="C")
            return _jax().device_put(made, None if like is None else like.sharding)

    def cast(self, value: Any, dtype: str) -> Any:
        with self.scope():
            return value.astype(_dtype(dtype))

    def scope(self) -> AbstractContextManager[object]:
        return jax_x64()

    def linearise(self, function: FlatFunction, inputs: Sequence[Any], wanted: Sequence[bool]) -> Linearised:
        chosen = [one for one, want in zip(inputs, wanted, strict=True) if want]

        def of_chosen(*given: Any) -> tuple[Any, ...]:
            left = iter(given)
            return function([next(left) if want else one for one, want in zip(inputs, wanted, strict=True)])

        outputs, pull = _jax().vjp(of_chosen, *chosen)
        return Linearised(outputs, lambda cotangents: _pulled(pull, outputs, cotangents))

    def pushforward(self, function: FlatFunction, inputs: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
        try:
            _, found = _jax().jvp(lambda *given: function(given), tuple(inputs), tuple(tangents))
        except (TypeError, NotImplementedError) as error:
            if "forward-mode" in str(error) or "jvp" in str(error).lower():
                raise Unsupported(f"jax has no forward mode here: {error}") from error
            raise
        return tuple(found)

    def differentiated(self, function: FlatFunction, takes: int, gives: int) -> FlatFunction:
        def gradient(inputs: Sequence[Any]) -> tuple[Any, ...]:
            outputs, pull = _jax().vjp(lambda *given: function((*given, *inputs[gives:takes])), *inputs[:gives])
            sides = zip(inputs[takes:], outputs, strict=True)
            return _pulled(pull, outputs, [one.astype(out.dtype) for one, out in sides])

        return gradient

    def pushed(self, function: FlatFunction) -> FlatFunction:
        def tangents(inputs: Sequence[Any]) -> tuple[Any, ...]:
            at, along = inputs[: len(inputs) // 2], inputs[len(inputs) // 2 :]
            return self.pushforward(function, at, [u.astype(x.dtype) for x, u in zip(at, along, strict=True)])

        return tangents

    def batched(
        self, function: FlatFunction, points: Sequence[Sequence[Any]], cotangents: Sequence[Sequence[Any]]
    ) -> tuple[list[tuple[Any, ...]], bool]:
        stack = _jax().numpy.stack

        def pulled(inputs: Any, vectors: Any) -> Any:
            outputs, pull = _jax().vjp(lambda *given: function(given), *inputs)
            return _pulled(pull, outputs, vectors)

        try:
            sides = (tuple(stack(each) for each in zip(*side, strict=True)) for side in (points, cotangents))
            found = _jax().vmap(pulled)(*sides)
        except Exception as error:
            raise Unsupported(f"jax.vmap cannot run this: {error}") from error
        return [tuple(one[n] for one in found) for n in range(len(points))], True

    def in_graph(self, value: Any) -> Any:
        raise Unsupported("jax arrays cannot be written to")


def _pulled(pull: Any, outputs: Sequence[Any], cotangents: Sequence[Any | None]) -> tuple[Any, ...]:
    """Jᵀv in torch's convention: jax's own transposes without conjugation."""
    zeros = _jax().numpy.zeros_like
    given = tuple(
        zeros(out) if one is None else one.conj() if one.dtype.kind == "c" else one
        for one, out in zip(cotangents, outputs, strict=True)
    )
    return tuple(one.conj() if one.dtype.kind == "c" else one for one in pull(given))


def _dtype(name: str) -> Any:
    try:
        return _jax().numpy.dtype(name)
    except TypeError as error:
        raise Unsupported(f"jax {_jax().__version__} has no {name}") from error


ADAPTER = JaxAdapter()
