from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from factories.diagnosed import Array, Backward, at, diagnosed


@pytest.mark.parametrize("size", [6, 300])
def test_a_constant_gradient_of_a_sum_is_no_odd_multiple_of_the_right_one(size: int) -> None:
    found = diagnosed(np.sum, (np.linspace(-1, 2, size),), lambda i, _o, _c: np.full_like(i[0], 3.0))
    assert found.hint == "the gradient does not change with the cotangent"


def test_a_few_wrong_elements_are_not_taken_for_a_part() -> None:
    # Both lie where the input is positive, as half of all elements do.
    off = at(250, 300) + at(270, 300)
    found = diagnosed(np.sin, (np.linspace(-2, 2, 300),), lambda i, _o, c: np.cos(i[0]) * c[0] * (1 + off))
    assert found.hint.startswith("two elements are wrong, the other at [2")


def test_three_wrong_elements_are_no_part_either() -> None:
    off = at(250, 300) + at(270, 300) + at(290, 300)
    hints = {
        diagnosed(np.sin, (np.linspace(-2, 2, 300),), lambda i, _o, c: np.cos(i[0]) * c[0] * (1 + off), seed).hint
        for seed in range(3)
    }
    assert hints == {""}


@pytest.mark.parametrize("shape", [(30,), (6, 50)])
def test_the_same_deviation_everywhere_is_a_constant(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(size=shape)
    found = diagnosed(np.sin, (x,), lambda i, _o, c: np.cos(i[0]) * c[0] + 0.25)
    assert found.hint.startswith("the deviation is the same everywhere")


def test_what_is_rolled_the_wrong_way_is_off_by_two() -> None:
    found = diagnosed(lambda x: np.roll(x, 1), (np.linspace(-1, 1, 40),), lambda _i, _o, c: np.roll(c[0], 1))
    assert found.hint == "off by two along axis 0: two too far"


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    made: Array = e / e.sum(-1, keepdims=True)
    return made


def softmax_back(axis: int) -> Backward:
    def backward(_x: Any, y: Any, v: Any) -> Any:
        return (y[0] * (v[0] - (y[0] * v[0]).sum(axis, keepdims=True)),)

    return backward


def cumulated_back(axis: int) -> Backward:
    return lambda _x, _y, v: (np.flip(np.cumsum(np.flip(v[0], axis), axis), axis),)


@pytest.mark.parametrize("shape", [(4, 6), (5, 5), (40, 30), (3, 4, 5)])
@pytest.mark.parametrize(
    ("fn", "back"), [(softmax, softmax_back), (lambda x: np.cumsum(x, -1), cumulated_back)], ids=["softmax", "cumsum"]
)
def test_a_wrong_axis_is_named(fn: Any, back: Any, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(shape)
    last = len(shape) - 1
    for axis in range(last):
        hint = diagnosed(fn, (x,), back(axis)).hint
        assert hint == (f"along the wrong axis: the gradient runs along axis {axis}, the function along axis {last}")
    # Along the right axis, and wrong for another reason.
    half = back(last)
    other = diagnosed(fn, (x,), lambda x, y, v: (half(x, y, v)[0] + 0.1 * v[0],)).hint
    assert "the wrong axis" not in other


def test_a_gradient_that_need_not_follow_the_inputs_is_not_called_stale() -> None:
    rng = np.random.default_rng(0)
    right, wrong = rng.normal(size=(2, 30, 30))
    found = diagnosed(lambda x: right @ x, (rng.normal(size=30),), lambda _i, _o, c: wrong.T @ c[0])
    assert found.coordinate is not None
    assert "does not change" not in found.hint
