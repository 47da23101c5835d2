"""A torch.autograd.Function of a forward and a backward, and torch tensors of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from factories.wrong_backwards.pair import Array, Backward, Shelf


def op(forward: Callable[..., Any], backward: Backward) -> Callable[..., Any]:
    """The function whose derivative is what the backward says."""

    class Op(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            output = forward(*inputs)
            ctx.save_for_backward(*inputs, output)
            return output

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            *inputs, output = ctx.saved_tensors
            return backward(cotangents[0], output, *inputs)

    @functools.wraps(forward)
    def fn(*inputs: Any) -> Any:
        return Op.apply(*inputs)

    return fn


def tensor(array: Array, device: str) -> Any:
    """A tensor of the array's dtype."""
    return torch.tensor(array, device=device)


def shelf() -> Shelf:
    """An empty shelf of torch pairs."""
    return Shelf("torch", op, tensor)
