"""Wrong backwards of jax's layers."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from factories.wrong_backwards.jax_function import shelf
from factories.wrong_backwards.pair import between, normal

PAIRS = shelf()


def rms(x: jax.Array) -> jax.Array:
    return jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def rotated(x: jax.Array, angle: float) -> jax.Array:
    """Pairs of neighbours turned by an angle, as rotary embeddings do."""
    a, b = x[..., 0::2], x[..., 1::2]
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack((a * c - b * s, a * s + b * c), -1).reshape(x.shape)


def gated_slopes(g: jax.Array, x: jax.Array, y: jax.Array, *, whole: bool) -> tuple[jax.Array, jax.Array]:
    """x·sigmoid(x)·y; the gradient of x has two terms."""
    s = jax.nn.sigmoid(x)
    slope = s + x * s * (1 - s) if whole else s
    return g * y * slope, g * x * s


PAIRS.pair(
    "matmul: the first gradient is transposed",
    lambda a, b: a @ b,
    normal((4, 4), (4, 4)),
    right=lambda g, _o, a, b: (g @ b.T, a.T @ g),
    wrong=lambda g, _o, a, b: ((g @ b.T).T, a.T @ g),
)
PAIRS.pair(
    "softmax: the gradient is zero in jax",
    lambda x: jax.nn.softmax(x, -1),
    normal((3, 4)),
    right=lambda g, y, _x: (y * (g - (g * y).sum(-1, keepdims=True)),),
    wrong=lambda g, _y, _x: (jnp.zeros_like(g),),
)
PAIRS.pair(
    "log-softmax: the softmax term is missing",
    lambda x: jax.nn.log_softmax(x, -1),
    normal((3, 4)),
    right=lambda g, y, _x: (g - jnp.exp(y) * g.sum(-1, keepdims=True),),
    wrong=lambda g, _y, _x: (g,),
)
PAIRS.pair(
    "rms norm: the root is taken for a constant",
    lambda x: x / rms(x),
    normal((3, 5)),
    right=lambda g, y, x: ((g - y * (g * y).mean(-1, keepdims=True)) / rms(x),),
    wrong=lambda g, _y, x: (g / rms(x),),
)
PAIRS.pair(
    "rms norm: another ε in the backward",
    lambda x: x / rms(x),
    normal((3, 5)),
    right=lambda g, y, x: ((g - y * (g * y).mean(-1, keepdims=True)) / rms(x),),
    wrong=lambda g, y, x: ((g - y * (g * y).mean(-1, keepdims=True)) / (rms(x) + 1e-5),),
)
PAIRS.pair(
    "bias: the gradient is of one row of the batch",
    lambda x, b: x * b,
    normal((3, 4), (4,)),
    right=lambda g, _o, x, b: (g * b, (g * x).sum(0)),
    wrong=lambda g, _o, x, b: (g * b, (g * x)[-1]),
)
PAIRS.pair(
    "rotary embedding: turned on instead of back",
    lambda x: rotated(x, 0.7),
    normal((3, 6)),
    right=lambda g, _o, _x: (rotated(g, -0.7),),
    wrong=lambda g, _o, _x: (rotated(g, 0.7),),
)
PAIRS.pair(
    "gated unit: the gate's second term is missing",
    lambda x, y: x * jax.nn.sigmoid(x) * y,
    normal((5,), (5,)),
    right=lambda g, _o, x, y: gated_slopes(g, x, y, whole=True),
    wrong=lambda g, _o, x, y: gated_slopes(g, x, y, whole=False),
)
PAIRS.pair(
    "log-sum-exp: not shifted by the maximum",
    lambda x: jax.nn.logsumexp(x, -1),
    between(795, 805, (2, 4)),
    right=lambda g, _o, x: (g[:, None] * jax.nn.softmax(x, -1),),
    wrong=lambda g, _o, x: (g[:, None] * jnp.exp(x) / jnp.exp(x).sum(-1, keepdims=True),),
)
PAIRS.pair(
    "cumulative product: the factors before are forgotten",
    lambda x: jnp.stack((x[0], x[0] * x[1], x[0] * x[1] * x[2])),
    between(0.5, 2, (3,)),
    right=lambda g, y, x: (jnp.stack([(g * y)[i:].sum() / x[i] for i in range(3)]),),
    wrong=lambda g, y, x: (g * y / x,),
)
PAIRS.pair(
    "standard deviation: the mean is not subtracted",
    lambda x: x.std(-1),
    normal((3, 5)),
    right=lambda g, y, x: ((g / y)[:, None] * (x - x.mean(-1, keepdims=True)) / 5,),
    wrong=lambda g, y, x: ((g / y)[:, None] * x / 5,),
)
