from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from karat.gradients.diagnosis import BoundedOracle, coordinate, locate
from karat.gradients.problem import Vector


def asking(off: Vector, most: int = 200, error: float = 1e-12, asked: list[Vector] | None = None) -> BoundedOracle:
    """An oracle that knows by how much a gradient is off."""
    asked = [] if asked is None else asked

    def deviation(direction: Vector) -> tuple[float, float]:
        asked.append(direction)
        return float(np.dot(off, direction)), error

    return BoundedOracle(deviation, lambda: len(asked) >= most)


@given(st.integers(1, 5000), st.integers(0, 2**32), st.integers(0, 2**32))
def test_one_wrong_element_is_found_in_log_n_probes(size: int, where: int, seed: int) -> None:
    off = np.zeros(size)
    off[where % size] = 1e-3
    asked: list[Vector] = []
    assert locate(asking(off, asked=asked), np.ones(size), np.random.default_rng(seed)) == where % size
    assert len(asked) <= np.ceil(np.log2(size)) + 2


@given(st.integers(1, 600), st.sets(st.integers(0, 599), min_size=1, max_size=40), st.integers(0, 2**32))
def test_of_several_wrong_elements_one_is_found(size: int, where: set[int], seed: int) -> None:
    off = np.zeros(size)
    rng = np.random.default_rng(seed)
    off[[place % size for place in where]] = rng.uniform(0.1, 1) * rng.choice([-1, 1])
    found = locate(asking(off), np.ones(size), rng)
    assert found is not None
    assert off[found] != 0


@given(st.integers(0, 300), st.integers(0, 2**32))
def test_nothing_is_found_where_nothing_is_wrong(size: int, seed: int) -> None:
    assert locate(asking(np.zeros(size)), np.ones(size), np.random.default_rng(seed)) is None


def test_what_the_oracle_may_be_off_by_is_no_finding() -> None:
    off = np.full(100, 1e-6)
    assert locate(asking(off, error=1.0), np.ones(100), np.random.default_rng(0)) is None


def test_elements_that_nobody_can_step_from_are_left_out() -> None:
    off = np.array([1.0, 0.0, 1.0])
    found = locate(asking(off), np.array([0.0, 1.0, 2.0]), np.random.default_rng(0))
    assert found == 2


@pytest.mark.parametrize("most", [0, 1, 3, 10])
def test_the_number_of_probes_is_bounded(most: int) -> None:
    off = np.zeros(1 << 16)
    off[12345] = 1.0
    asked: list[Vector] = []
    assert locate(asking(off, most, asked=asked), np.ones(off.size), np.random.default_rng(0)) is None
    assert len(asked) == most


def test_a_slope_that_is_not_known_is_no_deviation() -> None:
    probe = BoundedOracle(lambda _direction: (np.nan, 0.0), lambda: False)
    assert probe(np.ones(3)) == (0.0, np.inf)
    assert probe.clear(np.ones(3)) == 0


def test_a_coordinate_is_as_long_as_its_scale() -> None:
    np.testing.assert_array_equal(coordinate(np.array([1.0, 4.0]), 1), [0, 4])
