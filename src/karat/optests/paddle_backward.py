"""Paddle's backward, asked as the original asks: for the gradients of all inputs at once, of which some are compared.

Some of its kernels give a wrong gradient, or end the process, if they are asked for the gradients of some inputs alone.
"""

from __future__ import annotations

from functools import cache
from typing import Any


def tied(leader: Any, other: Any) -> Any:
    """The other tensor, such that a backward to the leader must compute its gradient too, which then counts for nothing."""
    return _tie().apply(leader, other)


@cache
def _tie() -> Any:
    import paddle  # noqa: PLC0415 - a tensor of it is at hand

    class Tie(paddle.autograd.PyLayer):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, leader: Any, other: Any) -> Any:
            ctx.save_for_backward(leader)
            return other.clone()

        @staticmethod
        def backward(ctx: Any, _gradient: Any) -> Any:
            (leader,) = ctx.saved_tensor()
            return paddle.zeros_like(leader), None

    return Tie
