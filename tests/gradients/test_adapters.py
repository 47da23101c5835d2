"""What every adapter does, on real frameworks: numbers in and out, derivatives, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from conftest import framework
from karat.findings import UsageError
from karat.gradients.adapters import BUILT_IN, adapter_named, adapter_of
from karat.gradients.adapters.framework_problem import FrameworkProblem, open_problem
from karat.gradients.deep import GradientProblem, TangentProblem
from karat.gradients.laws import check_properties
from karat.gradients.problem import Unsupported
from karat.gradients.report import GradVerdict
from karat.tensors.dtypes import TABLE

RNG = np.random.default_rng(11)
X, Y = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4)) + 3
DIFFERENTIABLE = ("torch", "jax", "paddle")
LOW = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def near(found: Any, expected: Any, rtol: float) -> None:
    np.testing.assert_allclose(found, expected, rtol=rtol)


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found, expected)


def tensor(name: str, array: Any, dtype: str | None = None) -> Any:
    """An array as a tensor of that framework, in double precision unless said otherwise."""
    framework(name)
    adapter = adapter_named(name)
    with adapter.scope():
        return adapter.from_numpy(array, dtype or str(array.dtype), None)


def function(x: Any, y: Any) -> tuple[Any, Any]:
    return x * x * y, (x / y).sum()


def gradients(x: Any, y: Any, v: Any, w: Any) -> tuple[Any, Any]:
    return 2 * x * y * v + w / y, x * x * v - w * x / y**2


@pytest.fixture(params=DIFFERENTIABLE)
def opened(request: pytest.FixtureRequest) -> FrameworkProblem:
    return open_problem(function, (tensor(request.param, X), tensor(request.param, Y)))


class TestDerivatives:
    @pytest.mark.slow
    def test_reverse_mode(self, opened: FrameworkProblem) -> None:
        v, w = RNG.standard_normal((3, 4)), np.array(0.7)
        for found, expected in zip(opened.vjp((X, Y), (v, w)), gradients(X, Y, v, w), strict=True):
            near(found, expected, rtol=1e-13)

    def test_a_cotangent_of_none_is_left_out(self, opened: FrameworkProblem) -> None:
        v = RNG.standard_normal((3, 4))
        for found, expected in zip(opened.vjp((X, Y), (v, None)), gradients(X, Y, v, 0.0), strict=True):
            near(found, expected, rtol=1e-13)
        assert all(one is None or not one.any() for one in opened.vjp((X, Y), (None, None)))

    @pytest.mark.slow
    def test_forward_mode(self, opened: FrameworkProblem) -> None:
        u, t = RNG.standard_normal((2, 3, 4))
        if opened.framework == "paddle":
            with pytest.raises(Unsupported, match="no forward mode"):
                opened.jvp((X, Y), (u, t))
            return
        first, second = opened.jvp((X, Y), (u, t))
        near(first, 2 * X * Y * u + X * X * t, rtol=1e-13)
        near(second, (u / Y - X * t / Y**2).sum(), rtol=1e-12)

    def test_complex_steps(self, opened: FrameworkProblem) -> None:
        first, second = opened.forward_complex((X + 1e-20j, Y + 0j))
        near(first.imag / 1e-20, 2 * X * Y, rtol=1e-13)
        near(second.imag / 1e-20, (1 / Y).sum(), rtol=1e-13)

    @pytest.mark.slow
    def test_second_order(self, opened: FrameworkProblem) -> None:
        v, w = RNG.standard_normal((3, 4)), np.array(0.7)
        second = GradientProblem(opened, (v, w))
        assert [slot.name for slot in second.outputs] == ["grad(x)", "grad(y)"]
        for found, expected in zip(second.forward((X, Y, v, w)), gradients(X, Y, v, w), strict=True):
            near(found, expected, rtol=1e-13)
        a = RNG.standard_normal((3, 4))
        of_x, of_y, of_v, of_w = second.vjp((X, Y, v, w), (a, None))
        near(of_x, 2 * Y * v * a, rtol=1e-13)
        near(of_y, 2 * X * v * a - w * a / Y**2, rtol=1e-12)
        # The gradient is linear in its cotangents: what comes out is J·a.
        near(of_v, 2 * X * Y * a, rtol=1e-13)
        near(of_w, (a / Y).sum(), rtol=1e-12)
        stepped = second.forward_complex((X + 1e-20j, Y + 0j, v, w))[0]
        near(stepped.imag / 1e-20, 2 * Y * v, rtol=1e-13)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["torch", "jax"])
    def test_second_order_by_forward_over_reverse(self, name: str) -> None:
        v, u = RNG.standard_normal((2, 3, 4))
        second = GradientProblem(open_problem(function, (tensor(name, X), tensor(name, Y))), (v, None))
        found = second.jvp((X, Y, v), (u, np.zeros_like(u), np.zeros_like(v)))[0]
        near(found, 2 * Y * v * u, rtol=1e-13)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["torch", "jax"])
    def test_second_order_over_forward_mode(self, name: str) -> None:
        u, v, a = RNG.standard_normal((3, 3, 4))
        opened = open_problem(lambda x, y: x * x * y, (tensor(name, X), tensor(name, Y)))
        second = TangentProblem(opened, (u, v))
        at = (X, Y, u, v)
        assert [slot.name for slot in second.inputs] == ["x", "y", "tangent(x)", "tangent(y)"]
        near(second.forward(at)[0], 2 * X * Y * u + X * X * v, rtol=1e-13)
        of_x, of_y, of_u, of_v = second.vjp(at, (a,))
        near(of_x, (2 * Y * u + 2 * X * v) * a, rtol=1e-13)
        near(of_y, 2 * X * u * a, rtol=1e-13)
        near(of_u, 2 * X * Y * a, rtol=1e-13)
        near(of_v, X * X * a, rtol=1e-13)
        near(second.jvp(at, (a, 0 * a, 0 * a, 0 * a))[0], (2 * Y * u + 2 * X * v) * a, rtol=1e-13)

    def test_without_a_graph_there_is_no_gradient(self) -> None:
        for name in ("torch", "paddle"):
            problem = open_problem(lambda x: x.detach() * 2, (tensor(name, X),))
            assert problem.vjp((X,), (X,)) == (None,)

    def test_an_input_that_is_not_used_has_no_gradient(self) -> None:
        for name in ("torch", "paddle"):
            problem = open_problem(lambda x, y: x * 2 + 0 * y.detach(), (tensor(name, X), tensor(name, Y)))
            assert problem.vjp((X, Y), (X,))[1] is None

    def test_twice_is_refused_where_once_was_said(self) -> None:
        torch = framework("torch")
        once = differentiable_once(torch)
        problem = open_problem(lambda x: once(x) * x, (tensor("torch", X),))
        with pytest.raises(Unsupported, match="twice"):
            GradientProblem(problem, (X,)).forward((X, X))

    @pytest.mark.slow
    def test_a_custom_function_without_forward_mode_is_unsupported(self) -> None:
        from factories.lawless_torch import Twice

        with pytest.raises(Unsupported, match="forward mode"):
            open_problem(Twice.apply, (tensor("torch", X),)).jvp((X,), (X,))
        from factories.lawless_jax import cases

        right = cases()["linearity"][1]
        with pytest.raises(Unsupported, match="forward mode"):
            open_problem(right, (tensor("jax", X),)).jvp((X,), (X,))


def differentiable_once(torch: Any) -> Callable[[Any], Any]:
    """x², whose backward is marked as differentiable once."""
    from factories.lawless_torch import Squared

    backward = torch.autograd.function.once_differentiable(Squared.backward)
    made = type("Once", (Squared,), {"backward": staticmethod(backward)})
    found: Callable[[Any], Any] = made.apply  # type: ignore[attr-defined]
    return found


class TestComplex:
    Z = RNG.standard_normal(4) + 1j * RNG.standard_normal(4)
    V = RNG.standard_normal(4) + 1j * RNG.standard_normal(4)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", DIFFERENTIABLE)
    def test_gradients_are_those_of_real_and_imaginary_parts(self, name: str) -> None:
        """∂/∂Re + i·∂/∂Im of Re⟨v, f⟩, for an analytic function and for one that is not."""
        for fn in (lambda z: z * z * (1 + 2j), lambda z: z * z.conj() * (0.5 - 1j)):
            problem = open_problem(fn, (tensor(name, self.Z),))
            (found,) = problem.vjp((self.Z,), (self.V,))

            def loss(z: Any, fn: Any = fn) -> Any:
                return np.real(np.conj(self.V) * fn(z))

            h = 1e-6
            re = (loss(self.Z + h) - loss(self.Z - h)) / (2 * h)
            im = (loss(self.Z + 1j * h) - loss(self.Z - 1j * h)) / (2 * h)
            near(found, re + 1j * im, rtol=1e-8)

    @pytest.mark.parametrize("name", ["torch", "jax"])
    def test_real_in_complex_out(self, name: str) -> None:
        problem = open_problem(lambda x: x * (1 + 2j), (tensor(name, self.Z.real.copy()),))
        (found,) = problem.vjp((self.Z.real,), (self.V,))
        near(found, np.real(np.conj(self.V) * (1 + 2j)), rtol=1e-13)
        assert found is not None
        assert found.dtype == np.float64


class TestNumbers:
    @pytest.mark.parametrize("name", BUILT_IN)
    @pytest.mark.parametrize("dtype", LOW)
    def test_low_precision_is_widened_exactly(self, name: str, dtype: str) -> None:
        """Every number of an 8-bit type, many of the wider ones, there and back."""
        framework("ml_dtypes")
        wide = _all_finite(dtype)
        try:
            there = tensor(name, wide, dtype)
        except Unsupported:
            pytest.skip(f"{name} has no {dtype}")
        adapter = adapter_named(name)
        assert adapter.dtype_of(there) == dtype
        back = adapter.to_numpy(there)
        assert back.dtype == np.float64
        same(back, wide)

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_arrays_belong_to_whoever_asked(self, name: str) -> None:
        source = X.copy()
        there = tensor(name, source)
        out = adapter_named(name).to_numpy(there)
        out += 1
        source += 5
        same(adapter_named(name).to_numpy(there), X)

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_what_lies_in_odd_memory_is_read_right(self, name: str) -> None:
        adapter = adapter_named(name)
        odd = adapter.strided(tensor(name, X))
        if name == "jax":
            assert odd is None
            return
        same(adapter.to_numpy(odd), X)
        same(adapter.to_numpy(tensor(name, X.T)), X.T)
        same(adapter.to_numpy(tensor(name, X[:, ::-1])), X[:, ::-1])

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_no_dimensions_and_no_elements(self, name: str) -> None:
        adapter = adapter_named(name)
        for array in (np.array(2.5), np.zeros((0, 3))):
            back = adapter.to_numpy(tensor(name, array))
            assert back.shape == array.shape
            same(back, array)

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_an_unknown_dtype_is_unsupported(self, name: str) -> None:
        framework("ml_dtypes")
        with pytest.raises(Unsupported, match="float12"):
            tensor(name, X, "float12")

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_a_cast_is_another_tensor(self, name: str) -> None:
        adapter = adapter_named(name)
        there = tensor(name, X)
        assert adapter.dtype_of(adapter.cast(there, "float32")) == "float32"
        # Nobody can write to jax's.
        assert name == "jax" or adapter.cast(there, "float64") is not there


def _all_finite(dtype: str) -> Any:
    if TABLE[dtype].itemsize == 1:
        import ml_dtypes

        every = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, dtype)).astype(np.float64)
    elif dtype == "bfloat16":
        bits = np.arange(0, 1 << 16, 97, dtype=np.uint32) << 16
        with np.errstate(invalid="ignore"):
            every = bits.astype(np.uint32).view(np.float32).astype(np.float64)
    else:
        every = RNG.standard_normal(500).astype(dtype).astype(np.float64)
    # Subnormal numbers of bfloat16 are float32's: some kernels flush them on the way.
    return every[np.isfinite(every) & ((np.abs(every) > 1e-37) | (every == 0))]


class TestNothingIsLeftBehind:
    def test_jax_keeps_its_width(self) -> None:
        jax = framework("jax")
        before = jax.config.jax_enable_x64
        problem = open_problem(jax.numpy.sin, (jax.numpy.ones(3, "float32"),))
        problem.vjp(problem.point, problem.point)
        problem.jvp(problem.point, problem.point)
        assert jax.config.jax_enable_x64 == before
        assert jax.numpy.ones(3).dtype == ("float64" if before else "float32")
        (found,) = problem.vjp((np.full(3, 0.1),), (np.ones(3),))
        near(found, np.cos(0.1), rtol=1e-15)

    def test_random_numbers_go_on_as_if_nothing_had_been(self) -> None:
        torch, paddle = framework("torch"), framework("paddle")
        torch.manual_seed(5)
        paddle.seed(5)
        expected = torch.rand(3), paddle.rand([3]).numpy()
        torch.manual_seed(5)
        paddle.seed(5)
        for functional, x in ((torch.nn.functional, tensor("torch", X)), (paddle.nn.functional, tensor("paddle", X))):
            problem = open_problem(functional.dropout, (x,))
            same(*problem.forward((X,)), *problem.forward((X,)))
            problem.vjp((X,), (X,))
        assert torch.equal(torch.rand(3), expected[0])
        same(paddle.rand([3]).numpy(), expected[1])

    def test_gradients_of_tensors_that_a_function_holds_stay_as_they_are(self) -> None:
        torch = framework("torch")
        weight = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
        problem = open_problem(lambda x: x * weight, (tensor("torch", X),))
        problem.vjp((X,), (X,))
        problem.adapter.accumulate(
            problem.flat(None), problem.natives((X,), None), [tensor("torch", X)], [tensor("torch", X)], 2
        )
        assert weight.grad is None

    def test_gradients_of_parameters_that_paddle_could_not_keep_out_of(self) -> None:
        paddle = framework("paddle")
        weight = paddle.to_tensor(X, stop_gradient=False)
        problem = open_problem(lambda x: x * weight, (tensor("paddle", X),))
        found = check_properties(problem, rng=np.random.default_rng(0))
        assert weight.grad is None
        assert "accumulation" not in {one.name for one in found}
        plain = open_problem(paddle.sin, (tensor("paddle", X),))
        names = {one.name for one in check_properties(plain, rng=np.random.default_rng(0))}
        assert "accumulation" in names

    @pytest.mark.slow
    def test_inference_mode_and_no_grad(self) -> None:
        torch = framework("torch")
        for mode in (torch.inference_mode, torch.no_grad):
            with mode():
                made = torch.tensor(X)
                problem = open_problem(lambda x, y: x * y, (made, made), wrt="x")
                (found,) = problem.vjp((X,), (X,))
                same(problem.jvp((X,), (X,)), (X * X,))
                assert not torch.is_grad_enabled()
            same(found, X * X)

    def test_threads_do_not_meet(self) -> None:
        torch = framework("torch")
        x = tensor("torch", X)
        problems = [open_problem(torch.sin, (x,)) for _ in range(8)]
        problems += [open_problem(torch.nn.functional.dropout, (x,)) for _ in range(8)]
        expected = [one.jvp((X,), (X,)) for one in problems]
        with ThreadPoolExecutor(8) as pool:
            for _ in range(20):
                found = list(pool.map(lambda one: one.jvp((X,), (X,)), problems))
                same(found, expected)

    def test_within_somebody_s_forward_mode_there_is_no_second(self) -> None:
        torch = framework("torch")
        problem = open_problem(torch.sin, (tensor("torch", X),))
        with torch.autograd.forward_ad.dual_level(), pytest.raises(Unsupported):
            problem.jvp((X,), (X,))

    def test_paddle_s_static_mode(self) -> None:
        paddle = framework("paddle")
        x = tensor("paddle", X)
        paddle.enable_static()
        try:
            problem = open_problem(paddle.sin, (x,))
            near(problem.vjp((X,), (X,))[0], X * np.cos(X), rtol=1e-15)
            found = check_properties(problem, rng=np.random.default_rng(0))
            with pytest.raises(ZeroDivisionError):
                open_problem(lambda _x: 1 / 0, (x,))
            assert not paddle.in_dynamic_mode()
        finally:
            paddle.disable_static()
        assert {one.verdict for one in found} == {GradVerdict.PASS}

    def test_given_arrays_are_not_written_to(self) -> None:
        torch = framework("torch")
        given = tensor("torch", X)
        problem = open_problem(lambda x: x.detach().add_(1) * 2, (given,))
        at = X.copy()
        problem.forward((at,))
        same(at, X)
        assert torch.equal(given, tensor("torch", X))

    def test_no_framework_is_imported_that_nobody_has_a_value_of(self) -> None:
        program = (
            "import sys, numpy as np\n"
            "from karat.gradients.adapters.framework_problem import FrameworkProblem, open_problem\n"
            "from karat.gradients.laws import check_properties\n"
            "p = open_problem(lambda x: 2 * x, (np.ones(3),), backward=lambda i, o, c: 2 * c[0])\n"
            "check_properties(p, rng=np.random.default_rng(0))\n"
            "print([name for name in ('torch', 'jax', 'paddle') if name in sys.modules])\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"


class TestFinding:
    def test_by_value_and_by_name(self) -> None:
        for name in BUILT_IN:
            assert adapter_of([3, tensor(name, X)]).name == name
            assert adapter_named(name).name == name

    def test_numpy_arrays_beside_tensors_are_the_framework_s_arguments(self) -> None:
        assert adapter_of([X, tensor("torch", X)]).name == "torch"

    def test_no_tensor_is_an_error(self) -> None:
        with pytest.raises(UsageError, match="expected a tensor of torch, jax, paddle, numpy"):
            adapter_of([1.0, "x"])

    def test_an_unknown_name_is_an_error_with_a_suggestion(self) -> None:
        with pytest.raises(UsageError, match="did you mean 'torch'"):
            adapter_named("pytorch")

    def test_third_parties_register_theirs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from importlib import metadata

        class Point:
            name = "mine"

            def load(self) -> Any:
                return Mine()

        class Mine:
            name = "mine"

            def owns(self, value: object) -> bool:
                return isinstance(value, set)

        monkeypatch.setattr(metadata, "entry_points", lambda group: [Point()] if group else [])
        assert adapter_of([{1}]).name == "mine"
        assert adapter_named("mine").name == "mine"

    def test_the_built_in_ones_are_registered_too(self) -> None:
        from importlib.metadata import entry_points

        points = {point.name: point for point in entry_points(group="karat.adapters")}
        if not points:
            pytest.skip("karat is not installed")
        for name in BUILT_IN:
            assert points[name].load() is adapter_named(name)
