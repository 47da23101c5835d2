from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from factories.right_backwards import RIGHT
from karat.gradients.comparison import (
    Expectation,
    Measurement,
    controls,
    judge,
    measure,
    smallest_error,
    typical_element,
)
from karat.gradients.problem import Vector

Array = np.ndarray[Any, np.dtype[Any]]


def _expected(direction: Vector, gradient: Vector, error: float = 1e-9) -> Expectation:
    terms = direction * gradient
    size = float(np.linalg.norm(terms))
    return Expectation(
        direction, dense=True, value=float(terms.sum()), error=error * size, size=size, weight=size, count=1
    )


def _met(gradient: Vector, rng: np.random.Generator, error: float = 1e-9) -> list[Measurement]:
    drawn = [rng.integers(128, 256, gradient.size) / 256 for _ in range(2)]
    signs = [rng.choice([-1.0, 1.0], gradient.size) for _ in range(2)]
    return [measure(gradient, _expected(u * s, gradient, error), "float64") for u, s in zip(drawn, signs, strict=True)]


def _caught(gradient: Array, error: float = 1e-9) -> dict[str, bool]:
    rng = np.random.default_rng(1)
    flat = gradient.reshape(-1)
    groups = [(flat, _met(flat, rng, error))]
    return controls(groups, gradient.shape, np.ones(flat.size), rtol=None, place=int(rng.integers(flat.size)))


def test_a_sharp_check_notices_every_corruption() -> None:
    caught = _caught(np.random.default_rng(0).standard_normal((4, 5)))
    assert set(caught) == {"zero", "x1.01", "sign", "one element", "worst element", "transposed"}
    assert all(caught.values())


def test_a_blunt_check_does_not() -> None:
    caught = _caught(np.random.default_rng(0).standard_normal((40, 50)), error=0.05)
    assert not caught["one element"]
    assert not caught["worst element"]


def test_a_zero_gradient_is_not_told_from_zero() -> None:
    assert not _caught(np.zeros((4, 5)))["zero"]


def test_a_symmetric_gradient_has_no_transposed_control() -> None:
    square = np.random.default_rng(0).standard_normal((4, 4))
    assert "transposed" in _caught(square)
    assert "transposed" not in _caught(square + square.T)
    assert "transposed" not in _caught(np.ones((3, 1)))


def test_a_tolerance_that_a_test_widens_applies_to_its_controls() -> None:
    rng = np.random.default_rng(1)
    gradient = rng.standard_normal(30)
    groups = [(gradient, _met(gradient, rng))]
    wide = controls(groups, (30,), np.ones(30), rtol=0.5, place=3)
    assert not wide["x1.01"]


@settings(max_examples=200)
@given(st.integers(0, 2**40), st.integers(1, 200), st.sampled_from([-1, 1]))
def test_an_error_of_one_element_above_the_smallest_is_found(seed: int, count: int, sign: int) -> None:
    rng = np.random.default_rng(seed)
    gradient, scales = rng.standard_normal(count), np.ones(count)
    met = _met(gradient, rng)
    judged = judge(met)
    assert not judged.failed
    bound = smallest_error(judged, typical_element(gradient, scales)) * typical_element(gradient, scales)
    place = int(rng.integers(0, count))
    wrong = gradient.copy()
    wrong[place] += 1.0001 * bound * sign
    again = [Measurement(one.expected, float(np.sum(one.expected.direction * wrong)), one.tolerance) for one in met]
    assert judge(again).failed


def test_there_are_right_backwards_of_many_kinds() -> None:
    assert len({one.name for one in RIGHT}) == len(RIGHT) >= 30
