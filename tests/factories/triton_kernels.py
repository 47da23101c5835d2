"""A softmax and a matrix product in Triton, for narrow floats alone, with backwards by hand. Needs triton and a GPU."""

# ruff: noqa: ANN001, ANN202, N803, PLR0917 - kernels are in Triton, which only looks like Python

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]

TILE = 32


@triton.jit  # type: ignore[untyped-decorator]
def _softmax(x, y, n, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    at = tl.arange(0, SIZE)
    value = tl.load(x + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
    raised = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * n + at, raised / tl.sum(raised, 0), mask=at < n)


@triton.jit  # type: ignore[untyped-decorator]
def _softmax_backward(y, g, dx, n, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    at = tl.arange(0, SIZE)
    value = tl.load(y + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    slope = tl.load(g + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(dx + row * n + at, value * (slope - tl.sum(value * slope, 0)), mask=at < n)


@triton.jit  # type: ignore[untyped-decorator]
def _product(a, b, c, m, n, k, am, ak, bk, bn, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    columns = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for start in range(0, k, SIZE):
        at = start + tl.arange(0, SIZE)
        left = tl.load(
            a + rows[:, None] * am + at[None, :] * ak, mask=(rows[:, None] < m) & (at[None, :] < k), other=0.0
        )
        right = tl.load(
            b + at[:, None] * bk + columns[None, :] * bn, mask=(at[:, None] < k) & (columns[None, :] < n), other=0.0
        )
        total = tl.dot(left, right, total)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=inside)


def _multiplied(a: Any, b: Any) -> Any:
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    blocks = (triton.cdiv(m, TILE), triton.cdiv(n, TILE))
    _product[blocks](a, b, c, m, n, k, *a.stride(), *b.stride(), TILE)
    return c


def _narrow(x: Any) -> None:
    if x.dtype is torch.float64:
        raise TypeError("the kernel takes float16 and bfloat16")


class Softmax(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        x = inputs[0].contiguous()
        _narrow(x)
        y = torch.empty_like(x)
        _softmax[(x.shape[0],)](x, y, x.shape[1], triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        (y,), g = ctx.saved_tensors, cotangents[0].contiguous()
        dx = torch.empty_like(y)
        _softmax_backward[(y.shape[0],)](y, g, dx, y.shape[1], triton.next_power_of_2(y.shape[1]))
        return dx


class Product(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        a, b = inputs
        _narrow(a)
        ctx.save_for_backward(a, b)
        return _multiplied(a, b)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        (a, b), g = ctx.saved_tensors, cotangents[0]
        return _multiplied(g, b.T), _multiplied(a.T, g)
