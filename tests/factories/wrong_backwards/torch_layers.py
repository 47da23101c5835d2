"""Wrong backwards of torch's layers: products, normalisation, losses, attention, convolution, pooling."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from factories.wrong_backwards.pair import between, normal, square_normal
from factories.wrong_backwards.torch_function import shelf

PAIRS = shelf()
EPS = 1e-5
LABELS = (2, 0, 3, 2)


def normalised(x: torch.Tensor, dim: int) -> torch.Tensor:
    centred = x - x.mean(dim, keepdim=True)
    return centred / torch.sqrt((centred**2).mean(dim, keepdim=True) + EPS)


def norm_slope(g: torch.Tensor, x: torch.Tensor, dim: int, *, terms: int) -> torch.Tensor:
    """The gradient of a normalisation, with two, one or none of its correction terms."""
    y = normalised(x, dim)
    scale = torch.rsqrt(x.var(dim, correction=0, keepdim=True) + EPS)
    made = g
    if terms > 0:
        made = made - g.mean(dim, keepdim=True)
    if terms > 1:
        made = made - y * (g * y).mean(dim, keepdim=True)
    return scale * made


def one_hot(x: torch.Tensor) -> torch.Tensor:
    index = torch.tensor(LABELS, device=x.device)
    return functional.one_hot(index, x.shape[-1]).to(x.dtype)


def cross_entropy(x: torch.Tensor) -> torch.Tensor:
    return -(torch.log_softmax(x, -1) * one_hot(x)).sum(-1).mean()


def smoothed(x: torch.Tensor) -> torch.Tensor:
    target = 0.9 * one_hot(x) + 0.1 / x.shape[-1]
    return -(torch.log_softmax(x, -1) * target).sum(-1).mean()


def scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1])


def convolved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A valid correlation in one dimension, by windows."""
    return x.unfold(0, w.shape[0], 1) @ w


def convolved_slopes(
    g: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *, flip: bool, shift: int
) -> tuple[torch.Tensor, torch.Tensor]:
    kernel = w.flip(0) if flip else w
    padded = functional.pad(g, (w.shape[0] - 1, w.shape[0] - 1))
    by_weight = torch.stack([(g * x[i + shift :][: g.shape[0]]).sum() for i in range(w.shape[0])])
    return padded.unfold(0, w.shape[0], 1) @ kernel, by_weight


