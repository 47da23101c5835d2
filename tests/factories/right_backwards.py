"""Numpy functions with right backwards, of many kinds: elementwise, sums, matrices, kinks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Backward = Callable[[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]], Any]


class Right(NamedTuple):
    """A function, its backward, and a way to draw inputs."""

    name: str
    fn: Callable[..., Any]
    backward: Backward
    inputs: Callable[[np.random.Generator], tuple[Array, ...]]


def normal(*shape: int, scale: float = 1.0) -> Callable[[np.random.Generator], tuple[Array, ...]]:
    return lambda rng: (scale * rng.standard_normal(shape),)


def elementwise(name: str, fn: Callable[[Array], Array], slope: Callable[[Array], Array], scale: float = 1.0) -> Right:
    return Right(name, fn, lambda i, _o, c: slope(i[0]) * c[0], normal(37, scale=scale))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _softmax_back(i: tuple[Any, ...], _o: tuple[Any, ...], c: tuple[Any, ...]) -> Array:
    y = softmax(i[0])
    return np.asarray(y * (c[0] - (c[0] * y).sum(-1, keepdims=True)))


def normed(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5))


def _normed_back(i: tuple[Any, ...], _o: tuple[Any, ...], c: tuple[Any, ...]) -> Array:
    x, v = i[0], c[0]
    spread = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    y = normed(x)
    mean = v.mean(-1, keepdims=True)
    return np.asarray((v - mean - y * (v * y).mean(-1, keepdims=True)) / spread)


def pooled(x: Array) -> Array:
    return np.asarray(x.reshape(-1, 4).max(1))


def _pooled_back(i: tuple[Any, ...], _o: tuple[Any, ...], c: tuple[Any, ...]) -> Array:
    rows = i[0].reshape(-1, 4)
    chosen = np.arange(4) == rows.argmax(1)[:, None]
    return np.asarray((chosen * np.reshape(c[0], (-1, 1))).reshape(i[0].shape))


def _median_back(i: tuple[Any, ...], _o: tuple[Any, ...], c: tuple[Any, ...]) -> Array:
    place = np.argsort(i[0])[len(i[0]) // 2]
    return np.asarray((np.arange(len(i[0])) == place) * c[0])


RIGHT = (
    elementwise("sin", np.sin, np.cos),
    elementwise("tanh", np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    elementwise("exp", np.exp, np.exp, scale=3.0),
    elementwise("cubic", lambda x: x**3 - 2 * x, lambda x: 3 * x**2 - 2),
    elementwise("rational", lambda x: x / (1 + x**2), lambda x: (1 - x**2) / (1 + x**2) ** 2),
    elementwise("wave", lambda x: np.sin(30 * x), lambda x: 30 * np.cos(30 * x)),
    elementwise("softplus", lambda x: np.logaddexp(0, x), lambda x: 1 / (1 + np.exp(-x)), scale=4.0),
    elementwise("square of tiny", lambda x: x * x, lambda x: 2 * x, scale=1e-12),
    elementwise("square of huge", lambda x: x * x, lambda x: 2 * x, scale=1e12),
    elementwise("huge outputs", lambda x: 1e30 * np.sin(x), lambda x: 1e30 * np.cos(x)),
    elementwise("linear", lambda x: -3 * x, lambda x: np.full_like(x, -3.0)),
    elementwise("relu", lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0),
    elementwise("abs", np.abs, np.sign),
    elementwise("clamp", lambda x: np.clip(x, -0.5, 1), lambda x: ((x > -0.5) & (x < 1)) * 1.0),
    Right("log", np.log, lambda i, _o, c: c[0] / i[0], lambda rng: (np.exp(3 * rng.standard_normal(40)),)),
    Right("sum", np.sum, lambda i, _o, c: c[0] * np.ones_like(i[0]), normal(500)),
    Right("mean of squares", lambda x: np.mean(x * x), lambda i, _o, c: c[0] * 2 * i[0] / i[0].size, normal(300)),
    Right(
        "logsumexp",
        lambda x: np.logaddexp.reduce(x, -1),
        lambda i, _o, c: softmax(i[0]) * c[0][:, None],
        normal(6, 9, scale=20.0),
    ),
    Right("softmax", softmax, _softmax_back, normal(5, 8, scale=4.0)),
    Right("layer norm", normed, _normed_back, normal(5, 8)),
    Right("cumsum", np.cumsum, lambda _i, _o, c: np.cumsum(c[0][::-1])[::-1], normal(64)),
    Right(
        "product",
        lambda a, b: a @ b,
        lambda i, _o, c: (c[0] @ i[1].T, i[0].T @ c[0]),
        lambda rng: (rng.standard_normal((5, 7)), rng.standard_normal((7, 4))),
    ),
    Right(
        "inverse",
        np.linalg.inv,
        lambda _i, o, c: -(o[0].T @ c[0] @ o[0].T),
        lambda rng: (rng.standard_normal((6, 6)) + 4 * np.eye(6),),
    ),
    Right("max pool", pooled, _pooled_back, normal(200)),
    Right("sum of relu", lambda x: np.maximum(x, 0).sum(), lambda i, _o, c: (i[0] > 0) * c[0], normal(1000)),
    Right(
        "sum of max pool",
        lambda x: pooled(x).sum(),
        lambda i, o, c: _pooled_back(i, o, (np.full(i[0].size // 4, c[0]),)),
        normal(400),
    ),
    Right("median", lambda x: np.sort(x)[len(x) // 2], _median_back, normal(1001)),
    Right("sort", np.sort, lambda i, _o, c: c[0][np.argsort(np.argsort(i[0]))], normal(50)),
    Right("norm", np.linalg.norm, lambda i, o, c: c[0] * i[0] / o[0], normal(30)),
    Right("cancelling", lambda x: (x + 1e6) - 1e6, lambda _i, _o, c: c[0], normal(30)),
    Right(
        "variance far from zero",
        np.var,
        lambda i, _o, c: c[0] * 2 * (i[0] - i[0].mean()) / i[0].size,
        lambda rng: (1e3 + rng.standard_normal(200),),
    ),
    Right("one number", lambda x: x**2, lambda i, _o, c: 2 * i[0] * c[0], normal()),
)
"""At random points, all of them differentiable there with probability one."""
