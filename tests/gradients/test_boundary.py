"""Points that the check chooses itself: what is wrong there alone is found, and what merely looks wrong is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import karat
from conftest import framework
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.deep import boundary

X = np.random.default_rng(6).standard_normal((3, 4))


def wrong(report: Any) -> set[str]:
    return {one.at for one in report.comparisons if one.verdict == "FAIL"}


def deep(fn: Any, *inputs: Any, **more: Any) -> Any:
    return karat.gradcheck(fn, inputs, level="deep", properties=(), **more)


def test_points_have_names_and_come_once() -> None:
    found = dict(boundary.points([np.array([0.5, 0.5]), np.array([2.0, 3.0])], np.random.default_rng(0)))
    assert np.array_equal(found["zeros"][0], [0, 0])
    assert np.array_equal(found["zeros in input 1"][0], [0.5, 0.5])
    assert np.array_equal(found["equal inputs"][1], [0.5, 0.5])
    assert np.count_nonzero(found["ones at half of the elements"][1] == 1) == 1
    keys = [np.concatenate(one).tobytes() for name, one in found.items() if name != "equal inputs"]
    assert len(set(keys)) == len(keys)
    assert "ties in input 0" not in found  # they are tied already


def test_shapes_and_indices_that_the_function_takes() -> None:
    index = np.array([0, 2, 1, 1])
    problem = open_problem(lambda x, n: x[:, n].sum(0), (X, index), backward=lambda *_: None)
    names = [name for name, _ in boundary.variants(problem)]
    assert names == [
        "repeated indices",
        "negative integers",
        *(f"axes of length {a} for {b}" for a, b in ((1, 3), (1, 4), (3, 4))),
    ]


@pytest.mark.parametrize("at", ["zeros", "ones", "ties"])
def test_a_gradient_that_is_wrong_at_special_values_alone(at: str) -> None:
    values = {
        "zeros": lambda x: x == 0,
        "ones": lambda x: x == 1,
        "ties": lambda x: (x == x.flat[0]) & (x == x.flat[-1]) & (np.abs(x) % 1 != 0),
    }

    def backward(inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        x = inputs[0]
        return cotangents[0] * np.where(values[at](x), 1.0, np.cos(x) + 0.5)

    report = deep(lambda x: np.sin(x) + 0.5 * x, X, backward=backward)
    assert any(one.startswith(at) for one in wrong(report)), str(report)
    assert karat.gradcheck(lambda x: np.sin(x) + 0.5 * x, (X,), backward=backward)
    assert f"at {at}" in str(report)


def test_nan_where_the_derivative_is_finite_is_wrong() -> None:
    def backward(inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        x = inputs[0]
        with np.errstate(all="ignore"):
            return cotangents[0] * (np.cos(x) * x - np.sin(x)) / x**2

    report = deep(lambda x: np.sinc(x / np.pi), X, backward=backward)
    assert wrong(report) == {"zeros"}, str(report)
    assert "NaN" in str(report)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "abs",
        "relu",
        "norm",
        "std",
        "sort",
        "amax",
        "log",
        "sqrt",
        "tan",
        "acos",
        "eigvalsh",
        "softmax",
        "tanh",
        "exp",
        "rsqrt",
        "logsumexp",
        "floor_divide",
        "fmod",
        "clamp",
        "kthvalue",
        "tanhshrink",
        "underflow",
    ],
)
def test_what_is_not_smooth_or_not_defined_there_is_no_failure(name: str) -> None:
    torch = framework("torch")
    functions = {
        "norm": torch.linalg.norm,
        "std": lambda x: x.std(-1),
        "sort": lambda x: torch.sort(x)[0],
        "amax": lambda x: x.amax(-1),
        "eigvalsh": lambda x: torch.linalg.eigvalsh(x @ x.T),
        "softmax": lambda x: torch.softmax(x, -1),
        "logsumexp": lambda x: torch.logsumexp(x, -1),
        "floor_divide": lambda x: torch.div(x, x.T.reshape(3, 4), rounding_mode="floor") + x,
        "fmod": lambda x: torch.fmod(x, x.flip(0)),
        "clamp": lambda x: torch.clamp(x, -x, 2 * x),
        "kthvalue": lambda x: torch.kthvalue(x, 2)[0],
        "tanhshrink": torch.nn.functional.tanhshrink,
        "underflow": lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 2])),
    }
    x = torch.tensor(np.abs(X) % 0.9 + 0.05 if name in {"log", "sqrt", "acos", "rsqrt"} else X)
    report = deep(functions.get(name) or getattr(torch, name), x)
    assert report.verdict != "FAIL", str(report)
    assert len([one for one in report.looked if one.startswith(("zeros", "ties"))]) > 1


@pytest.mark.slow
def test_a_batch_that_looks_like_a_vector() -> None:
    torch = framework("torch")

    class Scale(torch.autograd.Function):  # type: ignore[misc, name-defined]
        """x · w for rows or, where the lengths leave no choice, columns; the backward chooses by length alone."""

        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            axis = 1 if x.shape[0] == w.shape[0] else 0
            return g * w, (g * x).sum(axis)

    inputs = (torch.tensor(X), torch.tensor(X[0]))
    assert karat.gradcheck(Scale.apply, inputs, properties=())
    assert "axes of length 3 for 4" in wrong(deep(Scale.apply, *inputs))


@pytest.mark.slow
def test_repeated_indices() -> None:
    torch = framework("torch")

    class Take(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, n: Any) -> Any:
            ctx.save_for_backward(x, n)
            return x[n].sin()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, n = ctx.saved_tensors
            found = torch.zeros_like(x)
            found[n] = g * x[n].cos()  # the last one wins, where all should be added
            return found, None

    inputs = (torch.tensor(X), torch.tensor([2, 0, 1]))
    assert karat.gradcheck(Take.apply, inputs, properties=())
    assert "repeated indices" in wrong(deep(Take.apply, *inputs))
