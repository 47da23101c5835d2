from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import karat
from conftest import framework
from factories.awkward_points import FUNCTIONS, points
from karat.gradients.report import GradVerdict


def _never_fails(name: str, seeds: range) -> None:
    torch = framework("torch")
    for seed in seeds:
        for kind, point in points(seed).items():
            inputs = (torch.tensor(point, requires_grad=True),)
            report = karat.gradcheck(partial(FUNCTIONS[name], torch), inputs, seed=seed)
            assert report.verdict is not GradVerdict.FAIL, f"{name} at {kind}, seed {seed}: {report.reason}"


@pytest.mark.parametrize("name", ["cube", "cumprod", "sort", "median", "tanhshrink"])
def test_right_functions_do_not_fail_at_zeros_ties_and_mixed_scales(name: str) -> None:
    _never_fails(name, range(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_functions_do_not_fail_there_with_any_seed(name: str) -> None:
    _never_fails(name, range(1, 5))


@pytest.mark.parametrize("off", [7.0, 1e-3])
@pytest.mark.parametrize(
    ("forward", "slope"),
    [
        (lambda x: x**3, lambda x: 3 * x**2),
        # Its slope at 0 is reached slowly: by the root of the step.
        (lambda x: x * np.sqrt(np.abs(x)), lambda x: 1.5 * np.sqrt(np.abs(x))),
    ],
    ids=["cube", "root"],
)
def test_a_gradient_that_is_wrong_at_exact_zeros_alone_fails(forward: Any, slope: Any, off: float) -> None:
    point = np.where(np.arange(20) % 5 == 0, 0.0, np.random.default_rng(1).standard_normal(20))

    def verdict(at_zero: float) -> GradVerdict:
        def backward(i: Any, _o: Any, c: Any) -> Any:
            return np.where(i[0] == 0, at_zero, slope(i[0])) * c[0]

        return karat.gradcheck(forward, (point,), backward=backward, properties=()).verdict

    assert verdict(0.0) is GradVerdict.PASS
    assert verdict(off) is GradVerdict.FAIL
