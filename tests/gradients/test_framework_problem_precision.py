from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conftest import framework
from factories.opened import X, same
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.roundoff import coarseness, eps_of


class TestPrecision:
    def test_the_point_is_the_value_of_what_was_given(self) -> None:
        torch = framework("torch")
        given = torch.tensor([0.1, 0.2], dtype=torch.bfloat16)
        problem = open_problem(torch.exp, (given,))
        same(problem.point[0], given.double().numpy())
        assert problem.inputs[0].dtype == "bfloat16"
        assert problem.outputs[0].dtype == "bfloat16"
        assert problem.computes == "float64"
        np.testing.assert_allclose(problem.forward(problem.point)[0], np.exp(problem.point[0]))

    def test_a_kernel_without_doubles_runs_as_given(self) -> None:
        torch = framework("torch")

        def kernel(x: Any) -> Any:
            if x.dtype != torch.float32:
                raise RuntimeError(f"no kernel for {x.dtype}")
            return x * 2

        problem = open_problem(kernel, (torch.rand(4),))
        assert problem.computes == "float32"
        assert not problem.double
        assert problem.vjp(problem.point, (np.ones(4),))[0] is not None
        assert problem.notes == ("cannot be run in double precision: RuntimeError: no kernel for torch.float64",)

    def test_errors_at_the_given_point_are_the_caller_s(self) -> None:
        def broken(_: Any) -> Any:
            raise RuntimeError("nothing works")

        with pytest.raises(RuntimeError, match="nothing works"):
            open_problem(broken, (X,))

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
    @pytest.mark.parametrize("size", [1, 50])
    def test_a_kernel_that_casts_inside_is_found_out(self, dtype: str, size: int) -> None:
        torch = framework("torch")
        x = torch.rand(size, dtype=torch.float64) + 0.5
        low = getattr(torch, dtype)
        shown = open_problem(lambda x: x.to(low) * 3, (x,))
        assert shown.computes == dtype
        hidden = open_problem(lambda x: (x.to(low) * 3).exp().double() * 1.1, (x,))
        assert coarseness(hidden.computes) >= coarseness(dtype)

    @pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e5, 1e12])
    def test_whatever_the_scale(self, scale: float) -> None:
        torch = framework("torch")
        x = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * scale
        for fn in (
            lambda x: (x.float() @ x.float().mT).double(),
            lambda x: (x.float() * 1.1).double() * 3.3,
            lambda x: (x / scale).float().softmax(-1).double(),
            lambda x: (x / scale / 1e6).float().softmax(-1).double(),
        ):
            assert open_problem(fn, (x,)).computes == "float32"

    def test_a_neighbour_outside_of_the_domain_is_no_error(self) -> None:
        torch = framework("torch")

        def strict(x: Any) -> Any:
            if not bool((x == 1).all()):
                raise ValueError("ones alone")
            return x * 2

        assert open_problem(strict, (torch.ones(3).double(),)).computes == "float64"

    def test_what_bends_within_a_step_is_not_taken_for_rounded(self) -> None:
        torch = framework("torch")
        x = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
        ill = 1.0 / (torch.arange(6)[:, None] + torch.arange(6) + 1).double()
        assert open_problem(lambda x: x.var(), (x + 1000,)).computes == "float64"
        assert open_problem(torch.sin, (1e6 * x,)).computes == "float64"
        assert open_problem(torch.linalg.inv, (ill,)).computes == "float64"

    def test_a_part_in_float32_is_found_out(self) -> None:
        torch = framework("torch")
        x = torch.rand(9, dtype=torch.float64) + 0.5
        problem = open_problem(lambda x: (x.float().double() * 1.1).exp() * x, (x,))
        assert problem.computes == "float32"

    @pytest.mark.parametrize("seed", range(4))
    def test_a_part_in_float32_is_found_out_beside_an_input_that_is_not_in_it(self, seed: int) -> None:
        """As in jax.nn.dot_product_attention: weights in float32, the values that they weigh in float64."""
        torch = framework("torch")
        q, k, v = torch.randn(3, 2, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        hidden = torch.ones(3, 3).triu(1) * -1e30

        for low in (torch.float32, torch.float64):

            def attention(q: Any, k: Any, v: Any, low: Any = low) -> Any:
                return ((q @ k.mT).to(low) + hidden).softmax(-1).double() @ v

            assert f"torch.{open_problem(attention, (q, k, v)).computes}" == str(low)

    @pytest.mark.parametrize(
        "name", ["exp", "floor", "sign", "relu", "sum", "softmax", "sort", "round", "one", "narrow", "zero"]
    )
    def test_a_kernel_in_doubles_is_not_suspected(self, name: str) -> None:
        torch = framework("torch")
        functions = {
            "softmax": lambda x: x.softmax(-1),
            "sort": lambda x: x.sort().values,
            "round": lambda x: (x * 1000).round(),
            "one": lambda x: x * 0 + 1,
            "narrow": lambda x: x.float().double() * 0 + x,
            "zero": lambda x: x * 0,
        }
        fn = functions.get(name) or getattr(torch, name)
        for scale in (1e-200, 1e-3, 1.0, 1e200):
            for x in (torch.randn(40).double() * scale, torch.full((3,), scale, dtype=torch.float64)):
                if name == "exp" and scale > 1:
                    continue
                assert open_problem(fn, (x,)).computes == "float64", scale
        assert open_problem(fn, (torch.zeros(3).double(),)).computes == "float64"

    def test_mixed_precisions_run_as_given_in_the_lowest(self) -> None:
        torch = framework("torch")
        seen: list[Any] = []

        def watched(x: Any, y: Any) -> Any:
            seen.append((x.dtype, y.dtype))
            return x * y

        x, y = torch.rand(3, dtype=torch.bfloat16), torch.rand(3)
        problem = open_problem(watched, (x, y))
        seen.clear()
        for dtype in (None, "bfloat16", "float32", "float16"):
            problem.forward(problem.point, dtype=dtype)
        assert seen == [
            (torch.float64, torch.float64),
            (torch.bfloat16, torch.float32),
            (torch.float32, torch.float32),
            (torch.float16, torch.float16),
        ]

    def test_complex_follows(self) -> None:
        torch = framework("torch")
        problem = open_problem(lambda z: z * 2, (torch.ones(2, dtype=torch.complex64),))
        assert problem.inputs[0].complex
        assert problem.point[0].dtype == np.complex128
        assert problem.computes == "float64"

    def test_eps(self) -> None:
        assert eps_of("float64") == np.finfo(np.float64).eps
        assert eps_of("float32") == np.finfo(np.float32).eps
        assert eps_of("bfloat16") == 2.0**-7

    def test_a_kernel_that_knows_double_alone_is_looked_at_in_double(self) -> None:
        torch = framework("torch")

        def double_only(x: Any) -> Any:
            if x.dtype is not torch.float64:
                raise TypeError("no such kernel")
            return x.sin()

        problem = open_problem(double_only, (torch.tensor(X, dtype=torch.float16),))
        assert problem.double
        assert problem.notes == ("cannot be run in the given precision: TypeError: no such kernel",)
        assert problem.computes == "float64"

    def test_one_that_knows_neither_raises_what_it_said_of_what_was_given(self) -> None:
        torch = framework("torch")

        def none(x: Any) -> Any:
            raise TypeError(str(x.dtype))

        with pytest.raises(TypeError, match=r"torch\.float16"):
            open_problem(none, (torch.tensor(X, dtype=torch.float16),))

    def test_a_complex_precision_leaves_real_inputs_real(self) -> None:
        torch = framework("torch")
        seen = set()

        def mixed(x: Any, z: Any) -> Any:
            seen.add((x.dtype, z.dtype))
            return x * z

        given = (torch.ones(2), torch.ones(2, dtype=torch.complex64))
        problem = open_problem(mixed, given)
        problem.forward(problem.point, dtype="complex64")
        assert {one for one, _ in seen} == {torch.float32, torch.float64}


class TestModules:
    @pytest.mark.parametrize("name", ["torch", "paddle"])
    def test_a_copy_of_one_computes_in_every_precision(self, name: str) -> None:
        library = framework(name)
        linear = library.nn.Linear(3, 2)
        x = library.to_tensor(X, dtype="float32") if name == "paddle" else library.ones(3)
        problem = open_problem(linear, (x,))
        assert problem.double
        assert [slot.name for slot in problem.inputs][1:] == ["weight", "bias"]
        assert problem.notes == ()
        assert problem.computes == "float64"
        assert str(linear.weight.dtype).endswith("float32")

    def test_the_state_of_one_stays_as_it_was(self) -> None:
        torch = framework("torch")
        norm = torch.nn.BatchNorm1d(3)
        problem = open_problem(norm, (torch.randn(4, 3),))
        problem.vjp(problem.point, problem.forward(problem.point))
        assert norm.num_batches_tracked == 0
        assert not norm.running_mean.any()

    def test_what_cannot_be_copied_is_used_as_it_is(self) -> None:
        torch: Any = framework("torch")

        class Odd(torch.nn.Module):  # type: ignore[misc]
            def __deepcopy__(self, memo: Any) -> Any:
                raise TypeError("there is one of me")

            def forward(self, x: Any) -> Any:
                return 2 * x

        problem = open_problem(Odd(), (torch.tensor(X),))
        same(problem.forward((X,))[0], 2 * X)
