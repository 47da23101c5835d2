"""Kernels that know one precision alone, held against a float64 reference: right ones pass, wrong ones fail."""

from __future__ import annotations

from typing import Any

import pytest

import karat
from conftest import framework
from factories.kernels import NARROW, attention, flash, heads, numpy_attention
from karat.findings import UsageError
from karat.gradients.report import GradReport, GradVerdict


def check(kernel: Any, inputs: Any, reference: Any = None, **more: Any) -> GradReport:
    torch = framework("torch")
    options = {"names": ("q", "k", "v"), "properties": (), "op": "flash"} | more
    return karat.gradcheck(kernel, inputs, reference=reference or attention(torch), **options)


@pytest.mark.parametrize("dtype", NARROW)
def test_a_right_kernel_passes(dtype: str) -> None:
    torch = framework("torch")
    report = check(flash(torch), heads(torch, dtype)).require()
    assert [(one.input, one.dtype, one.oracle) for one in report.comparisons] == [
        (name, dtype, "reference") for name in ("q", "k", "v")
    ]
    assert all(one.counts for one in report.comparisons)
    (law,) = report.properties
    assert (law.name, law.dtype, law.verdict) == ("reference-forward", dtype, GradVerdict.PASS)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("rows", [slice(None), slice(3, 5)], ids=["all rows", "two rows"])
@pytest.mark.parametrize("wrong", ["out", "dq", "dk", "dv"])
def test_a_kernel_that_is_five_per_cent_wrong_fails(wrong: str, rows: slice, dtype: str) -> None:
    torch = framework("torch")
    report = check(flash(torch, wrong=wrong, rows=rows), heads(torch, dtype))
    assert report.verdict is GradVerdict.FAIL, str(report)
    if wrong == "out":
        assert "reference-forward" in report.reason
        return
    failed = [one.input for one in report.comparisons if one.verdict is GradVerdict.FAIL]
    assert failed == [wrong[1]]
    (found,) = report.diagnoses
    assert found.coordinate is not None
    if rows != slice(None) and dtype != "bfloat16":
        assert found.coordinate[-2] in range(3, 5)


@pytest.mark.parametrize("wrong", ["out", "dq", "dk", "dv"])
def test_two_per_cent_of_the_whole_is_seen_in_bfloat16(wrong: str) -> None:
    torch = framework("torch")
    assert check(flash(torch, wrong=wrong, factor=1.02), heads(torch, "bfloat16")).verdict is GradVerdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("shape", [(1, 2, 48, 32), (64, 64), (5, 17), (3, 200)])
@pytest.mark.parametrize("size", [0.1, 1.0, 4.0])
def test_no_right_kernel_fails_whatever_its_size(size: float, shape: tuple[int, ...], dtype: str) -> None:
    """At size 4 the softmax is saturated, and a backward is the difference of what is nearly the same."""
    torch = framework("torch")
    for seed in range(3):
        report = check(flash(torch), heads(torch, dtype, seed=seed, size=size, shape=shape), seed=seed)
        assert report.verdict is not GradVerdict.FAIL, str(report)
        assert report or size > 1, str(report)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_reference_in_numpy_is_stepped_through(dtype: str) -> None:
    torch = framework("torch")
    inputs = heads(torch, dtype, shape=(16, 16))
    report = check(flash(torch), inputs, numpy_attention)
    assert report, str(report)
    assert {one.oracle for one in report.comparisons} == {"reference"}
    for wrong in ("out", "dq", "dv"):
        assert check(flash(torch, wrong=wrong), inputs, numpy_attention).verdict is GradVerdict.FAIL


def test_a_reference_in_numpy_that_is_too_large_says_what_to_pass() -> None:
    torch = framework("torch")
    report = check(flash(torch), heads(torch, "bfloat16", shape=(64, 64)), numpy_attention)
    assert report.verdict is GradVerdict.INCONCLUSIVE
    assert "pass a function of the framework as reference=" in report.reason