PAIRS.pair(
    "linear: the weight's gradient is transposed",
    lambda x, w: x @ w,
    normal((3, 4), (4, 4)),
    right=lambda g, _o, x, w: (g @ w.T, x.T @ g),
    wrong=lambda g, _o, x, w: (g @ w.T, (x.T @ g).T),
)
PAIRS.pair(
    "matmul: the two gradients are swapped",
    lambda a, b: a @ b,
    normal((4, 4), (4, 4)),
    right=lambda g, _o, a, b: (g @ b.T, a.T @ g),
    wrong=lambda g, _o, a, b: (a.T @ g, g @ b.T),
)
PAIRS.pair(
    "einsum: an index is mixed up",
    lambda a, b: torch.einsum("bij,bjk->bik", a, b),
    normal((2, 3, 3), (2, 3, 3)),
    right=lambda g, _o, a, b: (torch.einsum("bik,bjk->bij", g, b), torch.einsum("bij,bik->bjk", a, g)),
    wrong=lambda g, _o, a, b: (torch.einsum("bik,bkj->bij", g, b), torch.einsum("bij,bik->bjk", a, g)),
)
PAIRS.pair(
    "quadratic form: the matrix is taken to be symmetric",
    lambda x, a: x @ a @ x,
    normal((4,), (4, 4)),
    right=lambda g, _o, x, a: (g * (a + a.T) @ x, g * torch.outer(x, x)),
    wrong=lambda g, _o, x, a: (g * 2 * a @ x, g * torch.outer(x, x)),
)
PAIRS.pair(
    "inverse: not transposed",
    torch.linalg.inv,
    square_normal((4, 4)),
    right=lambda g, y, _a: (-y.T @ g @ y.T,),
    wrong=lambda g, y, _a: (-y @ g @ y,),
)
PAIRS.pair(
    "log-determinant: not transposed",
    lambda a: torch.linalg.slogdet(a)[1],
    square_normal((4, 4)),
    right=lambda g, _o, a: (g * torch.linalg.inv(a).T,),
    wrong=lambda g, _o, a: (g * torch.linalg.inv(a),),
)
PAIRS.pair(
    "softmax: the gradient is zero",
    lambda x: torch.softmax(x, -1),
    normal((3, 5)),
    right=lambda g, y, _x: (y * (g - (g * y).sum(-1, keepdim=True)),),
    wrong=lambda g, _y, _x: (0 * g,),
)
PAIRS.pair(
    "softmax: the mean term is missing",
    lambda x: torch.softmax(x, -1),
    normal((3, 5)),
    right=lambda g, y, _x: (y * (g - (g * y).sum(-1, keepdim=True)),),
    wrong=lambda g, y, _x: (y * g,),
)
PAIRS.pair(
    "softmax: reduced over the wrong axis",
    lambda x: torch.softmax(x, -1),
    normal((4, 4)),
    right=lambda g, y, _x: (y * (g - (g * y).sum(-1, keepdim=True)),),
    wrong=lambda g, y, _x: (y * (g - (g * y).sum(0, keepdim=True)),),
)
PAIRS.pair(
    "log-softmax: the cotangent is not summed",
    lambda x: torch.log_softmax(x, -1),
    normal((3, 5)),
    right=lambda g, y, _x: (g - torch.exp(y) * g.sum(-1, keepdim=True),),
    wrong=lambda g, y, _x: (g - torch.exp(y) * g,),
)
PAIRS.pair(
    "log-sum-exp: overflows at large inputs",
    lambda x: torch.logsumexp(x, -1),
    between(795, 805, (3, 4)),
    right=lambda g, _o, x: (g[:, None] * torch.softmax(x, -1),),
    wrong=lambda g, _o, x: (g[:, None] * torch.exp(x) / torch.exp(x).sum(-1, keepdim=True),),
)
PAIRS.pair(
    "layer norm: the gradient is zero",
    lambda x: normalised(x, -1),
    normal((3, 6)),
    right=lambda g, _o, x: (norm_slope(g, x, -1, terms=2),),
    wrong=lambda g, _o, _x: (0 * g,),
)
PAIRS.pair(
    "layer norm: the variance's term is missing",
    lambda x: normalised(x, -1),
    normal((3, 6)),
    right=lambda g, _o, x: (norm_slope(g, x, -1, terms=2),),
    wrong=lambda g, _o, x: (norm_slope(g, x, -1, terms=1),),
)
PAIRS.pair(
    "batch norm: the statistics are taken for constants",
    lambda x: normalised(x, 0),
    normal((6, 3)),
    right=lambda g, _o, x: (norm_slope(g, x, 0, terms=2),),
    wrong=lambda g, _o, x: (norm_slope(g, x, 0, terms=0),),
)
PAIRS.pair(
    "normalise: ε is added to the square, not to the norm",
    lambda x: x / (torch.linalg.vector_norm(x) + 1e-3),
    normal((6,)),
    right=lambda g, y, x: (
        (g - y * (g * x).sum() / torch.linalg.vector_norm(x)) / (torch.linalg.vector_norm(x) + 1e-3),
    ),
    wrong=lambda g, _y, x: ((g - x * (g * x).sum() / ((x * x).sum() + 1e-3)) / torch.sqrt((x * x).sum() + 1e-3),),
)
PAIRS.pair(
    "cross entropy: not divided by the batch",
    cross_entropy,
    normal((4, 5)),
    right=lambda g, _o, x: (g * (torch.softmax(x, -1) - one_hot(x)) / x.shape[0],),
    wrong=lambda g, _o, x: (g * (torch.softmax(x, -1) - one_hot(x)),),
)
PAIRS.pair(
    "cross entropy: the labels are not smoothed in the backward",
    smoothed,
    normal((4, 5)),
    right=lambda g, _o, x: (g * (torch.softmax(x, -1) - 0.9 * one_hot(x) - 0.1 / 5) / x.shape[0],),
    wrong=lambda g, _o, x: (g * (torch.softmax(x, -1) - one_hot(x)) / x.shape[0],),
)
PAIRS.pair(
    "attention scores: the query's gradient lacks 1/√d",
    scores,
    normal((3, 4), (5, 4)),
    right=lambda g, _o, q, k: (g @ k / 2, g.mT @ q / 2),
    wrong=lambda g, _o, q, k: (g @ k, g.mT @ q / 2),
)
PAIRS.pair(
    "convolution: the kernel is not flipped",
    convolved,
    normal((9,), (3,)),
    right=lambda g, _o, x, w: convolved_slopes(g, x, w, flip=True, shift=0),
    wrong=lambda g, _o, x, w: convolved_slopes(g, x, w, flip=False, shift=0),
)
PAIRS.pair(
    "convolution: the weight's window begins one too late",
    convolved,
    normal((9,), (3,)),
    right=lambda g, _o, x, w: convolved_slopes(g, x, w, flip=True, shift=0),
    wrong=lambda g, _o, x, w: convolved_slopes(g, functional.pad(x, (0, 1)), w, flip=True, shift=1),
)
PAIRS.pair(
    "average pooling: the padded edge counts as half a window",
    lambda x: functional.avg_pool1d(x[None], 3, 1, 1)[0],
    normal((2, 7)),
    right=lambda g, _o, _x: (functional.avg_pool1d(g[None], 3, 1, 1)[0],),
    wrong=lambda g, _o, _x: (functional.avg_pool1d(g[None], 3, 1, 1, count_include_pad=False)[0],),
)
