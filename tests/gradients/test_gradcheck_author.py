from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import karat
from karat.findings import UsageError
from karat.gradients.report import GradComparison as Comparison, GradReport, GradVerdict

X = np.random.default_rng(2).standard_normal((3, 5))


def _check(fn: Any, backward: Any, grads: Any, **more: Any) -> tuple[GradReport, Comparison]:
    report = karat.gradcheck(fn, (X,), backward=backward, grads=grads, properties=(), **more)
    (weak,) = (one for one in report.comparisons if one.strength == "weak")
    return report, weak


def _sin(i: Any, _o: Any, c: Any) -> Any:
    return np.cos(i[0]) * c[0]


def test_arrays_are_those_of_the_mean_loss() -> None:
    report, weak = _check(np.sin, _sin, np.cos(X) / X.size)
    assert report.verdict is GradVerdict.PASS
    assert weak.oracle == "user"
    assert weak.verdict is GradVerdict.PASS
    assert not weak.counts


def test_with_cotangents_they_are_those_of_the_cotangents() -> None:
    v = np.arange(15.0).reshape(3, 5)
    report, weak = _check(np.sin, _sin, np.cos(X) * v, cotangents=[v])
    assert report
    assert weak.verdict is GradVerdict.PASS


def test_gradients_of_ones_own_do_not_save_a_wrong_backward() -> None:
    def wrong(i: Any, _o: Any, c: Any) -> Any:
        return 2 * np.cos(i[0]) * c[0]

    report, weak = _check(np.sin, wrong, 2 * np.cos(X) / X.size)
    assert weak.verdict is GradVerdict.PASS
    assert report.verdict is GradVerdict.FAIL


def test_they_do_not_save_what_nothing_else_can_judge() -> None:
    rng = np.random.default_rng()
    report, weak = _check(lambda x: np.sin(x) + 1e-2 * rng.standard_normal(x.shape), _sin, np.cos(X) / X.size)
    assert weak.verdict is GradVerdict.PASS
    assert report.verdict is GradVerdict.INCONCLUSIVE


def test_other_gradients_fail() -> None:
    report, weak = _check(np.sin, _sin, np.cos(X))
    assert weak.verdict is GradVerdict.FAIL
    assert report.verdict is GradVerdict.FAIL


@pytest.mark.parametrize("shape", [(5, 3), (15,), (3, 5, 1)])
def test_gradients_of_another_shape_are_refused_not_reshaped(shape: tuple[int, ...]) -> None:
    ones = np.full(shape, 1 / X.size)
    with pytest.raises(UsageError, match=r"grads: expected shape \(3, 5\) for x, found") as caught:
        karat.gradcheck(lambda x: x, (X,), backward=lambda _i, _o, c: c[0], grads=ones)
    assert ("transposed" in str(caught.value)) == (shape == (5, 3))
    assert caught.value.next_command


def test_cotangents_of_another_shape_are_refused_not_reshaped() -> None:
    with pytest.raises(UsageError, match=r"cotangents: expected shape \(3, 5\)"):
        karat.gradcheck(lambda x: x, (X,), backward=lambda _i, _o, c: c[0], cotangents=[np.ones((5, 3))])
