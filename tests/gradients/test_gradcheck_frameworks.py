"""The checker over real frameworks: modes, orders, precisions, complex numbers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import karat
from conftest import framework
from karat.gradients.report import GradComparison as Comparison, GradReport, GradVerdict

X = np.random.default_rng(5).standard_normal((3, 5))


def _check(fn: Any, inputs: Any, **more: Any) -> GradReport:
    return karat.gradcheck(fn, inputs, **{"properties": (), **more})


def _modes(report: GradReport) -> set[tuple[str, int, str]]:
    return {(one.mode, one.order, one.dtype) for one in report.comparisons if one.counts}


@pytest.fixture
def torch() -> Any:
    return framework("torch")


@pytest.fixture
def jax() -> Any:
    framework("jax")
    return framework("jax.numpy")


def test_torch_in_both_modes_and_orders(torch: Any) -> None:
    report = _check(torch.tanh, (torch.tensor(X),), order=2)
    assert report.verdict is GradVerdict.PASS, report.reason
    both = {("reverse", 1, "float64"), ("forward", 1, "float64"), ("reverse", 2, "float64")}
    assert _modes(report) == both
    assert "grad" in report.comparisons[-1].output


@pytest.mark.slow
def test_jax_in_both_modes_and_orders(jax: Any) -> None:
    report = _check(jax.tanh, (jax.asarray(X, jax.float32),), order=2)
    assert report.verdict is GradVerdict.PASS, report.reason
    assert _modes(report) == {
        ("reverse", 1, "float64"),
        ("forward", 1, "float64"),
        ("reverse", 2, "float64"),
        ("reverse", 1, "float32"),
    }


def test_paddle_has_double_evidence_for_single_inputs() -> None:
    paddle = framework("paddle")
    report = _check(paddle.tanh, (paddle.to_tensor(X.astype(np.float32)),))
    assert report.verdict is GradVerdict.PASS, report.reason
    assert {("reverse", 1, "float64"), ("reverse", 1, "float32")} <= _modes(report)


def test_reverse_mode_alone(torch: Any) -> None:
    assert {one.mode for one in _check(torch.sin, (torch.tensor(X),), modes=("reverse",)).comparisons} == {"reverse"}


def test_a_wrong_forward_mode_fails_and_says_so(torch: Any) -> None:
    class Square(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(x: Any) -> Any:
            return x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, _output: Any) -> None:
            ctx.save_for_backward(inputs[0])
            ctx.save_for_forward(inputs[0])

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * grad

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            return 3 * ctx.saved_tensors[0] * tangent

    report = _check(Square.apply, (torch.tensor(X),))
    assert report.verdict is GradVerdict.FAIL
    assert "forward mode" in report.reason
    failed = [one for one in report.comparisons if one.verdict is GradVerdict.FAIL]
    assert {one.mode for one in failed} == {"forward"}


def test_a_wrong_second_order_fails(torch: Any) -> None:
    class Cube(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x = ctx.saved_tensors[0]
            return 3 * x * x.detach() * grad

    assert _check(Cube.apply, (torch.tensor(X),)).verdict is GradVerdict.PASS
    report = _check(Cube.apply, (torch.tensor(X),), order=2)
    assert report.verdict is GradVerdict.FAIL
    assert "second order" in report.reason


def test_a_backward_that_cannot_be_differentiated_is_no_op_without_gradient(torch: Any) -> None:
    class Square(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.twice = 2 * x.detach()
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return ctx.twice * grad

    report = _check(Square.apply, (torch.tensor(X),), order=2)
    assert report.verdict is GradVerdict.FAIL
    assert "no second-order gradient" in report.reason
    assert "no-grad-op" not in str(report)


@pytest.mark.slow
def test_the_second_derivative_of_a_linear_function_is_no_objection(torch: Any) -> None:
    report = _check(lambda x: 3 * x, (torch.tensor(X),), order=2)
    assert report.verdict is GradVerdict.PASS, report.reason
    assert any("second derivative is zero" in note for note in report.notes)


def test_second_order_of_a_written_backward_is_inconclusive() -> None:
    report = _check(np.sin, (X,), backward=lambda i, _o, c: np.cos(i[0]) * c[0], order=2)
    assert report.verdict is GradVerdict.INCONCLUSIVE
    assert "second-order" in report.reason


def test_detached_outputs_have_no_gradient(torch: Any) -> None:
    report = _check(lambda x: x.detach() * 2, (torch.tensor(X),))
    assert report.verdict is GradVerdict.FAIL
    assert "no gradient" in report.reason
    assert "no-grad-op" in report.reason


@pytest.mark.parametrize("real", ["abs", "conj", "angle"])
def test_complex_inputs_in_both_directions(torch: Any, real: str) -> None:
    z = torch.tensor(X + 1j * X[::-1])
    report = _check(lambda z: getattr(z, real)() * 2 + torch.exp(z), (z,))
    assert report.verdict is GradVerdict.PASS, report.reason
    assert {one.dtype for one in report.comparisons} == {"complex128"}


@pytest.mark.parametrize("part", [1.0, 1.0j])
def test_a_gradient_wrong_in_one_part_alone_fails(torch: Any, part: complex) -> None:
    class Square(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, z: Any) -> Any:
            ctx.save_for_backward(z)
            return z * z

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            right = 2 * ctx.saved_tensors[0].conj() * grad
            return right + 1e-6 * part * right.abs()

    report = _check(Square.apply, (torch.tensor(X + 1j * X[::-1]),))
    assert report.verdict is GradVerdict.FAIL


def _low(report: GradReport) -> list[Comparison]:
    return [one for one in report.comparisons if one.oracle == "float64"]


def test_low_precision_is_compared_with_double(torch: Any) -> None:
    report = _check(torch.tanh, (torch.tensor(X),), dtypes=("float32", "bfloat16", "float16"))
    assert report.verdict is GradVerdict.PASS, report.reason
    assert [one.dtype for one in _low(report)] == ["float32", "bfloat16", "float16"]
    widest = {"float32": 1e-4, "bfloat16": 0.2, "float16": 0.05}
    assert all(one.tolerance < widest[one.dtype] for one in _low(report))


def test_wrong_in_low_precision_alone_fails(torch: Any) -> None:
    class Sine(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x = ctx.saved_tensors[0]
            wrong = 1.5 if x.dtype == torch.bfloat16 else 1.0
            return wrong * torch.cos(x) * grad

    report = _check(Sine.apply, (torch.tensor(X),), dtypes=("bfloat16",))
    assert report.verdict is GradVerdict.FAIL
    assert [one.verdict for one in _low(report)] == [GradVerdict.FAIL]
    assert report.diagnoses[0].dtype == "bfloat16"


def test_a_kernel_without_double_precision_says_so(torch: Any) -> None:
    report = _check(lambda x: torch.sin(x.float()), (torch.tensor(X),))
    assert {one.dtype for one in report.comparisons} == {"float32"}
    assert report.verdict is GradVerdict.PASS, report.reason


def test_laws_are_tried_unless_nobody_asks(torch: Any) -> None:
    assert karat.gradcheck(torch.sin, (torch.tensor(X),)).properties
    assert not _check(torch.sin, (torch.tensor(X),)).properties


def test_what_a_function_cannot_take_is_raised(torch: Any) -> None:
    with pytest.raises(RuntimeError):
        _check(lambda x: x @ x, (torch.tensor(X),))


def test_masked_softmax_is_not_stepped_from_infinity(torch: Any) -> None:
    x = torch.tensor([[0.3, -np.inf, 2.0], [0.5, 0.1, 3.0]], dtype=torch.float64)
    report = _check(lambda x: torch.softmax(x, -1), (x,))
    assert report.verdict is GradVerdict.PASS, report.reason
    assert np.isfinite(report.smallest_error)


def test_layers_pass(torch: Any) -> None:
    rng = np.random.default_rng(0)
    image, kernel = (torch.tensor(rng.standard_normal(shape)) for shape in ((2, 3, 6, 6), (4, 3, 3, 3)))
    assert _check(torch.conv2d, (image, kernel))
    x, w, b = (torch.tensor(rng.standard_normal(shape)) for shape in ((4, 9), (9,), (9,)))
    assert _check(lambda x, w, b: torch.nn.functional.layer_norm(x, (9,), w, b), (x, w, b))
    assert _check(lambda x: torch.nn.functional.max_pool2d(x, 2), (image,))
    assert _check(torch.linalg.inv, (torch.tensor(rng.standard_normal((6, 6))),))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_reentrant_checkpoint_is_no_wrong_gradient() -> None:
    torch = framework("torch")
    from torch.utils.checkpoint import checkpoint

    x = torch.linspace(0.1, 1, 4, dtype=torch.float64)
    report = karat.gradcheck(lambda x: checkpoint(torch.sin, x, use_reentrant=True), (x,))
    assert report.verdict is GradVerdict.INCONCLUSIVE
    assert "use_reentrant=False" in report.reason
    assert "exemption" not in str(report)
    assert karat.gradcheck(lambda x: checkpoint(torch.sin, x, use_reentrant=False), (x,))


def sine_with_jvp(torch: Any, jvp: Any) -> Any:
    class Sine(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0].cos()

    if jvp is not None:
        Sine.jvp = staticmethod(jvp)
    return Sine.apply


@pytest.mark.parametrize("modes", [("reverse", "forward"), ("forward",)])
def test_a_jvp_that_raises_fails_and_ends_nothing(modes: tuple[Any, ...]) -> None:
    torch = framework("torch")
    x = torch.linspace(0.1, 1, 4, dtype=torch.float64)

    def broken(_ctx: Any, _tangent: Any) -> Any:
        raise KeyError("saved")

    report = karat.gradcheck(sine_with_jvp(torch, broken), (x,), modes=modes)
    assert report.verdict is GradVerdict.FAIL
    assert "forward mode raised KeyError: 'saved'" in report.reason
    (reverse,) = (one for one in report.comparisons if one.mode == "reverse")
    assert reverse.counts


def test_forward_mode_alone_must_be_there_and_reverse_is_not_left_out_in_silence() -> None:
    torch = framework("torch")
    x = torch.linspace(0.1, 1, 4, dtype=torch.float64)
    without = sine_with_jvp(torch, None)
    assert karat.gradcheck(without, (x,))
    report = karat.gradcheck(without, (x,), modes=("forward",))
    assert report.verdict is GradVerdict.INCONCLUSIVE
    assert "forward mode was asked for, but there is none" in report.reason
    right = karat.gradcheck(
        sine_with_jvp(torch, lambda ctx, t: t * ctx.saved_tensors[0].cos()), (x,), modes=("forward",)
    )
    assert right
    assert {one.mode for one in right.comparisons} == {"reverse", "forward"}
    assert "reverse mode was checked as well: it always is" in right.notes


PADDLE = """
import numpy as np, paddle, karat
rng = np.random.default_rng(0)
t = lambda *shape: paddle.to_tensor(rng.standard_normal(shape))
for fn, inputs in (
    (lambda x, y: paddle.cross(x, y, axis=1), (t(4, 3), t(4, 3))),
    (paddle.addmm, (t(2, 3), t(2, 4), t(4, 3))),
    (lambda x, w: paddle.nn.functional.prelu(x, w), (t(2, 3), t(3))),
    (paddle.linalg.solve, (t(3, 3), t(3, 2))),
):
    for index in range(len(inputs)):
        karat.gradcheck(fn, inputs, wrt=index).require()
        karat.gradcheck(fn, inputs, wrt=index, order=2)
