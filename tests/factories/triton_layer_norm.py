"""A layer norm in Triton, forward and backward, right or with a planted bug. Needs triton, and a GPU or its interpreter.

Rows are longer than a block, so that a bug may begin at the second one.
"""

# ruff: noqa: ANN001, ANN202, N803, PLR0917 - kernels are in Triton, which only looks like Python

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]

BLOCK = 1024
RIGHT, NO_MEAN_TERM, SECOND_BLOCK = 0, 1, 2


@triton.jit  # type: ignore[untyped-decorator]
def _forward(  # type: ignore[no-untyped-def]
    x, w, y, means, scales, n, ACC: tl.constexpr, SIZE: tl.constexpr
):
    row = tl.program_id(0)
    total = tl.zeros((SIZE,), ACC)
    for start in range(0, n, SIZE):
        at = start + tl.arange(0, SIZE)
        total += tl.load(x + row * n + at, mask=at < n, other=0.0).to(ACC)
    mean = tl.sum(total, 0) / n
    squares = tl.zeros((SIZE,), ACC)
    for start in range(0, n, SIZE):
        at = start + tl.arange(0, SIZE)
        value = tl.load(x + row * n + at, mask=at < n, other=0.0).to(ACC)
        centred = tl.where(at < n, value - mean, 0.0)
        squares += centred * centred
    scale = 1.0 / tl.sqrt(tl.sum(squares, 0) / n + 0.0009765625)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)
    for start in range(0, n, SIZE):
        at = start + tl.arange(0, SIZE)
        value = tl.load(x + row * n + at, mask=at < n, other=0.0).to(ACC)
        weight = tl.load(w + at, mask=at < n, other=0.0).to(ACC)
        tl.store(y + row * n + at, ((value - mean) * scale * weight), mask=at < n)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_x(  # type: ignore[no-untyped-def]
    g, x, w, dx, means, scales, n, BUG: tl.constexpr, ACC: tl.constexpr, SIZE: tl.constexpr
):
    row = tl.program_id(0)
    mean, scale = tl.load(means + row), tl.load(scales + row)
    first = tl.zeros((SIZE,), ACC)
    second = tl.zeros((SIZE,), ACC)
    for start in range(0, n, SIZE):
        at = start + tl.arange(0, SIZE)
        weight = tl.load(w + at, mask=at < n, other=0.0).to(ACC)
        slope = tl.load(g + row * n + at, mask=at < n, other=0.0).to(ACC) * weight
        value = (tl.load(x + row * n + at, mask=at < n, other=0.0).to(ACC) - mean) * scale
        first += slope
        second += slope * value
    by_mean, by_scale = tl.sum(first, 0) / n, tl.sum(second, 0) / n
    if BUG == 1:
        by_mean = by_mean * 0.0
    for start in range(0, n, SIZE):
        at = start + tl.arange(0, SIZE)
        weight = tl.load(w + at, mask=at < n, other=0.0).to(ACC)
        slope = tl.load(g + row * n + at, mask=at < n, other=0.0).to(ACC) * weight
        value = (tl.load(x + row * n + at, mask=at < n, other=0.0).to(ACC) - mean) * scale
        made = (slope - by_mean - value * by_scale) * scale
        if BUG == 2:
            made = tl.where(at < SIZE, made, (slope - by_mean) * scale)
        tl.store(dx + row * n + at, made, mask=at < n)


@triton.jit  # type: ignore[untyped-decorator]
def _backward_w(  # type: ignore[no-untyped-def]
    g, x, dw, means, scales, rows, n, ACC: tl.constexpr, SIZE: tl.constexpr
):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    total = tl.zeros((SIZE,), ACC)
    for row in range(rows):
        slope = tl.load(g + row * n + at, mask=at < n, other=0.0).to(ACC)
        value = tl.load(x + row * n + at, mask=at < n, other=0.0).to(ACC)
        total += slope * (value - tl.load(means + row)) * tl.load(scales + row)
    tl.store(dw + at, total, mask=at < n)


def _wide(x: Any) -> Any:
    return torch.float64 if x.dtype is torch.float64 else torch.float32


def layer_norm(bug: int = RIGHT) -> Callable[..., Any]:
    """The op: rows of x normalised, times w."""

    class LayerNorm(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            x, w = (one.contiguous() for one in inputs)
            rows, n = x.shape
            means, scales = (torch.empty(rows, dtype=_wide(x), device=x.device) for _ in range(2))
            y = torch.empty_like(x)
            acc = tl.float64 if _wide(x) is torch.float64 else tl.float32
            _forward[(rows,)](x, w, y, means, scales, n, acc, BLOCK)
            ctx.save_for_backward(x, w, means, scales)
            ctx.acc = acc
            return y

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            x, w, means, scales = ctx.saved_tensors
            g = cotangents[0].contiguous()
            rows, n = x.shape
            dx, dw = torch.empty_like(x), torch.empty_like(w)
            _backward_x[(rows,)](g, x, w, dx, means, scales, n, bug, ctx.acc, BLOCK)
            blocks = (triton.cdiv(n, BLOCK),)
            _backward_w[blocks](g, x, dw, means, scales, rows, n, ctx.acc, BLOCK)
            return dx, dw

    def fn(x: Any, w: Any) -> Any:
        return LayerNorm.apply(x, w)

    return fn
