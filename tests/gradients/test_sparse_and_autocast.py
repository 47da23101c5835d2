"""Sparse inputs are checked at their stored values; autocast is a precision of its own."""

from __future__ import annotations

from typing import Any

import pytest

import karat
from conftest import framework
from karat.gradients.report import GradVerdict


def matrix(torch: Any, layout: str) -> Any:
    random = torch.Generator().manual_seed(0)
    dense = torch.randn(6, 8, dtype=torch.float64, generator=random) * (torch.rand(6, 8, generator=random) < 0.4)
    return dense.to_sparse(layout=getattr(torch, layout))


@pytest.mark.filterwarnings("ignore:.*in beta state:UserWarning")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_a_sparse_input_is_checked_at_its_stored_values(layout: str) -> None:
    torch = framework("torch")
    x, y = matrix(torch, layout), torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(8, 3)
    report = karat.gradcheck(lambda x, y: torch.sin(x.to_dense() @ y), (x, y), op="spmm").require()
    assert {one.input for one in report.comparisons} == {"x", "y"}
    assert "sparse: the gradient is that of the stored values of x" in report.notes


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_product_of_sparse_matrices_gives_a_sparse_one() -> None:
    torch = framework("torch")
    x = matrix(torch, "sparse_coo")
    karat.gradcheck(torch.sparse.mm, (x, matrix(torch, "sparse_coo").t()), op="spspmm").require()


def test_a_wrong_gradient_of_stored_values_fails() -> None:
    torch = framework("torch")

    class Scaled(torch.autograd.Function):  # type: ignore[misc,name-defined,unused-ignore]
        @staticmethod
        def forward(_ctx: Any, x: Any) -> Any:
            return x.to_dense() * 2

        @staticmethod
        def backward(_ctx: Any, *cotangents: Any) -> Any:
            return cotangents[0] * 2.1

    report = karat.gradcheck(Scaled.apply, (matrix(torch, "sparse_coo"),), names=["x"])
    assert report.verdict is GradVerdict.FAIL


@pytest.mark.parametrize("dtype", ["autocast-bfloat16", "autocast-float16"])
def test_autocast_is_judged_by_the_precision_it_casts_to(dtype: str) -> None:
    torch = framework("torch")
    random = torch.Generator().manual_seed(0)
    x, w = torch.randn(32, 48, generator=random), torch.randn(48, 40, generator=random)
    report = karat.gradcheck(lambda x, w: torch.tanh(x @ w / 7), (x, w), dtypes=(dtype,), properties=()).require()
    assert {one.dtype for one in report.comparisons} == {"float64", dtype}


def test_a_function_that_breaks_under_autocast_fails_there_alone() -> None:
    torch = framework("torch")

    class Linear(torch.autograd.Function):  # type: ignore[misc,name-defined,unused-ignore]
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            out = x @ w
            ctx.save_for_backward(x, w, out)
            return out

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            x, w, out = ctx.saved_tensors
            g = cotangents[0]
            return (g.to(out.dtype) @ w.to(out.dtype).mT).to(x.dtype) * (
                1.1 if out.dtype == torch.bfloat16 else 1
            ), x.mT @ g

    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(32, 48, generator=random), torch.randn(48, 40, generator=random)
    dtypes = ("float32", "autocast-bfloat16")
    report = karat.gradcheck(Linear.apply, inputs, names=["x", "w"], dtypes=dtypes, properties=())
    failed = {(one.input, one.dtype) for one in report.comparisons if one.verdict is GradVerdict.FAIL}
    # The other one is raised by x.mT @ g, whose dtypes differ under autocast: what custom_fwd and custom_bwd are for.
    assert failed == {("x", "autocast-bfloat16"), ("w", "autocast-bfloat16")}
