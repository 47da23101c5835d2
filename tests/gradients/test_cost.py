"""What a check costs in forwards: the same for a hundred elements and for a hundred thousand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from factories.wrong_backwards.judging import counted
from karat import gradcheck

WIDTH = 10
W = np.random.default_rng(3).standard_normal((WIDTH, WIDTH))
Array = np.ndarray[Any, np.dtype[Any]]


def rows(x: Array) -> Array:
    return x.reshape(-1, WIDTH)


def softmax(x: Array) -> Array:
    e = np.exp(rows(x) - rows(x).real.max(-1, keepdims=True))
    made: Array = (e / e.sum(-1, keepdims=True)).reshape(-1)
    return made


def softmax_back(g: Array, y: Array) -> Array:
    inner = rows(g) - (rows(g) * rows(y)).sum(-1, keepdims=True)
    made: Array = (rows(y) * inner).reshape(-1)
    return made


OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sine": (np.sin, lambda x, _y, g: (np.cos(x[0]) * g[0],)),
    "softmax": (softmax, lambda _x, y, g: (softmax_back(g[0], y[0]),)),
    "product": (
        lambda x: (rows(x) @ W).reshape(-1),
        lambda _x, _y, g: ((rows(g[0]) @ W.T).reshape(-1),),
    ),
}


@pytest.mark.parametrize("name", OPS)
def test_forwards_do_not_grow_with_the_number_of_elements(name: str) -> None:
    forward, backward = OPS[name]
    calls = []
    for size in (100, 10_000, 100_000):
        fn, count = counted(forward)
        x = np.random.default_rng(size).standard_normal(size)
        assert gradcheck(fn, (x,), backward=backward, seed=size).require()
        calls.append(count["forward"])
    assert max(calls) <= 1.3 * calls[0] < 130, calls
