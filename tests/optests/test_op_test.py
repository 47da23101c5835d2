"""OpTest over numpy ops: what it compares, what it tells, and what it does not take for evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from factories.op_test_runs import Right, ScaleOp, run_class
from karat import OpTest, gradcheck, skip_check_grad_ci

DOUBLE = {("X", "float64"), ("Y", "float64")}


def test_a_right_op_passes_and_leaves_evidence() -> None:
    run = run_class(Right)
    assert run.result.wasSuccessful()
    assert run.evidence >= DOUBLE
    assert run.no_grads == []


def test_a_class_is_declared_once_with_its_inputs() -> None:
    (declared,) = run_class(Right).declared
    assert declared.op == "scale"
    assert declared.test.endswith("op_test_runs.py::Right")
    assert declared.file.endswith("op_test_runs.py")
    assert declared.line > 0
    assert declared.inputs == {"X": "float64", "Y": "float64"}
    assert declared.skip_reason is None


def test_lower_precision_has_evidence_in_double_too() -> None:
    class Single(Right):
        dtype = "float32"

    run = run_class(Single)
    assert run.result.wasSuccessful(), run.failures
    assert run.evidence >= {*DOUBLE, ("X", "float32"), ("Y", "float32")}


@pytest.mark.parametrize("factor", [0.0, 1.01, -1.0, 2.0])
def test_a_wrong_backward_fails(factor: float) -> None:
    class Wrong(Right):
        def backward(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
            x, y = super().backward(inputs, outputs, cotangents)
            return x, factor * y

    run = run_class(Wrong)
    (failure,) = run.failures
    assert "FAIL  scale" in failure
    assert ("X", "float64") in run.evidence
    assert ("Y", "float64") not in run.evidence


def test_a_wrong_output_fails_and_says_where() -> None:
    class Wrong(Right):
        def setUp(self) -> None:
            super().setUp()
            self.outputs["Out"][2, 1] += 1e-3

    (failure,) = run_class(Wrong).failures
    assert "output 'Out' on cpu is not as expected in 1 of 20 elements; worst at (2, 1)" in failure


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_output_that_is_not_finite_is_not_as_expected(value: float) -> None:
    class Wrong(Right):
        def setUp(self) -> None:
            super().setUp()
            self.outputs["Out"][0, 0] = value

    assert len(run_class(Wrong).failures) == 1


def test_an_output_of_another_shape_fails() -> None:
    class Wrong(Right):
        def setUp(self) -> None:
            super().setUp()
            self.outputs["Out"] = self.outputs["Out"].T

    (failure,) = run_class(Wrong).failures
    assert "expected the shape (4, 5), found (5, 4)" in failure


@pytest.mark.slow
def test_comparing_nothing_is_a_failure() -> None:
    class Nothing(ScaleOp):
        def test_check_output(self) -> None:
            self.check_output(no_check_set=["Out"])

    assert "compared nothing" in run_class(Nothing).failures[0]


def test_an_output_that_is_not_given_fails() -> None:
    class More(Right):
        def setUp(self) -> None:
            super().setUp()
            self.outputs["Mean"] = np.zeros(3)

    assert "expected the output 'Mean', found Out" in run_class(More).failures[0]


# -- nothing is inherited, nothing is set by hand ------------------------------------------------------


def test_a_child_with_an_empty_test_has_no_evidence() -> None:
    class Empty(Right):
        def test_check_grad(self) -> None:
            pass

    run_class(Right)
    run = run_class(Empty)
    assert run.result.wasSuccessful()
    assert run.evidence == set()
    assert [one.test.rpartition("::")[2] for one in run.declared] == ["Empty"]


def test_flags_set_by_hand_mean_nothing() -> None:
    class Flagged(ScaleOp):
        exist_check_grad = True
        exist_fp64_check_grad = True
        no_need_check_grad = False

        def test_check_output(self) -> None:
            self.check_output()

    run = run_class(Flagged)
    assert run.evidence == set()
    assert run.declared[0].skip_reason is None


def test_a_check_that_raised_before_comparing_leaves_no_evidence() -> None:
    class Raises(Right):
        def setUp(self) -> None:
            super().setUp()
            self.python_api = lambda x, y, factor: x @ y * factor

    run = run_class(Raises)
    assert run.failures
    assert run.checked == []


def test_a_skip_is_declared_for_that_class_alone() -> None:
    @skip_check_grad_ci(reason="shown elsewhere")
    class Parent(ScaleOp):
        def test_check_output(self) -> None:
            self.check_output()

    class Child(Parent):
        pass

    assert run_class(Parent).declared[0].skip_reason == "shown elsewhere"
    assert run_class(Child).declared[0].skip_reason is None


@pytest.mark.slow
def test_a_class_without_a_check_is_asked_for_its_gradient() -> None:
    class Silent(ScaleOp):
        def test_check_output(self) -> None:
            self.check_output()

    asked = run_class(Silent).no_grads
    assert [(one.op, one.input, one.outcome) for one in asked] == [
        ("scale", "X", "gradient"),
        ("scale", "Y", "gradient"),
    ]


def test_inputs_are_those_that_the_op_was_given() -> None:
    class Hides(ScaleOp):
        def setUp(self) -> None:
            super().setUp()
            self.kept, self.inputs = self.inputs, {}

        def test_check_output(self) -> None:
            self.inputs = self.kept
            self.check_output()

    run = run_class(Hides)
    assert [one.inputs for one in run.declared] == [{}, {"X": "float64", "Y": "float64"}]
    assert [one.input for one in run.no_grads] == ["X", "Y"]


def test_only_what_has_no_evidence_is_asked_for() -> None:
    class Half(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(["X"], "Out")

    assert [one.input for one in run_class(Half).no_grads] == ["Y"]


def test_checks_of_something_else_do_not_stand_for_the_op() -> None:
    class Diverts(ScaleOp):
        def backward(self, _inputs: Any, _outputs: Any, cotangents: Any) -> Any:
            return (-cotangents[0], *[0 * one for one in _inputs[1:]])

        def test_other(self) -> None:
            gradcheck(np.negative, (np.ones(2),), names=("X",), op="other", backward=self.backward)

    assert [one.input for one in run_class(Diverts).no_grads] == ["X", "Y"]


def test_an_op_that_does_not_run_is_not_without_a_gradient() -> None:
    class Broken(ScaleOp):
        def test_breaks(self) -> None:
            self.python_api = lambda *_: 1 / 0

    assert run_class(Broken).no_grads == []


def test_an_op_whose_gradient_nobody_wrote_was_not_asked() -> None:
    class Unwritten(ScaleOp):
        backward = None  # type: ignore[assignment]

        def test_check_output(self) -> None:
            self.check_output()

    run = run_class(Unwritten)
    assert run.declared
    assert run.no_grads == []  # what the gate calls exemption-unverified


def test_an_op_without_a_gradient_says_so() -> None:
    class Signs(ScaleOp):
        def setUp(self) -> None:
            super().setUp()
            self.op_type, self.python_api = "sign", lambda x, y: np.sign(x) + 0 * y
            self.attrs = {}

        def backward(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:  # noqa: ARG002
            return np.zeros_like(inputs[0]), np.zeros_like(inputs[1])

        def test_nothing(self) -> None:
            self.calc_output()

    class Raises(Signs):
        def backward(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
            raise NotImplementedError("no gradient")

    assert run_class(Signs).no_grads[0].outcome == "zero"
    assert run_class(Raises).no_grads[0].outcome == "raises"


class Authored(ScaleOp):
    off = 0.0

    def grads(self) -> list[Any]:
        count = self.outputs["Out"].size
        return [3 * self.inputs["Y"] / count + self.off, 3 * self.inputs["X"] / count]

    def test_check_grad(self) -> None:
        self.check_grad(["X", "Y"], "Out", user_defined_grads=self.grads())


def test_gradients_of_the_author_are_weak_and_the_numeric_side_is_run_too() -> None:
    run = run_class(Authored)
    assert run.result.wasSuccessful(), run.failures
    assert run.evidence == DOUBLE
    weak = [one for one in run.checked[0].report.comparisons if one.strength == "weak"]
    assert {one.input for one in weak} == {"X", "Y"}


def test_wrong_gradients_of_the_author_fail() -> None:
    class Wrong(Authored):
        off = 0.01

    assert run_class(Wrong).failures


def test_the_authors_gradients_do_not_excuse_a_wrong_backward() -> None:
    class Wrong(Authored):
        def backward(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
            # Right for a constant cotangent, which is all that a mean loss asks.
            x, y = super().backward(inputs, outputs, cotangents)
            return (x / cotangents[0]) * cotangents[0].mean(), y

    run = run_class(Wrong)
    assert run.failures
    assert ("X", "float64") not in run.evidence


@pytest.mark.parametrize("right", [True, False])
def test_gradients_of_the_author_at_the_authors_cotangents(*, right: bool) -> None:
    class Given(ScaleOp):
        def test_check_grad(self) -> None:
            v = np.arange(20.0).reshape(5, 4)
            grad = 3 * self.inputs["Y"] * v * (1 if right else 1.001)
            self.check_grad(["X"], "Out", user_defined_grads=[grad], user_defined_grad_outputs=[v])

    run = run_class(Given)
    assert run.result.wasSuccessful() is right, run.failures
    weak = [one for one in run.checked[0].report.comparisons if one.strength == "weak"]
    assert all(bool(one.verdict.holds) is right for one in weak)
    assert weak


def test_second_order_is_asked_of_gradcheck() -> None:
    class Twice(ScaleOp):
        def test_check_grad(self) -> None:
            self.check_grad(["X"], "Out", order=1, seed=7)

    assert run_class(Twice).checked[0].report.seed == 7


def test_one_test_alone_sees_the_same_inputs_as_all_of_them() -> None:
    seen: list[Any] = []

    class Seen(ScaleOp):
        def test_a(self) -> None:
            seen.append(self.inputs["X"])

        def test_b(self) -> None:
            seen.append(self.inputs["X"])

    before = str(np.random.get_state())  # noqa: NPY002
    run_class(Seen)
    assert np.array_equal(*seen)
    assert str(np.random.get_state()) == before  # noqa: NPY002


def test_lists_of_inputs_are_checked_by_the_names_inside() -> None:
    class Joined(OpTest):
        framework = "numpy"

        def setUp(self) -> None:
            a, b = np.random.random((2, 3)), np.random.random((4, 3))  # noqa: NPY002
            self.op_type, self.python_api = "concat", np.concatenate
            self.inputs = {"Arrays": [("a", a), ("b", b)]}
            self.outputs = {"Out": np.concatenate([a, b])}

        def backward(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:  # noqa: ARG002
            return cotangents[0][:2], cotangents[0][2:]

        def test_check_output(self) -> None:
            self.check_output()

        def test_check_grad(self) -> None:
            self.check_grad(["Arrays"], "Out")

    run = run_class(Joined)
    assert run.result.wasSuccessful(), run.failures
    assert run.evidence == {("a", "float64"), ("b", "float64")}


def test_outputs_go_to_a_judge_of_the_authors_own() -> None:
    seen: list[Any] = []

    class Judged(ScaleOp):
        def test_it(self) -> None:
            self.check_output_customized(seen.extend)
            self.check_output_with_place_customized(seen.extend, None)

    run_class(Judged)
    assert [one.shape for one in seen] == [(5, 4), (5, 4)]


def test_what_a_test_may_ask_of_itself() -> None:
    test = Right("test_check_grad")
    test.inputs = {"X": np.zeros(3, np.uint16)}
    assert (test.is_bfloat16_op(), test.is_float16_op(), test.is_mkldnn_op()) == (True, False, False)
    assert test.np_dtype_to_base_dtype(3) == 3