print("all of it")
"""


@pytest.mark.slow
def test_paddle_may_be_asked_for_some_inputs_alone() -> None:
    """In a process of its own: kernels that are asked for some gradients alone end it."""
    framework("paddle")
    done = subprocess.run([sys.executable, "-c", PADDLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("all of it\n")


def test_a_tolerance_that_is_asked_for_is_one_of_forward_mode_too(torch: Any) -> None:
    x = torch.linspace(0.1, 1, 4, dtype=torch.float64)
    off = sine_with_jvp(torch, lambda ctx, t: (1 + 1e-7) * t * ctx.saved_tensors[0].cos())
    assert _check(off, (x,)).verdict is GradVerdict.FAIL
    assert _check(off, (x,), rtol=1e-8).verdict is GradVerdict.FAIL
    report = _check(off, (x,), rtol=1e-6)
    assert report.verdict is GradVerdict.PASS, report.reason
    assert {one.mode: one.widened for one in report.comparisons}["forward"] == 1e-6


def test_without_forward_mode_no_law_is_about_it(torch: Any) -> None:
    x = torch.linspace(0.1, 1, 4, dtype=torch.float64)
    wrong = sine_with_jvp(torch, lambda ctx, t: 2 * t * ctx.saved_tensors[0].cos())
    assert karat.gradcheck(wrong, (x,)).verdict is GradVerdict.FAIL
    assert karat.gradcheck(wrong, (x,), modes=("reverse",))
