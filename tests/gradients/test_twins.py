"""The same function in another form: compiled, jitted, in a batch, as a custom op; and forms that differ."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import karat
from conftest import framework
from karat.findings import UsageError
from karat.gradients.report import GradReport, GradVerdict, Property


def law(report: GradReport, name: str) -> Property:
    (found,) = (one for one in report.properties if one.name == name)
    return found


def function(x: Any, w: Any) -> Any:
    return (x.sin() @ w).tanh()


@pytest.fixture
def inputs() -> Iterator[Any]:
    torch = framework("torch")
    random = torch.Generator().manual_seed(0)
    yield torch.randn(4, 6, generator=random), torch.randn(6, 3, generator=random)
    torch.compiler.reset()


def altered(torch: Any, what: str) -> Any:
    """A backend that exchanges sine and cosine in the forward graph, or in the backward one."""
    sine, cosine = torch.ops.aten.sin.default, torch.ops.aten.cos.default
    boxed = importlib.import_module("functorch.compile").make_boxed_func

    def keep(graph: Any, _inputs: Any) -> Any:
        return boxed(graph.forward)

    def change(graph: Any, _inputs: Any) -> Any:
        for node in graph.graph.nodes:
            node.target = {sine: cosine, cosine: sine}.get(node.target, node.target)
        graph.recompile()
        return boxed(graph.forward)

    forward, backward = (change, keep) if what == "outputs" else (keep, change)
    common = importlib.import_module("torch._dynamo.backends.common")
    return common.aot_autograd(fw_compiler=forward, bw_compiler=backward)


@pytest.mark.slow
def test_a_compiled_twin_agrees(inputs: Any) -> None:
    torch = framework("torch")
    twins = {"compiled": torch.compile(function, backend="aot_eager")}
    report = karat.gradcheck(function, inputs, twins=twins, properties=("twin",)).require()
    assert law(report, "twin compiled").verdict is GradVerdict.PASS


@pytest.mark.slow
@pytest.mark.parametrize("what", ["outputs", "gradients"])
def test_a_backend_that_alters_the_graph_fails(inputs: Any, what: str) -> None:
    torch = framework("torch")
    twin = torch.compile(function, backend=altered(torch, what))
    report = karat.gradcheck(function, inputs, twins=twin, properties=("twin",))
    assert report.verdict is GradVerdict.FAIL
    assert f"its {what}" in law(report, "twin twin").detail


def test_twins_are_compared_at_the_quick_level_too() -> None:
    torch = framework("torch")
    x = torch.linspace(0.1, 1, 8, dtype=torch.float64)
    report = karat.gradcheck(torch.sin, (x,), twins={"fused": lambda x: x.sin() + 1e-6}, level="quick")
    assert report.verdict is GradVerdict.FAIL
    assert report.reason.startswith("twin fused: its outputs")
    report = karat.gradcheck(torch.sin, (x,), twins={"detached": lambda x: x.sin().detach() + 0 * x}, level="quick")
    assert "its gradients" in report.reason


def test_a_twin_that_raises_fails_and_one_that_is_no_function_is_refused() -> None:
    torch = framework("torch")
    x = torch.linspace(0.1, 1, 8, dtype=torch.float64)
    report = karat.gradcheck(torch.sin, (x,), twins={"fused": lambda _x: 1 / 0}, properties=("twin",))
    assert "it raised ZeroDivisionError" in report.reason
    with pytest.raises(UsageError, match="twins: expected a function, found int"):
        karat.gradcheck(torch.sin, (x,), twins={"fused": 3})  # type: ignore[dict-item]


@pytest.mark.slow
def test_a_jitted_twin() -> None:
    jax = framework("jax")
    x = jax.numpy.linspace(0.1, 1, 8)
    report = karat.gradcheck(jax.numpy.sin, (x,), twins={"jit": jax.jit(jax.numpy.sin)}, properties=("twin",))
    assert report, str(report)
    assert law(report, "twin jit").verdict is GradVerdict.PASS
    report = karat.gradcheck(jax.numpy.sin, (x,), twins=jax.jit(lambda x: jax.numpy.sin(x) * 1.0001))
    assert report.verdict is GradVerdict.FAIL


def squared(torch: Any, *, wrong: bool = False, contexts: bool = True) -> Any:
    """A square whose backward is wrong for batches alone: they come back in another order."""

    class Passed(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(x: Any) -> Any:
            return x.clone()

        @staticmethod
        def setup_context(_ctx: Any, _inputs: Any, _output: Any) -> None: ...

        @staticmethod
        def vmap(_info: Any, _dims: Any, x: Any) -> Any:
            return x.flip(0) if wrong else x.clone(), 0

    class Square(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(*given: Any) -> Any:
            if not contexts:
                given[0].save_for_backward(given[1])
            return given[-1] * given[-1]

        if contexts:
            generate_vmap_rule = True

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, _output: Any) -> None:
                ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            return Passed.apply(2 * ctx.saved_tensors[0] * cotangents[0])

    return Square.apply


def test_batched_gradients() -> None:
    torch = framework("torch")
    x = torch.linspace(0.1, 1, 8, dtype=torch.float64)
    report = karat.gradcheck(torch.sin, (x,), properties=("batched",)).require()
    assert law(report, "batched").verdict is GradVerdict.PASS
    for contexts in (True, False):
        report = karat.gradcheck(squared(torch, contexts=contexts), (x,), properties=("batched",))
        assert law(report, "batched").verdict is GradVerdict.PASS, str(report)
    report = karat.gradcheck(squared(torch, wrong=True), (x,), properties=("batched",))
    assert report.verdict is GradVerdict.FAIL, str(report)
    assert law(report, "batched").detail.startswith("for a batch at once: gradient of ")


def test_batches_are_tried_when_asked_for_or_deep() -> None:
    torch = framework("torch")
    x = torch.linspace(0.1, 1, 8, dtype=torch.float64)
    assert "batched" not in [one.name for one in karat.gradcheck(torch.sin, (x,)).properties]
    assert "batched" in [one.name for one in karat.gradcheck(torch.sin, (x,), level="deep").properties]


@pytest.mark.slow
def test_batched_gradients_of_jax() -> None:
    jax = framework("jax")
    x = jax.numpy.linspace(0.1, 1, 8)
    report = karat.gradcheck(jax.numpy.sin, (x,), properties=("batched",))
    assert law(report, "batched").verdict is GradVerdict.PASS, str(report)

    @jax.custom_batching.custom_vmap  # type: ignore[untyped-decorator]
    def inner(x: Any) -> Any:
        return x * x

    @inner.def_vmap  # type: ignore[untyped-decorator]
    def rule(_size: Any, _batched: Any, x: Any) -> Any:
        return (x * x)[::-1], True

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def square(x: Any) -> Any:
        return x * x

    square.defvjp(lambda x: (x * x, x), lambda x, v: (inner(x) / x * 2 * v,))
    report = karat.gradcheck(square, (x,), properties=("batched",))
    assert law(report, "batched").verdict is GradVerdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "without a fake"])
def test_custom_ops_go_through_opcheck(kind: str) -> None:
    torch = framework("torch")
    name = f"karat_test_{uuid4().hex}::sine"

    @torch.library.custom_op(name, mutates_args=(), schema="(Tensor x) -> Tensor")  # type: ignore[untyped-decorator]
    def sine(x: Any) -> Any:
        return torch.from_numpy(np.sin(x.detach().numpy()))

    if kind == "whole":
        sine.register_fake(torch.empty_like)
    sine.register_autograd(lambda ctx, g: g * ctx.x.cos(), setup_context=_keep)
    x = torch.linspace(0.1, 1, 8, dtype=torch.float64)
    report = karat.gradcheck(lambda x: sine(x) * 2, (x,), properties=("opcheck",))
    found = law(report, "opcheck")
    if kind == "whole":
        assert found.verdict is GradVerdict.PASS, found.detail
    else:
        assert found.verdict is GradVerdict.FAIL
        assert f"{name} test_faketensor: " in found.detail


def _keep(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG001 - torch passes them by name
    (ctx.x,) = inputs
