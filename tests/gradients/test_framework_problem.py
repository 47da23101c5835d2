"""Any function becomes a problem: names, nesting, what is bound, precisions, and what is refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

from conftest import framework
from factories.opened import X, Y, same
from karat.findings import UsageError
from karat.gradients.adapters.calls import Leaf, flatten, unflatten
from karat.gradients.adapters.framework_problem import open_problem
from karat.gradients.deep import GradientProblem
from karat.gradients.problem import MalformedGradient, Unsupported


def product(x: Any, y: Any) -> Any:
    return x * y


def product_backward(i: Any, _o: Any, c: Any) -> Any:
    return i[1] * c[0], i[0] * c[0]


class Two(NamedTuple):
    left: Any
    right: Any


class TestChoosing:
    def test_every_floating_tensor_by_default(self) -> None:
        problem = open_problem(lambda x, i, flag, axis: x[i] * axis if flag else x, (X, np.arange(2), True, 1))
        assert [slot.name for slot in problem.inputs] == ["x"]
        assert [(one.name, one.why) for one in problem.excluded] == [("i", "int64 has no gradient")]

    def test_by_name_by_position_by_what_holds_it(self) -> None:
        for wrt in ("y", ["y"], 1, [-1]):
            problem = open_problem(product, (X, Y), wrt=wrt)
            assert [slot.name for slot in problem.inputs] == ["y"]
            assert [(one.name, one.why) for one in problem.excluded] == [("x", "not asked for")]
        problem = open_problem(lambda xs, y: sum(xs) * y, ([X, X], Y), wrt="xs")
        assert [slot.name for slot in problem.inputs] == ["xs.0", "xs.1"]

    def test_the_order_is_that_of_the_arguments(self) -> None:
        problem = open_problem(product, (X, Y), wrt=("y", "x"), backward=product_backward)
        assert [slot.name for slot in problem.inputs] == ["x", "y"]

    def test_what_is_not_there_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"out of x, y, found 'z'"):
            open_problem(product, (X, Y), wrt="z")
        with pytest.raises(UsageError, match="which is int64"):
            open_problem(lambda x, i: x[i], (X, np.arange(2)), wrt="i")

    def test_kwargs_are_bound(self) -> None:
        problem = open_problem(product, (X,), kwargs={"y": Y})
        assert [slot.name for slot in problem.inputs] == ["x"]
        same(problem.forward((X,))[0], X * Y)

    def test_bound_floats_follow_the_precision_of_the_run(self) -> None:
        torch = framework("torch")
        x, y = torch.rand(3, 3), torch.rand(3, 3)
        problem = open_problem(torch.matmul, (x, y), names=("x", "y"), wrt="x")
        assert problem.double
        (found,) = problem.forward(problem.point, dtype="bfloat16")
        expected = (x.bfloat16() @ y.bfloat16()).double().numpy()
        same(found, expected)

    def test_a_function_may_write_to_what_is_bound(self) -> None:
        def counting(x: Any, seen: Any) -> Any:
            seen += 1
            return x * seen

        seen = np.zeros(3)
        problem = open_problem(counting, (X, seen), wrt="x")
        for _ in range(3):
            same(problem.forward((X,))[0], X)
        assert not seen.any()


def test_what_torch_returns_by_name_may_go_in_again() -> None:
    torch = framework("torch")
    found = torch.max(torch.tensor(np.array([X, Y])), 0)
    problem = open_problem(lambda pair: 2 * pair.values, (found,))
    same(problem.forward((X,))[0], 2 * X)
    assert [one.name for one in problem.excluded] == ["pair.1"]


def test_a_function_may_take_gradients_of_its_own() -> None:
    torch = framework("torch")
    scale = torch.ones(3, dtype=torch.float64, requires_grad=True)

    def stepped(x: Any) -> Any:
        (slope,) = torch.autograd.grad((scale**2).sum(), scale)
        return x * slope

    problem = open_problem(stepped, (torch.tensor(X),))
    same(problem.forward((X,))[0], 2 * X)


class TestRefusals:
    def test_what_has_no_numbers_or_is_not_dense(self) -> None:
        torch = framework("torch")
        for x, told in (
            (torch.empty(3, device="meta"), "without numbers"),
            (torch.nested.as_nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged), "not dense .nested"),
        ):
            with pytest.raises(UsageError, match=f"x: expected a dense tensor .*{told}"):
                open_problem(lambda x: 2 * x, (x,))

    def test_a_sparse_tensor_beside_the_inputs_is_an_argument_like_any_other(self) -> None:
        torch = framework("torch")
        eye = torch.eye(3, dtype=torch.float64).to_sparse()
        problem = open_problem(lambda x, m: m @ x, (torch.tensor(X)[:, None], eye), wrt="x")
        same(problem.vjp((X[:, None],), (Y[:, None],))[0], Y[:, None])

    def test_tracers(self) -> None:
        jax = framework("jax")

        def traced(x: Any) -> Any:
            with pytest.raises(UsageError, match="outside of jit"):
                open_problem(jax.numpy.sin, (x,))
            return x

        jax.jit(traced)(jax.numpy.ones(2))

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"fn": 3}, "fn: expected a function, found int"),
            ({"backward": 3}, "backward: expected a function, found int"),
            ({"kwargs": [1]}, "kwargs: expected arguments by name, found list"),
            ({"wrt": 1.5}, "wrt: expected an input out of x, found 1.5"),
            ({"inputs": ("a",)}, "among the inputs, found str"),
        ],
    )
    def test_arguments(self, given: Any, told: str) -> None:
        fn, inputs = given.pop("fn", np.sin), given.pop("inputs", (X,))
        with pytest.raises(UsageError, match=told):
            open_problem(fn, inputs, **given)

    def test_nothing_that_is_a_tensor_comes_out(self) -> None:
        problem = open_problem(str, (X,))
        assert problem.notes == ("the function returns no numpy tensor",)


class TestWrittenBackwards:
    def test_inputs_outputs_cotangents(self) -> None:
        seen: list[Any] = []

        def backward(inputs: Any, outputs: Any, cotangents: Any) -> Any:
            seen.append((inputs, outputs, cotangents))
            return product_backward(inputs, outputs, cotangents)

        problem = open_problem(product, (X, Y), backward=backward)
        v = np.array([1.0, 2.0, 3.0])
        found = problem.vjp((X, Y), (v,))
        same(found[0], Y * v)
        same(found[1], X * v)
        ((inputs, outputs, cotangents),) = seen
        same(inputs, (X, Y))
        same(outputs, (X * Y,))
        same(cotangents, (v,))

    @pytest.mark.parametrize(
        "result", [lambda g: (g, None, None), lambda g: (g, None), lambda g: (g,), lambda g: g, lambda g: {"x": g}]
    )
    def test_gradients_for_all_for_tensors_or_for_what_is_checked(self, result: Any) -> None:
        index = np.array([0, 0, 2])

        def backward(i: Any, _o: Any, c: Any) -> Any:
            g = np.zeros_like(i[0])
            np.add.at(g, i[1], c[0])
            return result(g)

        problem = open_problem(lambda x, i, axis: x.take(i, axis), (X, index, 0), backward=backward)
        (found,) = problem.vjp((X,), (np.array([1.0, 2.0, 4.0]),))
        same(found, [3, 0, 4])

    def test_a_part_of_the_inputs(self) -> None:
        problem = open_problem(product, (X, Y), wrt="y", backward=product_backward)
        same(problem.vjp((Y,), (Y,))[0], X * Y)

    def test_an_integer_output_has_no_cotangent(self) -> None:
        def backward(_i: Any, o: Any, c: Any) -> Any:
            assert len(o) == len(c) == 2
            assert c[1] is None
            return 2 * c[0]

        problem = open_problem(lambda x: (2 * x, x.argmax()), (X,), backward=backward)
        same(problem.vjp((X,), (X,))[0], 2 * X)

    @pytest.mark.parametrize(
        ("gradient", "told"),
        [
            (lambda c: np.ones((2, 3)) * c, "leading axes, which were broadcast"),
            (lambda c: c[None], "length 1 too many"),
            (lambda c: c[:2], r"expected shape \(3,\), found \(2,\)"),
            (lambda c: (c, c), "expected 1 gradient .*, found 2"),
            (lambda c: c * 1j, "expected real numbers"),
            (lambda _c: "text", "expected an array of numbers, found str"),
            (lambda c: iter([c]), "expected an array of numbers, found list_iterator"),
            (lambda c: {"y": c}, r"by name \(x\), found 'y'"),
        ],
    )
    def test_what_cannot_be_a_gradient_is_malformed(self, gradient: Any, told: str) -> None:
        problem = open_problem(lambda x: 2 * x, (X,), backward=lambda _i, _o, c: gradient(c[0]))
        with pytest.raises(MalformedGradient, match=told):
            problem.vjp((X,), (X,))

    def test_shapes_in_words(self) -> None:
        x = np.ones((1, 3))
        problem = open_problem(lambda x: x * np.ones((2, 3)), (x,), backward=lambda _i, _o, c: c[0])
        with pytest.raises(MalformedGradient, match="axes of length 1"):
            problem.vjp((x,), (np.ones((2, 3)),))
        problem = open_problem(lambda x: x.T, (np.ones((2, 3)),), backward=lambda _i, _o, c: c[0])
        with pytest.raises(MalformedGradient, match="transposed"):
            problem.vjp((np.ones((2, 3)),), (np.ones((3, 2)),))

    def test_none_means_none(self) -> None:
        problem = open_problem(product, (X, Y), backward=lambda i, _o, c: (i[1] * c[0], None))
        assert problem.vjp((X, Y), (X,))[1] is None

    def test_without_one_numpy_has_no_gradient(self) -> None:
        problem = open_problem(product, (X, Y))
        with pytest.raises(Unsupported, match="pass backward="):
            problem.vjp((X, Y), (X,))
        with pytest.raises(Unsupported, match="no derivative of its own"):
            GradientProblem(open_problem(product, (X, Y), backward=product_backward), (X,))

    def test_over_tensors_of_a_framework(self) -> None:
        torch = framework("torch")
        x, y = torch.tensor(X), torch.tensor(Y)
        problem = open_problem(product, (x, y), backward=product_backward)
        same(problem.vjp((X, Y), (X,))[0], Y * X)


class TestProblems:
    def test_forwards_and_backwards_are_counted(self) -> None:
        torch = framework("torch")
        problem = open_problem(torch.exp, (torch.ones(2).double(),))
        first = problem.forwards, problem.backwards
        problem.forward(problem.point)
        problem.vjp(problem.point, problem.point)
        assert (problem.forwards, problem.backwards) == (first[0] + 2, first[1] + 1)

    def test_one_tensor_needs_no_tuple(self) -> None:
        assert [slot.name for slot in open_problem(lambda a: a * 2, X).inputs] == ["a"]

    def test_nothing_to_check_is_no_error(self) -> None:
        problem = open_problem(lambda i: i + 1, (np.arange(3),))
        assert problem.inputs == ()
        assert [one.name for one in problem.excluded] == ["i", "out"]

    def test_arrays_become_tensors_where_the_framework_is_named(self) -> None:
        torch, paddle = framework("torch"), framework("paddle")
        for name, kind in (("torch", torch.Tensor), ("paddle", paddle.Tensor)):
            seen: list[Any] = []

            def watched(x: Any, i: Any, seen: list[Any] = seen) -> Any:
                seen.append((x, i))
                return x * 2

            problem = open_problem(watched, (X.astype("f4"), np.arange(2)), framework=name)
            assert problem.framework == name
            assert problem.inputs[0].dtype == "float32"
            assert all(isinstance(one, kind) for one in seen[0])

    def test_randomness_is_noted(self) -> None:
        torch = framework("torch")
        problem = open_problem(torch.nn.functional.dropout, (torch.ones(50),))
        assert problem.notes == ("the function draws random numbers; each run starts from the same seed",)
        assert open_problem(torch.exp, (torch.ones(2),)).notes == ()

    def test_the_point_is_nobody_s_to_write_to(self) -> None:
        problem = open_problem(product, (X, Y))
        with pytest.raises(ValueError, match="read-only"):
            problem.point[0][0] = 1

    def test_a_structure_that_changes_is_an_error(self) -> None:
        torch = framework("torch")
        many = [True]

        def fickle(x: Any) -> Any:
            return (x, x) if many[0] else (x,)

        problem = open_problem(fickle, (torch.ones(2).double(),))
        many[0] = False
        with pytest.raises(UsageError, match="as at first, found 1"):
            problem.forward(problem.point)


NESTED = st.recursive(
    st.one_of(st.integers(), st.text(max_size=3), st.none(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Two, inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(NESTED)
def test_what_is_taken_out_goes_back_in(value: Any) -> None:
    found: list[Leaf] = []
    form = flatten(value, lambda one: isinstance(one, float), "a", found)
    again = unflatten(form, [leaf.value for leaf in found])
    assert again == value
    assert _kinds(again) == _kinds(value)
    assert all(leaf.name.startswith("a") for leaf in found)


def _kinds(value: Any) -> Any:
    if isinstance(value, dict):
        return dict, {key: _kinds(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [_kinds(one) for one in value]
    return type(value)
