"""A paddle PyLayer of a forward and a backward, and paddle tensors of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import paddle

from factories.wrong_backwards.pair import Array, Backward, Shelf


def op(forward: Callable[..., Any], backward: Backward) -> Callable[..., Any]:
    """The function whose derivative is what the backward says."""

    class Op(paddle.autograd.PyLayer):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = forward(*inputs)
            ctx.save_for_backward(*inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            *inputs, output = ctx.saved_tensor()
            made = backward(cotangents[0], output, *inputs)
            # paddle wants None, and nothing else, for an input that wants no gradient.
            asked = [None if x.stop_gradient else one for one, x in zip(made, inputs, strict=True)]
            return tuple(asked) if len(asked) > 1 else asked[0]

    @functools.wraps(forward)
    def fn(*inputs: Any) -> Any:
        return Op.apply(*inputs)

    return fn


def tensor(array: Array, device: str) -> Any:
    """A tensor of the array's dtype."""
    return paddle.to_tensor(array, place="gpu:0" if device.startswith("cuda") else device)


def shelf() -> Shelf:
    """An empty shelf of paddle pairs."""
    return Shelf("paddle", op, tensor)
