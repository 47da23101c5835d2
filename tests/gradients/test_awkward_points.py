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


@pytest.mark.parametrize("seed", [1, 8, 10, 11])
def test_what_cancels_inside_of_a_complex_step_is_no_slope(seed: int) -> None:
    """x - tanh x: of 1 - (1 - x²) at 3e-8 four bits are left, by complex steps as by torch's own backward."""
    torch = framework("torch")
    inputs = (torch.tensor([2.0, 3e-8], dtype=torch.float64),)
    report = karat.gradcheck(torch.nn.functional.tanhshrink, inputs, seed=seed, properties=(), modes=("reverse",))
    assert report.verdict is not GradVerdict.FAIL, report.reason


def test_what_round_off_does_to_a_gradient_next_to_zero_is_inaccurate_and_not_wrong() -> None:
    """At 4e-9 torch's derivative of sinc is 1e-8 off: as much as sinc(x) / x is rounded."""
    torch = framework("torch")
    inputs = (torch.tensor(points(9)["mixed"]),)
    report = karat.gradcheck(torch.sinc, inputs, seed=9, properties=(), modes=("reverse",))
    assert report.verdict is not GradVerdict.FAIL, report.reason


def test_what_is_missing_from_a_tiny_gradient_is_no_fault_of_its_derivative() -> None:
    """Attention of 1 to the last digit: a term of 1e-16 is lost in torch's gradient, and not in its derivative."""
    torch = framework("torch")
    keys = torch.tensor([[1.0, 2.0], [-3.0, 1.0], [2.0, -5.0]], dtype=torch.float64)
    queries = torch.tensor([[9.0, 8.0], [0.1, 0.4]], dtype=torch.float64)

    def attention(q: Any) -> Any:
        return torch.softmax(q @ keys.T, 1) @ torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)

    report = karat.gradcheck(attention, (queries,), order=2, properties=(), modes=("reverse",))
    assert report.verdict is GradVerdict.PASS, report.reason
    assert max(one.unjudged for one in report.comparisons) == 2


@pytest.mark.parametrize("tail", [(-8.0, -12.0, -20.0, -30.0, -37.0), (-8.2, -9.0), (-38.0,)])
def test_a_tangent_in_a_tail_where_the_function_is_zero_is_not_wrong(tail: tuple[float, ...]) -> None:
    """torch has (1 + erf) / 2: stairs of 1e-16 below -8, and nothing below -8.4; its derivative is right throughout."""
    torch = framework("torch")
    inputs = (torch.tensor([*tail, 0.0, 2.0], dtype=torch.float64),)
    report = karat.gradcheck(torch.special.ndtr, inputs, properties=())
    assert report.verdict is not GradVerdict.FAIL, report.reason


def test_a_gradient_that_is_rightly_zero_is_so_in_float32_as_well() -> None:
    """Two zeros in a product: every partial product has one of them."""
    torch = framework("torch")
    report = karat.gradcheck(torch.prod, (torch.tensor([0.0, 1.0, 0.0, -2.0]),), properties=())
    assert report.verdict is GradVerdict.PASS, report.reason

    class Product(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.prod()

        @staticmethod
        def backward(ctx: Any, v: Any) -> Any:
            (x,) = ctx.saved_tensors
            wrong = 1e-3 if x.dtype == torch.float32 else 0.0
            return v * torch.stack([torch.cat([x[:n], x[n + 1 :]]).prod() for n in range(len(x))]) + wrong

    inputs = (torch.tensor([0.0, 1.0, 0.0, -2.0]),)
    assert karat.gradcheck(Product.apply, inputs, properties=()).verdict is GradVerdict.FAIL


def test_complex_steps_that_contradict_themselves_leave_no_element_unjudged() -> None:
    """The gradient of hfft is the real part of something: no analytic function of the cotangent."""
    torch = framework("torch")
    inputs = (torch.linspace(-1.0, 2.0, 31, dtype=torch.float64),)
    report = karat.gradcheck(torch.fft.hfft, inputs, order=2, properties=(), modes=("reverse",))
    assert report.verdict is GradVerdict.PASS, report.reason
    assert not any(one.unjudged for one in report.comparisons)


@pytest.mark.parametrize("point", [[1e8 + 0.3], [12345678.3], [0.3, 12345678.3], [123456789.3, 3.2], [1234567.3]])
def test_whole_numbers_are_stairs_and_no_low_precision(point: list[float]) -> None:
    report = karat.gradcheck(np.floor, (np.array(point),), backward=lambda _i, _o, c: 0 * c[0], properties=())
    assert report.verdict is not GradVerdict.FAIL, report.reason


def test_thousandths_are_no_bfloat16() -> None:
    point = np.random.default_rng(3).standard_normal(20)
    report = karat.gradcheck(lambda x: np.round(x, 3), (point,), backward=lambda _i, _o, c: 0 * c[0], properties=())
    assert report.verdict is GradVerdict.PASS, report.reason
    assert report.comparisons[0].dtype == "float64"


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
