"""Ties: tensors that are not asked about take part in Paddle's backward all the same.

Kernels of Paddle's (cross, prelu, solve and more) end the process, or give a wrong gradient, if they are asked for the
gradients of some inputs alone. So what is bound is tied to a leaf that is always asked for, and its answer is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

_leads: ContextVar[list[Any] | None] = ContextVar("leads", default=None)
"""The leaf of the backward that is being prepared; none yet where nothing was tied."""


@contextmanager
def tying() -> Iterator[list[Any]]:
    """Within it floating tensors are tied; what is yielded holds the leaf to ask for besides, if there is any.

    Inside another such context the leaf is the same: the gradient's gradient is one backward.
    """
    known = _leads.get()
    if known is not None:
        yield known
        return
    made: list[Any] = []
    token = _leads.set(made)
    try:
        yield made
    finally:
        _leads.reset(token)


def tied(value: Any) -> Any | None:
    """A copy that a backward must compute the gradient of, to no effect; None where no backward is prepared."""
    leads = _leads.get()
    if leads is None:
        return None
    if not leads:
        leads.append(_leaf())
    return _tie().apply(leads[0], value.detach())


def _leaf() -> Any:
    import paddle  # noqa: PLC0415 - a tensor of it is at hand

    made = paddle.zeros([1], dtype="float64")
    made.stop_gradient = False
    return made


@cache
def _tie() -> Any:
    import paddle  # noqa: PLC0415 - a tensor of it is at hand

    class Tie(paddle.autograd.PyLayer):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, lead: Any, other: Any) -> Any:
            ctx.save_for_backward(lead)
            return other.clone()

        @staticmethod
        def backward(ctx: Any, _gradient: Any) -> Any:
            (lead,) = ctx.saved_tensor()
            return paddle.zeros_like(lead), None

    return Tie
