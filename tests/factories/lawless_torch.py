"""Functions of torch that break one law of a backward each, and no other; with twins that break none."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from conftest import framework

torch: Any = framework("torch")
_dice = random.Random(7)


class Twice(torch.autograd.Function):  # type: ignore[misc]
    """2·x, right in every way; the others change one thing each."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        del ctx
        return 2 * v


class TwiceWithMode(Twice):
    @staticmethod
    def jvp(ctx: Any, u: Any) -> Any:
        del ctx
        return 2 * u


class TwiceWithWrongMode(Twice):
    @staticmethod
    def jvp(ctx: Any, u: Any) -> Any:
        del ctx
        return 2.000001 * u


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
        x.detach().add_(1)
        return made


class WritesToCotangent(Twice):
    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        del ctx
        made = 2 * v
        v.detach().flatten()[:1].add_(1)
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
        return 2 * v.clamp(-1, 1)


class ReadsGapsOfCotangent(Twice):
    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        del ctx
        return 2 * read_as_dense(v)


class ViewsCotangent(Twice):
    """Breaks with a message of torch's, not in silence."""

    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        del ctx
        return (2 * v.view(-1)).view(v.shape)


class DividesExpanded(Twice):
    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        del ctx
        return 2 * v / v.numel() if 0 in v.stride() else 2 * v


class Squared(torch.autograd.Function):  # type: ignore[misc]
    """x², whose backward needs x."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * v


class ReadsGapsOfInput(Squared):
    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * read_as_dense(x) * v


class KeepsOnClass(Squared):
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


class AddsByItself(Twice):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.leaf = x
        return 2 * x

    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        if ctx.leaf.grad is not None:
            ctx.leaf.grad.add_(2 * v)
        return 2 * v


class Product(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        x, y = ctx.saved_tensors
        return y * v, x * v


class ProductForBothAlone(Product):
    @staticmethod
    def backward(ctx: Any, v: Any) -> Any:
        x, y = ctx.saved_tensors
        factor = 1 if all(ctx.needs_input_grad) else 2
        return factor * y * v, factor * x * v


class Pair(torch.autograd.Function):  # type: ignore[misc]
    """(2·x, 3·x)."""

    absent: float = 0.0

    @classmethod
    def forward(cls, ctx: Any, x: Any) -> Any:
        del cls
        ctx.set_materialize_grads(False)
        return 2 * x, 3 * x

    @classmethod
    def backward(cls, ctx: Any, v: Any, w: Any) -> Any:
        del ctx
        v = torch.full_like(w, cls.absent) if v is None else v
        w = torch.full_like(v, cls.absent) if w is None else w
        return 2 * v + 3 * w


class PairOfOnes(Pair):
    absent = 1.0


def read_as_dense(tensor: Any) -> Any:
    """As a kernel does that takes the address and forgets the strides."""
    if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        return tensor.contiguous()
    strides = torch.empty(tensor.shape).stride()
    return torch.as_strided(tensor, tensor.shape, strides)


def _numbers(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def _uneven(x: Any) -> Any:
    return 2 * x + 1e-3 * _dice.random()


def cases() -> dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]]:
    """Law → the function that breaks it, its twin, and inputs."""
    x, y = _numbers(4, 3), _numbers(4, 3) + 4
    holed = x.clone()
    holed[1, 1] = 0
    return {
        "finite": (lambda x: (x * x).sqrt(), abs, (holed,)),
        "deterministic-forward": (_uneven, lambda x: 2 * x, (x,)),
        "deterministic-backward": (Trembling.apply, Twice.apply, (x,)),
        "inputs-unmodified": (WritesToInput.apply, Twice.apply, (x,)),
        "cotangents-unmodified": (WritesToCotangent.apply, Twice.apply, (x,)),
        "zero-cotangent": (NanAtZero.apply, Twice.apply, (x,)),
        "linearity": (Clipped.apply, Twice.apply, (x,)),
        "absent-cotangent": (PairOfOnes.apply, Pair.apply, (x,)),
        "non-contiguous-cotangent": (ReadsGapsOfCotangent.apply, Twice.apply, (x,)),
        "expanded-cotangent": (DividesExpanded.apply, Twice.apply, (x,)),
        "non-contiguous": (ReadsGapsOfInput.apply, Squared.apply, (x,)),
        "subset": (ProductForBothAlone.apply, Product.apply, (x, y)),
        "interleaving": (KeepsOnClass.apply, Squared.apply, (x,)),
        "accumulation": (AddsByItself.apply, Twice.apply, (x,)),
        "forward-reverse": (TwiceWithWrongMode.apply, TwiceWithMode.apply, (x,)),
    }
