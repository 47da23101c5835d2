"""Wrong backwards written by hand for numpy: elements, broadcasting, axes."""

from __future__ import annotations

import numpy as np

from factories.wrong_backwards.numpy_function import shelf
from factories.wrong_backwards.pair import Array, between, normal

PAIRS = shelf()
N = 100_000


def spoiled(value: Array, index: int, factor: float) -> Array:
    made = value.copy()
    made.reshape(-1)[index] *= factor
    return made


def norm_slope(g: Array, x: Array) -> Array:
    length = np.sqrt((x * x).sum())
    return g * x / length if length else 0 * x


PAIRS.pair(
    "product: the two factors' gradients are swapped",
    lambda x, y: x * y,
    normal((4,), (4,)),
    right=lambda g, _o, x, y: (g * y, g * x),
    wrong=lambda g, _o, x, y: (g * x, g * y),
)
PAIRS.pair(
    "reciprocal: the sign is wrong",
    lambda x: 1 / x,
    between(0.5, 2, (6,)),
    right=lambda g, y, _x: (-g * y * y,),
    wrong=lambda g, y, _x: (g * y * y,),
)
PAIRS.pair(
    "sigmoid: of the input instead of the output",
    lambda x: 1 / (1 + np.exp(-x)),
    normal((6,)),
    right=lambda g, y, _x: (g * y * (1 - y),),
    wrong=lambda g, _y, x: (g * x * (1 - x),),
)
PAIRS.pair(
    "square root: the half is missing",
    np.sqrt,
    between(0.5, 2, (6,)),
    right=lambda g, y, _x: (g / (2 * y),),
    wrong=lambda g, y, _x: (g / y,),
)
PAIRS.pair(
    "logarithm: the gradient is clipped",
    np.log,
    lambda rng: (np.append(rng.uniform(0.3, 2, 20), rng.uniform(0.01, 0.1, 4)),),
    right=lambda g, _o, x: (g / x,),
    wrong=lambda g, _o, x: (g / np.maximum(x, 0.2),),
)
PAIRS.pair(
    "hypotenuse: the second leg gets the first's gradient",
    lambda x, y: np.sqrt(x * x + y * y),
    between(0.5, 2, (4,), (4,)),
    right=lambda g, o, x, y: (g * x / o, g * y / o),
    wrong=lambda g, o, x, _y: (g * x / o, g * x / o),
)
PAIRS.pair(
    "square: ones instead of the cotangent",
    lambda x: x * x,
    normal((6,)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda g, _o, x: (2 * x * np.ones_like(g),),
)
PAIRS.pair(
    "square: one index of 100,000 is off by one per cent",
    lambda x: x * x,
    between(0.5, 1.5, (N,)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda g, _o, x: (spoiled(2 * x * g, 31_415, 1.01),),
)
PAIRS.pair(
    "square: the first element is off by a thousandth",
    lambda x: x * x,
    between(0.5, 1.5, (300,)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda g, _o, x: (spoiled(2 * x * g, 0, 1.001),),
)
PAIRS.pair(
    "broadcast sum: not reduced to the scalar",
    lambda x, s: x + s,
    normal((6,), ()),
    right=lambda g, _o, _x, _s: (g, g.sum()),
    wrong=lambda g, _o, _x, _s: (g, g),
)
PAIRS.pair(
    "scale per row: the gradient has lost an axis",
    lambda x, s: x * s,
    normal((3, 4), (3, 1)),
    right=lambda g, _o, x, s: (g * s, (g * x).sum(1, keepdims=True)),
    wrong=lambda g, _o, x, s: (g * s, (g * x).sum(1)),
)
PAIRS.pair(
    "total: a gradient of one number for the whole array",
    lambda x: (x * 3).sum(),
    normal((2, 3)),
    right=lambda g, _o, x: (3 * g * np.ones_like(x),),
    wrong=lambda g, _o, _x: (3 * g,),
)
PAIRS.pair(
    "outer product: transposed",
    np.multiply.outer,
    normal((4,), (4,)),
    right=lambda g, _o, x, y: (g @ y, x @ g),
    wrong=lambda g, _o, x, y: (y @ g, g @ x),
)
PAIRS.pair(
    "product of a row: divided by an element that is zero",
    np.prod,
    lambda rng: (rng.uniform(0.5, 2, 5) * [1, 1, 0, 1, 1],),
    right=lambda g, _o, x: (g * np.array([np.prod(np.delete(x, i)) for i in range(x.size)]),),
    wrong=lambda g, o, x: (g * o / np.where(x == 0, np.nan, x),),
)
PAIRS.pair(
    "norm: the gradient is NaN at the origin",
    lambda x: np.sqrt((x * x).sum()),
    lambda _rng: (np.zeros(4),),
    right=lambda g, _o, x: (norm_slope(g, x),),
    wrong=lambda g, _o, x: (g * (x + np.nan),),
)
PAIRS.pair(
    "difference: the last element is forgotten",
    lambda x: x[1:] - x[:-1],
    normal((8,)),
    right=lambda g, _o, _x: (np.pad(g, (1, 0)) - np.pad(g, (0, 1)),),
    wrong=lambda g, _o, _x: (np.pad(g[:-1], (1, 1)) - np.pad(g, (0, 1)),),
)
PAIRS.pair(
    "reversal: the gradient is not turned back",
    lambda x: np.flip(x, 0) ** 2,
    normal((7,)),
    right=lambda g, _o, x: (2 * x * np.flip(g, 0),),
    wrong=lambda g, _o, x: (2 * x * g,),
)
PAIRS.pair(
    "absolute value: always the positive side",
    np.abs,
    normal((24,)),
    right=lambda g, _o, x: (g * np.sign(x),),
    wrong=lambda g, _o, _x: (g,),
)
