"""OpSpec: claims verified both ways, items that pytest finds by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from conftest import framework
from factories.pytest_runs import Suite
from karat import OpSample, OpSpec, UsageError, op_tests
from karat.gradients import session
from karat.optests import op_spec
from karat.optests.op_spec import OpCase, cases


def vectors(_dtype: str, _device: str, rng: np.random.Generator) -> list[OpSample]:
    return [OpSample(inputs={"x": rng.standard_normal((3, 4))})]


def softmax(x: Any) -> Any:
    return framework("torch").softmax(x, 1)


def reference(x: Any) -> Any:
    return np.exp(x) / np.exp(x).sum(1, keepdims=True)


def spec(**changes: Any) -> OpSpec:
    words: dict[str, Any] = {"op": "softmax", "fn": softmax, "samples": vectors, "framework": "torch"}
    return OpSpec(**(words | changes))


def only(made: OpSpec) -> OpCase:
    framework(made.framework or "torch")
    (case,) = cases([made], 0)
    return case


def stranger(x: Any) -> Any:
    """The right values, by a backward of nobody's."""
    torch = framework("torch")

    class Op(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, given: Any) -> Any:
            ctx.save_for_backward(given)
            return given**3

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(ctx: Any, cotangent: Any) -> Any:
            return 3 * ctx.saved_tensors[0] ** 2 * cotangent

    return Op.apply(x)


# -- what each test does --------------------------------------------------------------------------------


def test_a_right_op_passes_everything() -> None:
    case = only(spec(reference=reference, order=2, supports_forward=True))
    for check in (
        op_spec.forward,
        op_spec.gradient,
        op_spec.second_order,
        op_spec.forward_mode,
        op_spec.non_contiguous,
    ):
        check(case)


def test_functions_that_take_no_names_get_what_is_named_in_order() -> None:
    torch = framework("torch")

    class Quotient(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, one: Any, two: Any) -> Any:
            ctx.save_for_backward(one, two)
            return one / two

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            one, two = ctx.saved_tensors
            return cotangent / two, -cotangent * one / two**2

    def pairs(_dtype: str, _device: str, rng: np.random.Generator) -> list[OpSample]:
        return [OpSample(inputs={"x": rng.uniform(1, 2, (3, 4)), "y": rng.uniform(1, 2, (3, 4))})]

    made = spec(op="quotient", fn=Quotient.apply, reference=np.divide, samples=pairs)
    op_spec.forward(only(made))
    heard: list[session.Event] = []
    stop = session.listen(heard.append)
    op_spec.gradient(only(made))
    stop()
    (report,) = [one.report for one in heard if isinstance(one, session.GradChecked)]
    assert {one.input for one in report.comparisons if one.counts} == {"x", "y"}
    assert {one.oracle for one in report.comparisons} == {"reference"}


def test_a_forward_that_is_not_the_references_fails() -> None:
    case = only(spec(reference=lambda x: reference(x) + 1e-3))
    with pytest.raises(AssertionError, match="not what the reference gives in 12 of 12 elements"):
        op_spec.forward(case)


def test_a_forward_of_another_shape_fails() -> None:
    with pytest.raises(AssertionError, match="expected the shape"):
        op_spec.forward(only(spec(reference=lambda x: reference(x).T)))
    with pytest.raises(AssertionError, match="expected 2 outputs"):
        op_spec.forward(only(spec(reference=lambda x: (x, x))))


def test_a_forward_of_another_sort_fails() -> None:
    with pytest.raises(AssertionError, match=r"expected floating-point numbers \(float64\), found integers"):
        op_spec.forward(only(spec(fn=lambda x: (0 * x).int(), reference=lambda x: 0 * x)))


def test_a_wrong_gradient_fails() -> None:
    case = only(spec(fn=lambda x: softmax(x.detach()) + 0 * x))
    with pytest.raises(AssertionError, match="FAIL  softmax"):
        op_spec.gradient(case)


def test_low_precision_meets_double() -> None:
    heard: list[session.Event] = []
    stop = session.listen(heard.append)
    op_spec.gradient(only(spec(dtypes=("bfloat16",))))
    stop()
    (checked,) = [one for one in heard if isinstance(one, session.GradChecked)]
    assert {one.dtype for one in checked.report.comparisons if one.counts} == {"float64", "bfloat16"}
    assert checked.report.op == "softmax"