def test_a_reference_whose_own_gradient_is_wrong_certifies_nothing() -> None:
    torch = framework("torch")

    class Bent(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(_ctx: Any, x: Any) -> Any:
            return x.sin()

        @staticmethod
        def backward(_ctx: Any, *cotangents: Any) -> Any:
            return cotangents[0] * 1.2

    def kernel(x: Any) -> Any:
        if x.dtype == torch.float64:
            raise TypeError("bfloat16 alone")
        return Bent.apply(x)

    x = torch.linspace(-1, 1, 64, dtype=torch.bfloat16)
    report = karat.gradcheck(kernel, (x,), reference=Bent.apply)
    assert report.verdict is GradVerdict.INCONCLUSIVE
    assert any("reference's own gradient" in note for note in report.notes)


def test_a_reference_that_agrees_at_the_point_alone_fails() -> None:
    torch = framework("torch")
    q, k, v = heads(torch, "bfloat16")
    wide, right = [one.double() for one in (q, k, v)], attention(torch)

    def bent(*inputs: Any) -> Any:
        off = sum(((one - own) * 0.3).sum(-1, keepdim=True) for one, own in zip(inputs, wide, strict=True))
        return right(*inputs) + off

    report = check(flash(torch), (q, k, v), bent)
    assert report.verdict is GradVerdict.FAIL
    assert any(one.name == "reference-forward" and one.verdict is GradVerdict.FAIL for one in report.properties)


def test_a_reference_of_the_framework_has_slopes_for_a_double_function() -> None:
    torch = framework("torch")
    x = torch.linspace(-1, 1, 24, dtype=torch.float64)
    report = karat.gradcheck(torch.sinh, (x,), reference=lambda x: (torch.exp(x) - torch.exp(-x)) / 2, properties=())
    assert report, str(report)
    assert {one.oracle for one in report.comparisons if one.mode == "reverse"} == {"reference"}


def test_a_reference_that_runs_in_neither_is_refused_with_both_reasons() -> None:
    torch = framework("torch")

    def reference(x: Any) -> Any:
        raise KeyError(type(x).__name__)

    with pytest.raises(UsageError, match=r"torch tensors or numpy arrays.*KeyError: 'Tensor'.*KeyError: 'ndarray'"):
        karat.gradcheck(torch.sin, (torch.ones(3),), reference=reference)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_a_pallas_kernel_in_bfloat16(factor: float) -> None:
    jax = framework("jax")
    pl, jnp = pytest.importorskip("jax.experimental.pallas"), jax.numpy

    def forward_kernel(x: Any, y: Any) -> None:
        wide = x[...].astype(jnp.float32)
        raised = jnp.exp(wide - wide.max(-1, keepdims=True))
        y[...] = (raised / raised.sum(-1, keepdims=True)).astype(y.dtype)

    def backward_kernel(y: Any, v: Any, g: Any) -> None:
        p, wide = y[...].astype(jnp.float32), v[...].astype(jnp.float32)
        g[...] = (factor * p * (wide - (p * wide).sum(-1, keepdims=True))).astype(g.dtype)

    def call(kernel: Any, *arrays: Any) -> Any:
        shape = jax.ShapeDtypeStruct(arrays[0].shape, arrays[0].dtype)
        return pl.pallas_call(kernel, out_shape=shape, interpret=True)(*arrays)

    @jax.custom_vjp  # type: ignore[untyped-decorator]
    def softmax(x: Any) -> Any:
        if x.dtype == jnp.float64:
            raise TypeError("the kernel takes bfloat16")
        return call(forward_kernel, x)

    softmax.defvjp(lambda x: (softmax(x),) * 2, lambda y, v: (call(backward_kernel, y, v),))
    x = jax.random.normal(jax.random.key(0), (32, 64), dtype=jnp.bfloat16)
    report = karat.gradcheck(softmax, (x,), reference=lambda x: jax.nn.softmax(x, -1), properties=())
    assert report.verdict is (GradVerdict.PASS if factor == 1.0 else GradVerdict.FAIL), str(report)
