"""Wrong backwards of torch that move elements: broadcasting, axes, windows, indices, masks."""

from __future__ import annotations

import numpy as np
import torch

from factories.wrong_backwards.pair import normal
from factories.wrong_backwards.torch_function import shelf

PAIRS = shelf()
INDEX = (0, 2, 2, 1, 2)


def index(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(INDEX, device=x.device)


def gathered(g: torch.Tensor, x: torch.Tensor, *, shift: int = 0) -> torch.Tensor:
    return torch.zeros_like(x).index_add_(0, (index(x) + shift) % x.shape[0], g)


def overwritten(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros_like(x)
    made[index(x)] = g
    return made


def tied(x: torch.Tensor) -> torch.Tensor:
    return (x == x.amax(-1, keepdim=True)).to(x.dtype)


def windows(g: torch.Tensor, x: torch.Tensor, *, overlap: bool) -> torch.Tensor:
    """Each window's gradient at its maximum; windows of 3 that step by 2 share an element."""
    made = torch.zeros_like(x)
    for i in range(g.shape[0]):
        at = 2 * i + int(x[2 * i : 2 * i + 3].argmax())
        made[at] = g[i] + (made[at] if overlap else 0)
    return made


PAIRS.pair(
    "bias: only the first row reaches the broadcast bias",
    lambda x, b: x + b,
    normal((4, 5), (5,)),
    right=lambda g, _o, _x, _b: (g, g.sum(0)),
    wrong=lambda g, _o, _x, _b: (g, g[0].clone()),
)
PAIRS.pair(
    "scale: the mean instead of the sum over the broadcast axis",
    lambda x, s: x * s,
    normal((4, 5), (4, 1)),
    right=lambda g, _o, x, s: (g * s, (g * x).sum(1, keepdim=True)),
    wrong=lambda g, _o, x, s: (g * s, (g * x).mean(1, keepdim=True)),
)
PAIRS.pair(
    "bias of a square input: summed over the wrong axis",
    lambda x, b: x + b,
    normal((4, 4), (4,)),
    right=lambda g, _o, _x, _b: (g, g.sum(0)),
    wrong=lambda g, _o, _x, _b: (g, g.sum(1)),
)
PAIRS.pair(
    "row sums: spread along the wrong axis",
    lambda x: (x * x).sum(1),
    normal((4, 4)),
    right=lambda g, _o, x: (2 * x * g[:, None],),
    wrong=lambda g, _o, x: (2 * x * g[None, :],),
)
PAIRS.pair(
    "mean: the 1/n is missing",
    lambda x: x.mean(1),
    normal((3, 5)),
    right=lambda g, _o, x: (g[:, None].expand_as(x) / 5,),
    wrong=lambda g, _o, x: (g[:, None].expand_as(x).clone(),),
)
PAIRS.pair(
    "variance: divided by n instead of n − 1",
    lambda x: x.var(1),
    normal((3, 5)),
    right=lambda g, _o, x: (2 * g[:, None] * (x - x.mean(1, keepdim=True)) / 4,),
    wrong=lambda g, _o, x: (2 * g[:, None] * (x - x.mean(1, keepdim=True)) / 5,),
)
PAIRS.pair(
    "cumulative sum: the gradient is not reversed",
    lambda x: x.cumsum(0),
    normal((8,)),
    right=lambda g, _o, _x: (g.flip(0).cumsum(0).flip(0),),
    wrong=lambda g, _o, _x: (g.cumsum(0),),
)
PAIRS.pair(
    "cumulative sum: exclusive where it should be inclusive",
    lambda x: x.cumsum(0),
    normal((8,)),
    right=lambda g, _o, _x: (g.flip(0).cumsum(0).flip(0),),
    wrong=lambda g, _o, _x: (g.flip(0).cumsum(0).flip(0) - g,),
)
PAIRS.pair(
    "roll: rolled on instead of back",
    lambda x: x.roll(1, 0),
    normal((8,)),
    right=lambda g, _o, _x: (g.roll(-1, 0),),
    wrong=lambda g, _o, _x: (g.roll(1, 0),),
)
PAIRS.pair(
    "transpose: the gradient stays as it came",
    lambda x: x.T * 2,
    normal((4, 4)),
    right=lambda g, _o, _x: (2 * g.T,),
    wrong=lambda g, _o, _x: (2 * g,),
)
PAIRS.pair(
    "gather: duplicate indices overwrite each other",
    lambda x: x[index(x)],
    normal((4, 3)),
    right=lambda g, _o, x: (gathered(g, x),),
    wrong=lambda g, _o, x: (overwritten(g, x),),
)
PAIRS.pair(
    "gather: every index is off by one",
    lambda x: x[index(x)],
    normal((4, 3)),
    right=lambda g, _o, x: (gathered(g, x),),
    wrong=lambda g, _o, x: (gathered(g, x, shift=1),),
)
PAIRS.pair(
    "embedding: the first row is taken for padding",
    lambda x: x[index(x)],
    normal((4, 3)),
    right=lambda g, _o, x: (gathered(g, x),),
    wrong=lambda g, _o, x: (gathered(g, x) * (torch.arange(4, device=x.device) > 0)[:, None],),
)
PAIRS.pair(
    "lower triangle: the diagonal is left out",
    lambda x: torch.tril(x) ** 2,
    normal((4, 4)),
    right=lambda g, _o, x: (2 * torch.tril(g * x),),
    wrong=lambda g, _o, x: (2 * torch.tril(g * x, -1),),
)
PAIRS.pair(
    "sort: the gradient is permuted once more instead of back",
    lambda x: x.sort()[0],
    normal((24,)),
    right=lambda g, _o, x: (g[x.argsort().argsort()],),
    wrong=lambda g, _o, x: (g[x.argsort()],),
)
PAIRS.pair(
    "maximum: every tie gets the whole gradient",
    lambda x: x.amax(-1),
    lambda rng: (rng.standard_normal((3, 4)) * [1, 1, 0, 0] + [0, 0, 5, 5],),
    right=lambda g, _o, x: (g[:, None] * tied(x) / tied(x).sum(-1, keepdim=True),),
    wrong=lambda g, _o, x: (g[:, None] * tied(x),),
)
PAIRS.pair(
    "maximum pooling: shared elements keep the last window's gradient",
    lambda x: x.unfold(0, 3, 2).amax(-1),
    lambda rng: (rng.standard_normal(9) + 5 * (np.arange(9) % 4 == 2),),
    right=lambda g, _o, x: (windows(g, x, overlap=True),),
    wrong=lambda g, _o, x: (windows(g, x, overlap=False),),
)
PAIRS.pair(
    "concatenation: the parts are split at the wrong place",
    lambda x, y: torch.cat((x, y)),
    normal((3,), (3,)),
    right=lambda g, _o, _x, _y: (g[:3].clone(), g[3:].clone()),
    wrong=lambda g, _o, _x, _y: (g[1:4].clone(), g[3:].clone()),
)
