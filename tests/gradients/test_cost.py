"""What a check costs in forwards: the same for a hundred elements and for a hundred thousand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from factories.wrong_backwards.judging import counted
from karat import gradcheck
from karat.gradients.report import GradVerdict
from karat.tensors.device_array import in_blocks

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
    "product": (lambda x: (rows(x) @ W).reshape(-1), lambda _x, _y, g: ((rows(g[0]) @ W.T).reshape(-1),)),
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


@pytest.mark.parametrize("name", OPS)
def test_quick_takes_far_fewer_forwards(name: str) -> None:
    forward, backward = OPS[name]
    x, calls = np.random.default_rng(1).standard_normal(100), []
    for level in ("quick", "default"):
        fn, count = counted(forward)
        assert gradcheck(fn, (x,), backward=backward, seed=1, level=level).require()
        calls.append(count["forward"])
    assert 3 * calls[0] < 2 * calls[1], calls


@pytest.mark.parametrize("size", [2**16 - 1, 2**16 + 3, 2**17 + 1])
def test_long_vectors_are_taken_in_blocks_and_none_is_lost(size: int) -> None:
    values = np.random.default_rng(size).standard_normal(size)
    twice, squared = in_blocks(lambda one, other: (one + other, one * other), values, values)
    assert np.array_equal(twice, 2 * values)
    assert np.array_equal(squared, values * values)


@pytest.mark.parametrize("place", [0, 2**15, 2**17])
def test_one_wrong_element_of_any_block_is_found(place: int) -> None:
    def backward(x: Any, _y: Any, g: Any) -> tuple[Array]:
        made: Array = np.cos(x[0]) * g[0]
        made[place] *= 1.001
        return (made,)

    x = np.random.default_rng(1).standard_normal(2**17 + 1)
    assert gradcheck(np.sin, (x,), backward=backward, seed=1, level="quick").verdict is GradVerdict.FAIL


def smooth(x: Array) -> Array:
    return np.abs(x) ** 1.5  # no complex step goes through the absolute value


def bent(x: Array) -> Array:
    return np.maximum(x, 0.1 * x)


WRONG: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "one element": (smooth, lambda x, g: _off(1.5 * np.sign(x) * np.abs(x) ** 0.5 * g)),
    "no pattern": (smooth, lambda x, g: np.cos(x) * g),
    "where negative": (bent, lambda x, g: np.where(x > 0, 1.0, 0.2) * g),
    "sine": (np.sin, lambda x, g: np.where(x > 0.5, 1.1, 1.0) * np.cos(x) * g),
}


def _off(gradient: Array) -> Array:
    gradient[gradient.size // 3] *= 1.05
    return gradient


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 20, 24, 1000, 100_000])
@pytest.mark.parametrize("name", WRONG)
def test_a_diagnosis_takes_tens_of_forwards(name: str, size: int) -> None:
    forward, wrong = WRONG[name]
    x = np.random.default_rng(size).standard_normal(size)
    report = gradcheck(forward, (x,), backward=lambda i, _o, c: (wrong(i[0], c[0]),), seed=size, properties=())
    assert report.verdict is GradVerdict.FAIL
    (one,) = report.diagnoses
    assert one.forwards <= 130  # the last question may take the whole ladder of steps
    assert one.coordinate is not None
    if name == "one element":
        assert one.coordinate == (size // 3,)
