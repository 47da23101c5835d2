"""Wrong backwards written by hand for numpy: windows, interpolation, recurrences, losses."""

from __future__ import annotations

import numpy as np

from factories.wrong_backwards.numpy_function import shelf
from factories.wrong_backwards.pair import Array, complex_normal, normal

PAIRS = shelf()
SEGMENTS = np.array([0, 0, 1, 2, 2, 2])
PARTS = tuple(np.flatnonzero(np.equal(SEGMENTS, i)) for i in range(3))


def interpolated(x: Array) -> Array:
    """Twice as many points, the last one repeated at the border."""
    right = np.concatenate((x[1:], x[-1:]))
    return np.stack((x, (x + right) / 2), 1).reshape(-1)


def interpolated_slope(g: Array, *, border: bool) -> Array:
    even, odd = g[0::2], g[1::2]
    made = even + odd / 2
    made[1:] += odd[:-1] / 2
    if border:
        made[-1] += odd[-1] / 2
    return made


def moving_mean(x: Array) -> Array:
    return (x[:-2] + x[1:-1] + x[2:]) / 3


def moving_slope(g: Array, shift: int) -> Array:
    made = np.zeros(g.size + 2)
    for i in range(3):
        made[(np.arange(g.size) + i + shift) % made.size] += g / 3
    return made


def recurrent(x: Array) -> Array:
    """h ← h/2 + x², each state kept."""
    states = [x[0] * x[0]]
    for one in x[1:]:
        states.append(states[-1] / 2 + one * one)
    return np.stack(states)


def recurrent_slope(g: Array, x: Array, *, carried: bool) -> Array:
    made, carry = np.zeros_like(g), 0.0 * g[0]
    for i in range(g.size - 1, -1, -1):
        carry = g[i] + (carry / 2 if carried else 0)
        made[i] = 2 * x[i] * carry
    return made


def softmax(x: Array) -> Array:
    e: Array = np.exp(x - x.real.max(-1, keepdims=True))
    made: Array = e / e.sum(-1, keepdims=True)
    return made


def huber(x: Array) -> Array:
    return np.where(np.abs(x.real) < 1, x * x / 2, np.sign(x.real) * x - 0.5)


PAIRS.pair(
    "interpolation: the border is left out",
    interpolated,
    normal((6,)),
    right=lambda g, _o, _x: (interpolated_slope(g, border=True),),
    wrong=lambda g, _o, _x: (interpolated_slope(g, border=False),),
)
PAIRS.pair(
    "moving mean: the window is off by one",
    moving_mean,
    normal((8,)),
    right=lambda g, _o, _x: (moving_slope(g, 0),),
    wrong=lambda g, _o, _x: (moving_slope(g, 1),),
)
PAIRS.pair(
    "recurrence: the gradient is not carried back",
    recurrent,
    normal((6,)),
    right=lambda g, _o, x: (recurrent_slope(g, x, carried=True),),
    wrong=lambda g, _o, x: (recurrent_slope(g, x, carried=False),),
)
PAIRS.pair(
    "softmax: the mean term is missing in numpy, too",
    softmax,
    normal((3, 4)),
    right=lambda g, y, _x: (y * (g - (g * y).sum(-1, keepdims=True)),),
    wrong=lambda g, y, _x: (y * g,),
)
PAIRS.pair(
    "huber: the linear branch keeps the quadratic slope",
    huber,
    normal((12,), scale=2.0),
    right=lambda g, _o, x: (g * np.clip(x, -1, 1),),
    wrong=lambda g, _o, x: (g * x,),
)
PAIRS.pair(
    "segment sums: averages in the backward",
    lambda x: np.stack([x[part].sum(0) for part in PARTS]),
    normal((6, 2)),
    right=lambda g, _o, _x: (g[SEGMENTS],),
    wrong=lambda g, _o, _x: ((g / np.bincount(SEGMENTS)[:, None])[SEGMENTS],),
)
PAIRS.pair(
    "mean squared error: the target's gradient has the prediction's sign",
    lambda x, t: ((x - t) ** 2).mean(),
    normal((5,), (5,)),
    right=lambda g, _o, x, t: (2 * g * (x - t) / 5, -2 * g * (x - t) / 5),
    wrong=lambda g, _o, x, t: (2 * g * (x - t) / 5, 2 * g * (x - t) / 5),
)
PAIRS.pair(
    "complex square: the conjugate is missing in numpy",
    lambda z: z * z,
    complex_normal((4,)),
    right=lambda g, _o, z: (2 * g * z.conj(),),
    wrong=lambda g, _o, z: (2 * g * z,),
)
PAIRS.pair(
    "batched matrix product: the batch is not summed for the shared weight",
    lambda x, w: x @ w,
    normal((2, 3, 4), (4, 2)),
    right=lambda g, _o, x, w: (g @ w.T, np.einsum("bij,bik->jk", x, g)),
    wrong=lambda g, _o, x, w: (g @ w.T, x[0].T @ g[0]),
)
