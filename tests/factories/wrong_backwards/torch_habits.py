"""Wrong backwards of torch that are right at first sight: state, side effects, modes, orders, layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from factories.wrong_backwards.pair import normal
from factories.wrong_backwards.torch_function import op, shelf

PAIRS = shelf()
Fn = Callable[..., Any]


def square(x: torch.Tensor) -> torch.Tensor:
    return x * x


def named(function: Any) -> Fn:
    def fn(x: Any) -> Any:
        return function.apply(x)

    return fn


def state_on_the_class() -> Fn:
    class Square(torch.autograd.Function):  # type: ignore[misc]
        saved: Any = None

        @staticmethod
        def forward(_ctx: Any, *inputs: Any) -> Any:
            Square.saved = inputs[0]
            return inputs[0] * inputs[0]

        @staticmethod
        def backward(_ctx: Any, *cotangents: Any) -> Any:
            return 2 * Square.saved * cotangents[0]

    return lambda x, y: Square.apply(x) * Square.apply(y)


def accumulating() -> Fn:
    """Adds its gradient to the leaf by hand, and returns it as well."""

    class Square(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.leaf = inputs[0]
            return inputs[0] * inputs[0]

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            made = 2 * ctx.leaf.detach() * cotangents[0]
            if ctx.leaf.grad is not None:
                ctx.leaf.grad += made
            return made

    return named(Square)


def modifying(what: str) -> Fn:
    """Squares; its backward works in place on the saved input or on the cotangent."""

    class Square(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            ctx.input = inputs[0].detach()
            return inputs[0] * inputs[0]

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            if what == "input":
                return ctx.input.mul_(2) * cotangents[0]
            if what == "cotangent":
                return cotangents[0].mul_(2 * ctx.input)
            return 2 * ctx.input * cotangents[0]

    return named(Square)


def with_second_order(factor: float) -> Fn:
    """x³ with a right first derivative; its own derivative is off by a factor."""
    slope = op(lambda x: 3 * x * x, lambda g, _o, x: (6 * factor * x * g,))
    return op(lambda x: x**3, lambda g, _o, x: (g * slope(x),))


def with_forward_mode(factor: float) -> Fn:
    class Square(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(*inputs: Any) -> Any:
            return inputs[0] * inputs[0]

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * cotangents[0]

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            return factor * 2 * ctx.saved_tensors[0] * tangents[0]

    return named(Square)


def mask(x: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(x.shape, generator=generator) < 0.5).to(x.device, x.dtype) * 2


def strided(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Reads the input's memory as if it lay in rows."""
    plain = torch.as_strided(x, x.shape, torch.empty(x.shape).stride(), x.storage_offset())
    return 2 * plain * g


def exp_in_place_rounded(x: torch.Tensor) -> torch.Tensor:
    return x.copy_(torch.exp(x.float()))


PAIRS.functions(
    "product of squares: the saved tensor is on the class, and the second call's",
    normal((5,), (5,)),
    right=lambda: lambda x, y: square(x) * square(y),
    wrong=state_on_the_class,
)
PAIRS.functions(
    "square: the backward adds to the leaf's gradient by itself",
    normal((5,)),
    right=lambda: modifying("nothing"),
    wrong=accumulating,
)
PAIRS.functions(
    "square: the backward doubles its input in place",
    normal((5,)),
    right=lambda: modifying("nothing"),
    wrong=lambda: modifying("input"),
)
PAIRS.functions(
    "square: the backward overwrites its cotangent",
    normal((5,)),
    right=lambda: modifying("nothing"),
    wrong=lambda: modifying("cotangent"),
)
PAIRS.pair(
    "product with itself: both arguments get the whole gradient",
    lambda x: x * x,
    normal((5,)),
    right=lambda g, _o, x: (x * g + x * g,),
    wrong=lambda g, _o, x: (2 * x * g + 2 * x * g,),
)
PAIRS.pair(
    "square: the cotangent is ignored",
    square,
    normal((5,)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda _g, _o, x: (2 * x,),
)
PAIRS.pair(
    "sine: the cotangent's mean instead of the cotangent",
    torch.sin,
    normal((5,)),
    right=lambda g, _o, x: (torch.cos(x) * g,),
    wrong=lambda g, _o, x: (torch.cos(x) * g.mean(),),
)
PAIRS.pair(
    "square: a little noise in every backward",
    square,
    normal((50,)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda g, _o, x: (2 * x * g * (1 + 1e-14 * torch.randint_like(x, -9, 10)),),
)
PAIRS.pair(
    "product: no gradient for the second factor",
    lambda x, y: x * y,
    normal((5,), (5,)),
    right=lambda g, _o, x, y: (g * y, g * x),
    wrong=lambda g, _o, _x, y: (g * y, None),
)
PAIRS.functions(
    "swish: the gate is detached",
    normal((6,)),
    right=lambda: lambda x: x * torch.sigmoid(x),
    wrong=lambda: lambda x: x * torch.sigmoid(x).detach(),
)
PAIRS.pair(
    "dropout: the backward draws another mask",
    lambda x: x * mask(x, 1),
    normal((40,)),
    right=lambda g, _o, x: (g * mask(x, 1),),
    wrong=lambda g, _o, x: (g * mask(x, 2),),
)
PAIRS.functions(
    "cube: the second derivative alone is halved",
    normal((5,)),
    right=lambda: with_second_order(1),
    wrong=lambda: with_second_order(0.5),
    order=2,
)
PAIRS.functions(
    "square: forward mode alone has the wrong sign",
    normal((5,)),
    right=lambda: with_forward_mode(1),
    wrong=lambda: with_forward_mode(-1),
    modes=("reverse", "forward"),
)
PAIRS.pair(
    "square: wrong for inputs that are not contiguous",
    square,
    normal((3, 4)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda g, _o, x: (strided(g, x),),
)
PAIRS.functions(
    "exponential: the in-place variant computes in float32",
    normal((5,)),
    right=lambda: torch.exp,
    wrong=lambda: torch.exp,
    in_place=torch.exp_,
    options_wrong={"in_place": exp_in_place_rounded},
)
PAIRS.pair(
    "square: wrong where the cotangent is negative",
    square,
    normal((6,)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda g, _o, x: (2 * x * g.abs(),),
)
