"""Wrong backwards of torch, element by element: signs, factors, masks, branches, precisions."""

from __future__ import annotations

import math

import torch

from factories.wrong_backwards.pair import between, complex_normal, normal
from factories.wrong_backwards.torch_function import shelf

PAIRS = shelf()
C, GELU = math.sqrt(2 / math.pi), 0.044715
N = 100_000


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(C * (x + GELU * x**3)))


def gelu_slope(x: torch.Tensor, coefficient: float) -> torch.Tensor:
    t = torch.tanh(C * (x + coefficient * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * C * (1 + 3 * coefficient * x * x)


def spoiled(value: torch.Tensor, index: int, factor: float) -> torch.Tensor:
    """One element times a factor."""
    made = value.clone()
    made.view(-1)[index] *= factor
    return made


PAIRS.pair(
    "subtract: the second gradient has the wrong sign",
    lambda x, y: x - y,
    normal((3, 4), (3, 4)),
    right=lambda g, _o, _x, _y: (g, -g),
    wrong=lambda g, _o, _x, _y: (g, g),
)
PAIRS.pair(
    "square: the factor 2 is missing",
    lambda x: x * x,
    normal((3, 4)),
    right=lambda g, _o, x: (2 * x * g,),
    wrong=lambda g, _o, x: (x * g,),
)
PAIRS.pair(
    "cube: twice the gradient",
    lambda x: x**3,
    normal((3, 4)),
    right=lambda g, _o, x: (3 * x * x * g,),
    wrong=lambda g, _o, x: (6 * x * x * g,),
)
PAIRS.pair(
    "tanh: the square is of the input, not of the output",
    torch.tanh,
    normal((7,)),
    right=lambda g, y, _x: (g * (1 - y * y),),
    wrong=lambda g, _y, x: (g * (1 - x * x),),
)
PAIRS.pair(
    "exp(2x): the saved tensor is the input before it was doubled",
    lambda x: torch.exp(2 * x),
    normal((7,)),
    right=lambda g, y, _x: (2 * g * y,),
    wrong=lambda g, _y, x: (2 * g * torch.exp(x),),
)
PAIRS.pair(
    "divide: the divisor's gradient is not squared",
    lambda x, y: x / y,
    between(0.5, 3, (5,), (5,)),
    right=lambda g, _o, x, y: (g / y, -g * x / y**2),
    wrong=lambda g, _o, x, y: (g / y, -g * x / y),
)
PAIRS.pair(
    "atan2: the two gradients are swapped",
    torch.atan2,
    between(0.5, 3, (5,), (5,)),
    right=lambda g, _o, y, x: (g * x / (x * x + y * y), -g * y / (x * x + y * y)),
    wrong=lambda g, _o, y, x: (-g * y / (x * x + y * y), g * x / (x * x + y * y)),
)
PAIRS.pair(
    "relu: the mask is of the wrong side",
    lambda x: torch.clamp(x, min=0),
    normal((11,)),
    right=lambda g, _o, x: (g * (x > 0),),
    wrong=lambda g, _o, x: (g * (x < 0),),
)
PAIRS.pair(
    "clamp: the mask is inverted",
    lambda x: torch.clamp(x, -0.5, 0.5),
    normal((11,)),
    right=lambda g, _o, x: (g * (x.abs() < 0.5),),
    wrong=lambda g, _o, x: (g * (x.abs() >= 0.5),),
)
PAIRS.pair(
    "leaky relu: negative inputs get no slope",
    lambda x: torch.where(x > 0, x, 0.1 * x),
    normal((24,)),
    right=lambda g, _o, x: (torch.where(x > 0, g, 0.1 * g),),
    wrong=lambda g, _o, x: (torch.where(x > 0, g, 0 * g),),
)
PAIRS.pair(
    "where: one branch gets the other's gradient",
    lambda x, y: torch.where(x > 0, x * y, y**2),
    normal((24,), (24,)),
    right=lambda g, _o, x, y: (torch.where(x > 0, g * y, 0 * g), torch.where(x > 0, g * x, 2 * g * y)),
    wrong=lambda g, _o, x, y: (torch.where(x > 0, g * y, 0 * g), g * x),
)
PAIRS.pair(
    "softplus: large inputs get no gradient",
    lambda x: torch.where(x > 20, x, torch.log1p(torch.exp(x.clamp(max=20)))),
    lambda rng: (rng.uniform(0, 5, 12) + [10, 25] * 6,),
    right=lambda g, _o, x: (torch.where(x > 20, g, g * torch.sigmoid(x)),),
    wrong=lambda g, _o, x: (torch.where(x > 20, 0 * g, g * torch.sigmoid(x)),),
)
PAIRS.pair(
    "sinc: the gradient is NaN at zero",
    lambda x: torch.where(x == 0, torch.ones_like(x), torch.sin(x) / x),
    lambda rng: (rng.standard_normal(6) * [1, 1, 0, 1, 1, 1],),
    right=lambda g, _o, x: (
        g * torch.where(x == 0, 0 * x, (torch.cos(x) - torch.sin(x) / x) / torch.where(x == 0, 1 + x, x)).nan_to_num(0),
    ),
    wrong=lambda g, _o, x: (g * (torch.cos(x) - torch.sin(x) / x) / x,),
)
PAIRS.pair(
    "gelu: the coefficient is off by 0.1 per cent",
    gelu,
    normal((9,)),
    right=lambda g, _o, x: (g * gelu_slope(x, GELU),),
    wrong=lambda g, _o, x: (g * gelu_slope(x, GELU * 1.001),),
)
PAIRS.pair(
    "gelu: the gradient is off by a millionth",
    gelu,
    normal((9,)),
    right=lambda g, _o, x: (g * gelu_slope(x, GELU),),
    wrong=lambda g, _o, x: (g * gelu_slope(x, GELU) * (1 + 1e-6),),
)
PAIRS.pair(
    "erf: the constant is 2/π instead of 2/√π",
    torch.erf,
    normal((9,)),
    right=lambda g, _o, x: (g * torch.exp(-x * x) * (2 / math.sqrt(math.pi)),),
    wrong=lambda g, _o, x: (g * torch.exp(-x * x) * (2 / math.pi),),
)
PAIRS.pair(
    "power: the exponent's gradient lacks its logarithm",
    torch.pow,
    between(0.5, 3, (5,), (5,)),
    right=lambda g, o, x, y: (g * y * x ** (y - 1), g * o * torch.log(x)),
    wrong=lambda g, o, x, y: (g * y * x ** (y - 1), g * o),
)
PAIRS.pair(
    "sine: one index of 100,000 gets no gradient",
    torch.sin,
    normal((N,)),
    right=lambda g, _o, x: (g * torch.cos(x),),
    wrong=lambda g, _o, x: (spoiled(g * torch.cos(x), 54_321, 0.0),),
)
PAIRS.pair(
    "exponential: one index of 100,000 is off by one per cent",
    torch.exp,
    between(-1, 1, (N,)),
    right=lambda g, y, _x: (g * y,),
    wrong=lambda g, y, _x: (spoiled(g * y, 77_777, 1.01),),
)
PAIRS.pair(
    "sine: the last element is forgotten",
    torch.sin,
    normal((1000,)),
    right=lambda g, _o, x: (g * torch.cos(x),),
    wrong=lambda g, _o, x: (spoiled(g * torch.cos(x), -1, 0.0),),
)
PAIRS.pair(
    "sine: wrong in bfloat16 only",
    torch.sin,
    normal((40,)),
    right=lambda g, _o, x: (g * torch.cos(x),),
    wrong=lambda g, _o, x: (g * torch.cos(x) * (1.25 if x.dtype is torch.bfloat16 else 1),),
    dtypes=("bfloat16",),
)
PAIRS.pair(
    "scale: overflows in float16 only",
    lambda x: 3 * x,
    normal((40,)),
    right=lambda g, _o, _x: (3 * g,),
    wrong=lambda g, _o, _x: ((3 * g * 2.0**16) / 2.0**16,),
    dtypes=("float16", "bfloat16"),
)
PAIRS.pair(
    "complex product: the conjugate is missing",
    lambda x, y: x * y,
    complex_normal((4,), (4,)),
    right=lambda g, _o, x, y: (g * y.conj(), g * x.conj()),
    wrong=lambda g, _o, x, y: (g * y, g * x),
)
PAIRS.pair(
    "complex absolute value: the gradient is conjugated",
    torch.abs,
    complex_normal((5,)),
    right=lambda g, y, x: (g * x / y,),
    wrong=lambda g, y, x: (g * x.conj() / y,),
)
