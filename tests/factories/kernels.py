"""Kernels as they are written today: one precision, blocks, an online softmax, a backward by hand; right, or off by a factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

NARROW = ("bfloat16", "float16", "float32")


def attention(torch: Any) -> Callable[..., Any]:
    """The reference: attention as a textbook has it, in whatever precision it is given."""

    def reference(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v

    return reference


def numpy_attention(q: Any, k: Any, v: Any) -> Any:
    """The same for numpy arrays; complex steps go through it."""
    scores = q @ np.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
    raised = np.exp(scores - scores.real.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True) @ v


def flash(torch: Any, *, wrong: str = "", factor: float = 1.05, rows: slice = slice(None), block: int = 16) -> Any:
    """Flash attention: inputs and probabilities in the given narrow precision, sums in float32; float64 is refused.

    `wrong` names what is off by the factor in some rows: out, dq, dk, dv.
    """

    def off(name: str, one: Any) -> Any:
        if name == wrong:
            one = one.clone()
            one[..., rows, :] *= factor
        return one

    class Flash(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            if q.dtype is torch.float64:
                raise TypeError("flash attention takes float16, bfloat16 and float32")
            scale, low = q.shape[-1] ** -0.5, q.dtype
            top = torch.full((*q.shape[:-1], 1), -torch.inf)
            total, sums = torch.zeros_like(top), torch.zeros(q.shape[:-1] + v.shape[-1:])
            for start in range(0, k.shape[-2], block):
                kb, vb = (one[..., start : start + block, :].float() for one in (k, v))
                scores = q.float() @ kb.mT * scale
                higher = torch.maximum(top, scores.amax(-1, keepdim=True))
                raised, shrink = torch.exp(scores - higher), torch.exp(top - higher)
                total = total * shrink + raised.sum(-1, keepdim=True)
                sums = sums * shrink + raised.to(low).float() @ vb
                top = higher
            out = (sums / total).to(low)
            ctx.save_for_backward(q, k, v, out, top + torch.log(total))
            return off("out", out)

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            q, k, v, out, logs = ctx.saved_tensors
            scale, low, g = q.shape[-1] ** -0.5, q.dtype, cotangents[0].float()
            dots = (g * out.float()).sum(-1, keepdim=True)
            dq, dk, dv = torch.zeros_like(q, dtype=torch.float32), [], []
            for start in range(0, k.shape[-2], block):
                kb, vb = (one[..., start : start + block, :].float() for one in (k, v))
                shares = torch.exp(q.float() @ kb.mT * scale - logs)
                slopes = (shares * (g @ vb.mT - dots)).to(low).float()
                dq += slopes @ kb * scale
                dk.append(slopes.mT @ q.float() * scale)
                dv.append(shares.to(low).float().mT @ g)
            found = {"dq": dq, "dk": torch.cat(dk, -2), "dv": torch.cat(dv, -2)}
            return tuple(off(name, one.to(low)) for name, one in found.items())

    return Flash.apply


def heads(torch: Any, dtype: str, *, seed: int = 0, size: float = 1.0, shape: tuple[int, ...] = (1, 2, 48, 32)) -> Any:
    """Queries, keys and values."""
    random = torch.Generator().manual_seed(seed)
    return tuple((size * torch.randn(shape, generator=random)).to(getattr(torch, dtype)) for _ in range(3))