def test_second_derivatives_that_are_claimed_and_not_there_fail() -> None:
    with pytest.raises(AssertionError, match="second order is claimed, but missing"):
        op_spec.second_order(only(spec(fn=stranger, order=2)))


def test_a_forward_mode_that_is_claimed_and_not_there_fails() -> None:
    with pytest.raises(AssertionError, match="forward mode is claimed, but missing"):
        op_spec.forward_mode(only(spec(fn=stranger, supports_forward=True)))


def test_in_place_gives_the_same_bits() -> None:
    torch = framework("torch")
    op_spec.in_place(only(spec(fn=torch.exp, in_place=lambda x: x.exp_())))
    with pytest.raises(AssertionError, match="in-place"):
        op_spec.in_place(only(spec(fn=torch.exp, in_place=lambda x: x.sinh_())))


def test_an_in_place_form_of_numpy_returns_nothing() -> None:
    def backward(inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        return -np.ones_like(inputs[0]) * cotangents[0]

    def written(x: Any) -> None:
        np.negative(x, out=x)

    words = {"fn": lambda x: -x, "framework": "numpy", "backward": backward}
    op_spec.in_place(only(spec(**words, in_place=written)))
    with pytest.raises(AssertionError, match="in-place: "):
        op_spec.in_place(only(spec(**words, in_place=lambda x: None)))  # noqa: ARG005


def test_an_op_over_numpy_brings_its_backward() -> None:
    made = OpSpec(
        op="square",
        fn=np.square,
        samples=lambda *_: [OpSample(inputs=(np.arange(1.0, 7.0),))],
        backward=lambda inputs, _outputs, cotangents: 2 * inputs[0] * cotangents[0],
        reference=lambda x: x * x,
    )
    case = only(made)
    assert case.framework == "numpy"
    op_spec.forward(case)
    op_spec.gradient(case)


def test_every_floating_input_is_declared_whatever_is_checked() -> None:
    def samples(_dtype: str, _device: str, rng: np.random.Generator) -> list[OpSample]:
        return [OpSample(inputs={"x": rng.random(3), "y": rng.random(3), "z": np.arange(3)})]

    def product(x: Any, y: Any, z: Any) -> Any:
        return x * y * z

    heard: list[session.Event] = []
    op_spec._declared_cases.clear()
    stop = session.listen(heard.append)
    op_spec.gradient(only(spec(op="product", fn=product, samples=samples, no_grad=("y",))))
    stop()
    (declared,) = [one for one in heard if isinstance(one, session.Declared)]
    (checked,) = [one for one in heard if isinstance(one, session.GradChecked)]
    assert declared.inputs == {"x": "float64", "y": "float64"}
    assert declared.no_grad == ("y",)
    assert {one.input for one in checked.report.comparisons} == {"x"}


# -- what a spec must say -----------------------------------------------------------------------------


def test_a_tolerance_for_a_dtype_that_is_not_tested_is_refused() -> None:
    with pytest.raises(UsageError, match="found float16"):
        spec(tolerances={"float16": 0.1})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("op", ""),
        ("op", 5),
        ("fn", None),
        ("samples", []),
        ("dtypes", ()),
        ("dtypes", "float64"),
        ("dtypes", ("int32",)),
        ("dtypes", ("float64", "float46")),
        ("devices", ()),
        ("devices", "cpu"),
        ("no_grad", "x"),
        ("order", 3),
    ],
)
def test_a_spec_that_says_nothing_or_what_nobody_understands_is_refused(field: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{field}: expected .*, found ") as caught:
        spec(**{field: value})
    assert repr(value) in str(caught.value)


def test_a_dtype_that_nobody_knows_is_suggested_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'float64'") as caught:
        spec(dtypes=("float46",))
    assert caught.value.next_command


def test_an_input_without_a_gradient_must_be_an_input() -> None:
    with pytest.raises(UsageError, match="no_grad: expected floating inputs out of x, found 'xx'"):
        op_spec.gradient(only(spec(no_grad=("xx",))))


@pytest.mark.parametrize("given", [None, [np.ones(3)], 3])
def test_samples_are_samples(given: Any) -> None:
    with pytest.raises(UsageError, match="expected samples for float64 on cpu, found"):
        only(spec(samples=lambda *_: given))


class Pair(NamedTuple):
    left: Any
    right: Any


def test_samples_may_be_generated_and_nested() -> None:
    def samples(_dtype: str, _device: str, rng: np.random.Generator) -> Iterator[OpSample]:
        for _ in range(2):
            yield OpSample(inputs={"pair": Pair(rng.random(3), rng.random(3))})

    def product(pair: Pair) -> Any:
        return pair.left * pair.right

    framework("torch")  # what a spec of the tests is of
    made = spec(fn=product, samples=samples, reference=product)
    for case in cases([made], 0):
        op_spec.forward(case)
        op_spec.gradient(case)


def test_each_test_has_tensors_of_its_own() -> None:
    torch = framework("torch")
    given = torch.ones(3, dtype=torch.float64)

    def writes(x: Any) -> Any:
        return x.add_(1.0)

    made = spec(fn=writes, samples=lambda *_: [OpSample(inputs=(given,))], reference=lambda x: x + 1)
    case = only(made)
    op_spec.forward(case)
    op_spec.forward(case)
    assert given.tolist() == [1.0, 1.0, 1.0]


def test_no_samples_no_specs_and_names_that_are_the_same_are_refused() -> None:
    with pytest.raises(UsageError, match="expected samples for float64 on cpu"):
        only(spec(samples=lambda *_: []))
    with pytest.raises(UsageError, match="found none"):
        op_tests([])
    with pytest.raises(UsageError, match="expected specs, found int"):
        op_tests([3])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="'softmax-float64-cpu-sample0' twice"):
        cases([spec(), spec()], 0)


