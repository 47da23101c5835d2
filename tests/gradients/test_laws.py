"""Each law: a function that breaks it and no other, and its twin that breaks none."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

import karat
from conftest import framework
from factories.tried import broken, passed, tried
from karat.findings import UsageError
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.laws import LAWS, NAMES, check_properties
from karat.gradients.report import GradVerdict
from karat.gradients.roundoff import eps_of

TORCH = [name for name in LAWS if name != "gradient-form"]
NUMPY = [
    "gradient-form",
    "finite",
    "deterministic-forward",
    "deterministic-backward",
    "inputs-unmodified",
    "cotangents-unmodified",
    "zero-cotangent",
    "linearity",
    "non-contiguous-cotangent",
    "expanded-cotangent",
    "non-contiguous",
    "interleaving",
]
PADDLE = [
    "finite",
    "deterministic-forward",
    "deterministic-backward",
    "inputs-unmodified",
    "zero-cotangent",
    "linearity",
    "subset",
    "interleaving",
    "accumulation",
]
JAX = ["finite", "zero-cotangent", "linearity"]


def cases_of(name: str) -> Any:
    framework(name)
    return importlib.import_module(f"factories.lawless_{name}").cases()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "law"),
    [*(("torch", law) for law in TORCH), *(("paddle", law) for law in PADDLE), *(("jax", law) for law in JAX)],
)
def test_a_broken_law_is_found_and_no_other(name: str, law: str) -> None:
    wrong, right, inputs = cases_of(name)[law]
    for seed in range(3):
        assert broken(tried(wrong, inputs, seed)) == {law}
        fine = tried(right, inputs, seed)
        assert not broken(fine)
        assert law in passed(fine)


@pytest.mark.parametrize("law", NUMPY)
def test_a_law_broken_by_a_written_backward_is_found_and_no_other(law: str) -> None:
    if law == "gradient-form" and np.dtype(np.longdouble) == np.dtype(np.float64):
        pytest.skip("long doubles are doubles here")
    wrong, wrong_back, right, right_back, inputs = cases_of("numpy")[law]
    for seed in range(3):
        assert broken(tried(wrong, inputs, seed, backward=wrong_back)) == {law}
        fine = tried(right, inputs, seed, backward=right_back)
        assert not broken(fine)
        assert law in passed(fine)


def test_every_law_has_a_function_that_breaks_it() -> None:
    assert {*TORCH, *NUMPY} == set(LAWS)


class TestInPlace:
    def test_the_same_bits_pass(self) -> None:
        torch = framework("torch")
        found = tried(torch.relu, (torch.randn(9),), in_place=lambda x: x.relu_())
        assert "in-place" in passed(found)

    def test_other_bits_fail(self) -> None:
        torch = framework("torch")
        x = torch.randn(9, dtype=torch.float64)
        found = tried(lambda x: 2 * x, (x,), in_place=lambda x: x.mul_(2 + 1e-15))
        assert broken(found) == {"in-place"}

    def test_another_gradient_fails(self) -> None:
        torch = framework("torch")

        def detached(x: Any) -> Any:
            return x.mul_(2).detach() + 0 * x

        x = torch.randn(9, dtype=torch.float64)
        assert broken(tried(lambda x: 2 * x, (x,), in_place=detached)) == {"in-place"}

    def test_numpy_writes_and_returns_nothing(self) -> None:
        def variant(x: Any) -> None:
            x *= 2

        found = tried(lambda x: 2 * x, (np.arange(4.0),), backward=lambda _i, _o, c: 2 * c[0], in_place=variant)
        assert "in-place" in passed(found)

    def test_paddle(self) -> None:
        paddle = framework("paddle")
        functional = paddle.nn.functional
        x = paddle.to_tensor([-1.0, 0.5, 2.0])
        assert "in-place" in passed(tried(functional.relu, (x,), in_place=functional.relu_))

    def test_nobody_writes_to_a_jax_array(self) -> None:
        jax = framework("jax")
        found = tried(jax.numpy.exp, (jax.numpy.ones(3),), in_place=jax.numpy.exp)
        assert "in-place" not in {one.name for one in found}


class TestBounds:
    def test_large_terms_that_cancel_break_no_law(self) -> None:
        torch = framework("torch")
        x = torch.randn(4, 500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        for seed in range(5):
            found = tried(lambda x: torch.nn.functional.layer_norm(x + 1e6, (500,)), (x,), seed=seed)
            assert not broken(found)

    def test_a_backward_in_float32_behind_a_double_forward_breaks_linearity(self) -> None:
        found = tried(
            lambda x: x * 3, (np.linspace(0.1, 1, 7),), backward=lambda _i, _o, c: (3 * c[0].astype("f4")).astype("f8")
        )
        assert broken(found) == {"linearity"}

    def test_a_kernel_in_float32_is_judged_by_its_own_eps(self) -> None:
        torch = framework("torch")
        x = torch.randn(40, dtype=torch.float64)
        found = tried(lambda x: x.float().softmax(-1).double(), (x,))
        assert not broken(found)
        linear = next(one for one in found if one.name == "linearity")
        assert linear.dtype == "float32"
        assert linear.bound is not None
        assert linear.bound > eps_of("float32") * 1e-2

    def test_bounds_shrink_and_grow_with_the_gradient(self) -> None:
        for scale in (1e-200, 1.0, 1e200):
            found = tried(
                lambda x, scale=scale: x * scale,
                (np.linspace(0.1, 1, 7),),
                backward=lambda _i, _o, c, scale=scale: scale * c[0],
            )
            assert not broken(found)
            linear = next(one for one in found if one.name == "linearity")
            assert linear.bound is not None
            assert 1e-15 * scale < linear.bound < 1e-12 * scale

    def test_non_determinism_within_the_stated_bound_passes(self) -> None:
        wrong, _, inputs = cases_of("torch")["deterministic-backward"]
        found = tried(wrong, inputs, nondeterminism_bound=1e-11)
        assert not broken(found)
        law = next(one for one in found if one.name == "deterministic-backward")
        assert law.measured is not None
        assert 0 < law.measured <= 1e-11

    def test_what_additions_in_another_order_explain_is_told_and_no_failure(self) -> None:
        torch = framework("torch")
        x = torch.linspace(-1, 2, 50, dtype=torch.float64)
        dice = np.random.default_rng(2)

        class Sum(torch.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x[torch.from_numpy(dice.permutation(50))].sum() + 0 * x

            @staticmethod
            def backward(ctx: Any, v: Any) -> Any:
                (x,) = ctx.saved_tensors
                return v[torch.from_numpy(dice.permutation(50))].sum() + 0 * x

        laws = ("deterministic-forward", "deterministic-backward")
        found = karat.gradcheck(Sum.apply, (x,), properties=laws)
        assert found.verdict is GradVerdict.PASS, str(found)
        # The bound is the one that was stated: the gate asks who allowed it.
        assert all((one.measured or 0) > 0 == one.bound for one in found.properties)
        assert all("another order" in one.detail for one in found.properties)
        assert "info  deterministic-backward" in found.details()
        strict = karat.gradcheck(Sum.apply, (x,), properties=laws, strict=True)
        assert strict.verdict is GradVerdict.FAIL


class TestWhichApply:
    def test_no_law_is_reported_that_was_not_tried(self) -> None:
        jax = framework("jax")
        found = tried(jax.numpy.exp, (jax.numpy.ones(3),))
        names = {one.name for one in found}
        assert not names & {"accumulation", "non-contiguous", "absent-cotangent", "subset"}
        assert "forward-reverse" in names

    def test_which_names_laws_in_either_spelling(self) -> None:
        problem = open_problem(lambda x: 2 * x, (np.ones(3),), backward=lambda _i, _o, c: 2 * c[0])
        found = check_properties(problem, rng=np.random.default_rng(0), which=("zero_cotangent", "linearity"))
        assert {one.name for one in found} == {"zero-cotangent", "linearity"}
        assert check_properties(problem, rng=np.random.default_rng(0), which=()) == ()

    def test_an_unknown_name_is_an_error_with_a_suggestion(self) -> None:
        problem = open_problem(lambda x: 2 * x, (np.ones(3),), backward=lambda _i, _o, c: 2 * c[0])
        with pytest.raises(UsageError, match="did you mean 'linearity'"):
            check_properties(problem, rng=np.random.default_rng(0), which=("linearty",))

    def test_no_gradient_no_laws(self) -> None:
        problem = open_problem(lambda x: 2 * x, (np.ones(3),))
        assert check_properties(problem, rng=np.random.default_rng(0)) == ()

    def test_no_elements_no_laws(self) -> None:
        torch = framework("torch")
        problem = open_problem(torch.exp, (torch.ones(0),))
        assert check_properties(problem, rng=np.random.default_rng(0)) == ()

    def test_a_backward_that_raises_fails_with_its_message(self) -> None:
        def backward(*_: Any) -> Any:
            raise RuntimeError("no kernel")

        found = tried(lambda x: 2 * x, (np.ones(3),), backward=backward)
        assert [one.detail for one in found] == ["it raised RuntimeError: no kernel"]

    def test_an_infinite_gradient_is_inconclusive(self) -> None:
        torch = framework("torch")
        found = tried(torch.sqrt, (torch.tensor([0.0, 1.0]),))
        assert not broken(found)
        assert [one.name for one in found if one.verdict is GradVerdict.INCONCLUSIVE] == ["finite"]

    def test_a_function_may_refuse_gaps_aloud_but_its_backward_may_not(self) -> None:
        torch = framework("torch")
        x = torch.randn(4, 3)
        refusing = tried(lambda x: x.view(-1) * 2, (x,))
        assert not broken(refusing)
        assert "non-contiguous" not in {one.name for one in refusing}

        views = importlib.import_module("factories.lawless_torch").ViewsCotangent
        assert "non-contiguous-cotangent" in broken(tried(views.apply, (x,)))

    def test_every_name_is_said_once(self) -> None:
        assert len(set(NAMES)) == len(NAMES)


@pytest.mark.slow
@given(
    matrix=arrays(np.float64, (3, 4), elements=st.floats(-1e3, 1e3, width=32)),
    at=arrays(np.float64, 4, elements=st.floats(-8, 8, width=32)),
    seed=st.integers(0, 2**31),
)
def test_no_right_backward_breaks_a_law(matrix: Any, at: Any, seed: int) -> None:
    found = tried(
        lambda x: matrix @ np.sin(x), (at,), seed=seed, backward=lambda i, _o, c: np.cos(i[0]) * (matrix.T @ c[0])
    )
    assert not broken(found)


@pytest.mark.slow
@given(bend=st.floats(1e-7, 10), power=st.sampled_from([2, 3]), seed=st.integers(0, 2**31))
def test_whatever_bends_in_the_cotangent_is_found(bend: float, power: int, seed: int) -> None:
    found = tried(
        lambda x: 2 * x, (np.linspace(-1, 1, 6),), seed=seed, backward=lambda _i, _o, c: 2 * c[0] + bend * c[0] ** power
    )
    assert broken(found) == {"linearity"}


def test_a_variant_that_raises_is_named() -> None:
    x = framework("torch").ones(3)
    found = tried(framework("torch").sin, (x,), in_place=lambda _x: 1 / 0)
    (one,) = [one for one in found if one.name == "in-place"]
    assert one.detail == "it raised ZeroDivisionError: division by zero"
