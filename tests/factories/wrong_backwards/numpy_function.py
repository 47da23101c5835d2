"""A numpy function with a backward beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from factories.wrong_backwards.pair import Array, Backward, Shelf


class Numpy(Shelf):
    """Pairs whose backward is an argument of the check, not part of the function."""

    def pair(
        self, name: str, forward: Callable[..., Any], inputs: Any, *, right: Backward, wrong: Backward, **options: Any
    ) -> None:
        self.functions(
            name,
            inputs,
            right=lambda: forward,
            wrong=lambda: forward,
            backward=_with_outputs(right),
            options_wrong={"backward": _with_outputs(wrong)},
            **options,
        )


def _with_outputs(backward: Backward) -> Callable[..., Any]:
    """In the form in which karat calls a backward."""

    def call(inputs: tuple[Any, ...], outputs: tuple[Any, ...], cotangents: tuple[Any, ...]) -> Any:
        return backward(cotangents[0], outputs[0], *inputs)

    return call


def _as_it_is(array: Array, _device: str) -> Array:
    return array


def _no_op(forward: Callable[..., Any], _backward: Backward) -> Callable[..., Any]:
    return forward


def shelf() -> Numpy:
    """An empty shelf of numpy pairs."""
    return Numpy("numpy", _no_op, _as_it_is)
