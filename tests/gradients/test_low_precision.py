"""Low precision against the double run: what rounding explains passes, what it does not fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from conftest import framework
from karat.findings import UsageError
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.gradcheck import gradcheck
from karat.gradients.low_precision import compare_low
from karat.gradients.low_precision_judgement import allowance_of
from karat.gradients.report import GradComparison as Comparison, GradVerdict

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors: threads only wait for each other."""
    torch = framework("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


LOW = ("float32", "bfloat16", "float16")


def low(fn: Function, inputs: Any, dtype: str, seed: int = 0, **more: Any) -> list[Comparison]:
    problem = open_problem(fn, inputs, **more)
    rng = np.random.default_rng(seed)
    given = [rng.choice([-1.0, 1.0], slot.shape) * rng.uniform(0.5, 1.5, slot.shape) for slot in problem.outputs]
    return list(compare_low(problem, dtype, rng=rng, cotangents=given))


def verdicts(found: list[Comparison]) -> set[str]:
    return {one.verdict.value for one in found}


def right_ops() -> dict[str, Callable[[Any, np.random.Generator], tuple[Function, tuple[Any, ...]]]]:
    """Right gradients of the kinds that low precision is hard on."""

    def normal(torch: Any, rng: np.random.Generator, *shape: int) -> Any:
        return torch.tensor(rng.standard_normal(shape))

    return {
        "softmax": lambda t, r: (lambda x: t.softmax(x, -1), (normal(t, r, 8, 50),)),
        "logsumexp of one row": lambda t, r: (lambda x: t.logsumexp(x, -1), (normal(t, r, 2000),)),
        "logsumexp of rows": lambda t, r: (lambda x: t.logsumexp(x, -1), (normal(t, r, 16, 500),)),
        "layer norm": lambda t, r: (
            lambda x, w: t.nn.functional.layer_norm(x, (64,), w),
            (normal(t, r, 8, 64), normal(t, r, 64)),
        ),
        "layer norm, composed": lambda t, r: (
            lambda x: (
                (x - x.mean(-1, keepdim=True))
                * t.rsqrt(((x - x.mean(-1, keepdim=True)) ** 2).mean(-1, keepdim=True) + 1e-5)
            ),
            (normal(t, r, 8, 64),),
        ),
        "matmul, K = 1024": lambda t, r: (lambda a, b: a @ b, (normal(t, r, 4, 1024), normal(t, r, 1024, 4))),
        "relu between matmuls": lambda t, r: (
            lambda x, a, b: t.relu(x @ a) @ b,
            (normal(t, r, 8, 64), normal(t, r, 64, 64) / 8, normal(t, r, 64, 8) / 8),
        ),
        "gelu, composed": lambda t, r: (
            lambda x: 0.5 * x * (1 + t.tanh(0.7978845608 * (x + 0.044715 * x**3))),
            (normal(t, r, 200),),
        ),
        "attention": lambda t, r: (
            lambda q, k, v: t.softmax(q @ k.T / 4, -1) @ v,
            (normal(t, r, 12, 16), normal(t, r, 12, 16), normal(t, r, 12, 16)),
        ),
        "scales mixed": lambda t, r: (lambda x: x**2, (normal(t, r, 300) * t.tensor(10.0 ** r.uniform(-2, 2, 300)),)),
        "max with ties": lambda t, r: (lambda x: x.max(-1).values, (t.tensor(r.integers(-3, 3, (20, 9)) / 2.0),)),
        "one element": lambda t, r: (t.exp, (normal(t, r, 1),)),
    }


@pytest.mark.parametrize("name", right_ops())
def test_a_right_gradient_passes_and_is_evidence(name: str) -> None:
    torch = framework("torch")
    for dtype in LOW:
        for seed in range(2):
            fn, inputs = right_ops()[name](torch, np.random.default_rng(seed))
            found = low(fn, inputs, dtype, seed)
            assert len(found) == len(inputs)
            for one in found:
                assert one.counts, (dtype, seed, one.reason)
                assert one.oracle == "float64"
                assert one.error <= one.tolerance


@pytest.mark.slow
def test_a_sum_over_many_passes() -> None:
    torch = framework("torch")
    x = torch.tensor(np.random.default_rng(0).standard_normal(100_000))
    for dtype in LOW:
        assert all(one.counts for one in low(torch.sum, (x,), dtype))
        wide = low(lambda s: s.expand(100_000) * 1, (torch.tensor([0.7]).double(),), dtype)
        assert all(one.counts for one in wide)


def wrong_sigmoid(torch: Any, spoil: Callable[[Any], Any], only: Any) -> Function:
    """A sigmoid whose gradient is spoilt in one dtype alone."""

    class Sigmoid(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.sigmoid(x)

        @staticmethod
        def backward(ctx: Any, v: Any) -> Any:
            (x,) = ctx.saved_tensors
            y = torch.sigmoid(x.float() if x.dtype != torch.float64 else x)
            right = v * y * (1 - y)
            return (spoil(right) if x.dtype == only else right).to(x.dtype)

    return Sigmoid.apply  # type: ignore[no-any-return]


def spoilt_at(gradient: Any, place: int, factor: float) -> Any:
    changed = gradient.clone()
    changed.view(-1)[place] *= factor
    return changed


SPOILT: dict[str, Callable[[Any], Any]] = {
    "zero": lambda g: g * 0,
    "sign": lambda g: -g,
    "a factor of 1.01": lambda g: g * 1.01,
    "a factor of 0.98": lambda g: g * 0.98,
    "one element of 2,000 zero": lambda g: spoilt_at(g, 1234, 0.0),
    "one element half as large again": lambda g: spoilt_at(g, 7, 1.5),
    "one too far": lambda g: g.roll(1, -1),
    "transposed": lambda g: g.reshape(50, 40).T.reshape(40, 50),
    "a constant offset along an axis": lambda g: g + 0.05 * g.mean(-1, keepdim=True) + 0.01,
    "NaN": lambda g: spoilt_at(g, 3, float("nan")),
    "infinite": lambda g: spoilt_at(g, 3, float("inf")),
}


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("how", SPOILT)
def test_wrong_only_in_one_dtype_fails_there_and_only_there(how: str, dtype: str) -> None:
    torch = framework("torch")
    wrong = wrong_sigmoid(torch, SPOILT[how], getattr(torch, dtype))
    for seed in range(2):
        x = torch.tensor(np.random.default_rng(seed).standard_normal((40, 50)))
        for other in LOW:
            expected = {"FAIL"} if other == dtype else {"PASS"}
            assert verdicts(low(wrong, (x,), other, seed)) == expected, (seed, other)


def test_a_missing_mean_term_that_no_element_shows_is_seen_in_bfloat16() -> None:
    torch = framework("torch")

    class LayerNorm(torch.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.nn.functional.layer_norm(x, x.shape[-1:])

        @staticmethod
        def backward(ctx: Any, v: Any) -> Any:
            x = ctx.saved_tensors[0].double()
            wide = v.double()
            centred = x - x.mean(-1, keepdim=True)
            scale = torch.rsqrt((centred**2).mean(-1, keepdim=True) + 1e-5)
            y = centred * scale
            mean = wide.mean(-1, keepdim=True) if v.dtype == torch.float64 else 0
            gradient = scale * (wide - mean - y * (wide * y).mean(-1, keepdim=True))
            return gradient.to(v.dtype)

    x = torch.tensor(np.random.default_rng(0).standard_normal((8, 1000)))
    (one,) = low(LayerNorm.apply, (x,), "bfloat16")
    assert one.verdict is GradVerdict.FAIL
    assert "mean along axis 1" in one.reason


def test_controls_say_how_large_they_had_to_be() -> None:
    torch = framework("torch")
    x = torch.tensor(np.random.default_rng(0).standard_normal((40, 50)))
    (fine,) = low(torch.sin, (x,), "float32")
    (coarse,) = low(torch.sin, (x,), "bfloat16")
    assert set(fine.controls) == {"zero", "sign", "x1.01", "one row x1.01", "one element x1.01"}
    assert {"zero", "sign", "x1.01"} < set(coarse.controls)
    (step,) = (name for name in coarse.controls if name.startswith("one element"))
    assert 1.01 < float(step.removeprefix("one element x")) <= 2
    assert all(fine.controls.values())
    assert all(coarse.controls.values())


def test_an_error_above_the_smallest_that_can_be_seen_is_seen() -> None:
    torch = framework("torch")
    x = torch.tensor(np.random.default_rng(0).standard_normal((40, 50)))
    for dtype in LOW:
        (right,) = low(wrong_sigmoid(torch, lambda g: g, torch.float64), (x,), dtype)
        for place in (0, 999, 1999):
            off = 1.05 * right.smallest_error

            def spoil(g: Any, place: int = place, off: float = off) -> Any:
                changed = g.clone().double()
                changed.view(-1)[place] += off
                return changed

            wrong = wrong_sigmoid(torch, spoil, getattr(torch, dtype))
            assert verdicts(low(wrong, (x,), dtype)) == {"FAIL"}


def test_rows_without_a_gradient_are_no_control() -> None:
    """Of the rows of a table few are looked up; one that is not has nothing to be wrong in."""
    torch = framework("torch")
    ids, table = torch.tensor([1, 3, 1]), torch.rand(18, 32, dtype=torch.bfloat16)
    report = gradcheck(lambda w: torch.nn.functional.embedding(ids, w), table, dtypes=("bfloat16",))
    assert report.verdict is GradVerdict.PASS, str(report)


def test_each_output_is_compared_by_itself() -> None:
    torch = framework("torch")
    rng = np.random.default_rng(0)
    a, b = (torch.tensor(rng.standard_normal(30)) for _ in range(2))
    found = low(lambda x, y: (x * y, x.sin()), (a, b), "bfloat16")
    assert {(one.input, one.output) for one in found if one.counts} == {("x", "out.0"), ("y", "out.0"), ("x", "out.1")}


def test_arithmetic_that_loses_everything_is_inconclusive_not_wrong() -> None:
    torch = framework("torch")
    x = torch.tensor(np.random.default_rng(0).standard_normal(50))
    (one,) = low(lambda x: torch.sin(x + 1000), (x,), "bfloat16")
    assert one.verdict is GradVerdict.INCONCLUSIVE
    assert "its forward strays" in one.reason
    (fine,) = low(lambda x: torch.sin(x + 1000), (x,), "float32")
    assert fine.verdict is GradVerdict.PASS


def test_overflow_and_underflow_are_called_by_name() -> None:
    torch = framework("torch")
    large, small = torch.tensor([300.0, 1.0]).double(), torch.tensor([3e-9, 1e-9]).double()
    (of_gradient,) = low(lambda x: x**2 * 1e3, (large,), "float16")
    assert "overflows float16" in of_gradient.reason
    (of_forward,) = low(lambda x: x**3 / 1000, (large,), "float16")
    assert "overflow" in of_forward.reason
    (of_input,) = low(torch.sin, (large * 1000,), "float16")
    assert "an input overflows float16, whose largest number is 65504" in of_input.reason
    (under,) = low(lambda x, s=small: x * s, (torch.tensor([1.0, 2.0]).double(),), "float16", wrt=[0])
    assert "underflows float16" in under.reason
    assert verdicts([of_gradient, of_forward, of_input, under]) == {"INCONCLUSIVE"}


def test_a_gradient_that_overflows_while_the_forward_does_not_fails() -> None:
    def backward(inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        (x,), (v,) = inputs, cotangents
        return (v * x * 60000 * 4 / 60000 / 4,)

    x = np.random.default_rng(0).uniform(1, 2, 20)
    with np.errstate(over="ignore"):
        (one,) = low(lambda x: x**2 / 2, (x,), "float16", backward=backward)
    assert one.verdict is GradVerdict.FAIL
    assert "infinite in float16" in one.reason
    assert "while the forward is finite" in one.reason


def test_a_zero_gradient_is_no_evidence() -> None:
    torch = framework("torch")
    (one,) = low(lambda x: torch.floor(x) + 0 * x, (torch.rand(9).double() + 0.2,), "bfloat16")
    assert one.vacuous
    assert not one.counts
    assert one.reason == "the gradient is zero everywhere it was checked"


def test_a_backward_that_raises_in_low_precision_fails_and_a_forward_is_inconclusive() -> None:
    def refuse(x: Any) -> None:
        if x.dtype != np.float64:
            raise TypeError("no kernel for float16")

    def backward(inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        refuse(inputs[0])
        return (2 * inputs[0] * cotangents[0],)

    def forward(x: Any) -> Any:
        refuse(x)
        return x**2

    x = np.linspace(1, 2, 9)
    (one,) = low(lambda x: x**2, (x,), "float16", backward=backward)
    assert (one.verdict, one.reason) == (
        GradVerdict.FAIL,
        "the backward raises in float16: TypeError: no kernel for float16",
    )
    (two,) = low(forward, (x,), "float16", backward=lambda i, _o, c: (2 * i[0] * c[0],))
    assert two.verdict is GradVerdict.INCONCLUSIVE
    assert "the forward cannot be computed in float16" in two.reason


def test_no_gradient_in_low_precision_alone_fails() -> None:
    def backward(inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        (x,) = inputs
        return (2 * x * cotangents[0] if x.dtype == np.float64 else None,)

    (one,) = low(lambda x: x**2, (np.linspace(1, 2, 9),), "float32", backward=backward)
    assert one.verdict is GradVerdict.FAIL
    assert one.reason == "no gradient in float32, where float64 has one"


def test_double_is_not_compared_with_itself() -> None:
    found = low(lambda x: x**2, (np.ones(3),), "float64", backward=lambda i, _o, c: (2 * i[0] * c[0],))
    assert found == []


def test_complex64_is_compared_part_by_part() -> None:
    torch = framework("torch")
    rng = np.random.default_rng(0)
    z = torch.tensor(rng.standard_normal(40) + 1j * rng.standard_normal(40))
    (one,) = low(lambda z: (z * z).abs(), (z,), "complex64")
    assert one.counts, one.reason


def test_float8_is_looked_at_as_coarsely_as_it_is() -> None:
    torch = framework("torch")
    x = torch.tensor(np.random.default_rng(0).standard_normal((20, 30)))

    def through_float8(x: Any) -> Any:
        return torch.sin(x.to(torch.float64 if x.dtype == torch.float64 else torch.float32))

    (one,) = low(through_float8, (x,), "float8_e4m3fn")
    assert one.verdict is GradVerdict.PASS, one.reason
    assert allowance_of("float8_e4m3fn").cap > allowance_of("bfloat16").cap


def test_the_same_generator_gives_the_same_comparison() -> None:
    torch = framework("torch")
    x = torch.tensor(np.random.default_rng(0).standard_normal((5, 6)))
    assert low(torch.tanh, (x,), "bfloat16", 3) == low(torch.tanh, (x,), "bfloat16", 3)


@pytest.mark.slow
def test_a_complex_output_that_is_real_by_nature_has_no_unrest() -> None:
    jax = framework("jax")
    rng = np.random.default_rng(0)
    z = jax.numpy.asarray(rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4)), "complex64")
    report = gradcheck(lambda z: z * jax.numpy.conj(z), (z,))
    assert report.verdict is GradVerdict.PASS, report.reason


def test_what_is_wider_than_double_is_nothing_low() -> None:
    x = np.ones(3, np.longdouble)
    report = gradcheck(np.sin, (x,), backward=lambda i, _o, v: v[0] * np.cos(i[0]))
    assert report.verdict is GradVerdict.PASS
    assert {one.dtype for one in report.comparisons} == {"float64"}


@pytest.mark.parametrize("name", ["bf16", "int8", "float99", 3])
def test_a_precision_that_there_is_not_is_refused(name: Any) -> None:
    x = framework("torch").ones(3)
    with pytest.raises(UsageError, match="dtypes: expected floating dtypes"):
        gradcheck(framework("torch").sin, (x,), dtypes=(name,))


def test_one_precision_may_come_alone() -> None:
    x = framework("torch").ones(3)
    report = gradcheck(framework("torch").sin, (x,), dtypes="bfloat16")
    assert "bfloat16" in {one.dtype for one in report.comparisons}


def test_what_a_backward_saves_is_rounded_too() -> None:
    """Each strays in float32 by up to a thousandth, because what is saved stands in an exponent, or cancels."""
    torch = framework("torch")
    random = torch.Generator().manual_seed(0)
    x = torch.randn(20, 30, generator=random, dtype=torch.float64)
    logs = (5 * torch.randn(40, 2, 12, generator=random, dtype=torch.float64)).log_softmax(-1)
    targets, lengths = torch.randint(1, 12, (2, 15), generator=random), (40, 38)
    ctc = partial(torch.nn.functional.ctc_loss, targets=targets, input_lengths=lengths, target_lengths=(15, 12))
    for fn, at in ((lambda x: torch.logcumsumexp(x * 9, 1), x), (ctc, logs), (lambda x: x.cumsum(1).exp().log(), x)):
        report = gradcheck(fn, (at,), dtypes=("float32",), properties=(), modes=("reverse",))
        assert not [one for one in report.comparisons if one.dtype == "float32" and one.verdict is GradVerdict.FAIL]


def test_where_nothing_but_rounding_is_left_nothing_is_judged() -> None:
    """Two elements, normalised, are 1 and -1 whatever they were."""
    torch = framework("torch")
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pairs = partial(torch.nn.functional.layer_norm, normalized_shape=(2,), eps=1e-9)
    report = gradcheck(pairs, (x,), dtypes=("float32",), properties=(), modes=("reverse",))
    assert "float32" not in {one.dtype for one in report.comparisons}, str(report)
    assert any(note.startswith("not judged in float32") for note in report.notes), str(report)
    assert gradcheck(torch.floor, (x + 0.5,), dtypes=("float32",), properties=())
