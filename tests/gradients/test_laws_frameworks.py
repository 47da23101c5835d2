from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import karat
from conftest import framework
from factories.tried import broken, passed, tried
from karat.gradients.report import GradVerdict

OPS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "matmul": lambda x: x @ x.mT,
    "norm": lambda x: x.norm(dim=-1),
    "max": lambda x: x.max(-1).values,
    "sort": lambda x: x.sort(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "relu": lambda x: x.relu(),
    "fft": lambda x: x.to(dtype=x.dtype).unsqueeze(-1).mT.squeeze(-2) * 1,
    "inverse": lambda x: (x @ x.mT + 10).cos().sin(),
    "std": lambda x: x.std(-1),
    "prod": lambda x: x.prod(-1),
    "gelu": lambda x: x.sigmoid() * x,
    "roll": lambda x: x.roll(1, -1)[..., ::2],
}


@pytest.mark.parametrize("op", OPS)
def test_torch_s_own_operators_obey_every_law(op: str) -> None:
    torch = framework("torch")
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(5, 7, dtype=dtype, generator=generator)
            assert not broken(tried(OPS[op], (x,), seed=seed))


def test_a_random_function_obeys_every_law() -> None:
    torch, paddle = framework("torch"), framework("paddle")
    x = torch.randn(4, 5, dtype=torch.float64)
    assert not broken(tried(torch.nn.functional.dropout, (x,)))
    y = paddle.to_tensor(x.numpy())
    assert not broken(tried(paddle.nn.functional.dropout, (y,)))


@pytest.mark.parametrize("rank", [5, 6, 9])
def test_paddle_s_tensors_of_many_axes_obey_every_law(rank: int) -> None:
    paddle = framework("paddle")
    x = paddle.to_tensor(np.random.default_rng(0).normal(size=(2,) * rank))
    assert not broken(tried(paddle.tanh, (x,)))


def test_a_layer_of_paddle_may_give_all_gradients_as_paddle_asks_where_no_input_is_frozen() -> None:
    paddle: Any = framework("paddle")

    class Product(paddle.autograd.PyLayer):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, v: Any) -> Any:
            x, y = ctx.saved_tensor()
            return v * y, v * x

    x = paddle.to_tensor([1.0, 2.0], dtype="float64")
    found = tried(Product.apply, (x, x + 1))
    assert not broken(found)
    assert "subset" not in {one.name for one in found}


def test_paddle_s_own_kernels_are_not_asked_for_one_input_alone() -> None:
    # Its cross ends the process there.
    paddle = framework("paddle")
    x = paddle.to_tensor(np.random.default_rng(0).normal(size=(3, 3)))
    found = tried(paddle.cross, (x, x + 1))
    assert not broken(found)
    assert "subset" not in passed(found)
    assert "accumulation" in passed(found)


def test_a_function_of_jax_may_use_its_inputs_up() -> None:
    jax = framework("jax")
    found = tried(jax.jit(lambda x: 2 * x, donate_argnums=0), (jax.numpy.ones(3),))
    assert not broken(found)
    # Nobody writes to an array of jax, so that a law about it could not fail.
    assert passed(found) >= {"gradient-form", "linearity"}
    assert "inputs-unmodified" not in passed(found)


def test_a_sparse_gradient_is_a_gradient() -> None:
    torch = framework("torch")
    table = torch.randn(5, 3, dtype=torch.float64)
    rows = torch.tensor([0, 0, 4])
    lookup = torch.nn.functional.embedding
    found = tried(lambda w: lookup(rows, w, sparse=True), (table,))
    assert not broken(found)
    assert "linearity" in passed(found)


@pytest.mark.slow
def test_complex_functions_obey_every_law() -> None:
    torch, jax = framework("torch"), framework("jax")
    z = np.array([0.3 + 1j, -2 + 0.1j, 1 - 1j])

    def function(z: Any) -> Any:
        return z * z.conj() * (1 + 2j) + z**2

    found = tried(function, (torch.tensor(z),))
    assert not broken(found)
    assert "forward-reverse" in passed(found)
    found = tried(function, (jax.numpy.asarray(z),))
    assert not broken(found)
    assert "forward-reverse" in passed(found)


def test_the_layout_of_what_as_strided_takes_is_not_varied() -> None:
    torch = framework("torch")
    x = torch.linspace(1, 2, 12, dtype=torch.float64).view(3, 4)
    found = karat.gradcheck(lambda x: torch.as_strided(x, (2, 2), (4, 1)), (x,))
    assert found.verdict is GradVerdict.PASS, str(found)
    assert "non-contiguous" not in {one.name for one in found.properties}


def test_outputs_that_torch_declares_non_differentiable_are_excluded_unless_asked_for() -> None:
    torch = framework("torch")
    x = torch.linspace(1, 2, 12, dtype=torch.float64)

    def fn(x: Any) -> Any:
        return x.sin(), x.detach() * 2

    found = karat.gradcheck(fn, (x,))
    assert found.verdict is GradVerdict.PASS, str(found)
    assert [(one.name, one.why) for one in found.excluded] == [("out.1", "torch declares it non-differentiable")]
    assert karat.gradcheck(fn, (x,), outputs=["out.0", "out.1"]).verdict is GradVerdict.FAIL
    # All that there is cannot be excluded.
    assert karat.gradcheck(lambda x: x.detach() * 2, (x,)).verdict is GradVerdict.FAIL
