"""Parameters of a torch Module and a paddle Layer are inputs, as every output is an output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import karat
from conftest import framework

X = np.random.default_rng(5).standard_normal((3, 4))


def linear(name: str, factor: float) -> Any:
    """A layer whose weight gradient is off by a factor; that of its input is right."""
    if name == "torch":
        torch = framework("torch")

        class Multiply(torch.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any, w: Any) -> Any:
                ctx.save_for_backward(x, w)
                return x @ w

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                x, w = ctx.saved_tensors
                return g @ w.T, factor * x.T @ g

        class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.weight = torch.nn.Parameter(torch.randn(4, 2, generator=torch.Generator().manual_seed(1)))

            def forward(self, x: Any) -> Any:
                return Multiply.apply(x, self.weight)

        return Layer()
    paddle = framework("paddle")

    class Product(paddle.autograd.PyLayer):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensor()
            return g @ w.T, factor * x.T @ g

    class PaddleLayer(paddle.nn.Layer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = self.create_parameter([4, 2])

        def forward(self, x: Any) -> Any:
            return Product.apply(x, self.weight)

    return PaddleLayer()


def tensor(name: str) -> Any:
    module = framework(name)
    return module.tensor(X) if name == "torch" else module.to_tensor(X)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch", "paddle"])
def test_a_weight_gradient_that_is_seven_times_too_large_fails(name: str) -> None:
    report = karat.gradcheck(linear(name, 7.0), (tensor(name),))
    assert report.verdict == "FAIL"
    assert {one.input for one in report.comparisons if one.verdict == "FAIL"} == {"weight"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch", "paddle"])
def test_a_right_layer_passes_and_keeps_its_parameters(name: str) -> None:
    layer = linear(name, 1.0)
    before = layer.weight
    numbers = np.array(before.detach().numpy())
    # Paddle itself asks a PyLayer for all gradients or none.
    report = karat.gradcheck(layer, (tensor(name),), properties=("linearity", "accumulation"))
    assert report, str(report)
    assert {one.input for one in report.comparisons} == {"x", "weight"}
    assert layer.weight is before
    assert np.array_equal(before.detach().numpy(), numbers)
    assert before.grad is None


@pytest.mark.slow
def test_layers_inside_of_layers_and_shared_weights() -> None:
    torch = framework("torch")
    inner = torch.nn.Linear(4, 4)
    report = karat.gradcheck(torch.nn.Sequential(inner, torch.nn.Tanh(), inner), (torch.tensor(X),))
    assert report, str(report)
    assert {one.input for one in report.comparisons} == {"input", "0.weight", "0.bias"}
    paddle = framework("paddle")
    shared = paddle.nn.Linear(4, 4)
    report = karat.gradcheck(paddle.nn.Sequential(shared, paddle.nn.Tanh(), shared), (paddle.to_tensor(X),))
    assert report, str(report)
    assert {"0.weight", "0.bias"} <= {one.input for one in report.comparisons}


@pytest.mark.slow
def test_wrt_chooses_among_parameters() -> None:
    torch = framework("torch")
    layer = torch.nn.Linear(4, 2)
    report = karat.gradcheck(layer, (torch.tensor(X),), wrt=("weight",))
    assert {one.input for one in report.comparisons} == {"weight"}
    assert {one.name for one in report.excluded} == {"input", "bias"}
    layer.bias.requires_grad_(False)
    assert {one.input for one in karat.gradcheck(layer, (torch.tensor(X),)).comparisons} == {"input", "weight"}


@pytest.mark.slow
def test_a_parameter_that_is_called_as_an_argument_is_gets_another_name() -> None:
    torch = framework("torch")

    class Scale(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.x = torch.nn.Parameter(torch.tensor([2.0, 3.0, 4.0, 5.0]))

        def forward(self, x: Any) -> Any:
            return torch.sin(x) * self.x

    assert {one.input for one in karat.gradcheck(Scale(), (torch.tensor(X),)).comparisons} == {"x", "self.x"}


@pytest.mark.slow
def test_a_reference_knows_no_parameters_and_the_report_says_so() -> None:
    torch = framework("torch")
    layer = torch.nn.Linear(4, 2).double()
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    report = karat.gradcheck(layer, (torch.tensor(X),), reference=lambda x: x @ weight.T + bias)
    assert report, str(report)
    assert {one.input for one in report.comparisons} == {"input"}
    assert any("were not checked: weight, bias" in note for note in report.notes)


@pytest.mark.slow
def test_every_output_is_checked_wherever_it_stands() -> None:
    torch = framework("torch")

    class Half(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(_ctx: Any, x: Any) -> Any:
            return x / 2

        @staticmethod
        def backward(_ctx: Any, g: Any) -> Any:
            return g

    @dataclass
    class Result:
        loss: Any
        states: tuple[Any, ...]

    def model(x: Any) -> Any:
        return Result(loss=x.sin().sum(), states=(x.cos(), Half.apply(x)))

    report = karat.gradcheck(model, (torch.tensor(X),))
    assert {one.output for one in report.comparisons if one.verdict == "FAIL"} == {"states.1"}