def test_every_precision_sees_the_same_numbers() -> None:
    one, two = cases([spec(dtypes=("float64", "float32"))], 3)
    assert np.array_equal(one.sample.inputs["x"], two.sample.inputs["x"])  # type: ignore[call-overload]
    (other,) = cases([spec()], 4)
    assert not np.array_equal(one.sample.inputs["x"], other.sample.inputs["x"])  # type: ignore[call-overload]


# -- pytest items --------------------------------------------------------------------------------------

SUITE = """
    import numpy as np
    from karat import OpSpec, OpSample, op_tests

    def draw(dtype, device, rng):
        return [OpSample(inputs={"x": rng.random((2, 3))}), OpSample(inputs={"x": rng.random(4)}, name="line")]

    def right(inputs, outputs, cotangents):
        return 2 * inputs[0] * cotangents[0]

    def wrong(inputs, outputs, cotangents):
        return 3 * inputs[0] * cotangents[0]

    def square(x):
        return np.square(x)

    TestOps = op_tests([
        OpSpec(op="square", fn=square, samples=draw, backward=right, reference=lambda x: x * x,
               dtypes=("float64", "float32"), devices=("cpu", "cuda:0")),
        OpSpec(op="cube", fn=square, samples=draw, backward=wrong),
    ])
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    made = Suite(tmp_path / "suite")
    made.write("test_ops.py", SUITE)
    return made


@pytest.mark.slow
def test_items_are_ordinary_and_named(suite: Suite) -> None:
    out = suite.run("--collect-only", "-q").out
    assert "test_ops.py::TestOps::test_forward[square-float64-cpu-sample0]" in out
    assert "test_ops.py::TestOps::test_gradient[square-float32-cpu-line]" in out
    assert "test_second_order" not in out
    assert "test_forward[cube" not in out
    assert "test_low_precision" not in out


@pytest.mark.slow
def test_words_choose_items(suite: Suite) -> None:
    ran = suite.run("-k", "square and gradient and not cuda")
    assert ran.code == 0, ran.out
    assert ran.count("passed") == 4


@pytest.mark.slow
def test_wrong_ops_fail_absent_devices_are_skipped_and_the_gate_counts(suite: Suite) -> None:
    ran = suite.run("-rs", "--karat-policy")
    assert ran.code == 1
    assert ran.count("failed") == 2
    assert "nothing was compared: numpy has no cuda:0 here" in ran.out
    assert "test_ops.py::TestOps[cube] (op cube): the gradient of x by out is wrong" in ran.out
    assert "(op square): no gradient evidence" not in ran.out
