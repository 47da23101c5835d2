"""Names of functions, inputs and outputs: given, or found; never two alike."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

from conftest import framework
from karat.findings import UsageError
from karat.gradients.adapters.framework_problem import open_problem

X, Y = np.array([0.3, -1.2, 2.0]), np.array([1.5, 0.25, -0.75])


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found, expected)


def product(x: Any, y: Any) -> Any:
    return x * y


def _total(xs: Any) -> Any:
    return sum(xs)


def _functions(torch: Any) -> Any:
    class Named(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(c: Any, signal: Any) -> Any:  # noqa: ARG004 - torch passes it
            return 2 * signal

    class Separate(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(signal: Any) -> Any:
            return 2 * signal

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

    class Inherited(Separate):
        pass

    return Named, Separate, Inherited


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_context_of_any_name_is_no_input(which: int) -> None:
    torch = framework("torch")
    problem = open_problem(_functions(torch)[which].apply, (torch.ones(3, dtype=torch.float64),))
    assert [slot.name for slot in problem.inputs] == ["signal"]


def _function(torch: Any) -> Any:
    class Doubling(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, signal: Any) -> Any:  # noqa: ARG004 - torch passes it
            return 2 * signal

        @staticmethod
        def backward(ctx: Any, v: Any) -> Any:  # noqa: ARG004
            return 2 * v

    return Doubling


def _layer(paddle: Any) -> Any:
    class Doubling(paddle.autograd.PyLayer):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, signal: Any) -> Any:  # noqa: ARG004 - paddle passes it
            return 2 * signal

        @staticmethod
        def backward(ctx: Any, v: Any) -> Any:  # noqa: ARG004
            return 2 * v

    return Doubling


class TestNames:
    def test_come_from_the_signature(self) -> None:
        problem = open_problem(product, (X, Y))
        assert [slot.name for slot in problem.inputs] == ["x", "y"]
        assert [slot.name for slot in problem.outputs] == ["out"]
        assert problem.op == "product"

    def test_of_nested_arguments(self) -> None:
        problem = open_problem(lambda xs, by: sum(xs) * by["scale"], ([X, Y], {"scale": X}))
        assert [slot.name for slot in problem.inputs] == ["xs.0", "xs.1", "by.scale"]

    def test_of_arguments_without_end(self) -> None:
        problem = open_problem(lambda *xs: sum(xs), (X, Y))
        assert [slot.name for slot in problem.inputs] == ["xs.0", "xs.1"]

    def test_of_keywords(self) -> None:
        problem = open_problem(product, {"y": Y, "x": X})
        assert [slot.name for slot in problem.inputs] == ["y", "x"]
        same(problem.forward((Y, X))[0], X * Y)

    def test_of_a_function_without_a_signature(self) -> None:
        torch = framework("torch")
        problem = open_problem(torch.mul, (torch.ones(2), torch.ones(2)))
        assert [slot.name for slot in problem.inputs] == ["x0", "x1"]

    def test_may_be_given_for_arguments(self) -> None:
        named = open_problem(_total, ([X, Y],), names=["Z"])
        assert [slot.name for slot in named.inputs] == ["Z.0", "Z.1"]

    def test_that_do_not_fit_are_refused(self) -> None:
        with pytest.raises(UsageError, match="a name for each of 2 arguments, found 3"):
            open_problem(product, (X, Y), names=["a", "b", "c"])
        with pytest.raises(UsageError, match="'a' twice"):
            open_problem(product, (X, Y), names=["a", "a"])
        with pytest.raises(UsageError, match="each of 1 outputs, found 2"):
            open_problem(product, (X, Y), output_names=["a", "b"])
        with pytest.raises(UsageError, match=r"output_names: .* 'a' twice"):
            open_problem(lambda x: (x, 2 * x), (X,), output_names=["a", "a"])
        with pytest.raises(UsageError, match=r"output_names: .* 'a\.b' twice"):
            open_problem(lambda x: {"a": {"b": x}, "a.b": x}, (X,))

    def test_one_name_may_come_alone(self) -> None:
        assert open_problem(np.sin, (X,), names="weight").inputs[0].name == "weight"

    def test_of_what_is_written_in_c_or_applied(self) -> None:
        torch, paddle = framework("torch"), framework("paddle")
        x, y = torch.ones(2), paddle.ones([2])
        assert open_problem(torch.tanh, (x,)).op == "tanh"
        assert open_problem(torch.Tensor.sin, (x,)).op == "sin"
        assert open_problem(functools.partial(torch.softmax, dim=0), (x,)).op == "softmax"
        assert open_problem(paddle.tanh, (y,)).op == "tanh"
        assert open_problem(np.sin, (X,)).op == "sin"
        problem = open_problem(_layer(paddle).apply, (y,))
        assert (problem.op, problem.inputs[0].name) == ("Doubling", "signal")
        problem = open_problem(_function(torch).apply, (x,))
        assert (problem.op, problem.inputs[0].name) == ("Doubling", "signal")

    def test_of_outputs(self) -> None:
        problem = open_problem(lambda x: (x, {"a": x, "n": np.arange(3)}), (X,))
        assert [slot.name for slot in problem.outputs] == ["out.0", "out.1.a"]
        assert [one.name for one in problem.excluded] == ["out.1.n"]
        problem = open_problem(lambda x: {"a": x, "b": 2 * x}, (X,))
        assert [slot.name for slot in problem.outputs] == ["a", "b"]
        problem = open_problem(lambda x: (x, 2 * x), (X,), output_names=["P", "Q"])
        assert [slot.name for slot in problem.outputs] == ["P", "Q"]

    def test_of_partial_functions_and_objects(self) -> None:
        class Scaling:
            def __call__(self, x: Any) -> Any:
                return 2 * x

        assert open_problem(functools.partial(product, y=Y), (X,)).op == "product"
        assert open_problem(Scaling(), (X,)).op.endswith("Scaling")


def test_options_in_a_dataclass_stay_what_they_are() -> None:
    @dataclasses.dataclass
    class Options:
        factor: float = 2.0

    found = open_problem(lambda x, options: x * options.factor, (X, Options()))
    assert found.forward(found.point)[0].tolist() == (2 * X).tolist()
