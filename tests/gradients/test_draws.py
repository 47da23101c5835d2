from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.draws import (
    MOST_BOUNDARY,
    SMALL,
    CheckPlan,
    Purpose,
    boundary,
    boundary_places,
    directions,
    identity_of,
    random_weights,
    seed_of,
)
from karat.gradients.problem import TensorSlot as Slot


def _slot(*shape: int, complex_: bool = False) -> Slot:
    return Slot(name="x", shape=shape, dtype="float64", complex=complex_)


@given(st.integers(0, 2**32), st.integers(1, 300))
def test_magnitudes_lie_between_a_half_and_one_and_are_short(seed: int, count: int) -> None:
    drawn = random_weights(count, np.random.default_rng(seed))
    assert np.all((np.abs(drawn) >= 0.5) & (np.abs(drawn) < 1))
    assert np.array_equal(drawn * 256, np.rint(drawn * 256))


@given(st.integers(0, 2**32), st.integers(SMALL + 1, 200))
def test_dense_directions_see_every_element(seed: int, count: int) -> None:
    point = np.random.default_rng(seed).standard_normal(count)
    found = directions(_slot(count), point, seed)
    assert [bool(np.all(one != 0)) for one in found] == [True, True, count <= MOST_BOUNDARY // 16]


def test_a_small_input_is_looked_at_column_by_column() -> None:
    found = directions(_slot(3), np.ones(3), 0)
    assert np.all(found[0] != 0)
    assert np.array_equal(found[1:], np.eye(3))


def test_steps_are_exact() -> None:
    rng = np.random.default_rng(4)
    point = 1 + rng.random(1000)
    for step in (2.0**-5, 2.0**-24):
        moved = point + step * random_weights(1000, rng)
        assert np.all(moved != point)
        assert np.array_equal((moved - point) * 2.0**52, np.rint((moved - point) * 2.0**52))


def test_two_equal_errors_do_not_cancel_in_every_second_draw() -> None:
    missed = 0
    for seed in range(2000):
        drawn = directions(_slot(50), np.ones(50), seed)
        missed += all(one[3] == -one[7] for one in drawn[:2])
    assert missed <= 2


def test_the_boundary_has_corners_and_extremes_of_distinct_weight() -> None:
    point = np.linspace(1, 2, 60)
    point[17], point[31] = 1e-3, 50.0
    slot = _slot(3, 4, 5)
    places = boundary_places(slot, point)
    assert {0, 59, 17, 31, 4, 15, 19, 40, 44, 55} <= set(places)
    sparse = boundary(slot, point, 0)
    weights = np.abs(sparse[sparse != 0])
    assert len(weights) == len(places) == len(set(weights.tolist()))


def test_a_tensor_of_many_axes_has_few_boundary_places() -> None:
    slot = _slot(*[2] * 10)
    assert len(boundary_places(slot, np.ones(1024))) <= MOST_BOUNDARY


def test_complex_corners_have_two_parts() -> None:
    assert {0, 1, 18, 19} <= set(boundary_places(_slot(10, complex_=True), np.ones(20)))


def _opened(*shape: int, op: str = "f") -> str:
    return identity_of(open_problem(np.sin, (np.ones(shape),), op=op), "test.py::test")


def _draw(purpose: int) -> np.random.Generator:
    plan = CheckPlan(seed=7, inputs=frozenset(), outputs=frozenset())
    return plan.draw(Purpose(purpose))


def test_the_same_case_has_the_same_seed() -> None:
    assert _opened(3) == _opened(3)
    assert 0 <= seed_of(_opened(3)) < 2**63


def test_another_shape_op_dtype_or_test_has_another() -> None:
    one = open_problem(np.sin, (np.ones(3),), op="f")
    narrow = open_problem(np.sin, (np.ones(3, np.float32),), op="f")
    identities = {
        _opened(3),
        _opened(4),
        _opened(3, op="g"),
        identity_of(one, "other"),
        identity_of(narrow, "test.py::test"),
    }
    assert len({seed_of(identity) for identity in identities}) == 5


def test_purposes_draw_independently() -> None:
    first, second = _draw(1).integers(0, 2**62, 4), _draw(2).integers(0, 2**62, 4)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, _draw(1).integers(0, 2**62, 4))
