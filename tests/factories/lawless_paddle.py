"""Functions of paddle that break one law of a backward each, and no other; with twins that break none."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from conftest import framework

paddle: Any = framework("paddle")
_dice = random.Random(7)


class Twice(paddle.autograd.PyLayer):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        del ctx
        return 2 * x

    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        del ctx
        return 2 * v


class Trembling(Twice):
    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        del ctx
        return 2 * v * (1 + 1e-12 * _dice.random())


class WritesToInput(Twice):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        del ctx
        made = 2 * x
        x.detach().add_(paddle.ones_like(x))
        return made


class NanAtZero(Twice):
    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        del ctx
        largest = v.abs().max()
        return v / largest * 2 * largest


class Clipped(Twice):
    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        del ctx
        return 2 * v.clip(-1, 1)


class Product(paddle.autograd.PyLayer):  # type: ignore[misc]
    alone: float = 1.0

    @classmethod
    def forward(cls, ctx: Any, x: Any, y: Any) -> Any:
        ctx.asked = not x.stop_gradient, not y.stop_gradient
        ctx.factor = 1.0 if all(ctx.asked) else cls.alone
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        x, y = ctx.saved_tensor()
        made = ctx.factor * y * v, ctx.factor * x * v
        # paddle wants None for what was not asked for.
        return tuple(one if asked else None for one, asked in zip(made, ctx.asked, strict=True))


class ProductTwiceIfAlone(Product):
    alone = 2.0


class Squared(paddle.autograd.PyLayer):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        (x,) = ctx.saved_tensor()
        return 2 * x * v


class KeepsOnClass(paddle.autograd.PyLayer):  # type: ignore[misc]
    kept: Any = None

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        del ctx
        KeepsOnClass.kept = x.detach().clone()
        return x * x

    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        del ctx
        return 2 * KeepsOnClass.kept * v


class AddsByItself(paddle.autograd.PyLayer):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.leaf = x
        return 2 * x

    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        if ctx.leaf.grad is not None:
            ctx.leaf.grad.add_(2 * v)
        return 2 * v


def _uneven(x: Any) -> Any:
    return 2 * x + 1e-3 * _dice.random()


def cases() -> dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]]:
    """Law → the function that breaks it, its twin, and inputs."""
    values = [[0.3, -1.2, 0.7], [2.1, -0.4, 1.6]]
    x = paddle.to_tensor(values, dtype="float64")
    holed = paddle.to_tensor([[0.3, 0.0, 0.7]], dtype="float64")
    return {
        "finite": (lambda x: (x * x).sqrt(), lambda x: x.abs(), (holed,)),
        "deterministic-forward": (_uneven, lambda x: 2 * x, (x,)),
        "deterministic-backward": (Trembling.apply, Twice.apply, (x,)),
        "inputs-unmodified": (WritesToInput.apply, Twice.apply, (x,)),
        "zero-cotangent": (NanAtZero.apply, Twice.apply, (x,)),
        "linearity": (Clipped.apply, Twice.apply, (x,)),
        "subset": (ProductTwiceIfAlone.apply, Product.apply, (x, x + 3)),
        "interleaving": (KeepsOnClass.apply, Squared.apply, (x,)),
        "accumulation": (AddsByItself.apply, Twice.apply, (x,)),
    }
