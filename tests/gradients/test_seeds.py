from __future__ import annotations

import numpy as np

from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.draws import CheckPlan, Purpose, identity_of, seed_of


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
