"""Wrong backwards of paddle."""

from __future__ import annotations

from typing import Any

import paddle
from paddle.nn import functional

from factories.wrong_backwards.paddle_function import shelf
from factories.wrong_backwards.pair import between, normal

PAIRS = shelf()
EPS = 1e-5


def normalised(x: Any) -> Any:
    centred = x - x.mean(-1, keepdim=True)
    return centred / paddle.sqrt((centred * centred).mean(-1, keepdim=True) + EPS)


def norm_slope(g: Any, x: Any, *, mean: bool) -> Any:
    y = normalised(x)
    scale = 1 / paddle.sqrt(x.var(-1, unbiased=False, keepdim=True) + EPS)
    made = g - y * (g * y).mean(-1, keepdim=True)
    return scale * (made - g.mean(-1, keepdim=True) if mean else made)


def spoiled(value: Any, index: int, factor: float) -> Any:
    made = value.numpy().copy()
    made.reshape(-1)[index] *= factor
    return paddle.to_tensor(made, place=value.place)


PAIRS.pair(
    "square: the factor 2 is missing in paddle",
    lambda x: x * x,
    normal((3, 4)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda g, _o, x: (x * g,),
)
PAIRS.pair(
    "subtract: the signs are swapped",
    lambda x, y: x - y,
    normal((5,), (5,)),
    right=lambda g, _o, _x, _y: (g * 1, g * -1),
    wrong=lambda g, _o, _x, _y: (g * -1, g * 1),
)
PAIRS.pair(
    "matmul: the second gradient is transposed",
    paddle.matmul,
    normal((4, 4), (4, 4)),
    right=lambda g, _o, a, b: (paddle.matmul(g, b.T), paddle.matmul(a.T, g)),
    wrong=lambda g, _o, a, b: (paddle.matmul(g, b.T), paddle.matmul(g.T, a)),
)
PAIRS.pair(
    "softmax: the gradient is zero in paddle",
    lambda x: functional.softmax(x, -1),
    normal((3, 4)),
    right=lambda g, y, _x: (y * (g - (g * y).sum(-1, keepdim=True)),),
    wrong=lambda g, _y, _x: (paddle.zeros_like(g),),
)
PAIRS.pair(
    "layer norm: the mean term is missing",
    normalised,
    normal((3, 5)),
    right=lambda g, _o, x: (norm_slope(g, x, mean=True),),
    wrong=lambda g, _o, x: (norm_slope(g, x, mean=False),),
)
PAIRS.pair(
    "bias: the batch is averaged, not summed",
    lambda x, b: x + b,
    normal((4, 3), (3,)),
    right=lambda g, _o, _x, _b: (g * 1, g.sum(0)),
    wrong=lambda g, _o, _x, _b: (g * 1, g.mean(0)),
)
PAIRS.pair(
    "sigmoid: the cotangent is ignored",
    functional.sigmoid,
    normal((6,)),
    right=lambda g, y, _x: (g * y * (1 - y),),
    wrong=lambda _g, y, _x: (y * (1 - y),),
)
PAIRS.pair(
    "cumulative sum: not reversed in paddle",
    lambda x: paddle.cumsum(x, 0),
    normal((6,)),
    right=lambda g, _o, _x: (paddle.flip(paddle.cumsum(paddle.flip(g, 0), 0), 0),),
    wrong=lambda g, _o, _x: (paddle.cumsum(g, 0),),
)
PAIRS.pair(
    "elu: the negative side gets the positive slope",
    lambda x: paddle.where(x > 0, x, paddle.exp(x) - 1),
    normal((24,)),
    right=lambda g, _o, x: (g * paddle.where(x > 0, paddle.ones_like(x), paddle.exp(x)),),
    wrong=lambda g, _o, _x: (g * 1,),
)
PAIRS.pair(
    "logarithm: off by a hundred-thousandth",
    paddle.log,
    between(0.5, 2, (6,)),
    right=lambda g, _o, x: (g / x,),
    wrong=lambda g, _o, x: (g / x * (1 + 1e-5),),
)
PAIRS.pair(
    "square: one index of 100,000 has the wrong sign",
    lambda x: x * x,
    between(0.5, 1.5, (100_000,)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda g, _o, x: (spoiled(2 * x * g, 99_998, -1.0),),
)
PAIRS.pair(
    "maximum of two: the smaller one gets the gradient",
    paddle.maximum,
    normal((7,), (7,)),
    right=lambda g, _o, x, y: (g * (x > y).astype(g.dtype), g * (x <= y).astype(g.dtype)),
    wrong=lambda g, _o, x, y: (g * (x <= y).astype(g.dtype), g * (x > y).astype(g.dtype)),
)
PAIRS.pair(
    "stack: the parts are swapped",
    lambda x, y: paddle.stack([x, y]),
    normal((4,), (4,)),
    right=lambda g, _o, _x, _y: (g[0], g[1]),
    wrong=lambda g, _o, _x, _y: (g[1], g[0]),
)
PAIRS.pair(
    "reshape: the gradient is read in another order",
    lambda x: paddle.reshape(x, [6, 2]),
    normal((3, 4)),
    right=lambda g, _o, _x: (paddle.reshape(g, [3, 4]),),
    wrong=lambda g, _o, _x: (paddle.reshape(g.T, [3, 4]),),
)
