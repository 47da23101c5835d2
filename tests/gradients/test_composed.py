"""Modes composed and higher orders, on functions whose first order is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import karat
from conftest import framework
from karat.findings import UsageError

X = np.random.default_rng(3).standard_normal((3, 4))


def failed(report: Any) -> set[tuple[str, int]]:
    return {(one.mode, one.order) for one in report.comparisons if one.verdict == "FAIL"}


def cube(backward: Any) -> Any:
    torch = framework("torch")

    class Cube(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return backward(ctx.saved_tensors[0], g)

    return Cube.apply


@pytest.mark.slow
def test_a_backward_that_takes_its_cotangent_for_a_constant_fails_in_second_order() -> None:
    torch = framework("torch")
    detached = cube(lambda x, g: 3 * g.detach() * x * x)
    assert karat.gradcheck(detached, (torch.tensor(X),))
    report = karat.gradcheck(detached, (torch.tensor(X),), order=2)
    assert report.verdict == "FAIL"
    assert {one.input for one in report.comparisons if one.verdict == "FAIL"} == {"cotangent(out)"}
    assert karat.gradcheck(cube(lambda x, g: 3 * g * x * x), (torch.tensor(X),), order=2)


@pytest.mark.slow
def test_a_fourth_order_that_is_wrong_is_found_by_order_4_alone() -> None:
    torch = framework("torch")
    # What is added is zero up to its second derivative: that is where the fourth order goes wrong.
    bent = cube(lambda x, g: 3 * g * (x * x + 1e-1 * (x - x.detach()) ** 3))
    assert karat.gradcheck(bent, (torch.tensor(X),), order=2)
    assert karat.gradcheck(bent, (torch.tensor(X),), order=3)
    report = karat.gradcheck(bent, (torch.tensor(X),), order=4)
    assert failed(report) == {("reverse", 4)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torch", "jax", "paddle"])
def test_four_orders_of_a_right_function(name: str) -> None:
    module = framework(name)
    x = {
        "torch": lambda: module.tensor(X),
        "jax": lambda: module.numpy.asarray(X),
        "paddle": lambda: module.to_tensor(X),
    }
    tanh = module.numpy.tanh if name == "jax" else module.tanh
    report = karat.gradcheck(tanh, (x[name](),), order=2 if name == "paddle" else 4)
    assert report, str(report)
    assert {one.order for one in report.comparisons} >= {1, 2}


@pytest.mark.parametrize("order", [0, 5, "2"])
def test_other_orders_are_refused(order: Any) -> None:
    with pytest.raises(UsageError, match="1 to 4"):
        karat.gradcheck(np.sin, (X,), backward=lambda i, _o, c: np.cos(i[0]) * c[0], order=order)


@pytest.mark.slow
def test_modes_are_composed_at_level_deep() -> None:
    torch = framework("torch")
    report = karat.gradcheck(torch.tanh, (torch.tensor(X),), level="deep")
    assert report, str(report)
    assert {(one.mode, one.order) for one in report.comparisons} >= {
        ("reverse", 2),
        ("reverse", 3),
        ("forward-over-reverse", 2),
        ("reverse-over-forward", 2),
        ("forward-over-forward", 2),
    }
    assert "forward-over-forward mode of order 2 in float64" in report.looked


@pytest.mark.slow
def test_modes_are_composed_for_jax() -> None:
    jax = framework("jax")
    report = karat.gradcheck(jax.numpy.tanh, (jax.numpy.asarray(X),), level="deep")
    assert report, str(report)
    assert {one.mode for one in report.comparisons} >= {"forward-over-forward", "reverse-over-forward"}


@pytest.mark.slow
def test_what_has_no_second_derivative_is_a_note_at_level_deep() -> None:
    torch = framework("torch")

    class Once(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, g: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * g

    class Graphless(Once):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return (2 * ctx.saved_tensors[0] * g).detach()

    report = karat.gradcheck(Graphless.apply, (torch.tensor(X),), level="deep", properties=())
    assert report, str(report)
    assert any("no gradient at all" in note for note in report.notes)
    report = karat.gradcheck(Once.apply, (torch.tensor(X),), level="deep")
    assert report, str(report)
    assert any("order 2 was not looked at" in note for note in report.notes)
