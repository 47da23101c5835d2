"""OpTest at its edges: places that are not there, odd requests, odd functions, odd classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conftest import framework
from factories.op_test_runs import ScaleOp, run_class, scale
from karat.gradients.session import GradChecked as Checked

DOUBLE = {("X", "float64"), ("Y", "float64")}


# -- places ------------------------------------------------------------------------------------------


def test_a_place_that_is_not_there_keeps_no_other_from_being_checked() -> None:
    class Both(ScaleOp):
        places = ("cuda:0", "cpu")

        def test_check_grad(self) -> None:
            self.check_grad(["X", "Y"], "Out")

    run = run_class(Both)
    assert run.evidence == DOUBLE
    assert "numpy has no cuda:0 here" in run.skips[0]


def test_a_wrong_output_is_seen_at_the_place_that_is_there() -> None:
    class Both(ScaleOp):
        places = ("cuda:0", "cpu")

        def setUp(self) -> None:
            super().setUp()
            self.outputs["Out"] += 1.0

        def test_check_output(self) -> None:
            self.check_output()

    (failure,) = run_class(Both).failures
    assert "is not as expected in 20 of 20 elements" in failure


def test_no_place_is_nothing_compared() -> None:
    class Nowhere(ScaleOp):
        places = ()

        def test_check_output(self) -> None:
            self.check_output()

    assert "places: expected at least one, found ()" in run_class(Nowhere).failures[0]


# -- what was asked for ------------------------------------------------------------------------------


def test_what_only_a_gradient_check_takes_is_refused_by_the_forward_check() -> None:
    class Asks(ScaleOp):
        def test_check_output(self) -> None:
            self.check_output(order=2)

    assert "found 'order'" in run_class(Asks).failures[0]


@pytest.mark.slow
@pytest.mark.parametrize("with_cotangents", [False, True])
def test_gradients_of_the_author_have_the_shapes_of_the_inputs(*, with_cotangents: bool) -> None:
    class Turned(ScaleOp):
        def test_check_grad(self) -> None:
            wrong = np.ones((4, 5))
            given = [np.ones((5, 4))] if with_cotangents else None
            self.check_grad(["X"], "Out", user_defined_grads=[wrong], user_defined_grad_outputs=given)

    (failure,) = run_class(Turned).failures
    assert "grads: expected shape (5, 4) for X, found (4, 5)" in failure


def test_the_authors_cotangents_are_asked_about_even_alone() -> None:
    """A backward that is wrong for one cotangent alone; nothing but that one shows it."""

    class Odd(ScaleOp):
        def backward(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
            x, y = super().backward(inputs, outputs, cotangents)
            return (2 * x if np.all(cotangents[0] == 7.0) else x), y

        def test_check_grad(self) -> None:
            given = [np.full((5, 4), 7.0)]
            self.check_grad(["X"], "Out", user_defined_grad_outputs=given, properties=[])

    (failure,) = run_class(Odd).failures
    assert "FAIL  scale" in failure


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([np.ones((5, 4)), 3], "expected an array for each of Out, found 2"),
        (["abc"], "['Out']: expected an array of numbers, found str"),
        ([np.ones((4, 5))], "cotangents: expected shape (5, 4) for Out, found (4, 5)"),
    ],
)
def test_odd_cotangents_are_refused(given: Any, found: str) -> None:
    class Odd(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(["X"], "Out", user_defined_grad_outputs=given)

    assert found in run_class(Odd).failures[0]


def test_an_author_may_leave_gradients_out() -> None:
    class Some(ScaleOp):
        def test_check_grad(self) -> None:
            grads = [None, 3 * self.inputs["X"] / 20]
            self.check_grad(["X", "Y"], "Out", user_defined_grads=grads)

    run = run_class(Some)
    assert run.result.wasSuccessful(), run.failures
    weak = [one for one in run.checked[0].report.comparisons if one.strength == "weak"]
    assert {one.input for one in weak} == {"Y"}


def test_the_authors_gradients_follow_the_order_of_the_asking() -> None:
    class Turned(ScaleOp):
        def test_check_grad(self) -> None:
            grads = [3 * self.inputs["X"] / 20, 3 * self.inputs["Y"] / 20]
            self.check_grad(["Y", "X"], "Out", user_defined_grads=grads)

    run = run_class(Turned)
    assert run.result.wasSuccessful(), run.failures


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_gradients_that_an_author_wrote_in_half_precision_are_held_to_it(*, right: bool, given: bool) -> None:
    class Half(ScaleOp):
        def setUp(self) -> None:
            super().setUp()
            self.inputs = {name: one.astype("float16") for name, one in self.inputs.items()}

        def test_check_grad(self) -> None:
            v = np.full((5, 4), 1 / 20, "float16")
            grad = (3 * self.inputs["Y"] * v * np.float16(1 if right else 1.02)).astype("float16")
            cotangents = [v] if given else None
            self.check_grad(["X"], "Out", user_defined_grads=[grad], user_defined_grad_outputs=cotangents)

    assert run_class(Half).result.wasSuccessful() is right


class Named(ScaleOp):
    """Inputs with names of more than one letter, one of them in a list."""

    def setUp(self) -> None:
        super().setUp()
        x, y = self.inputs["X"], self.inputs["Y"]
        self.python_api = lambda both, weight, factor: factor * both[0] * both[1] * weight
        self.inputs = {"Both": [("x", x), ("y", y)], "Weight": np.full((5, 4), 2.0)}
        self.outputs = {"Out": 6 * x * y}

    def backward(self, inputs: Any, _outputs: Any, cotangents: Any) -> Any:
        x, y, w = inputs
        g = 3.0 * cotangents[0]
        return g * y * w, g * x * w, g * x * y


@pytest.mark.parametrize(
    ("left_out", "checked"), [("Weight", {"x", "y"}), ({"Both"}, {"Weight"}), (["x"], {"y", "Weight"})]
)
def test_no_grad_set_takes_a_name_or_several_and_lists_by_their_name(left_out: Any, checked: set[str]) -> None:
    class Without(Named):
        def test_check_grad(self) -> None:
            self.check_grad(["Both", "Weight"], "Out", no_grad_set=left_out)

    run = run_class(Without)
    assert run.result.wasSuccessful(), run.failures
    assert {name for name, _ in run.evidence} == checked


def test_outputs_and_inputs_may_be_named_twice_or_in_a_set() -> None:
    class Twice(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad({"Y", "X"}, ["Out", "Out"])

    (checked,) = run_class(Twice).checked
    reverse = [one for one in checked.report.comparisons if one.mode == "reverse"]
    assert [(one.input, one.output) for one in reverse] == [("X", "Out"), ("Y", "Out")]


# -- what setUp wrote ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "found"),
    [((np.ones(3), np.ones(3)), "found tuple"), ([[1.0], [1.0, 2.0]], "found list"), ("abc", "found str (<U3)")],
)
def test_what_is_no_array_is_refused_once(value: Any, found: str) -> None:
    class Odd(ScaleOp):
        def setUp(self) -> None:
            super().setUp()
            self.inputs["X"] = value

        def test_check_output(self) -> None:
            self.check_output()

    run = run_class(Odd)
    (failure,) = run.failures
    assert f"inputs['X']: expected an array of numbers, {found}" in failure


def test_a_function_that_does_not_fit_is_said_once() -> None:
    class Odd(ScaleOp):
        def setUp(self) -> None:
            super().setUp()
            self.attrs["nobody"] = 1

        def test_check_output(self) -> None:
            self.check_output()

    (failure,) = run_class(Odd).failures
    assert "nothing takes nobody" in failure


def test_a_class_without_a_name_is_called_by_its_own() -> None:
    class Bare(ScaleOp):
        def setUp(self) -> None:
            pass

        def test_check_output(self) -> None:
            self.check_output()

    assert "Bare: expected self.python_api" in run_class(Bare).failures[0]


@pytest.mark.parametrize(
    "function", [lambda x, y, *, factor=1.0: scale(x, y, factor), lambda x, y, **more: scale(x, y, more["factor"])]
)
def test_attributes_reach_parameters_that_have_to_be_named(function: Any) -> None:
    class Keyed(ScaleOp):
        def setUp(self) -> None:
            super().setUp()
            self.python_api = function

        def test_check_output(self) -> None:
            self.check_output()

    run = run_class(Keyed)
    assert run.result.wasSuccessful(), run.failures


# -- outputs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (lambda x, y, factor: np.rint(factor * x * y).astype(int), "found integers (int64)"),
        (lambda x, y, factor: factor * x * y > 0, "found booleans (bool)"),
        (lambda x, y, factor: factor * x * y + 0j, "found complex numbers (complex128)"),
    ],
)
def test_outputs_of_another_sort_are_not_as_expected(made: Any, found: str) -> None:
    class Whole(ScaleOp):
        def setUp(self) -> None:
            super().setUp()
            self.python_api = made
            self.outputs = {"Out": np.asarray(made(*self.inputs.values(), 3.0).real, float)}

        def test_check_output(self) -> None:
            self.check_output()

    (failure,) = run_class(Whole).failures
    assert f"expected floating-point numbers (float64), {found}" in failure


@pytest.mark.parametrize("atol", [1e-5, 1.0])
def test_whole_numbers_are_off_by_what_the_author_says_or_not_at_all(atol: float) -> None:
    """A relative tolerance would let an index of a million be off by ten; no float tells 2⁵³ from 2⁵³ + 1."""

    class Index(ScaleOp):
        def setUp(self) -> None:
            super().setUp()
            self.inputs = {"X": np.zeros(1, np.float16)}
            self.attrs, self.python_api = {}, lambda x: np.array([2**53]) + 0 * x.astype(int)
            self.outputs = {"Out": np.array([2**53 + 1])}

        def test_check_output(self) -> None:
            self.check_output(atol=atol)

    assert run_class(Index).result.wasSuccessful() is (atol == 1.0)


@pytest.mark.slow
def test_nan_on_both_sides_says_how_to_have_it() -> None:
    class Hollow(ScaleOp):
        equal = False

        def setUp(self) -> None:
            super().setUp()
            self.inputs["X"][0, 0] = self.outputs["Out"][0, 0] = np.nan

        def test_check_output(self) -> None:
            self.check_output(equal_nan=self.equal)

    class Equal(Hollow):
        equal = True

    (failure,) = run_class(Hollow).failures
    assert "worst at (0, 0): expected nan, found nan" in failure
    assert "if NaN is right there, say equal_nan=True" in failure
    assert run_class(Equal).result.wasSuccessful()


# -- ways to write classes -------------------------------------------------------------------------------


class Mixin:
    def test_check_grad(self) -> None:
        self.check_grad(["X", "Y"], "Out")  # type: ignore[attr-defined]


class Mixed(Mixin, ScaleOp):
    __test__ = False

    @classmethod
    def setUpClass(cls) -> None:
        """No super(): it must not be needed."""

    @classmethod
    def tearDownClass(cls) -> None:
        """Nor here."""


@pytest.mark.slow
def test_mixins_and_class_fixtures_are_as_good_as_any() -> None:
    run = run_class(Mixed)
    assert run.result.wasSuccessful()
    assert run.evidence == DOUBLE


def test_subtests_stand_for_themselves() -> None:
    class Looped(ScaleOp):
        def test_check_grad(self) -> None:
            for name in ("X", "Z", "Y"):
                with self.subTest(name=name):
                    self.check_grad([name], "Out")

    run = run_class(Looped)
    (failure,) = run.failures
    assert "found 'Z'" in failure
    assert run.evidence == DOUBLE


# -- a precision that has a forward and no backward --------------------------------------------------------


def test_a_precision_without_a_backward_is_skipped_and_double_checked() -> None:
    torch = framework("torch")

    class Cube(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            (x,) = ctx.saved_tensors
            if x.dtype is torch.float16:
                raise NotImplementedError("cube_backward is not implemented for 'Half'")
            return 3 * x * x * cotangent

    class Half(ScaleOp):
        framework = "torch"
        dtype = "float16"

        def setUp(self) -> None:
            super().setUp()
            self.op_type, self.python_api, self.attrs = "cube", Cube.apply, {}
            self.inputs = {"X": self.inputs["X"]}
            self.outputs = {"Out": self.inputs["X"] ** 3}

        backward = None  # type: ignore[assignment]

        def test_check_output(self) -> None:
            self.check_output()

        def test_check_grad(self) -> None:
            self.check_grad(["X"], "Out")

    run = run_class(Half)
    assert run.failures == []
    (why,) = run.skips
    assert "torch computes no float16 of it on cpu: cube_backward is not implemented" in why
    assert run.evidence == {("X", "float64")}
    assert [type(one) for one in run.heard if isinstance(one, Checked)] == [Checked]
